"""The checker works in threads, event loops, processes and Ray actors."""

from __future__ import annotations

import asyncio

import psutil
import pytest

from mclabel.answers import Checker, Grade
from mclabel.checkers import run_inline
from mclabel.core.records import Verdict
from tests.answers.test_workers import HARD, hard_pairs

RIGHT = Verdict.RIGHT


async def grade_text(checker: Checker, answer: str, gold: str) -> Grade:
    """Return the grade of a completion that ends in this answer."""
    text = f"\\boxed{{{answer}}}"
    ((answer_read, grade),) = await checker.grade_completions(
        [(text, gold)], run_blocking=run_inline
    )
    assert answer_read == answer
    return grade


@pytest.mark.slow
def test_from_an_event_loop_that_goes_on(checker: Checker) -> None:
    """The host of the workers is suspended until the event loop has run for a while."""
    checker.grade(*HARD)
    host = psutil.Process(checker.host_pid())
    host.suspend()

    async def run() -> tuple[list[Verdict], bool]:
        grading = asyncio.gather(*(grade_text(checker, *pair) for pair in hard_pairs(12)))
        for _ in range(10):
            await asyncio.sleep(0.005)
        went_on = not grading.done()
        host.resume()
        return [g.verdict for g in await grading], went_on

    try:
        assert asyncio.run(run()) == ([RIGHT] * 12, True)
    finally:
        host.resume()


def test_cheap_pairs_do_not_leave_the_event_loop(checker: Checker) -> None:
    call = checker.grade_completions(
        [("The answer is 1/2.", "0.5"), ("I cannot say.", "1")], run_blocking=run_inline
    )
    with pytest.raises(StopIteration) as done:
        call.send(None)
    (answer, half_grade), (nothing, empty_grade) = done.value.value
    assert (answer, half_grade.verdict) == ("1/2", RIGHT)
    assert (nothing, empty_grade.reason) == (None, "no_answer")


def test_a_cancelled_wait_leaves_the_pool_working(checker: Checker) -> None:
    async def run() -> None:
        tasks = [asyncio.create_task(grade_text(checker, *pair)) for pair in hard_pairs(8)]
        await asyncio.sleep(0.05)
        for task in tasks[::2]:
            task.cancel()
        rest = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(not isinstance(result, BaseException) for result in rest) >= 4

    asyncio.run(run())
    assert checker.grade(*HARD).verdict is RIGHT


def test_the_memo_gives_the_same_grade_and_stays_bounded() -> None:
    for size in (100, 0):
        checker = Checker(memo_size=size)
        first = checker.grade("x+1", "1+x")
        assert size == 0 or checker.grade("x+1", "1+x") is first
        for i in range(1000):
            checker.grade(f"{i}", "12")
        assert len(checker._memo) <= size


def test_the_memo_keeps_rules_apart(checker: Checker) -> None:
    assert checker.grade("5", "5 cm").verdict is RIGHT
    assert checker.grade("5", "5 cm", units_optional=False).verdict is Verdict.WRONG
    assert checker.grade("5", "5 cm").verdict is RIGHT


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("12", None),
        ("x^2+1", None),
        ("Thursday", None),
        ("\\sin^{-1} x", None),
        ("|x| < 3", None),
        ("", "empty"),
        ("\\sum_{n=1}^{9} n", None),
        ("\\oint n", "unknown_command"),
        ("\\frac{1}{", "nested_too_deep"),
        ("@#", "empty"),
    ],
)
def test_unparsed_golds(gold: str, reason: str | None, checker: Checker) -> None:
    assert asyncio.run(checker.explain_unparsed_gold(gold, run_blocking=run_inline)) == reason
