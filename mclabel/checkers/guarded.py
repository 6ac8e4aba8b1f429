"""What stands around every checker: its exceptions are grades without a verdict, up to a limit.

A checker that raises now and then has not decided about those completions, and the reason says
what it raised. One that raises the same exception on every completion is broken, and a job with it
would roll out for hours and learn nothing: it ends the job.
"""

from __future__ import annotations

import inspect
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mclabel.checkers.base import Aside, Checker, CheckerSettings, Grade, GradeItem, here
from mclabel.errors import CheckerError, MclabelError
from mclabel.records import Problem, Verdict

MAX_FAILURES = 32
"""Grades that fail alike, and none that does not before them, which end a job."""
_RAISED, _RETURNED = "the checker raised ", "the checker returned "
"""How the reasons of failed grades begin."""
MAX_REASON = 500
"""Characters of a reason."""


def make_checker(settings: CheckerSettings) -> Checker:
    """Make the checker that settings name.

    Raises:
        ConfigError: its code cannot be imported.
    """
    return GuardedChecker(settings.component(settings))


class GuardedChecker(Checker):
    """A checker whose exceptions are counted."""

    def __init__(self, checker: Checker) -> None:
        """Stand around a checker.

        Args:
            checker: that grades.
        """
        self.name, self.version = checker.name, checker.version
        self._checker = checker
        self._file = inspect.getfile(type(checker).grade)
        self._has_graded = False
        self._failures: Counter[str] = Counter()

    async def refuse(self, problem: Problem, aside: Aside = here) -> str | None:
        """Ask the checker; see `Checker`."""
        return await self._checker.refuse(problem, aside)

    async def grade(self, items: Sequence[GradeItem], aside: Aside = here) -> Sequence[Grade]:
        """Grade completions; see `Checker`.

        An exception on several completions is tried on each of them alone.

        Raises:
            CheckerError: every grade so far has ended with an exception, and `MAX_FAILURES` of them
                with the same one.
        """
        try:
            grades = await self._checker.grade(items, aside)
        except MclabelError:  # has a message for the user
            raise
        except Exception as error:  # whatever a checker raises: it did not decide
            if len(items) > 1:
                return [grade for item in items for grade in await self.grade([item], aside)]
            grades = [raised_grade(error, self._file)]
        for grade in grades:
            self._count(grade)
        return grades

    def key(self, answer: str) -> str:
        """Ask the checker; see `Checker`."""
        return self._checker.key(answer)

    def group(self, answers: Sequence[Sequence[str | None]]) -> list[list[int | None]]:
        """Ask the checker; see `Checker`."""
        return self._checker.group(answers)

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


def shown_reason(reason: str) -> str:
    """A reason on one line, bounded, and without what a file or a terminal cannot hold."""
    line = " ".join(reason.split())
    text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in line)
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"


def is_failure(reason: str) -> bool:
    """Whether the reason of a grade tells of a fault of the checker."""
    return reason.startswith((_RAISED, _RETURNED))


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
