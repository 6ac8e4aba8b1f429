"""A scoring job from its configuration: solutions in, step scores out.

It is a job of the judge `scorer`, a trained PRM, whose opinions carry the scores: a number for each
step, and the first step under a threshold.
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
    BadAnswer,
    ConfigError,
    DataError,
    EngineError,
    MclabelError,
    RejectReason,
)
from mclabel.core.records import Claim
from mclabel.core.settings import OPERATIONAL, rule
from mclabel.data.leaks import leak_key, leak_keys
from mclabel.data.readers.judged import JudgedSolution, as_judged
from mclabel.engines.devices import EngineResources
from mclabel.engines.pretrained import code_allowed_by
from mclabel.judge.base import Asks, Judge, JudgedItem, JudgeSettings, Opinion
from mclabel.judge.generative import known_prm
from mclabel.judge.job import JudgeConfig, ScoreConfig, judge
from mclabel.prm.scoring import GENERATIVE
from mclabel.prm.scoring.aggregate import AGGREGATIONS, UnscoredError, check_scores
from mclabel.prm.scoring.batched import BatchedScorer, batch_tokens
from mclabel.prm.scoring.manifest import (
    best_threshold,
    first_below,
    server_address,
    trained_blocks,
    weights_of,
    write_provenance,
)
from mclabel.prm.scoring.scorer import Scorer, ScorerSettings, close_scorer, load_scorer
from mclabel.run.outputs import RUN, check_places, check_writable, output_file
from mclabel.run.shards.labels import committed_blocks, read_labels
from mclabel.run.shards.opinions import FOLDER, opinion_rows
from mclabel.run.shards.rejects import Reject, read_rejects, write_lines
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState
from mclabel.run.task import RunnerState

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution


FILE_SUFFIX = ".jsonl"
THRESHOLD = 0.5
_ALLOWS_CODE = "judge.trust_remote_code=true"
"""The opinions name the first step with a score below it."""


@dataclass(frozen=True, kw_only=True)
class ScoreReport:
    """Result of a scoring job."""

    job: JobReport
    num_scored: int
    """Number of solutions in the whole job that have scores."""
    num_unknown: int
    """Number of solutions that were read but have none, as a generative PRM gives no verdict."""
    rejects: tuple[Reject, ...]
    """Rows without scores, in order, unless the output is a folder, where a file has them."""


def score(
    config: ScoreConfig,
    on_state: Callable[[JobState], None] = lambda state: None,
    *,
    on_line: Callable[[str], None] = lambda line: None,
    accept_changes: bool = False,
) -> ScoreReport:
    """Score the solutions of a file or a run, every one once, and resume what was stopped.

    With a folder or URL as `out`, the run of opinions there is the result. A file is written whole
    at the end; until then the shards lie in `OUT.partial/`, from which the same command resumes.
    Without `out` the lines of the file are given to `on_line`.

    Args:
        config: configuration of the job.
        on_state: called often with its state.
        on_line: called with each line of JSON, in the order of the input, if there is no `out`.
        accept_changes: score solutions anew that have changed since the run was begun, and leave
            out what is gone; else either is refused.

    Raises:
        DataError: the input cannot be read, or nothing of it can be scored; if strict, one row
            cannot.
        ConfigError: `out` is the file that is read, or cannot be written.
        ShardError: `out` holds another run, or the store fails.
    """
    _check_out(config)
    if config.out is None:
        with tempfile.TemporaryDirectory(prefix="mclabel-scores-") as folder:
            report = _run(config, folder, on_state, accept_changes=True)
            lines, rejects = list(score_lines(Store(folder))), _rejects(Store(folder))
            counts = _counted(Store(folder))
        for line in lines:
            on_line(line)
        return ScoreReport(job=report, **counts, rejects=rejects)
    if not config.out.endswith(FILE_SUFFIX):
        report = _run(config, config.out, on_state, accept_changes=accept_changes)
        return ScoreReport(job=report, **_counted(Store(config.out)), rejects=())
    folder = f"{config.out}.partial"
    try:
        report = _run(config, folder, on_state, accept_changes=True)
    except MclabelError:
        if Path(folder).is_dir() and not _holds_scores(Store(folder)):
            shutil.rmtree(folder)  # nothing in it is worth to resume
        raise
    counts, rejects = {"num_scored": 0, "num_unknown": 0}, _rejects(Store(folder))
    if not report.num_blocks_left:
        counts = _counted(Store(folder))
        _deliver(Store(folder), config, rejects)
        shutil.rmtree(folder)
    return ScoreReport(job=report, **counts, rejects=rejects)


def score_lines(store: Store) -> Iterator[str]:
    """The rows of a scored input as JSON lines, with their scores, in the order of the input."""
    for row in sorted(opinion_rows(store), key=lambda row: int(row["row"])):
        scores = row["scores"] if row["is_known"] else None
        figures = {name: scores and how(scores) for name, how in AGGREGATIONS.items()}
        if scores is None:
            figures["unknown"] = row["reason"]
        content = {**json.loads(row["input"]), "scores": scores, **figures}
        yield json.dumps(content, ensure_ascii=False)


def _counted(store: Store) -> dict[str, int]:
    """Solutions of a run with scores, and without."""
    are_known = [bool(row["is_known"]) for row in opinion_rows(store)]
    return {"num_scored": sum(are_known), "num_unknown": len(are_known) - sum(are_known)}


def _holds_scores(store: Store) -> bool:
    return bool(store.names(FOLDER)) and next(opinion_rows(store), None) is not None


def _run(
    config: ScoreConfig,
    out: str,
    on_state: Callable[[JobState], None],
    *,
    accept_changes: bool,
) -> JobReport:
    """Run the judge's job into a folder or URL."""
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
    with code_allowed_by("--trust-remote-code"):
        return judge(judging, on_state, accept_changes=accept_changes)


def _rejects(store: Store) -> tuple[Reject, ...]:
    """The rows that have no scores, in order."""
    return tuple(sorted(read_rejects(store), key=lambda reject: reject.row or 0))


def _deliver(store: Store, config: ScoreConfig, rejects: tuple[Reject, ...]) -> None:
    """Write the file, and beside it the rows left out and what scored."""
    out = Path(str(config.out))
    write_lines(Path(f"{out}.rejects.jsonl"), rejects)
    written = Path(f"{store.location}/scored.jsonl")
    with written.open("w", encoding="utf-8") as file:
        for line in score_lines(store):
            file.write(line + "\n")
    written.rename(out)
    write_provenance(
        Path(f"{out}.provenance.json"),
        prm=config.prm,
        weights=weights_of(config.prm),
        format=config.format,
        url=None if config.url is None else server_address(config.url),
        trust_remote_code=config.trust_remote_code,
    )


def _check_out(config: ScoreConfig) -> None:
    """Refuse an output that cannot be written, before a model is loaded."""
    out = config.out
    if out is None:
        return
    if not out.endswith(FILE_SUFFIX):
        check_places(out, RUN)
        return
    path = Path(out)
    if path.exists() and Path(config.solutions).exists() and path.samefile(config.solutions):
        raise ConfigError(f"-o {out}: must not be the file of solutions itself. Give another file")
    names = [f"{path.name}{suffix}" for suffix in ("", ".rejects.jsonl", ".provenance.json")]
    check_writable(str(path.parent), folders=[f"{path.name}.partial"], files=names)
    output_file(out, "-o ")


class ScorerJudge(Judge):
    """Scores every step; what it names is the first step under the threshold."""

    class Settings(JudgeSettings, ScorerSettings):
        """A trained PRM's opinion on every step."""

        threshold: float | None = Field(None, ge=0, le=1)
        """A step with a lower score is wrong. null chooses the threshold on `held_out`."""
        held_out: Annotated[str | None, OPERATIONAL] = None
        """Run of `mclabel label` on other problems, on whose labels the threshold is chosen."""

        @rule
        def _the_threshold_comes_from_somewhere(self) -> str | None:
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
        """Prepare to judge; see `Judge`."""
        super().__init__(settings, seed=seed)
        self._scorer: BatchedScorer | None = None

    @classmethod
    def settled(cls, settings: Any, recorded: Mapping[str, Any]) -> Any:
        """The settings with the threshold that was chosen on the held-out labels; see `Judge`."""
        path = settings.prm
        update = {"prm": str(Path(path).absolute())} if Path(path).is_dir() else {}
        if settings.held_out is None:
            return settings.model_copy(update=update)
        threshold = recorded.get("threshold")
        if threshold is None:
            threshold = chosen_threshold(settings)
        return settings.model_copy(update={**update, "threshold": threshold})

    @classmethod
    def check_input(cls, settings: Any, problems: Callable[[], Iterable[str]]) -> None:
        """See that the held-out labels are of other problems; see `Judge`."""
        if settings.held_out is None:
            return
        held_out = leak_keys([settings.held_out])
        key = f"judge.held_out={settings.held_out!r}"
        shared = sum(
            1 for problem_key in {leak_key(text) for text in problems()} if problem_key in held_out
        )
        if shared:
            raise DataError(
                f"{key}: {shared:,} of its {len(held_out):,} problems are also judged, so the "
                "threshold would be chosen on what it is used for. Give labels of other problems"
            )
        if (blocks := trained_blocks(settings.prm)) & committed_blocks(Store(settings.held_out)):
            raise DataError(
                f"{key}: the PRM was trained on its labels ({len(blocks):,} blocks), on which its "
                "scores are better than elsewhere. Give labels that it was not trained on"
            )

    @classmethod
    def split(cls, settings: Any) -> str:
        """Return how the PRM's format splits steps; see `Judge`."""
        split: str = settings.text_split
        return split

    def known(self) -> dict[str, Any]:
        """The PRM by its weights, and its threshold; see `Judge`."""
        return {"threshold": self.settings.threshold, **known_prm(self.settings)}

    def check(self) -> None:
        """See that there is a PRM."""
        with code_allowed_by(_ALLOWS_CODE):
            self.settings.check_prm()

    def resources(self) -> EngineResources:
        """A GPU, or a core."""
        if self.settings.format == GENERATIVE:
            return self.settings.resources()
        return EngineResources(num_cpus=1.0, num_gpus=float(self.settings.on_gpu))

    async def start(self) -> None:
        """Load the PRM."""
        threads = max(1, int(os.cpu_count() or 1 if self.num_cpus is None else self.num_cpus))
        self._scorer = BatchedScorer(
            partial(self.load, threads),
            max_tokens=batch_tokens(
                threads, on_gpu=self.settings.on_gpu or self.settings.format == GENERATIVE
            ),
        )
        await self._scorer.start()

    def load(self, threads: int) -> Scorer:
        """The PRM, on so many cores if it is on a CPU."""
        with code_allowed_by(_ALLOWS_CODE):
            return load_scorer(self.settings, threads=threads)

    async def judge(self, item: JudgedItem, ask: Asks) -> Opinion | RejectReason:
        """Score the steps."""
        from mclabel.prm.examples.encode import TooLongError

        assert self._scorer is not None, "start() first"
        try:
            (scores, _), num_tokens = await self._scorer.score(item)
        except UnscoredError as error:
            return Opinion(is_known=False, reason=str(error), num_tokens=error.num_tokens)
        except (DataError, BadAnswer) as error:
            reason = "too_long" if isinstance(error, TooLongError) else "unreadable"
            reason = "bad_answer" if isinstance(error, BadAnswer) else reason
            return RejectReason(reason, str(error).removeprefix(f"{item.place}: "))
        try:
            check_scores("the scorer", [scores], [item.place])
        except DataError as error:  # a fault of the PRM, not of the solution
            raise EngineError(str(error)) from error
        threshold = self.settings.threshold
        assert threshold is not None, "settled() first"
        first_error = first_below(scores, threshold)
        nearest = min(scores) if first_error is None else scores[first_error]
        return Opinion(
            is_known=True,
            first_error=first_error,
            sureness=min(1.0, abs(nearest - threshold)),
            scores=tuple(scores),
            num_tokens=num_tokens,
        )

    def state(self) -> RunnerState:
        """Return what is scored now."""
        return RunnerState() if self._scorer is None else self._scorer.state()

    async def close(self) -> None:
        """Free the PRM."""
        if self._scorer is not None:
            await self._scorer.close()


def chosen_threshold(settings: ScorerJudge.Settings) -> float:
    """The threshold that is best on the held-out labels.

    Raises:
        DataError: they hold only solutions with an error, or only such without.
    """
    assert settings.held_out is not None
    rows = as_judged(list(read_labels(Store(settings.held_out))))
    with code_allowed_by(_ALLOWS_CODE):
        scorer = load_scorer(settings, threads=os.cpu_count())
    encoded = {row.id: _encoded(scorer, row) for row in rows}
    there = {name: item for name, item in encoded.items() if item is not None}
    by_name = dict(zip(there, scorer.score_encoded(list(there.values())), strict=True))
    close_scorer(scorer)
    scores = {name: item for name, item in by_name.items() if not isinstance(item, UnscoredError)}
    try:
        return best_threshold(rows, scores)
    except DataError as error:
        raise DataError(f"judge.held_out={settings.held_out!r}: {error}") from error


def _encoded(scorer: Scorer, row: JudgedSolution) -> EncodedSolution | None:
    from mclabel.prm.examples.encode import TooLongError

    try:
        return scorer.encode(row.problem, row.steps, f"solution {row.id}")
    except TooLongError:
        return None
