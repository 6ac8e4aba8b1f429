"""Traces of tens of thousands of tokens need memory and work that are linear in their length."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from mclabel.core.records import Problem
from mclabel.labeling.prefixes import PrefixTable
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from tests.labeling.test_room import solution
from tests.support.long_verbs import NUM_SOLUTIONS, verbs, viewer, write_given_solutions

PROBLEM = Problem(id="p", text="P", answer="7")
TOKENS_PER_STEP = 60


def peak_bytes(make: Callable[[], Any]) -> int:
    """Return the peak memory in bytes while `make` runs and its result is held."""
    tracemalloc.start()
    kept = make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del kept
    return peak


def test_memory_of_the_prefixes_is_linear_in_the_length() -> None:
    def table(num_steps: int) -> Callable[[], PrefixTable]:
        solutions = [
            solution(index, [f"{index}.{n} ".ljust(60, "x") for n in range(num_steps)], "stop")
            for index in range(2)
        ]
        return lambda: PrefixTable(PROBLEM, solutions, kept_regardless_of_outcome=True)

    table(5)()  # imports and caches that happen only once
    assert peak_bytes(table(500)) < 15 * peak_bytes(table(50))


@pytest.mark.slow
def test_every_verb_takes_a_trace_of_30_000_tokens(tmp_path: Path) -> None:
    """No verb fails. Ten times the trace takes about ten times the space, in as many files."""
    few, many = tmp_path / "few", tmp_path / "many"
    for folder, num_steps in ((few, 50), (many, 500)):
        write_given_solutions(folder, num_steps, TOKENS_PER_STEP)
        for name, arguments in verbs(folder):
            ended = CliRunner().invoke(main, arguments)
            assert ended.exit_code == 0, (name, ended.output)
    viewer(many / "fixed", 500)
    rows = list(read_labels(Store(f"{many}/fixed")))
    assert [len(row.steps) for row in rows] == [500] * NUM_SOLUTIONS
    assert all(len(row.solution.ids) > 25_000 for row in rows)
    assert len(list(read_rollouts(Store(f"{many}/fixed")))) == 499 * NUM_SOLUTIONS
    for name in ("outcome", "fixed", "symbolic", "critic", "combined", "parquet", "trl"):
        assert num_bytes(many / name) < 15 * num_bytes(few / name)


def num_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
