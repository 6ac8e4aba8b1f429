"""The limit on the work for a pair in the caller's own process."""

from __future__ import annotations

import sys

import pytest

from mclabel.answers import Checker, grade
from mclabel.answers.effort import spend_work
from mclabel.answers.grade import NO_STACK, read_gold_form
from mclabel.core.records import Verdict

HEAVY = "+".join(f"(x+{n})^{{40}}" for n in range(1, 9))


@pytest.mark.parametrize("warm", [False, True])
def test_a_heavy_pair_is_unknown_whatever_is_remembered(warm: bool) -> None:
    read_gold_form.cache_clear()
    if warm:
        assert grade("1", HEAVY).reason == "too_much_work"
    for pair in ((HEAVY, "1"), ("1", HEAVY), (HEAVY, HEAVY + "+1")):
        graded = grade(*pair)
        assert (graded.verdict, graded.reason) == (Verdict.UNKNOWN, "too_much_work")
    spend_work(10**9)  # after the grade, no limit applies


def test_a_caller_deep_in_its_own_calls_gets_no_verdict_that_is_remembered() -> None:
    checker = Checker()
    pair = ("\\frac{(2x+3)(x-1)}{(x-1)}", "2x+3")

    def grade_at_depth(levels: int) -> str:
        return grade_at_depth(levels - 1) if levels else checker.grade(*pair).reason

    depth = 0
    while sys._getframe(depth).f_back is not None:
        depth += 1
    reasons = {
        grade_at_depth(sys.getrecursionlimit() - depth - spare) for spare in range(40, 120, 5)
    }
    assert NO_STACK in reasons
    assert checker.grade(*pair).verdict is Verdict.RIGHT
    checker.close()
