"""A scoring job from its configuration: solutions in, step scores out."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mclabel.config import ScoreConfig
from mclabel.data.outputs import check_places, check_writable, output_file
from mclabel.data.places import RUN
from mclabel.data.shards.manifest import Semantic
from mclabel.data.shards.rejects import Reject, write_lines
from mclabel.data.shards.solution_rows import SCORES
from mclabel.data.shards.store import Store
from mclabel.engines.resources import EngineResources
from mclabel.errors import ConfigError, DataError, MclabelError
from mclabel.pipelines.identity import versions
from mclabel.pipelines.provenance import server_address, weights_of, write_provenance
from mclabel.pipelines.run import Run, run_task
from mclabel.prm.scoring.batched import batch_tokens
from mclabel.prm.scoring.formats import OWN_FORMAT
from mclabel.prm.scoring.items import Solutions, none_left, read_scored_input
from mclabel.prm.scoring.manifest import PrmManifest, model_folder
from mclabel.prm.scoring.scorer import Scorer, load_scorer
from mclabel.prm.scoring.task import ScoreTask
from mclabel.work.tally import JobReport, JobState

FILE_SUFFIX = ".jsonl"


@dataclass(frozen=True, kw_only=True)
class ScoreReport:
    """Result of a scoring job."""

    job: JobReport
    num_scored: int
    """Number of solutions in the whole job that have scores."""
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

    With a folder or URL as `out`, its shards are the result
    (`mclabel.data.shards.solution_rows`). A file is written whole at the end; until then the shards
    lie in `OUT.partial/`, from which the same command resumes. Without `out` the lines of the file
    are given to `on_line`.

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
            report, rejects = _run(config, folder, on_state, accept_changes=True)
            lines = list(score_lines(Store(folder)))
        for line in lines:
            on_line(line)
        return ScoreReport(job=report, num_scored=len(lines), rejects=rejects)
    if not config.out.endswith(FILE_SUFFIX):
        report, _ = _run(config, config.out, on_state, accept_changes=accept_changes)
        num_scored = sum(1 for _ in SCORES.rows(Store(config.out)))
        return ScoreReport(job=report, num_scored=num_scored, rejects=())
    folder = f"{config.out}.partial"
    try:
        report, rejects = _run(config, folder, on_state, accept_changes=True)
    except MclabelError:
        if Path(folder).is_dir() and not Store(folder).names("scores"):
            shutil.rmtree(folder)  # nothing in it is worth to resume
        raise
    num_scored = 0
    if not report.num_blocks_left:
        num_scored = _deliver(Store(folder), config, rejects)
        shutil.rmtree(folder)
    return ScoreReport(job=report, num_scored=num_scored, rejects=rejects)


def score_lines(store: Store) -> Iterator[str]:
    """The rows of a scored input as JSON lines, with their scores, in the order of the input."""
    rows = sorted(SCORES.rows(store), key=lambda row: int(row["row"]))
    for row in rows:
        figures = {name: row[name] for name in row if name not in ("id", "row", "input")}
        yield json.dumps({**json.loads(row["input"]), **figures}, ensure_ascii=False)


def _run(
    config: ScoreConfig,
    out: str,
    on_state: Callable[[JobState], None],
    *,
    accept_changes: bool,
) -> tuple[JobReport, tuple[Reject, ...]]:
    """Run the job into a folder or URL; what it did, and the rows that have no scores."""
    if config.format == OWN_FORMAT:
        PrmManifest.read(model_folder(config.prm))
    solutions = read_scored_input(config.solutions, strict=config.strict)
    run = Run.look(out)
    run.check(semantic_config(config))
    needed = resources(config)
    num_cores = max(1, int(needed.num_cpus))
    task = ScoreTask(
        load=partial(
            _load, config.model_copy(update={"prm": _found(config.prm)}), threads=num_cores
        ),
        source=config.solutions,
        provenance=run.stamp(versions=versions(), input={"solutions": config.solutions}),
        max_tokens=batch_tokens(config.device, num_cores),
        strict=config.strict,
    )
    report = run_task(
        task,
        run,
        solutions,
        config,
        resources=needed,
        block_items=config.block_solutions,
        on_state=on_state,
        accept_changes=accept_changes,
    )
    store = Store(out)
    rejects = tuple(_rejects(solutions, task, store))
    if not report.num_blocks_left and next(SCORES.rows(store), None) is None:
        raise DataError(none_left(config.solutions, rejects))
    return report, rejects


def semantic_config(config: ScoreConfig) -> Semantic:
    """What scores depend on: the PRM, by its weights where it is a folder, and its format."""
    identity, whole = config.identity(), config.semantic()
    if (weights := weights_of(config.prm)) is not None:
        identity["prm"] = whole["prm"] = f"weights:{weights}"
    return Semantic(identity={"task": "score", **identity}, config={"task": "score", **whole})


def resources(config: ScoreConfig) -> EngineResources:
    """What one model takes: of a cluster, or of this machine without one."""
    ray = config.ray
    on_gpu = config.device != "cpu" and config.url is None
    cores = float(os.cpu_count() or 1) if ray.address == "none" and not on_gpu else 1.0
    return EngineResources(
        num_cpus=cores if ray.num_cpus is None else ray.num_cpus,
        num_gpus=float(on_gpu) if ray.num_gpus is None else ray.num_gpus,
    )


def _load(config: ScoreConfig, threads: int) -> Scorer:
    """Load the scorer, where it is to live."""
    return load_scorer(config, threads=threads)


def _found(prm: str) -> str:
    """A folder named from the root; the name of a model as it is."""
    return str(Path(prm).absolute()) if Path(prm).is_dir() else prm


def _rejects(solutions: Solutions, task: ScoreTask, store: Store) -> list[Reject]:
    """The rows that have no scores, in order."""
    found = [*solutions.rejects(), *task.outputs.set_aside(store)]
    return sorted(found, key=lambda reject: reject.row or 0)


def _deliver(store: Store, config: ScoreConfig, rejects: tuple[Reject, ...]) -> int:
    """Write the file, and beside it the rows left out and what scored; the number of lines."""
    out = Path(str(config.out))
    write_lines(Path(f"{out}.rejects.jsonl"), rejects)
    num_lines, written = 0, Path(f"{store.location}/scored.jsonl")
    with written.open("w", encoding="utf-8") as file:
        for line in score_lines(store):
            file.write(line + "\n")
            num_lines += 1
    written.rename(out)
    write_provenance(
        Path(f"{out}.provenance.json"),
        prm=config.prm,
        weights=weights_of(config.prm),
        format=config.format,
        url=None if config.url is None else server_address(config.url),
        trust_remote_code=config.trust_remote_code,
    )
    return num_lines


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
