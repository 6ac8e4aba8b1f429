"""The guard around every checker, which converts its exceptions to grades with unknown verdicts.

After an exception, the verdict is unknown, and the exception is the reason. A checker that raises
the same exception on every completion is broken. The guard then ends the job, which would otherwise
sample rollouts for hours without a verdict. A component boundary (`Boundary`) checks the values
that a user's checker returns.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from mclabel.answers import GUESS
from mclabel.checkers.base import (
    WEAK_PREFIX,
    Checker,
    CheckerSettings,
    Grade,
    GradeItem,
    ThreadRunner,
    run_inline,
)
from mclabel.core import boundary
from mclabel.core.boundary import Boundary, Guard, Rule, check_item_count, clip_text, describe_value
from mclabel.core.errors import CheckerError, ComponentError, MclabelError
from mclabel.core.records import Problem, Verdict

T = TypeVar("T")

PATIENCE = 1.5
"""Time limit of a coroutine as a multiple of `HANG_S`, the limit of blocking calls. It is longer
because a checker may await a server that has its own timeout."""

MAX_FAILURES = 32
"""Number of identical failures without any success after which the job stops."""
_RAISED, _RETURNED = "the checker raised ", "the checker returned "
"""Prefixes of the reasons of failed grades."""
MAX_REASON = 500
"""Maximum characters of a reason."""


def make_checker(settings: CheckerSettings) -> GuardedChecker:
    """Create the checker that the settings describe, and wrap it in its guard.

    Raises:
        ConfigError: the checker's code cannot be imported.
        ComponentError: the checker cannot be created, or does not set its name and version.
    """
    component_boundary = Boundary("checkers", settings.kind)
    checker = component_boundary.call("__init__", settings.component, settings)
    for name in ("name", "version"):
        value = getattr(checker, name, None)
        if not isinstance(value, str) or not value:
            raise component_boundary.make_protocol_error(
                "__init__", f"leaves self.{name} at {describe_value(value)}, must set a string"
            )
    return GuardedChecker(checker, component_boundary)


class GuardedChecker(Checker):
    """A checker whose exceptions are converted to grades and counted."""

    def __init__(self, checker: Checker, component_boundary: Boundary) -> None:
        """Wrap a checker.

        Args:
            checker: the checker to guard.
            component_boundary: checks the values that the checker returns.
        """
        self.name, self.version = checker.name, checker.version
        rules: dict[str, Rule] = {
            "grade": lambda grades, items, _: check_item_count(
                "grades of", grades, "completion", len(items)
            ),
            "group": _find_groups_fault,
        }
        guarded = (
            checker
            if component_boundary.is_built_in
            else Guard(checker, Checker, component_boundary, rules)
        )
        self._checker, self._boundary = guarded, component_boundary
        self.key, self.group = self._checker.key, self._checker.group  # type: ignore[method-assign]
        self.states_answer = self._checker.states_answer  # type: ignore[method-assign]
        self._last_return = time.monotonic()
        self._file = inspect.getfile(type(checker).grade)
        self._has_graded = False
        self._failures: Counter[str] = Counter()

    async def refuse(self, problem: Problem, run_blocking: ThreadRunner = run_inline) -> str | None:
        """Return the reason why completions of a problem cannot be graded; None if they can.

        Args:
            problem: the problem with its gold answer.
            run_blocking: function that runs blocking work outside the event loop.
        """
        call = self._checker.refuse(problem, self._with_time_limit("refuse", run_blocking))
        return await self._await_result("refuse", call)

    async def grade(
        self, items: Sequence[GradeItem], run_blocking: ThreadRunner = run_inline
    ) -> Sequence[Grade]:
        """Return one grade per completion, in order.

        If a call for several completions raises an exception, each of them is graded alone.

        Args:
            items: completions of one or several problems.
            run_blocking: function that runs blocking work outside the event loop.

        Raises:
            CheckerError: all grades so far have failed, and `MAX_FAILURES` of them with the same
                exception.
            ComponentError: the checker does not return one grade per completion.
        """
        call = self._checker.grade(items, self._with_time_limit("grade", run_blocking))
        try:
            grades: Sequence[Grade] = await self._await_result("grade", call)
        except Exception as error:  # any exception of the checker means undecided
            cause = _unwrap_checker_exception(error)
            if len(items) > 1:
                return [grade for item in items for grade in await self.grade([item], run_blocking)]
            grades = [make_exception_grade(cause, self._file)]
        for grade in grades:
            self._count_failure_or_raise(grade)
        return grades

    def grade_now(self, item: GradeItem) -> Grade | None:
        """Grade one completion in the caller's thread, without an event loop.

        Failures of this method are not counted.

        Returns:
            The grade; None if the checker can grade only in an event loop.

        Raises:
            ComponentError: the checker returns something other than a grade.
        """
        grade_now: Callable[[GradeItem], Grade | None] | None
        grade_now = getattr(self._checker, "grade_now", None)
        if grade_now is None:
            return None
        must: Any = Any if self._boundary.is_built_in else Grade | None
        try:
            grade: Grade | None = self._boundary.call("grade", grade_now, item, result_type=must)
        except Exception as error:  # any exception of the checker means undecided
            return make_exception_grade(_unwrap_checker_exception(error), self._file)
        return grade

    def _with_time_limit(self, method: str, run_blocking: ThreadRunner) -> ThreadRunner:
        """Return a `ThreadRunner` that fails if a call of the checker does not return in time."""

        def run_watched(work: Callable[[], T], /) -> Awaitable[T]:
            return run_blocking(lambda: self._boundary.call_and_report_hang(method, work))

        return run_blocking if self._boundary.is_built_in else run_watched

    async def _await_result(self, method: str, call: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine of the checker.

        Raises:
            ComponentError: no call of the checker has returned within the time limit.
        """
        if self._boundary.is_built_in:
            return await call
        task = asyncio.ensure_future(call)
        started, limit = time.monotonic(), PATIENCE * boundary.HANG_S
        try:
            while not (await asyncio.wait({task}, timeout=limit))[0]:
                silent_s = time.monotonic() - max(started, self._last_return)
                if silent_s >= limit:
                    raise self._boundary.make_protocol_error(
                        method, f"has not returned for {silent_s:.0f} s"
                    )
            self._last_return = time.monotonic()
            return task.result()
        finally:
            task.cancel()

    def _count_failure_or_raise(self, grade: Grade) -> None:
        self._has_graded |= grade.failure is None
        if grade.failure is None or self._has_graded:
            return
        self._failures[grade.failure] += 1
        if self._failures[grade.failure] >= MAX_FAILURES:
            raise CheckerError(
                f"checker={self.name}: all of its first {self._failures.total()} grades failed, "
                f"{MAX_FAILURES} of them in the same way: {grade.reason}. A checker must grade "
                "some completions. Fix the checker, try it on one of them "
                "(mclabel.grade(completion, gold, checker=…)), and run the same command again. "
                "The sampled completions are kept, and the fixed checker grades them"
            )


def _unwrap_checker_exception(error: Exception) -> Exception:
    """Return the exception that a checker raised.

    If `error` has a message for the user, raise it instead.
    """
    cause = error.__cause__ if isinstance(error, ComponentError) else error
    if not isinstance(cause, Exception) or isinstance(cause, MclabelError):
        raise error
    return cause


def _find_groups_fault(
    groups: Sequence[Sequence[int | None]], answers: Sequence[Sequence[str | None]]
) -> str | None:
    if [len(group) for group in groups] == [len(group) for group in answers]:
        return None
    return f"gave {describe_value(groups)}, must give a number, or None, for each of its answers"


def format_reason(reason: str) -> str:
    """Return a reason as one line of at most `MAX_REASON` printable characters."""
    return clip_text(reason, MAX_REASON)


def is_checker_failure(reason: str) -> bool:
    """Return whether the reason of a grade reports a fault of the checker."""
    return reason.startswith((_RAISED, _RETURNED))


def is_guessed_or_forgeable(verdict_reason: str) -> bool:
    """Return whether a reason marks a weak verdict.

    A verdict is weak if the answer was guessed, or if the program could have forged the test
    result.
    """
    return verdict_reason.startswith((GUESS, WEAK_PREFIX))


def strip_fault_message(reason: str) -> str:
    """Return a reason without the message of a checker's fault, which varies.

    Counts of grades by reason use the result.
    """
    return reason.partition(": ")[0] if is_checker_failure(reason) else reason


def make_wrong_type_grade(result: object, allowed: str) -> Grade:
    """Return the grade for a result of a wrong type.

    Args:
        result: return value of the checker.
        allowed: description of the values that it may return.
    """
    name = type(result).__name__
    return Grade(
        verdict=Verdict.UNKNOWN,
        reason=f"{_RETURNED}{name}: must be {allowed}",
        failure=f"returned {name}",
    )


def make_exception_grade(error: Exception, file: str) -> Grade:
    """Return the grade for an exception of a checker.

    Args:
        error: exception that the checker raised.
        file: path of the checker's source. The failure names the last line of this file in the
            traceback, or the line that raised the exception if this file is not in it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or frames[-1:]
    place = "".join(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in own[-1:])
    failure = f"{type(error).__name__}{place}"
    return Grade(
        verdict=Verdict.UNKNOWN,
        reason=format_reason(f"{_RAISED}{failure}: {error}"),
        failure=failure,
    )
