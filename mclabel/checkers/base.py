"""What a checker is: it grades completions by the gold of their problem.

Three-valued: what a checker cannot decide is unknown, which counts neither for nor against a step.
A failure of its own (a worker that died, a server that is away) is unknown too, never wrong.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from mclabel.core.components import component_names, within
from mclabel.core.config.load import check_config
from mclabel.core.records import Problem, Verdict
from mclabel.core.settings import Chosen, ComponentSettings, Settings

T = TypeVar("T")
WEAK_PREFIX = "weak: "
"""How the reason of a verdict begins if the program that was tested could have forged it."""


class Aside(Protocol):
    """Runs a blocking function outside the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run the function; return what it returns, or raise what it raises."""


async def here(work: Callable[[], T], /) -> T:
    """Run a function at once, on the event loop: an `Aside` for callers that have nothing else."""
    return work()


class CheckerSettings(ComponentSettings):
    """Settings that every checker has."""

    component_kind: ClassVar[str] = "checkers"


_CHECKER = Chosen("checkers", default="math")
CheckerField = Annotated[CheckerSettings, _CHECKER]
"""Type of a configuration field that chooses a checker."""


def default_checker() -> CheckerSettings:
    """Settings of the default checker, which compares mathematical answers."""
    return _checker_settings({})


@dataclass(frozen=True, kw_only=True, slots=True)
class GradeItem:
    """A completion to be graded."""

    problem: Problem
    """The problem with its gold answer: the text `answer`, or the data `gold`."""
    completion: str
    """The whole solution: the prefix it continues, and what was sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grade:
    """A verdict, and how it was reached."""

    verdict: Verdict
    answer: str | None = None
    """The answer extracted from the completion; None if there is none."""
    reason: str = ""
    """Machine-readable reason for the verdict, such as `equal`, `different`, `no_answer`,
    `timeout`. It begins with `guess` if the completion does not say which of its values is the
    answer, and with `WEAK_PREFIX` if a program could have forged it: either is a weak verdict."""
    layer: str = ""
    """The part of the checker that decided."""
    failure: str | None = None
    """Error inside the checker that prevented a verdict: type and place of an exception, or a
    result of a wrong type. None if there was no error."""


class Checker(Protocol):
    """Grades completions.

    Derive from it for the defaults. `Settings` is the class of its settings; a configuration that
    names the checker by `kind` holds the others beside it.
    """

    Settings: ClassVar[type[CheckerSettings]] = CheckerSettings
    name: str
    """Name by which a configuration chooses the checker."""
    version: str
    """Version of the checker, which must change whenever a verdict may change. A run cannot be
    resumed with a different version."""

    def __init__(self, settings: Any) -> None:
        """Make a checker.

        Args:
            settings: an instance of `Settings`.
        """

    async def refuse(self, problem: Problem, aside: Aside = here) -> str | None:
        """Say why no completion of a problem can be graded; None if they can be graded.

        Args:
            problem: with its gold.
            aside: runs what computes off the event loop.
        """
        return None

    @abstractmethod
    async def grade(self, items: Sequence[GradeItem], aside: Aside = here) -> Sequence[Grade]:
        """Grade completions that were not cut by their length.

        Args:
            items: completions of one problem or of many.
            aside: runs what computes off the event loop.

        Returns:
            One grade per item, in order.
        """

    def states_answer(self, step: str) -> bool:
        """Whether a step of a solution commits to an answer on the way, which `grade` can grade if
        it is given that step alone.
        """
        return False

    def key(self, answer: str) -> str:
        """A key that is equal for equivalent answers."""
        return answer

    def group(self, answers: Sequence[Sequence[str | None]]) -> list[list[int | None]]:
        """Number the answers to many problems by equivalence, for majority votes.

        Args:
            answers: of each problem's completions; None where there is none.

        Returns:
            For each problem, one number per answer: equal numbers for equivalent answers, None for
            None.
        """
        found: list[list[int | None]] = []
        for group in answers:
            numbers: dict[str, int] = {}
            found.append(
                [
                    None if one is None else numbers.setdefault(self.key(one), len(numbers))
                    for one in group
                ]
            )
        return found


def recorded_checker(recorded: Any) -> CheckerSettings:
    """Settings of the checker that a run's manifest names, which runs nothing of anybody's.

    Args:
        recorded: the manifest's `checker`; without one it is the default.

    Raises:
        PydanticCustomError: there is no such checker any more, its settings are other ones, or it
            is code of anybody's (`mclabel.core.components.within`).
    """
    if not isinstance(recorded, Mapping):
        return default_checker()
    with within(()):
        return _checker_settings(recorded_keys(recorded))


def _checker_settings(content: Mapping[str, Any]) -> CheckerSettings:
    found = _CHECKER.settings(content)
    assert isinstance(found, CheckerSettings)
    return found


def recorded_keys(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of `checker` in a configuration from those in a manifest."""
    return {name: value for name, value in recorded.items() if name != "version"}


class _Chosen(Settings):
    checker: CheckerField


def chosen_settings(checker: Any) -> CheckerSettings:
    """The checked settings of a checker.

    Those of mclabel's own checkers are kept by their content. A class or a function of the caller's
    is looked up anew each time, since a notebook may define it again.

    Args:
        checker: its name, its settings, or their keys and values with `kind` among them.

    Raises:
        ConfigError: there is no such checker, or its settings are wrong; the message lists all
            faults.
    """
    content = {"kind": checker} if isinstance(checker, str) else checker
    if not isinstance(content, dict):
        return _read(checker)
    if content.get("kind", "math") not in component_names("checkers", built_in=True):
        return _read(checker)
    try:
        text = json.dumps(content, sort_keys=True)
    except (TypeError, ValueError, RecursionError):  # holds what JSON does not, such as settings
        return _read(checker)
    return _kept(text)


@lru_cache(maxsize=256)
def _kept(text: str) -> CheckerSettings:
    content: Mapping[str, Any] = json.loads(text)
    return _read(content)


def _read(checker: Any) -> CheckerSettings:
    return check_config(_Chosen, {"checker": checker}).checker
