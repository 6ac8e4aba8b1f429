"""Inputs that the Python functions of `mclabel` accept, and clear refusals of all others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest

import mclabel as mc
from mclabel.checkers.math import MathChecker

ROWS = [{"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": i} for i in range(3)]
SURROGATE = "half \ud800 a pair"


@dataclass
class Exercise:
    """A problem in a user's own class."""

    id: str
    problem: str
    answer: int


@dataclass
class Attempt:
    """A solution in a user's own class."""

    problem_id: str
    problem: str
    steps: list[str]


ATTEMPTS = [
    {"problem_id": "p1", "problem": ROWS[1]["problem"], "steps": ["one", "The answer is 1"]},
    {"problem_id": "p2", "problem": ROWS[2]["problem"], "steps": ["two", "The answer is 2"]},
]


def label(problems: Any, **keys: Any) -> mc.LabelRun:
    return mc.label(
        problems,
        **{"policy": {"engine": "scripted"}, "estimator": {"kind": "fixed", "rollouts": 2}, **keys},
    )


PROBLEMS: dict[str, Callable[[Path], Any]] = {
    "mappings": lambda folder: ROWS,
    "records": lambda folder: [
        mc.Problem(id=str(row["id"]), text=str(row["problem"]), answer=str(row["answer"]))
        for row in ROWS
    ],
    "generator": lambda folder: (row for row in ROWS),
    "dataclass instances": lambda folder: [Exercise(**row) for row in ROWS],  # type: ignore[arg-type]
    "data set": lambda folder: datasets.Dataset.from_list(ROWS),
    "iterable data set": lambda folder: datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
    "data frame": lambda folder: pd.DataFrame(ROWS),
    "numpy scalars": lambda folder: [{**row, "answer": np.int64(row["answer"])} for row in ROWS],
    "file": lambda folder: _write_rows(folder, ROWS),
}


@pytest.mark.parametrize("how", PROBLEMS)
def test_problems_come_in_any_table(how: str, tmp_path: Path) -> None:
    with label(PROBLEMS[how](tmp_path), solutions={"per_problem": 1}) as run:
        problems = {s.problem.id: (s.problem.text, s.problem.gold) for s in run}
    assert problems == {row["id"]: (row["problem"], str(row["answer"])) for row in ROWS}


SOLUTIONS: dict[str, Callable[[Path], Any]] = {
    "mappings": lambda folder: ATTEMPTS,
    "generator": lambda folder: (row for row in ATTEMPTS),
    "dataclass instances": lambda folder: [Attempt(**row) for row in ATTEMPTS],  # type: ignore[arg-type]
    "data set": lambda folder: datasets.Dataset.from_list(ATTEMPTS),
    "data frame": lambda folder: pd.DataFrame(ATTEMPTS),
    "data frame of arrays": lambda folder: pd.DataFrame(
        [{**row, "steps": np.array(row["steps"], dtype=object)} for row in ATTEMPTS]
    ),
    "file": lambda folder: _write_rows(folder, ATTEMPTS),
}


def _write_rows(folder: Path, rows: list[dict[str, Any]]) -> Path:
    datasets.Dataset.from_list(rows).to_json(folder / "rows.jsonl")
    return folder / "rows.jsonl"


@pytest.mark.parametrize("how", SOLUTIONS)
def test_solutions_come_in_any_table(how: str, tmp_path: Path) -> None:
    with label(ROWS, solutions=SOLUTIONS[how](tmp_path)) as run:
        steps = {s.problem.id: [step.text for step in s.solution.steps] for s in run}
    assert steps == {
        "p1": ["one\n", "The answer is 1"],
        "p2": ["two\n", "The answer is 2"],
    }


def test_a_mapping_is_one_row_where_it_has_a_problem_and_keys_where_it_has_none() -> None:
    with label(ROWS[1], solutions=ATTEMPTS[0]) as run:
        assert [(s.problem.id, s.solution.origin) for s in run] == [("p1", "given")]
    with pytest.raises(mc.ConfigError, match=r"problems\.sauce: .*did you mean problems\.source"):
        label({"sauce": "arith"})


def test_a_structured_gold_of_a_record_stays_one() -> None:
    with label(
        [mc.Problem(id="a", text="P [answer 1]", answer='{"x": 1}', answer_is_json=True)],
        checker=equals_x,
        solutions={"per_problem": 1},
    ) as run:
        assert [s.problem.gold for s in run] == [{"x": 1}]


def equals_x(completion: str, gold: Any) -> bool:
    """Grade by a gold that is an object."""
    return str(gold["x"]) in completion


def test_what_a_data_frame_lacks_is_missing_and_not_nan() -> None:
    with label(
        pd.DataFrame([{**ROWS[0], "level": "easy"}, {**ROWS[1], "level": None}]),
        solutions={"per_problem": 1},
    ) as run:
        meta_by_id = {s.problem.id: dict(s.problem.meta) for s in run}
    assert meta_by_id == {"p0": {"level": "easy"}, "p1": {}}
    run = label(
        pd.DataFrame({"problem": ["P [answer 1]", "Q [answer 2]"], "answer": ["1", None]}),
        strict=True,
    )
    with pytest.raises(mc.DataError, match="answer in column 'answer' is empty"):
        run.wait()


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no problems": (lambda: label(None), mc.DataError, "problems=None: must hold rows"),
    "a number": (lambda: label(5), mc.DataError, "problems=5: must hold rows, is a int"),
    "bytes": (lambda: label(b"x"), mc.DataError, "problems=b'x': must hold rows"),
    "a class": (lambda: label(Exercise), mc.DataError, "must hold rows, is a type"),
    "a number as a row": (
        lambda: label([ROWS[0], 3]),
        mc.DataError,
        r"problems\[1\]=3: must be a mapping .* is a int",
    ),
    "splits": (
        lambda: label(datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS))),
        mc.DataError,
        r"problems: holds the splits train, .* such as problems\['train'\]",
    ),
    "half a pair in a row": (
        lambda: label([ROWS[0], {"problem": SURROGATE, "answer": "1"}]),
        mc.DataError,
        r"problems\[1\]: a string is not valid Unicode",
    ),
    "a circle in a row": (
        lambda: label([_make_circle()]),
        mc.DataError,
        r"problems\[0\]: holds a value that cannot be stored as JSON \(Circular",
    ),
    "a number as solutions": (lambda: label(ROWS, solutions=7), mc.DataError, "solutions=7: must"),
    "out": (lambda: label(ROWS, out=5), mc.ConfigError, "out=5: must be a string or a path"),
    "out with a zero byte": (
        lambda: label(ROWS, out="a\0b"),
        mc.ConfigError,
        r"out='a\\x00b': must be a name or a path, but holds characters",
    ),
    "out with half a pair": (
        lambda: label(ROWS, out=SURROGATE),
        mc.ConfigError,
        "out='half .* no file name can have",
    ),
    "policy": (lambda: label(ROWS, policy=5), mc.ConfigError, "policy=5: "),
    "on_state": (lambda: label(ROWS, on_state=5), mc.ConfigError, "on_state=5: must be a function"),
    "estimator": (
        lambda: label(ROWS, estimator=5),
        mc.ConfigError,
        "estimator: must be a name, or keys with values that include kind, is a number",
    ),
    "settings of another kind": (
        lambda: label(ROWS, estimator=MathChecker.Settings()),
        mc.ConfigError,
        r"estimator: must be settings of one of the estimators, .* the checkers \(math\)",
    ),
    "a checker without a name": (
        lambda: mc.grade("1", "1", checker=partial(equals_x, gold=1)),
        mc.ConfigError,
        "must be a class or a function that engines can import by name, is a partial",
    ),
    "no run": (lambda: mc.load_labels(5), mc.ConfigError, "run=5: must be a string or a path"),  # type: ignore[arg-type]
    "no run of rollouts": (lambda: mc.load_rollouts(None), mc.ConfigError, "run=None: must be"),  # type: ignore[arg-type]
    "no run to read": (lambda: mc.read_labels(b"x"), mc.ConfigError, "run=b'x': must be a string"),  # type: ignore[arg-type]
    "cache": (
        lambda: mc.load_labels("x", cache_dir=5),  # type: ignore[arg-type]
        mc.ConfigError,
        "cache_dir=5: must be a string or a path",
    ),
    "no completion": (
        lambda: mc.grade(None, "1"),  # type: ignore[arg-type]
        mc.DataError,
        "completion=None: must be a string, is a NoneType",
    ),
    "half a pair in a completion": (
        lambda: mc.grade(SURROGATE, "1"),
        mc.DataError,
        "completion: a string is not valid Unicode",
    ),
    "half a pair in a gold": (
        lambda: mc.grade("1", SURROGATE),
        mc.DataError,
        "gold: a string is not valid Unicode",
    ),
    "no gold": (lambda: mc.grade("1", None), mc.DataError, "gold=None: must be an answer"),
    "NaN as a gold": (
        lambda: mc.grade("1", np.nan),
        mc.DataError,
        "gold=nan: must be an answer",
    ),
    "a set as a gold": (
        lambda: mc.grade("1", {1}),
        mc.DataError,
        r"gold=\{1\}: must be a string, a number, a list or a mapping",
    ),
    "labels": (lambda: train(5), mc.ConfigError, "labels=5: must be a string or a path"),
    "a number among labels": (
        lambda: train(["x", 5]),
        mc.ConfigError,
        "labels=5: must be a string",
    ),
    "no labels": (lambda: train([]), mc.ConfigError, r"labels=\[\]: "),
    "a mapping of labels": (lambda: train({"a": 1}), mc.ConfigError, r"labels=\{'a': 1\}: must be"),
    "base": (lambda: train("x", base=5), mc.ConfigError, "base=5: must be a string or a path"),
    "out of a training": (lambda: train("x", out=5), mc.ConfigError, "out=5: must be a string"),
    "on_progress": (lambda: train("x", on_progress=5), mc.ConfigError, "on_progress=5: must be a"),
    "no PRM": (lambda: mc.score(5, ATTEMPTS), mc.ConfigError, "prm=5: must be the folder"),  # type: ignore[arg-type]
    "device": (
        lambda: mc.score("x", ATTEMPTS, device=5),  # type: ignore[arg-type]
        mc.ConfigError,
        "device=5: must be the name of a torch device",
    ),
    "a number to score": (
        lambda: mc.score("x", [1]),
        mc.DataError,
        "solution 0=1: must be a mapping",
    ),
    "half a pair to score": (
        lambda: mc.score("x", [{"problem": "x", "solution": SURROGATE}]),
        mc.DataError,
        "solution 0: a string is not valid Unicode",
    ),
    "steps of numbers": (
        lambda: mc.score("x", [{"problem": "x", "steps": [1, 2]}]),
        mc.DataError,
        r"solution 0: steps=\[1, 2\]: must be a list of strings",
    ),
    "a number as steps": (
        lambda: mc.score("x", [{"problem": "x", "steps": 3}]),
        mc.DataError,
        "solution 0: steps=3: must be a list of strings",
    ),
}


def train(labels: Any, **keys: Any) -> Any:
    return mc.train(labels, **{"base": "arith:strong", "out": "nowhere", **keys})


def _make_circle() -> dict[str, Any]:
    row: dict[str, Any] = {"problem": "x"}
    row["meta"] = row
    return row


@pytest.mark.parametrize("case", REFUSED)
def test_all_else_is_refused_with_value_and_rule(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call()
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import os, sys, tempfile
import mclabel as mc

ROWS = [{"problem": f"P{i} [answer 1]", "answer": 1} for i in range(300)]


def label(rows, **keys):
    keys |= {"policy": {"engine": "scripted"}, "block_problems": 2}
    return mc.label(rows, estimator={"kind": "fixed", "rollouts": 2}, **keys)


def left():
    print(len([name for name in os.listdir(tempfile.gettempdir()) if name.startswith("mclabel-")]))
"""
HERE = """
kept = []
try: label(ROWS, sede=1)
except mc.ConfigError as e: kept.append(e)
left()
try: label([*ROWS, 1])
except mc.DataError as e: kept.append(e)
left()
run = label([{'problem': 'no answer'}])
try: run.wait()
except mc.DataError as e: kept.append(e)
left()
run = label(ROWS[:4])
run.wait()
del run
left()
"""
"""A script in which a key and a row are refused, the job fails, and the job has ended."""
AT_THE_END = """
failed = label([{'problem': 'no answer'}])
label(ROWS[:4])
run = label(ROWS)
next(iter(run))
"""
"""A script with a failed job whose error is never read, a dropped job and a running job."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "ended", "printed"),
    [(HERE, 0, "0 0 0 0"), (AT_THE_END, 0, ""), (AT_THE_END + "raise SystemExit(3)", 3, "")],
    ids=["while it runs", "at the end", "at the end by an error"],
)
def test_a_run_without_a_place_leaves_nothing_behind(
    code: str, ended: int, printed: str, tmp_path: Path
) -> None:
    words = [sys.executable, "-W", "always::ResourceWarning", "-c", SCRIPT + code]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert done.returncode == ended, done.stderr
    assert " ".join(done.stdout.split()) == printed
    assert "mclabel-" not in done.stderr and "Exception ignored" not in done.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("mclabel-")] == []
