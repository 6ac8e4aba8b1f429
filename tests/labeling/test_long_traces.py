"""Traces of tens of thousands of tokens: memory and work are linear in their length."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

from mclabel.core.records import Outcome, Problem, Solution, Step
from mclabel.core.seeds import prefix_id
from mclabel.labeling.prefixes import PrefixTable

PROBLEM = Problem(id="p", text="P", answer="7")
TOKENS_PER_STEP = 60


def solution(index: int, num_steps: int) -> Solution:
    """One whose tokens are all other ones than those of solutions of another index."""
    texts = [f"{index}.{number} ".ljust(TOKENS_PER_STEP, "x") for number in range(num_steps)]
    ends = [TOKENS_PER_STEP * (number + 1) for number in range(num_steps)]
    return Solution(
        id=str(index),
        problem_id="p",
        sample_index=index,
        text="".join(texts),
        ids=tuple(range(1000, 1000 + ends[-1])),
        steps=tuple(Step(text=a, end=b) for a, b in zip(texts, ends, strict=True)),
        finish_reason="stop" if index else "length",
        origin="sampled",
        prediction=None,
        outcome=Outcome.WRONG if index else Outcome.TRUNCATED,
    )


def peak_bytes(make: Callable[[], Any]) -> int:
    """The most memory that is in use while something is made, which is kept."""
    tracemalloc.start()
    kept = make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del kept
    return peak


def test_memory_of_the_prefixes_is_linear_in_the_length() -> None:
    def table(num_steps: int) -> Callable[[], PrefixTable]:
        solutions = [solution(index, num_steps) for index in range(2)]
        return lambda: PrefixTable(PROBLEM, solutions, free_outcomes=True)

    table(5)()  # what is imported and cached once
    assert peak_bytes(table(500)) < 15 * peak_bytes(table(50))


def test_each_prefix_is_whole_when_it_is_asked_for() -> None:
    one = solution(1, 40)
    table = PrefixTable(PROBLEM, [one], free_outcomes=True)
    ends = (0, *(step.end for step in one.steps[:-1]))
    for prefix, end in zip(table.prefixes, ends, strict=True):
        assert prefix.ids == one.ids[:end]
        assert prefix.text == one.text[:end]
        assert prefix.num_tokens == end
        assert prefix.id == prefix_id("p", one.ids[:end])
