"""The Python API: `mc.label`, `mc.train`, `mc.score` and other functions, without a YAML file.

    import mclabel as mc

    run = mc.label([{"problem": "2 + 2 = ?", "answer": "4"}], policy="arith:policy")
    for solution in run:
        print(solution.first_error)

The arguments of these functions are the keys of the jobs' configurations (`mclabel label --keys`).
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from mclabel.core.errors import ConfigError, DataError
from mclabel.core.extras import explain_missing_package
from mclabel.core.records import LabeledSolution, Problem
from mclabel.core.settings import Settings
from mclabel.data.given import (
    convert_to_row,
    iterate_given_rows,
    join_steps,
    parse_gold,
    require_callable,
    require_path_or_url,
    require_text,
    shorten_value,
)
from mclabel.data.readers.problem_rows import PROBLEM_COLUMNS

if TYPE_CHECKING:
    import datasets

    from mclabel.checkers import Checker, Grade, GradeItem
    from mclabel.labeling.background import LabelRun
    from mclabel.labeling.estimators import Estimator
    from mclabel.prm.job import TrainReport
    from mclabel.prm.scoring.score import PRM
    from mclabel.prm.scoring.scorer import Scorer
    from mclabel.run.tally import JobReport, JobState
    from mclabel.select.job import SelectReport

T = TypeVar("T")
Place = str | PathLike[str]
"""Location of data: a folder, a file, a URL, or a run that `label` returned."""
Rows = Mapping[str, Any] | Iterable[Any]
"""Rows of data: mappings or dataclass instances with `problem` and `answer`, records of mclabel, a
`datasets.Dataset` or a pandas data frame. A single mapping with a `problem` is one row."""


def label(
    problems: Place | Settings | Rows,
    *,
    policy: Place | Mapping[str, Any] | Settings,
    estimator: str | Mapping[str, Any] | Settings | type[Estimator] = "posterior",
    solutions: Place | Settings | Rows | None = None,
    checker: str | Mapping[str, Any] | Settings | type[Checker] | Callable[..., Any] = "math",
    out: Place | None = None,
    accept_changes: bool = False,
    on_state: Callable[[JobState], None] | None = None,
    progress: bool = True,
    **keys: Any,
) -> LabelRun:
    """Start a labelling job; iterate over the returned run to get labelled solutions.

    The job runs in a background thread with its engine in this process; `ray={"address": "local"}`
    starts engines on this machine, `"auto"` joins a cluster.

    Args:
        problems: rows of data (`Rows`), a file or URL, `hf:NAME`, or the `problems` section of a
            configuration, such as `{"source": "arith", "limit": 20}`.
        policy: folder or name of a model, such as `arith:policy`, or the `policy` section of a
            configuration.
        estimator: name of an estimator, its settings, its class, or the `estimator` section of a
            configuration, which has the name as `kind`.
        solutions: the `solutions` section of a configuration, such as `{"per_problem": 8}`, a file
            of solutions, or rows to label. Each row has `problem_id` or `problem`, and `solution`
            or `steps`. None samples solutions with the default settings.
        checker: name of a checker, its settings, its class, the `checker` section of a
            configuration, or a function. The function gets `completion` and `gold`, and returns
            True, False, or None for unknown.
        out: folder or URL of the run. The same call with the same `out` resumes. None uses a
            temporary folder, which is deleted with the returned object.
        accept_changes: True to continue even if problems changed since the run began, like
            `mclabel label --accept-changes`.
        on_state: function that is called often with the state of the job, in the job's thread.
        progress: True to show a progress bar in a terminal or a notebook.
        keys: other keys of a labelling configuration, such as `seed=1` or `block_problems=4`.

    Raises:
        ConfigError: arguments are invalid; the message lists all faults.
        DataError: a row has the wrong type, or holds a string that is not valid Unicode.
    """
    with explain_missing_package():
        from mclabel.core.config.load import check_config
        from mclabel.labeling.background import LabelRun
        from mclabel.labeling.config import LabelConfig

    on_state = require_callable(on_state or (lambda state: None), "on_state")
    folder = tempfile.TemporaryDirectory(prefix="mclabel-", ignore_cleanup_errors=True)
    input_folder = Path(folder.name)
    try:
        content: dict[str, Any] = {
            "ray": {"address": "none"},
            **keys,
            "out": require_path_or_url(out, "out")
            if out is not None
            else str(input_folder / "run"),
            "problems": _make_rows_section(
                problems, "problems", input_folder, key="source", columns=PROBLEM_COLUMNS
            ),
            "policy": _make_policy_section(policy),
            "estimator": _make_component_section("estimators", estimator),
            "checker": _make_component_section("checkers", checker),
        }
        if solutions is not None:
            content["solutions"] = _make_rows_section(
                solutions, "solutions", input_folder, key="path", columns=("solution", "steps")
            )
        config = check_config(LabelConfig, content)
    except BaseException:
        folder.cleanup()
        raise
    return LabelRun(
        config, folder, accept_changes=accept_changes, on_state=on_state, progress=progress
    )


def train(
    labels: Place | Sequence[Place],
    *,
    base: Place,
    out: Place,
    on_progress: Callable[[int, int, str], None] = lambda step, total, loss: None,
    **keys: Any,
) -> TrainReport:
    """Train a PRM or an ORM on labels. The same call resumes an interrupted run.

    Args:
        labels: one or several runs of `label`, given as objects, folders or URLs.
        base: folder or name of the causal language model to start from, such as `arith:policy`.
        out: folder for checkpoints, log and model.
        on_progress: function that is called with the number of finished optimizer steps, their
            total, and the loss as text.
        keys: other keys of a training configuration (`mclabel train --keys`), such as
            `target="soft"`.

    Returns:
        Counts and validation metrics; `model` is the folder of the PRM.

    Raises:
        ConfigError: arguments are invalid; the message lists all faults.
    """
    with explain_missing_package():
        from mclabel.core.config.load import check_config
        from mclabel.labeling.background import LabelRun
        from mclabel.prm.config import TrainConfig
        from mclabel.prm.job import train as run_train

    is_list = isinstance(labels, Sequence) and not isinstance(labels, str | bytes)
    runs: list[Any] = list(labels) if is_list else [labels]  # type: ignore[arg-type]
    content = {
        **keys,
        "labels": [require_path_or_url(run, "labels") for run in runs],
        "base": require_path_or_url(base, "base"),
        "out": require_path_or_url(out, "out"),
    }
    config = check_config(TrainConfig, content)
    on_progress = require_callable(on_progress, "on_progress")
    for run in runs:
        if isinstance(run, LabelRun):
            run.wait()
    return run_train(config, on_progress)


def judge_solutions(solutions: Place, *, out: Place, **keys: Any) -> JobReport:
    """Get a judge's opinions on the first error of solutions. The same call resumes the job.

    Args:
        solutions: a run of `label`, or a file of solutions.
        out: folder or URL of the opinions, for `combine`.
        keys: other keys of the job (`mclabel judge --keys`), such as `judge={"kind": "critic",
            "policy": {"model": "..."}}`; by default the judge is `symbolic`.

    Raises:
        ConfigError: arguments are invalid; the message lists all faults.
    """
    with explain_missing_package():
        from mclabel.core.config.load import check_config
        from mclabel.judge.job import JudgeConfig, judge

    content = {"ray": {"address": "none"}, **keys}
    content |= {
        "solutions": require_path_or_url(solutions, "solutions"),
        "out": require_path_or_url(out, "out"),
    }
    config = check_config(JudgeConfig, content)
    return _run_outside_event_loop(lambda: judge(config))


def search_answers(
    problems: Place | Settings | Rows, *, policy: Any, prm: Place, out: Place, **keys: Any
) -> list[dict[str, Any]]:
    """Sample solutions, let a PRM choose one for each problem, and return the answers.

    The problems need no gold answers. The same call resumes an interrupted search.

    Args:
        problems: problems in any form that `label` accepts; a row needs only `problem`.
        policy: folder or name of a model, or the `policy` section of a configuration.
        prm: folder of the PRM that chooses the answers.
        out: folder or URL of the run.
        keys: other keys of the job (`mclabel search --keys`); by default the search is
            `{"kind": "best_of_n", "n": 16}`.

    Returns:
        The rows of `answers.jsonl`: `problem_id`, the chosen `answer`, its score and its votes.

    Raises:
        ConfigError: arguments are invalid; the message lists all faults.
    """
    with explain_missing_package():
        from mclabel.core.config.load import check_config
        from mclabel.search.config import SearchConfig
        from mclabel.search.job import read_chosen_answers, search

    with tempfile.TemporaryDirectory(prefix="mclabel-") as input_folder:
        content = {
            "ray": {"address": "none"},
            "search": {"kind": "best_of_n", "n": 16},
            **keys,
            "scorer": {"kind": "prm", "prm": require_path_or_url(prm, "prm")},
            "out": require_path_or_url(out, "out"),
            "policy": _make_policy_section(policy),
            "problems": _make_rows_section(
                problems, "problems", Path(input_folder), key="source", columns=PROBLEM_COLUMNS
            ),
        }
        config = check_config(SearchConfig, content)
        _run_outside_event_loop(lambda: search(config))
    return read_chosen_answers(config.out)


def select_solutions(
    solutions: Place, *, out: Place, rule: str, budget: int, **keys: Any
) -> SelectReport:
    """Select solutions of a pool to be labelled, and write them as a manifest.

    Args:
        solutions: a run of `label`, or a file of solutions.
        out: path of the manifest, which must end in .parquet; `label` accepts it as `solutions`.
        rule: `uniform`, `convincing` or `module:function`.
        budget: number of solutions to select.
        keys: other keys of the job (`mclabel select --keys`), such as `prm="runs/prm"`.

    Raises:
        ConfigError: arguments are invalid; the message lists all faults.
    """
    with explain_missing_package():
        from mclabel.core.config.load import check_config
        from mclabel.select.job import SelectConfig, select

    content = {**keys, "rule": rule, "budget": budget}
    content |= {
        "solutions": require_path_or_url(solutions, "solutions"),
        "out": require_path_or_url(out, "out"),
    }
    return select(check_config(SelectConfig, content))


@overload
def score(
    prm: Place | PRM, solutions: Rows, *, device: str = ..., trust_remote_code: bool = ...
) -> list[list[float]]: ...


@overload
def score(
    prm: Scorer, solutions: Rows, *, device: str = ..., trust_remote_code: bool = ...
) -> list[list[float] | None]: ...


def score(
    prm: Place | Scorer,
    solutions: Rows,
    *,
    device: str = "auto",
    trust_remote_code: bool = False,
) -> list[list[float] | None] | list[list[float]]:
    """Score the steps of solutions with a trained PRM.

    Args:
        prm: folder of a trained PRM (`train(…).model`), or a PRM returned by `PRM.load` or
            `load_prm`.
        solutions: labelled solutions, or rows of data with `problem` and either `solution` (one
            step per line) or `steps`.
        device: PyTorch device for a PRM that is loaded from a folder. `auto` takes cuda if the
            machine has a GPU.
        trust_remote_code: True to allow Python code from the PRM's folder to run.

    Returns:
        For each solution, one score in [0, 1] per step, in order. None for a solution on which a
        generative PRM gives no verdict.

    Raises:
        ConfigError: `prm` or `device` has the wrong type.
        DataError: a solution has no steps, or is longer than the PRM allows.
    """
    rows = [
        _parse_scoring_row(item, f"solution {number}")
        for number, item in enumerate(iterate_given_rows(solutions, "solutions"))
    ]
    scorer: Scorer = _load_scorer(prm, device, trust_remote_code=trust_remote_code)
    scores_or_errors = scorer.score([problem for problem, _ in rows], [steps for _, steps in rows])
    return [None if isinstance(scores, Exception) else scores for scores in scores_or_errors]


def _load_scorer(prm: Any, device: Any, *, trust_remote_code: bool) -> Any:
    if not isinstance(prm, str | PathLike):
        if isinstance(prm, type) or not callable(getattr(prm, "score", None)):
            raise ConfigError(
                f"prm={shorten_value(prm)}: must be the folder of a trained PRM or a loaded PRM, "
                f"is a {type(prm).__name__}. Give mc.train(…).model or mc.PRM.load(folder)"
            )
        return prm
    if not isinstance(device, str):
        raise ConfigError(
            f"device={shorten_value(device)}: must be the name of a torch device, is a "
            f"{type(device).__name__}. Give 'cpu' or 'cuda:0'"
        )
    with explain_missing_package():
        from mclabel.prm.scoring.score import PRM

    return PRM.load(
        require_path_or_url(prm, "prm"), device=device, trust_remote_code=trust_remote_code
    )


def _parse_scoring_row(item: Any, item_name: str) -> tuple[str, str | list[str]]:
    """Return the problem and the solution of a row.

    The solution is one text, or a list of steps whose concatenation is the whole text.
    """
    if isinstance(item, LabeledSolution):
        texts = [step.text for step in item.solution.steps]
        item = {"problem": item.problem.text, "steps": texts, "step_separator": ""}
    row = convert_to_row(item, item_name)
    solution = row.get("steps") or row.get("solution")
    if not isinstance(row.get("problem"), str) or not solution:
        raise DataError(
            f"{item_name}: needs problem, and solution or steps; has {', '.join(row)}. Add the "
            "missing columns"
        )
    if isinstance(solution, str):
        return row["problem"], solution
    steps: list[Any] = solution if isinstance(solution, list) else [solution]
    steps = [step.get("text") if isinstance(step, Mapping) else step for step in steps]
    if not all(isinstance(step, str) for step in steps):
        raise DataError(
            f"{item_name}: steps={shorten_value(solution)}: must be a list of strings. Give each "
            "step as a string"
        )
    separator = None if row.get("step_separator") is None else str(row["step_separator"])
    return row["problem"], join_steps(steps, separator=separator, whole=row.get("solution"))


def load_steps(run: Place) -> datasets.Dataset:
    """Load the steps of a run's labelled solutions into memory, with one row for each step.

    `value`, `low` and `high` are the step's value and the ends of its interval. `hard` is True if
    the step is labelled sound, False if it is labelled wrong. `first_error` is True only for the
    first wrong step of a solution. Unknown values are None.

    Args:
        run: folder or URL of a run. If its job is still running, only committed rows are loaded.

    Raises:
        ShardError: the run does not exist, or a shard is damaged.
    """
    import datasets

    from mclabel.data.loading import read_labels

    rows = [
        {
            "problem_id": row.problem.id,
            "solution_id": row.solution.id,
            "step_index": index,
            "text": step.text,
            **{name: getattr(label, name) for name in ("value", "low", "high", "hard")},
            "first_error": index == row.first_error if row.is_decided else None,
        }
        for row in read_labels(run)
        for index, (step, label) in enumerate(zip(row.solution.steps, row.steps, strict=True))
    ]
    column_types = dict.fromkeys(("problem_id", "solution_id", "text"), "string")
    column_types |= dict.fromkeys(("value", "low", "high"), "float64") | {"step_index": "int64"}
    column_types |= dict.fromkeys(("hard", "first_error"), "bool")
    identity_columns = ("problem_id", "solution_id", "step_index", "text")
    column_order = (*identity_columns, "value", "low", "high", "hard", "first_error")
    features = datasets.Features(
        {name: datasets.Value(column_types[name]) for name in column_order}
    )
    return datasets.Dataset.from_list(rows, features=features)


def grade(
    completion: str,
    gold: Any,
    *,
    checker: str | Mapping[str, Any] | Settings | type[Checker] | Callable[..., Any] = "math",
) -> Grade:
    """Grade the answer of a completion as right, wrong or unknown, with the reason.

    To grade many completions at once, use `mclabel check --file`.

    Args:
        completion: a whole solution, or only an answer.
        gold: the right answer in any form of docs/answers.md, a list of acceptable answers, or the
            data that the checker needs.
        checker: checker in any form that `label` accepts.

    Raises:
        ConfigError: there is no such checker, or its settings are wrong.
        DataError: `completion` is not a string, or `gold` is not an answer.
    """
    from mclabel.checkers import GradeItem, make_checker, validate_checker_settings

    checker_object = make_checker(
        validate_checker_settings(_make_component_section("checkers", checker))
    )
    parsed_gold = parse_gold(gold)
    problem = Problem(id="", text="", answer=parsed_gold.answer, answer_is_json=parsed_gold.is_json)
    item = GradeItem(problem=problem, completion=require_text(completion, "completion"))
    immediate_grade = checker_object.grade_now(item)
    if immediate_grade is not None:
        return immediate_grade
    (delayed_grade,) = _run_outside_event_loop(
        lambda: asyncio.run(_grade_item(checker_object, item))
    )
    return delayed_grade


def _run_outside_event_loop(work: Callable[[], T]) -> T:
    """Run a function that starts an event loop, and return its result.

    If this thread already runs an event loop, as in a notebook, the function gets its own thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


async def _grade_item(checker: Checker, item: GradeItem) -> Sequence[Grade]:
    return await checker.grade([item])


def _make_policy_section(policy: Any) -> Any:
    """Convert the argument `policy` to the section of the configuration."""
    if isinstance(policy, str | PathLike):
        return {"model": require_path_or_url(policy, "policy")}
    return policy


def _make_rows_section(
    rows: Any, argument: str, folder: Path, *, key: str, columns: Iterable[str]
) -> Any:
    """Convert the argument `problems` or `solutions` to the section of the configuration.

    Args:
        rows: the argument.
        argument: name of the argument.
        folder: folder for a file to which rows of data are written.
        key: key of the section for the place of the rows.
        columns: columns of which a row has at least one.
    """
    if isinstance(rows, str | PathLike):
        return {key: require_path_or_url(rows, argument)}
    if isinstance(rows, Settings) or _is_configuration(rows, columns):
        return rows
    return {key: _write_rows(rows, folder / f"{argument}.jsonl", argument)}


def _is_configuration(value: Any, columns: Iterable[str]) -> bool:
    """Return whether a value is a section of a configuration, not a row with these columns."""
    if not isinstance(value, Mapping) or hasattr(value, "column_names"):
        return False
    return not any(column in value for column in columns)


def _write_rows(rows: Any, path: Path, argument: str) -> str:
    """Write rows as JSON Lines to `path`, and return the path as text."""
    with path.open("w", encoding="utf-8") as file:
        for number, item in enumerate(iterate_given_rows(rows, argument)):
            row = convert_to_row(item, f"{argument}[{number}]")
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return str(path)


def _make_component_section(component_kind: str, component: Any) -> Any:
    """Convert a component argument to the section of the configuration.

    A class or a function is replaced by its import path.
    """
    if not callable(component):
        return component
    from mclabel.core.components import find_component_name

    if not hasattr(component, "__qualname__"):
        raise ConfigError(
            f"{shorten_value(component)}: must be a class or a function that engines can import by "
            f"name, is a {type(component).__name__}. Write a function that calls it"
        )
    if "<" in component.__qualname__:
        raise ConfigError(
            f"{component.__qualname__}: must be defined at the top level of a module, so that "
            "engines can import it by name. Move it out of the function, or write a def instead "
            "of a lambda"
        )

    return {"kind": find_component_name(component_kind, component)}
