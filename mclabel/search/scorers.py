"""The protocol of step scorers, which give each step of a prefix a score in [0, 1]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from mclabel.core.boundary import guarded, miscounted
from mclabel.core.errors import DataError
from mclabel.core.records import Chance, Many, Problem, Step
from mclabel.core.settings import ComponentSettings
from mclabel.domains.registry import carries_truth, true_first_error
from mclabel.engines.devices import ONE_CPU, EngineResources

SCORERS: Mapping[str, str] = {
    "prm": "mclabel.search.prm_scorer:PrmScorer",
    "constant": "mclabel.search.scorers:ConstantScorer",
    "exact": "mclabel.search.scorers:ExactScorer",
}
"""Import path of each built-in scorer, by its name in a configuration."""


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Prefix of a solution that extends an already scored prefix by at least one step."""

    problem: Problem
    steps: tuple[Step, ...]
    """All steps of the prefix."""
    ids: tuple[int, ...]
    """Token ids of all steps, by the policy's tokenizer."""
    num_new: int
    """Number of steps behind the scored prefix, at least 1."""
    parent: Any
    """State that the scorer kept for the scored prefix; None at the root."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Scores of a prefix, and their cost."""

    scores: Many[Chance]
    """Score in [0, 1] of every step."""
    kept: Any = None
    """State that is passed to the scorer as `parent` when the prefix is continued. It is released
    at the end of the problem's search."""
    num_computed: int = 0
    """Tokens that were computed, including the prompt."""
    num_cached: int = 0
    """Tokens before them that were reused from the cache."""


class StepScorerSettings(ComponentSettings):
    """Settings of every step scorer."""

    component_kind: ClassVar[str] = "scorers"


class StepScorer(ABC):
    """Scorer of prefixes of solutions. Derive from it for the defaults.

    `Settings` is the class of its settings; a configuration that names the scorer by `kind` holds
    the others beside it.
    """

    Settings: ClassVar[type[StepScorerSettings]] = StepScorerSettings
    is_truth: ClassVar[bool] = False
    """True if the scores are the truth; a search with it shows the limit of a method."""
    settings: Any

    def __init__(self, settings: Any) -> None:
        """Make a scorer, without loading anything.

        Args:
            settings: an instance of `Settings`.
        """
        self.settings = settings

    def known(self) -> dict[str, Any]:
        """Return the inputs of scores besides the settings, such as a hash of the model's weights.

        Returns:
            JSON values by name; one with the name of a setting takes its place.
        """
        return {}

    def check(self) -> None:
        """Check that everything it needs is present, before a job writes anything.

        Raises:
            MclabelError: something is missing; the message has the remedy.
        """
        return

    def num_parameters(self) -> int:
        """Return the number of its model's parameters, for estimates of cost; 0 without a model."""
        return 0

    def resources(self) -> EngineResources:
        """Return the CPUs and GPUs that it needs of a cluster."""
        return ONE_CPU

    async def start(self) -> None:
        """Load the scorer's models and files, on the machine where it runs."""
        return

    @abstractmethod
    async def score(self, beginning: Beginning) -> Scored:
        """Score a prefix. It is called for many prefixes concurrently.

        Raises:
            EngineDied: the scorer's engine or device has failed.
            DataError: the prefix cannot be scored, so the search does not continue it.
        """

    async def close(self) -> None:
        """Release the resources that `start` has loaded."""
        return


def make_scorer(settings: StepScorerSettings) -> StepScorer:
    """Make the scorer that settings name, behind its boundary, without loading anything.

    Raises:
        ConfigError: they name no scorer.
        ComponentError: it cannot be made.
    """
    return cast(StepScorer, guarded(StepScorer, settings, rules={"score": _fault}))


def _fault(scored: Scored, beginning: Beginning) -> str | None:
    return miscounted("scores for", scored.scores, "step", len(beginning.steps))


class ConstantScorer(StepScorer):
    """Scorer that gives every step the same score."""

    class Settings(StepScorerSettings):
        """One score for every step, at no cost."""

    async def score(self, beginning: Beginning) -> Scored:
        """Return the same score for every step."""
        return Scored(scores=(0.5,) * len(beginning.steps))


class ExactScorer(StepScorer):
    """Scorer that gives 1 before the first wrong step, and 0 from it on."""

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
