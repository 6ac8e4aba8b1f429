"""What stands around every checker: its exceptions are grades without a verdict, up to a limit.

A checker that raises now and then has not decided about those completions, and the reason says
what it raised. One that raises the same exception on every completion is broken, and a job with it
would roll out for hours and learn nothing: it ends the job.
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
    Aside,
    Checker,
    CheckerSettings,
    Grade,
    GradeItem,
    here,
)
from mclabel.core import boundary
from mclabel.core.boundary import Boundary, Guard, Rule, clipped, miscounted, shown
from mclabel.core.errors import CheckerError, ComponentError, MclabelError
from mclabel.core.records import Problem, Verdict

T = TypeVar("T")

PATIENCE = 1.5
"""Times `HANG_S` for what a checker awaits, such as a server: its own waiting comes on top."""

MAX_FAILURES = 32
"""Grades that fail alike, and none that does not before them, which end a job."""
_RAISED, _RETURNED = "the checker raised ", "the checker returned "
"""How the reasons of failed grades begin."""
MAX_REASON = 500
"""Characters of a reason."""


def make_checker(settings: CheckerSettings) -> GuardedChecker:
    """Make the checker that settings name.

    Raises:
        ConfigError: its code cannot be imported.
        ComponentError: it cannot be made, or lacks a name or a version.
    """
    around = Boundary("checkers", settings.kind)
    checker = around.call("__init__", settings.component, settings)
    for name in ("name", "version"):
        value = getattr(checker, name, None)
        if not isinstance(value, str) or not value:
            raise around.broken(
                "__init__", f"leaves self.{name} at {shown(value)}, must set a text"
            )
    return GuardedChecker(checker, around)


class GuardedChecker(Checker):
    """A checker behind its boundary, whose exceptions are counted."""

    def __init__(self, checker: Checker, around: Boundary) -> None:
        """Stand before a checker.

        Args:
            checker: that grades.
            around: its boundary.
        """
        self.name, self.version = checker.name, checker.version
        rules: dict[str, Rule] = {"grade": _ungraded, "group": _misgrouped}
        guarded = checker if around.ours else Guard(checker, Checker, around, rules)
        self._checker, self._around = guarded, around
        self.key, self.group = self._checker.key, self._checker.group  # type: ignore[method-assign]
        self.states_answer = self._checker.states_answer  # type: ignore[method-assign]
        self._last = time.monotonic()
        self._file = inspect.getfile(type(checker).grade)
        self._has_graded = False
        self._failures: Counter[str] = Counter()

    async def refuse(self, problem: Problem, aside: Aside = here) -> str | None:
        """Ask the checker; see `Checker`."""
        asked = self._checker.refuse(problem, self._watched("refuse", aside))
        return await self._returned("refuse", asked)

    async def grade(self, items: Sequence[GradeItem], aside: Aside = here) -> Sequence[Grade]:
        """Grade completions; see `Checker`.

        An exception on several completions is tried on each of them alone.

        Raises:
            CheckerError: every grade so far has ended with an exception, and `MAX_FAILURES` of them
                with the same one.
            ComponentError: the checker does not give one grade a completion.
        """
        asked = self._checker.grade(items, self._watched("grade", aside))
        try:
            grades: Sequence[Grade] = await self._returned("grade", asked)
        except Exception as error:  # whatever a checker raises: it did not decide
            cause = _cause(error)
            if len(items) > 1:
                return [grade for item in items for grade in await self.grade([item], aside)]
            grades = [raised_grade(cause, self._file)]
        for grade in grades:
            self._count(grade)
        return grades

    def grade_now(self, item: GradeItem) -> Grade | None:
        """Grade one completion in the caller's own thread, without an event loop.

        Its failures are not counted.

        Returns:
            The grade; None if only `grade` can give it, since the checker awaits something.

        Raises:
            ComponentError: the checker gives something else than a grade.
        """
        now: Callable[[GradeItem], Grade | None] | None
        now = getattr(self._checker, "grade_now", None)
        if now is None:
            return None
        must: Any = Any if self._around.ours else Grade | None
        try:
            found: Grade | None = self._around.call("grade", now, item, must=must)
        except Exception as error:  # whatever a checker raises: it did not decide
            return raised_grade(_cause(error), self._file)
        return found

    def _watched(self, method: str, aside: Aside) -> Aside:
        """Runs the checker's functions elsewhere, each of which must return."""

        def watched(work: Callable[[], T], /) -> Awaitable[T]:
            return aside(lambda: self._around.watched(method, work))

        return aside if self._around.ours else watched

    async def _returned(self, method: str, asked: Coroutine[Any, Any, T]) -> T:
        """What a coroutine of the checker gives.

        Raises:
            ComponentError: no call of the checker has ended for too long.
        """
        if self._around.ours:
            return await asked
        task = asyncio.ensure_future(asked)
        begun, limit = time.monotonic(), PATIENCE * boundary.HANG_S
        try:
            while not (await asyncio.wait({task}, timeout=limit))[0]:
                silent = time.monotonic() - max(begun, self._last)
                if silent >= limit:
                    raise self._around.broken(method, f"has not returned for {silent:.0f} s")
            self._last = time.monotonic()
            return task.result()
        finally:
            task.cancel()

    def _count(self, grade: Grade) -> None:
        if grade.failure is None:
            self._has_graded = True
        if grade.failure is None or self._has_graded:
            return
        self._failures[grade.failure] += 1
        if self._failures[grade.failure] >= MAX_FAILURES:
            raise CheckerError(
                f"checker={self.name}: all of its first {self._failures.total()} grades failed, "
                f"{MAX_FAILURES} of them alike: {grade.reason}. A checker must grade some "
                "completions. Mend it, try it on one of them (mclabel.grade(completion, gold, "
                "checker=…)), and run the same command again: what was sampled is kept, and the "
                "mended checker grades it"
            )


def _cause(error: Exception) -> Exception:
    """What a checker raised, unless that has a message for the user, which is raised."""
    cause = error.__cause__ if isinstance(error, ComponentError) else error
    if not isinstance(cause, Exception) or isinstance(cause, MclabelError):
        raise error
    return cause


def _ungraded(found: Sequence[Grade], items: Sequence[GradeItem], aside: object) -> str | None:
    return miscounted("grades of", found, "completion", len(items))


def _misgrouped(
    found: Sequence[Sequence[int | None]], answers: Sequence[Sequence[str | None]]
) -> str | None:
    if [len(group) for group in found] == [len(group) for group in answers]:
        return None
    return f"gave {shown(found)}, must give a number, or None, for each of its answers"


def shown_reason(reason: str) -> str:
    """A reason on one line, bounded, and without what a file or a terminal cannot hold."""
    return clipped(reason, MAX_REASON)


def is_failure(reason: str) -> bool:
    """Whether the reason of a grade tells of a fault of the checker."""
    return reason.startswith((_RAISED, _RETURNED))


def is_weak(reason: str) -> bool:
    """Whether the reason of a grade says that its verdict is weak: the answer was only guessed, or
    the tests ran in the program's own process.
    """
    return reason.startswith((GUESS, WEAK_PREFIX))


def common_reason(reason: str) -> str:
    """A reason to count by: of a fault without its text, which may differ for each completion."""
    return reason.partition(": ")[0] if is_failure(reason) else reason


def nonsense_grade(found: object, allowed: str) -> Grade:
    """The grade that a result amounts to which is none.

    Args:
        found: what the checker returned.
        allowed: what it may return.
    """
    name = type(found).__name__
    reason = f"{_RETURNED}{name}: must be {allowed}"
    return Grade(verdict=Verdict.UNKNOWN, reason=reason, failure=f"returned {name}")


def raised_grade(error: Exception, file: str) -> Grade:
    """The grade that an exception of a checker amounts to.

    Args:
        error: that the checker raised.
        file: path of the checker's source. The place of the failure is the last line in it that
            ran, or where the exception was raised if none did.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or frames[-1:]
    place = "".join(f" at {Path(frame.filename).name}:{frame.lineno}" for frame in own[-1:])
    failure = f"{type(error).__name__}{place}"
    return Grade(
        verdict=Verdict.UNKNOWN,
        reason=shown_reason(f"{_RAISED}{failure}: {error}"),
        failure=failure,
    )
