"""mclabel from Python: `mc.label`, `mc.train`, `mc.score`, `mc.grade`, without a YAML file.

    import mclabel as mc

    run = mc.label([{"problem": "2 + 2 = ?", "answer": "4"}], policy="arith:policy")
    for solution in run:
        print(solution.first_error)

What they take are the keys of the jobs' configurations (`mclabel label --keys`), as arguments.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mclabel.errors import ConfigError, DataError
from mclabel.records import LabeledSolution, Problem

if TYPE_CHECKING:
    from mclabel.checkers import Checker, Grade, GradeItem
    from mclabel.estimators import Estimator
    from mclabel.pipelines.background import LabelRun
    from mclabel.pipelines.train import TrainReport
    from mclabel.prm.scoring.score import PRM
    from mclabel.settings import Settings
    from mclabel.work.tally import JobState

Place = str | PathLike[str]
"""A folder, a file, a URL, or a run of `label`."""
Rows = Iterable[Mapping[str, Any] | Problem]
"""Rows with `problem` and `answer`, a `datasets.Dataset` of such, or records."""


def label(
    problems: Place | Mapping[str, Any] | Rows,
    *,
    policy: str | Mapping[str, Any] | Settings,
    estimator: str | Mapping[str, Any] | Settings | type[Estimator] = "posterior",
    solutions: Mapping[str, Any] | Settings | Sequence[Mapping[str, Any]] | None = None,
    checker: str | Mapping[str, Any] | Settings | type[Checker] | Callable[..., Any] = "math",
    out: Place | None = None,
    accept_changes: bool = False,
    on_state: Callable[[JobState], None] | None = None,
    **keys: Any,
) -> LabelRun:
    """Begin to label; the run that is returned gives solutions as they are committed.

    The job runs in a thread of its own, and its engine in this process; `ray={"address": "local"}`
    starts engines on this machine, `"auto"` joins a cluster.

    Args:
        problems: rows, records, a data set, a file or URL, `hf:NAME`, or the keys of
            `problems` in a configuration: `{"source": "arith", "limit": 20}`.
        policy: a model's folder or name, `arith:policy`, or the keys of `policy`.
        estimator: a name, the keys of `estimator` with `kind`, settings, or an estimator's class.
        solutions: the keys of `solutions` (`{"per_problem": 8}`), or rows to be labelled, each with
            `problem_id` or `problem`, and `solution` or `steps`.
        checker: a name, the keys of `checker` with `kind`, settings, a checker's class, or a
            function of `completion` and `gold` that returns True, False or None for unknown.
        out: folder or URL of the run, where the same call resumes; None takes a temporary folder,
            which is removed with the returned object.
        accept_changes: of problems, as `mclabel label --accept-changes`.
        on_state: called often with the state of the job, in its thread.
        keys: other keys of a labelling configuration, such as `seed=1` or `block_problems=4`.

    Raises:
        ConfigError: arguments that cannot be used, all at once.
    """
    from mclabel.config import LabelConfig, check_config
    from mclabel.pipelines.background import LabelRun

    folder = tempfile.TemporaryDirectory(prefix="mclabel-")
    inputs = Path(folder.name)
    content: dict[str, Any] = {
        "ray": {"address": "none"},
        **keys,
        "out": _place(out) if out is not None else str(inputs / "run"),
        "problems": _problems(problems, inputs / "problems.jsonl"),
        "policy": {"model": policy} if isinstance(policy, str) else policy,
        "estimator": _component("estimators", estimator),
        "checker": _component("checkers", checker),
    }
    if isinstance(solutions, Sequence):
        content["solutions"] = {"path": _write(solutions, inputs / "solutions.jsonl", "solutions")}
    elif solutions is not None:
        content["solutions"] = solutions
    return LabelRun(
        check_config(LabelConfig, content),
        folder,
        accept_changes=accept_changes,
        on_state=on_state or (lambda state: None),
    )


def train(
    labels: Place | Sequence[Place],
    *,
    base: str,
    out: Place,
    on_progress: Callable[[int, int, str], None] = lambda step, total, loss: None,
    **keys: Any,
) -> TrainReport:
    """Train a PRM or an ORM on labels; the same call resumes.

    Args:
        labels: a run of `label` or its folder or URL, or several.
        base: causal language model to start from: folder, name, `arith:base`.
        out: folder for checkpoints, log and model.
        on_progress: called with optimizer steps done and in all, and the loss.
        keys: other keys of a training configuration (`mclabel train --keys`), such as
            `target="soft"`.

    Returns:
        Counts and validation figures; its `model` is the folder of the PRM.

    Raises:
        ConfigError: arguments that cannot be used, all at once.
    """
    from mclabel import pipelines
    from mclabel.config import TrainConfig, check_config
    from mclabel.pipelines.background import LabelRun

    runs = [labels] if isinstance(labels, str | PathLike) else list(labels)
    for run in runs:
        if isinstance(run, LabelRun):
            run.wait()
    content = {**keys, "labels": [_place(run) for run in runs], "base": base, "out": _place(out)}
    return pipelines.train(check_config(TrainConfig, content), on_progress)


def score(
    prm: Place | PRM,
    solutions: Iterable[Mapping[str, Any] | LabeledSolution],
    *,
    device: str = "cpu",
    trust_remote_code: bool = False,
) -> list[list[float]]:
    """How likely each step of solutions is sound, by a trained PRM.

    Args:
        prm: folder of a trained PRM (`train(…).model`), or one that `PRM.load` gave.
        solutions: labelled ones, or rows with `problem`, and `solution` (a step a line) or `steps`.
        device: torch device for a PRM that is loaded.
        trust_remote_code: run Python code that comes with the PRM.

    Returns:
        For every solution one number in [0, 1] a step, in order.

    Raises:
        DataError: a solution has no steps, or is longer than the PRM takes.
    """
    from mclabel.prm.scoring.score import PRM

    if isinstance(prm, str | PathLike):
        prm = PRM.load(_place(prm), device=device, trust_remote_code=trust_remote_code)
    texts, steps = [], []
    for number, row in enumerate(solutions):
        if isinstance(row, LabeledSolution):
            row = {"problem": row.problem.text, "steps": [s.text for s in row.solution.steps]}
        found = row.get("steps") or row.get("solution")
        if not isinstance(row.get("problem"), str) or not found:
            raise DataError(
                f"solution {number}: needs problem, and solution or steps; has {', '.join(row)}"
            )
        texts.append(row["problem"])
        steps.append(_steps(found))
    return prm.score(texts, steps)


def _steps(found: str | Sequence[str]) -> str | list[str]:
    """A solution as `PRM.score` takes it: one text, or steps that join to it."""
    if isinstance(found, str):
        return found
    return [step if step.endswith("\n") else f"{step}\n" for step in found[:-1]] + [found[-1]]


def grade(
    completion: str,
    gold: Any,
    *,
    checker: str | Mapping[str, Any] | Settings | type[Checker] | Callable[..., Any] = "math",
) -> Grade:
    """Whether a completion ends in the right answer: right, wrong or unknown, and why.

    `mclabel check --file` grades many at once.

    Args:
        completion: a whole solution, or an answer alone.
        gold: the known answer; text, or what the checker takes.
        checker: as of `label`.

    Raises:
        ConfigError: there is no such checker, or its settings are wrong.
    """
    from mclabel.checkers import GradeItem, make_checker
    from mclabel.checkers.base import CheckerField
    from mclabel.config import check_config
    from mclabel.settings import Settings

    class Chosen(Settings):
        checker: CheckerField

    chosen = check_config(Chosen, {"checker": _component("checkers", checker)}).checker
    is_text = isinstance(gold, str)
    answer = gold if is_text else json.dumps(gold)
    problem = Problem(id="", text="", answer=answer, answer_is_json=not is_text)
    item = GradeItem(problem=problem, completion=completion)
    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has an event loop already
        (found,) = thread.submit(asyncio.run, _grades(make_checker(chosen), item)).result()
    return found


async def _grades(checker: Checker, item: GradeItem) -> Sequence[Grade]:
    return await checker.grade([item])


def _place(place: Place) -> str:
    return place if isinstance(place, str) else place.__fspath__()


def _problems(problems: Any, path: Path) -> Any:
    """What stands under `problems` in the configuration; rows are written to a file."""
    if isinstance(problems, str | PathLike):
        return {"source": _place(problems)}
    if isinstance(problems, Mapping) or hasattr(problems, "model_fields"):
        return problems
    return {"source": _write(problems, path, "problems")}


def _write(rows: Iterable[Any], path: Path, what: str) -> str:
    """Write rows as JSON Lines, and give the file's name."""
    with path.open("w", encoding="utf-8") as file:
        for number, row in enumerate(rows):
            if isinstance(row, Problem):
                row = {
                    "id": row.id,
                    "problem": row.text,
                    "answer": row.answer,
                    "meta": dict(row.meta),
                }
            elif not isinstance(row, Mapping):
                raise DataError(
                    f"{what}[{number}]: must be a mapping with its columns or a record, is a "
                    f"{type(row).__name__}"
                )
            file.write(json.dumps(dict(row), ensure_ascii=False, default=str) + "\n")
    return str(path)


def _component(kind: str, chosen: Any) -> Any:
    """What stands under a component's key; a class or a function is named by its place."""
    if not callable(chosen):
        return chosen
    from mclabel.components import component_name

    if "<" in chosen.__qualname__:
        raise ConfigError(
            f"{chosen.__qualname__}: must stand at the top of a module, so that it has a name by "
            "which engines find it. Move it out of the function, or give a lambda a def"
        )

    return {"kind": component_name(kind, chosen)}
