"""What scores the beginnings of solutions in a search, by name: a number in [0, 1] a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

from mclabel.core.boundary import guarded, miscounted
from mclabel.core.errors import DataError
from mclabel.core.records import Chance, Many, Problem, Step
from mclabel.core.settings import ComponentSettings
from mclabel.domains.registry import carries_truth, true_first_error
from mclabel.engines.devices import ONE_CPU, EngineResources

if TYPE_CHECKING:
    pass


SCORERS: Mapping[str, str] = {
    "prm": "mclabel.search.prm_scorer:PrmScorer",
    "constant": "mclabel.search.scorers:ConstantScorer",
    "exact": "mclabel.search.scorers:ExactScorer",
}
"""Name of each built-in scorer in a configuration, and where its class stands."""


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """A beginning of a solution that continues one which was scored."""

    problem: Problem
    steps: tuple[Step, ...]
    """All steps from the first."""
    ids: tuple[int, ...]
    """Of all steps, in the policy's tokens."""
    num_new: int
    """Steps that the scored beginning did not have, at least one."""
    parent: Any
    """What the scorer has kept of that beginning; None of the problem alone."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The scores of a beginning, and what they cost."""

    scores: Many[Chance]
    """One in [0, 1] for every step."""
    kept: Any = None
    """What the scorer wants to be given as `parent` when the beginning is continued. It is dropped
    with the search of the problem."""
    num_computed: int = 0
    """Tokens that were computed for it, prompt included."""
    num_cached: int = 0
    """Tokens before them that were found computed."""


class StepScorerSettings(ComponentSettings):
    """Settings that every scorer of steps has."""

    component_kind: ClassVar[str] = "scorers"


class StepScorer(ABC):
    """Scores beginnings of solutions. Derive from it for the defaults.

    `Settings` is the class of its settings; a configuration that names the scorer by `kind` holds
    the others beside it.
    """

    Settings: ClassVar[type[StepScorerSettings]] = StepScorerSettings
    is_truth: ClassVar[bool] = False
    """True if it knows the truth: a search by it shows what the method could reach."""
    settings: Any

    def __init__(self, settings: Any) -> None:
        """Make a scorer, without loading anything.

        Args:
            settings: an instance of `Settings`.
        """
        self.settings = settings

    def known(self) -> dict[str, Any]:
        """What scores depend on beside the settings, such as the hash of a model's weights.

        Returns:
            JSON values by name; one with the name of a setting takes its place.
        """
        return {}

    def check(self) -> None:
        """See that all it needs is there, before a job writes anything.

        Raises:
            MclabelError: something is missing; the message has the remedy.
        """
        return

    def num_parameters(self) -> int:
        """Number of its model's parameters, by which its cost is reckoned; 0 without a model."""
        return 0

    def resources(self) -> EngineResources:
        """CPUs and GPUs that it takes of a cluster."""
        return ONE_CPU

    async def start(self) -> None:
        """Load what it needs, where it is to live."""
        return

    @abstractmethod
    async def score(self, beginning: Beginning) -> Scored:
        """Score a beginning. Called for many at a time.

        Raises:
            EngineDied: what it runs on is gone.
            DataError: it cannot be scored; the search does not go on from there.
        """
        ...

    async def close(self) -> None:
        """Free what `start` has loaded."""
        return


def make_scorer(settings: StepScorerSettings) -> StepScorer:
    """Make the scorer that settings name, behind its boundary, without loading anything.

    Raises:
        ConfigError: they name no scorer.
        ComponentError: it cannot be made.
    """
    return cast(StepScorer, guarded(StepScorer, settings, rules={"score": _fault}))


def _fault(found: Scored, beginning: Beginning) -> str | None:
    return miscounted("scores for", found.scores, "step", len(beginning.steps))


class ConstantScorer(StepScorer):
    """Gives every step the same score."""

    class Settings(StepScorerSettings):
        """One score for every step, at no cost."""

    async def score(self, beginning: Beginning) -> Scored:
        """The same for every step."""
        return Scored(scores=(0.5,) * len(beginning.steps))


class ExactScorer(StepScorer):
    """Scores 1 up to the first wrong step, and 0 from there."""

    class Settings(StepScorerSettings):
        """The truth, which problems of arith and pyarith carry: 1 up to the first wrong step, 0
        from there. It shows what a method could reach with a scorer that never errs.
        """

    is_truth: ClassVar[bool] = True

    async def score(self, beginning: Beginning) -> Scored:
        """Compute the first wrong step."""
        problem = beginning.problem
        if not carries_truth(problem.meta):
            raise DataError(
                f"problem {problem.id}: scorer.kind=exact works only for arith and pyarith, and "
                "this is not one"
            )
        error = true_first_error(problem.meta, [step.text for step in beginning.steps])
        num_sound = len(beginning.steps) if error is None else error
        return Scored(scores=tuple(float(i < num_sound) for i in range(len(beginning.steps))))
