"""The protocol of checkers, which grade completions against the gold answer of their problem.

A verdict is right, wrong or unknown. An unknown verdict counts neither for nor against a step. If
the checker itself fails (a dead worker, an unreachable server), the verdict is unknown, never
wrong.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from mclabel.core.components import allow_components, list_component_names
from mclabel.core.config.load import check_config
from mclabel.core.notebook import render_table_html
from mclabel.core.records import Problem, Verdict
from mclabel.core.settings import Chosen, ComponentSettings, Settings

T = TypeVar("T")
WEAK_PREFIX = "weak: "
"""Prefix of a verdict's reason if the tested program could have forged the verdict."""


class ThreadRunner(Protocol):
    """Type of async functions that run blocking work, usually in a thread beside the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run `work`, usually in another thread, and return its result or raise its exception."""


async def run_inline(work: Callable[[], T], /) -> T:
    """Run a function immediately on the event loop.

    This is a `ThreadRunner` for callers that have no thread pool.
    """
    return work()


class CheckerSettings(ComponentSettings):
    """Base class of the settings of checkers."""

    component_kind: ClassVar[str] = "checkers"


_CHECKER = Chosen("checkers", default="math")
CheckerField = Annotated[CheckerSettings, _CHECKER]
"""Type of a configuration field that chooses a checker."""


def default_checker() -> CheckerSettings:
    """Return the settings of the default checker, which compares mathematical answers."""
    return _parse_checker_settings({})


@dataclass(frozen=True, kw_only=True, slots=True)
class GradeItem:
    """A completion to be graded."""

    problem: Problem
    """The problem with its gold answer: the text `answer`, or the data `gold`."""
    completion: str
    """The whole solution: the prefix and the sampled continuation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grade:
    """A verdict with the answer it concerns and its reason."""

    verdict: Verdict
    answer: str | None = None
    """The answer extracted from the completion; None if there is none."""
    reason: str = ""
    """Machine-readable reason for the verdict, such as `equal`, `different`, `no_answer`,
    `timeout`. It begins with `guess` if the completion does not say which of its values is the
    answer, and with `WEAK_PREFIX` if a program could have forged the verdict. Such verdicts are
    weak."""
    layer: str = ""
    """Name of the part of the checker that decided on the verdict."""
    failure: str | None = None
    """Error inside the checker that prevented a verdict: the type and source line of an exception,
    or a result of a wrong type. None if there was no error."""

    def _repr_html_(self) -> str:
        """Return the HTML table that a notebook displays."""
        return render_table_html(
            {"verdict": self.verdict, "answer": self.answer, "reason": self.reason}
        )


class Checker(Protocol):
    """Grades completions.

    A checker should derive from this class to get its default methods. `Settings` is the class of
    the checker's settings. A configuration has these settings beside `kind`, the checker's name.
    """

    Settings: ClassVar[type[CheckerSettings]] = CheckerSettings
    name: str
    """Name by which a configuration chooses the checker."""
    version: str
    """Version of the checker, which must change whenever a verdict may change. A run cannot be
    resumed with a different version."""

    def __init__(self, settings: Any) -> None:
        """Create a checker.

        Args:
            settings: an instance of `Settings`.
        """

    async def refuse(self, problem: Problem, run_blocking: ThreadRunner = run_inline) -> str | None:
        """Return the reason why completions of a problem cannot be graded; None if they can.

        Args:
            problem: the problem with its gold answer.
            run_blocking: function that runs blocking work outside the event loop.
        """
        return None

    @abstractmethod
    async def grade(
        self, items: Sequence[GradeItem], run_blocking: ThreadRunner = run_inline
    ) -> Sequence[Grade]:
        """Grade completions that were not cut off by the token limit.

        Args:
            items: completions of one or several problems.
            run_blocking: function that runs blocking work outside the event loop.

        Returns:
            One grade per item, in order.
        """

    def states_answer(self, step: str) -> bool:
        """Return whether an intermediate step of a solution states an answer.

        If it does, `grade` can grade the step as if it were a whole completion.
        """
        return False

    def key(self, answer: str) -> str:
        """Return a key that is equal for equivalent answers."""
        return answer

    def group(self, answers: Sequence[Sequence[str | None]]) -> list[list[int | None]]:
        """Group the equivalent answers to each problem, for majority votes.

        Args:
            answers: for each problem, the answers of its completions; None for a completion without
                an answer.

        Returns:
            For each problem, a group number per answer, in the same order. Equivalent answers have
            equal numbers. The number of a missing answer is None.
        """
        numbered_groups: list[list[int | None]] = []
        for group_answers in answers:
            number_of_key: dict[str, int] = {}
            numbered_groups.append(
                [
                    None
                    if answer is None
                    else number_of_key.setdefault(self.key(answer), len(number_of_key))
                    for answer in group_answers
                ]
            )
        return numbered_groups


def read_recorded_checker(recorded: Any) -> CheckerSettings:
    """Return the settings of the checker that a run's manifest records.

    Third-party code is not imported.

    Args:
        recorded: value of `checker` in the manifest. Any value that is not a mapping selects the
            default checker.

    Raises:
        PydanticCustomError: the checker no longer exists, its settings have changed, or it is
            third-party code (`mclabel.core.components.allow_components`).
    """
    if not isinstance(recorded, Mapping):
        return default_checker()
    with allow_components(()):
        return _parse_checker_settings(keep_valid_keys(recorded))


def _parse_checker_settings(content: Mapping[str, Any]) -> CheckerSettings:
    settings = _CHECKER.settings(content)
    assert isinstance(settings, CheckerSettings)
    return settings


def keep_valid_keys(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a manifest's `checker` that are valid in a configuration.

    These are all entries but `version`.
    """
    return {name: value for name, value in recorded.items() if name != "version"}


class _CheckerConfig(Settings):
    checker: CheckerField


def validate_checker_settings(checker: Any) -> CheckerSettings:
    """Return the validated settings of a checker.

    Settings of built-in checkers are cached by their content. A class or function of the user is
    imported on every call, since a notebook may redefine it.

    Args:
        checker: name of a checker, its settings, or a mapping of their keys, including `kind`.

    Raises:
        ConfigError: the checker does not exist or its settings are invalid. The message lists all
            errors.
    """
    content = {"kind": checker} if isinstance(checker, str) else checker
    built_in = list_component_names("checkers", built_in=True)
    if not isinstance(content, dict) or content.get("kind", "math") not in built_in:
        return _validate_uncached_settings(checker)
    try:
        text = json.dumps(content, sort_keys=True)
    except (TypeError, ValueError, RecursionError):  # not JSON, for example settings
        return _validate_uncached_settings(checker)
    return _parse_cached_settings(text)


@lru_cache(maxsize=256)
def _parse_cached_settings(text: str) -> CheckerSettings:
    return _validate_uncached_settings(json.loads(text))


def _validate_uncached_settings(checker: Any) -> CheckerSettings:
    return check_config(_CheckerConfig, {"checker": checker}).checker
