"""Runs a scoring job, which scores the steps of solutions with a PRM.

A scoring job is a job of the judge `scorer`, a trained PRM. The opinions of this judge hold the
scores (one number per step) and the first step whose score is below a threshold.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from mclabel.core.errors import (
    ConfigError,
    DataError,
    EngineError,
    MclabelError,
    RejectReason,
    UnusableResponse,
)
from mclabel.core.records import Claim
from mclabel.core.settings import OPERATIONAL, rule
from mclabel.data.leaks import normalize_for_leaks, read_leak_keys
from mclabel.data.readers.judged import JudgedSolution, to_judged_solutions
from mclabel.engines.devices import EngineResources
from mclabel.engines.pretrained import name_option_in_code_errors
from mclabel.judge.base import AnswerSampler, Judge, JudgedItem, JudgeSettings, Opinion
from mclabel.judge.generative import find_prm_identity
from mclabel.judge.job import JudgeConfig, ScoreConfig, judge
from mclabel.prm.scoring import GENERATIVE
from mclabel.prm.scoring.aggregate import AGGREGATIONS, UnscoredError, check_scores
from mclabel.prm.scoring.batched import BatchedScorer, choose_batch_tokens
from mclabel.prm.scoring.manifest import (
    find_best_threshold,
    find_first_score_below,
    hash_weights,
    read_trained_blocks,
    strip_credentials,
    write_provenance,
)
from mclabel.prm.scoring.scorer import Scorer, ScorerSettings, close_scorer, load_scorer
from mclabel.run.outputs import RUN, check_output_is_usable, check_writable, prepare_output_file
from mclabel.run.shards.labels import read_committed_block_ids, read_labels
from mclabel.run.shards.opinions import FOLDER, iter_opinion_rows
from mclabel.run.shards.rejects import Reject, read_rejects, write_reject_lines
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState
from mclabel.run.task import RunnerState

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution


FILE_SUFFIX = ".jsonl"
"""Suffix of an output that is a file; any other output is a folder or URL."""
THRESHOLD = 0.5
"""Threshold of a scoring job. Its opinions call the first step with a lower score the first
error."""
_ALLOWS_CODE = "judge.trust_remote_code=true"
"""Setting that allows a model's own code to run, for error messages."""


@dataclass(frozen=True, kw_only=True)
class ScoreReport:
    """Result of a scoring job."""

    job: JobReport
    num_scored: int
    """Number of solutions with scores in the whole job."""
    num_unknown: int
    """Number of solutions without scores because a generative PRM gave no verdict on them."""
    rejects: tuple[Reject, ...]
    """Rejected rows, in input order. Empty if the output is a folder, which has a file of them."""


def score(
    config: ScoreConfig,
    on_state: Callable[[JobState], None] = lambda state: None,
    *,
    on_line: Callable[[str], None] = lambda line: None,
    accept_changes: bool = False,
) -> ScoreReport:
    """Score every solution of a file or a run once, or resume an interrupted job.

    If `out` is a folder or URL, the result is a run of opinions there. If `out` is a file, it
    appears only when all solutions are scored. Until then the shards are in `OUT.partial/`, from
    which the same command resumes. Without `out`, `on_line` receives the JSON lines.

    Args:
        config: configuration of the job.
        on_state: function that is called often with the state of the job.
        on_line: function that is called with each JSON line, in input order, if `out` is None.
        accept_changes: True to accept input that changed since the run began: changed solutions are
            scored again, and removed solutions are left out. If False, a changed input is an error.
            It matters only if `out` is a folder or URL.

    Raises:
        DataError: the input cannot be read, or no solution can be scored. With `strict`, also if a
            single row cannot be scored.
        ConfigError: `out` is the input file, or cannot be written.
        ShardError: `out` holds another run, or the store fails.
    """
    _check_output_path(config)
    if config.out is None:
        with tempfile.TemporaryDirectory(prefix="mclabel-scores-") as folder:
            report = _run_job(config, folder, on_state, accept_changes=True)
            lines, rejects = list(read_score_lines(Store(folder))), _read_rejects(Store(folder))
            counts = _count_scored(Store(folder))
        for line in lines:
            on_line(line)
        return ScoreReport(job=report, **counts, rejects=rejects)
    if not config.out.endswith(FILE_SUFFIX):
        report = _run_job(config, config.out, on_state, accept_changes=accept_changes)
        return ScoreReport(job=report, **_count_scored(Store(config.out)), rejects=())
    folder = f"{config.out}.partial"
    try:
        report = _run_job(config, folder, on_state, accept_changes=True)
    except MclabelError:
        if Path(folder).is_dir() and not (
            Store(folder).names(FOLDER) and any(iter_opinion_rows(Store(folder)))
        ):
            shutil.rmtree(folder)  # it has no scores from which to resume
        raise
    counts, rejects = {"num_scored": 0, "num_unknown": 0}, _read_rejects(Store(folder))
    if not report.num_blocks_left:
        counts = _count_scored(Store(folder))
        _write_outputs(Store(folder), config, rejects)
        shutil.rmtree(folder)
    return ScoreReport(job=report, **counts, rejects=rejects)


def read_score_lines(store: Store) -> Iterator[str]:
    """Yield the input rows as JSON lines, with step scores and aggregate scores, in input order."""
    for row in sorted(iter_opinion_rows(store), key=lambda row: int(row["row"])):
        scores = row["scores"] if row["is_known"] else None
        figures = {name: scores and how(scores) for name, how in AGGREGATIONS.items()}
        if scores is None:
            figures["unknown"] = row["reason"]
        content = {**json.loads(row["input"]), "scores": scores, **figures}
        yield json.dumps(content, ensure_ascii=False)


def _count_scored(store: Store) -> dict[str, int]:
    """Return the numbers of solutions with scores (`num_scored`) and without (`num_unknown`)."""
    are_known = [bool(row["is_known"]) for row in iter_opinion_rows(store)]
    return {"num_scored": sum(are_known), "num_unknown": len(are_known) - sum(are_known)}


def _run_job(
    config: ScoreConfig,
    out: str,
    on_state: Callable[[JobState], None],
    *,
    accept_changes: bool,
) -> JobReport:
    """Run the judge's job with a folder or URL as its output."""
    scorer = {name: getattr(config, name) for name in ScorerSettings.model_fields}
    judging = JudgeConfig(
        solutions=config.solutions,
        out=out,
        judge=ScorerJudge.Settings(threshold=THRESHOLD, **scorer),
        block_solutions=config.block_solutions,
        strict=config.strict,
        budget=config.budget,
        ray=config.ray,
    )
    with name_option_in_code_errors("--trust-remote-code"):
        return judge(judging, on_state, accept_changes=accept_changes)


def _read_rejects(store: Store) -> tuple[Reject, ...]:
    """Return the rejected rows, in input order."""
    return tuple(sorted(read_rejects(store), key=lambda reject: reject.row or 0))


def _write_outputs(store: Store, config: ScoreConfig, rejects: tuple[Reject, ...]) -> None:
    """Write the output file, and beside it files with the rejected rows and the PRM's identity."""
    out = Path(str(config.out))
    write_reject_lines(Path(f"{out}.rejects.jsonl"), rejects)
    written = Path(f"{store.location}/scored.jsonl")
    with written.open("w", encoding="utf-8") as file:
        for line in read_score_lines(store):
            file.write(line + "\n")
    written.rename(out)
    write_provenance(
        Path(f"{out}.provenance.json"),
        prm=config.prm,
        weights=hash_weights(config.prm),
        format=config.format,
        url=None if config.url is None else strip_credentials(config.url),
        trust_remote_code=config.trust_remote_code,
    )


def _check_output_path(config: ScoreConfig) -> None:
    """Raise an error if the output cannot be written, before a model is loaded."""
    out = config.out
    if out is None:
        return
    if not out.endswith(FILE_SUFFIX):
        check_output_is_usable(out, RUN)
        return
    path = Path(out)
    if path.exists() and Path(config.solutions).exists() and path.samefile(config.solutions):
        raise ConfigError(f"-o {out}: must not be the file of solutions itself. Give another file")
    names = [f"{path.name}{suffix}" for suffix in ("", ".rejects.jsonl", ".provenance.json")]
    check_writable(str(path.parent), folders=[f"{path.name}.partial"], files=names)
    prepare_output_file(out, "-o ")


class ScorerJudge(Judge):
    """Judge that scores every step with a PRM; scores below a threshold mean wrong steps."""

    class Settings(JudgeSettings, ScorerSettings):
        """A trained PRM's opinion on every step."""

        threshold: float | None = Field(None, ge=0, le=1)
        """Threshold of the scores: a step with a lower score is wrong. null chooses the threshold
        on the labels of `held_out`."""
        held_out: Annotated[str | None, OPERATIONAL] = None
        """Run of `mclabel label` on other problems. Its labels are used to choose the threshold."""

        @rule
        def _check_threshold_source(self) -> str | None:
            if (self.threshold is None) == (self.held_out is None):
                given = "are both given" if self.held_out else "are both missing"
                return (
                    f"threshold and held_out {given}. Give one of the two: judge.threshold=0.5, "
                    "say, or judge.held_out=RUN, a labelled run that chooses the threshold"
                )
            return None

    claim: ClassVar[Claim] = "scores"
    settings: Settings

    def __init__(self, settings: Settings, *, seed: int = 0) -> None:
        """Store the settings without loading the PRM."""
        super().__init__(settings, seed=seed)
        self._scorer: BatchedScorer | None = None

    @classmethod
    def resolve_settings(cls, settings: Any, recorded: Mapping[str, Any]) -> Any:
        """Return the settings with an absolute path, and with a threshold chosen if it is not set.

        The threshold is chosen on the labels of `held_out`, or taken from `recorded`.
        """
        path = settings.prm
        update = {"prm": str(Path(path).absolute())} if Path(path).is_dir() else {}
        if settings.held_out is None:
            return settings.model_copy(update=update)
        threshold = recorded.get("threshold")
        if threshold is None:
            threshold = choose_threshold(settings)
        return settings.model_copy(update={**update, "threshold": threshold})

    @classmethod
    def check_input(cls, settings: Any, problems: Callable[[], Iterable[str]]) -> None:
        """Check that the held-out labels are of problems that are neither judged nor trained on."""
        if settings.held_out is None:
            return
        held_out = read_leak_keys([settings.held_out])
        key = f"judge.held_out={settings.held_out!r}"
        shared = sum(
            1
            for problem_key in {normalize_for_leaks(text) for text in problems()}
            if problem_key in held_out
        )
        if shared:
            raise DataError(
                f"{key}: {shared:,} of its {len(held_out):,} problems are also judged, so the "
                "threshold would be chosen on the judged problems. Give labels of other problems"
            )
        if (blocks := read_trained_blocks(settings.prm)) & read_committed_block_ids(
            Store(settings.held_out)
        ):
            raise DataError(
                f"{key}: the PRM was trained on labels of this run ({len(blocks):,} blocks), on "
                "which its scores are better than on new data. Give labels that the PRM was not "
                "trained on"
            )

    @classmethod
    def split_rule(cls, settings: Any) -> str:
        """Return the name of the rule by which the PRM's format splits a text into steps."""
        split: str = settings.text_split
        return split

    def identity_inputs(self) -> dict[str, Any]:
        """Return the threshold, and hashes of the PRM's weights and prompts."""
        return {"threshold": self.settings.threshold, **find_prm_identity(self.settings)}

    def check_ready(self) -> None:
        """Check that the PRM exists."""
        with name_option_in_code_errors(_ALLOWS_CODE):
            self.settings.check_prm()

    def resources(self) -> EngineResources:
        """Return one CPU core, and one GPU if the PRM runs on a GPU.

        For a generative PRM, return the resources of its engine.
        """
        if self.settings.format == GENERATIVE:
            return self.settings.resources()
        return EngineResources(num_cpus=1.0, num_gpus=float(self.settings.on_gpu))

    async def start(self) -> None:
        """Load the PRM."""
        threads = max(1, int(os.cpu_count() or 1 if self.num_cpus is None else self.num_cpus))
        self._scorer = BatchedScorer(
            partial(self.load, threads),
            max_tokens=choose_batch_tokens(
                threads, on_gpu=self.settings.on_gpu or self.settings.format == GENERATIVE
            ),
        )
        await self._scorer.start()

    def load(self, threads: int) -> Scorer:
        """Load the PRM; on a CPU it runs with this number of threads."""
        with name_option_in_code_errors(_ALLOWS_CODE):
            return load_scorer(self.settings, threads=threads)

    async def judge(self, item: JudgedItem, ask: AnswerSampler) -> Opinion | RejectReason:
        """Score the steps of a solution; the first score below the threshold is the first error."""
        from mclabel.prm.examples.encode import TooLongError

        assert self._scorer is not None, "start() first"
        try:
            (scores, _), num_tokens = await self._scorer.score(item)
        except UnscoredError as error:
            return Opinion(is_known=False, reason=str(error), num_tokens=error.num_tokens)
        except (DataError, UnusableResponse) as error:
            reason = "too_long" if isinstance(error, TooLongError) else "unreadable"
            reason = "bad_answer" if isinstance(error, UnusableResponse) else reason
            return RejectReason(reason, str(error).removeprefix(f"{item.place}: "))
        try:
            check_scores("the scorer", [scores], [item.place])
        except DataError as error:  # a fault of the PRM, not of the solution
            raise EngineError(str(error)) from error
        threshold = self.settings.threshold
        assert threshold is not None, "resolve_settings() first"
        first_error = find_first_score_below(scores, threshold)
        nearest = min(scores) if first_error is None else scores[first_error]
        return Opinion(
            is_known=True,
            first_error=first_error,
            sureness=min(1.0, abs(nearest - threshold)),
            scores=tuple(scores),
            num_tokens=num_tokens,
        )

    def state(self) -> RunnerState:
        """Return the scorer's counts of tokens and waiting solutions."""
        return RunnerState() if self._scorer is None else self._scorer.state()

    async def close(self) -> None:
        """Free the PRM."""
        if self._scorer is not None:
            await self._scorer.close()


def choose_threshold(settings: ScorerJudge.Settings) -> float:
    """Return the threshold with the best F1 on the held-out labels.

    Raises:
        DataError: the labels are only of solutions with an error, or only of solutions without one.
    """
    assert settings.held_out is not None
    rows = to_judged_solutions(list(read_labels(Store(settings.held_out))))
    with name_option_in_code_errors(_ALLOWS_CODE):
        scorer = load_scorer(settings, threads=os.cpu_count())
    encoded = {row.id: _encode_unless_too_long(scorer, row) for row in rows}
    there = {name: item for name, item in encoded.items() if item is not None}
    by_name = dict(zip(there, scorer.score_encoded(list(there.values())), strict=True))
    close_scorer(scorer)
    scores = {name: item for name, item in by_name.items() if not isinstance(item, UnscoredError)}
    try:
        return find_best_threshold(rows, scores)
    except DataError as error:
        raise DataError(f"judge.held_out={settings.held_out!r}: {error}") from error


def _encode_unless_too_long(scorer: Scorer, row: JudgedSolution) -> EncodedSolution | None:
    from mclabel.prm.examples.encode import TooLongError

    try:
        return scorer.encode(row.problem, row.steps, f"solution {row.id}")
    except TooLongError:
        return None
