"""A scoring job from its configuration: solutions in, step scores out.

It is a job of the judge `scorer`, whose opinions carry the scores.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mclabel.core.errors import ConfigError, MclabelError
from mclabel.judge.config import JudgeConfig, ScoreConfig
from mclabel.judge.job import judge
from mclabel.judge.scorer import ScorerJudge
from mclabel.prm.scoring.aggregate import AGGREGATIONS
from mclabel.prm.scoring.manifest import server_address, weights_of, write_provenance
from mclabel.prm.scoring.scorer import ScorerSettings
from mclabel.run.outputs import RUN, check_places, check_writable, output_file
from mclabel.run.shards.opinions import FOLDER, opinion_rows
from mclabel.run.shards.rejects import Reject, read_rejects, write_lines
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState

FILE_SUFFIX = ".jsonl"
THRESHOLD = 0.5
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
        config: of the job.
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
        sure = {"concentration": row["concentrations"] or None}
        content = {**json.loads(row["input"]), "scores": scores, **sure, **figures}
        yield json.dumps(content, ensure_ascii=False)


def _counted(store: Store) -> dict[str, int]:
    """Solutions of a run with scores, and without."""
    known = [bool(row["is_known"]) for row in opinion_rows(store)]
    return {"num_scored": sum(known), "num_unknown": len(known) - sum(known)}


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
