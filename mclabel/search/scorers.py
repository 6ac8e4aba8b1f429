"""Protocol of step scorers, which give each step of a prefix a score in [0, 1]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from mclabel.core.boundary import check_item_count, make_guarded
from mclabel.core.errors import DataError
from mclabel.core.records import Probability, Problem, Step, TupleOf
from mclabel.core.settings import ComponentSettings
from mclabel.domains.registry import find_true_first_error, has_known_truth
from mclabel.engines.devices import ONE_CPU, EngineResources

SCORERS: Mapping[str, str] = {
    "prm": "mclabel.search.prm_scorer:PrmScorer",
    "constant": "mclabel.search.scorers:ConstantScorer",
    "exact": "mclabel.search.scorers:ExactScorer",
}
"""Maps the name of a built-in scorer in a configuration to its class, as `module:Class`."""


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Prefix of a solution to be scored. It extends an already scored prefix by new steps."""

    problem: Problem
    steps: tuple[Step, ...]
    """All steps of the prefix."""
    ids: tuple[int, ...]
    """Token ids of all steps, by the policy's tokenizer."""
    num_new: int
    """Number of steps after the already scored prefix, at least 1."""
    parent: Any
    """State that the scorer kept for the already scored prefix (`Scored.kept`); None if that prefix
    is empty."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Scores of a prefix, and the cost of computing them."""

    scores: TupleOf[Probability]
    """Score in [0, 1] of every step."""
    kept: Any = None
    """State that the scorer receives as `Beginning.parent` when the prefix is extended. It is
    released at the end of the problem's search."""
    num_computed: int = 0
    """Number of tokens that the scorer computed, including tokens of the prompt."""
    num_cached: int = 0
    """Number of tokens that the scorer reused from its cache."""


class StepScorerSettings(ComponentSettings):
    """Settings of every step scorer."""

    component_kind: ClassVar[str] = "scorers"


class StepScorer(ABC):
    """Base class of scorers of prefixes of solutions.

    `Settings` is the class of the scorer's settings. In a configuration these settings stand beside
    the key `kind`, which names the scorer.
    """

    Settings: ClassVar[type[StepScorerSettings]] = StepScorerSettings
    is_truth: ClassVar[bool] = False
    """True if the scores are the true correctness of the steps. A search with such a scorer shows
    the upper limit of a method."""
    settings: Any

    def __init__(self, settings: Any) -> None:
        """Make a scorer, without loading anything.

        Args:
            settings: an instance of `Settings`.
        """
        self.settings = settings

    def identity_inputs(self) -> dict[str, Any]:
        """Return facts besides the settings on which the scores depend, such as a hash of weights.

        Returns:
            JSON values by name. A value with the name of a setting replaces the setting in the
            identity of a run.
        """
        return {}

    def check_ready(self) -> None:
        """Check that everything that the scorer needs is present, before a job writes anything.

        Raises:
            MclabelError: something is missing; the message has the remedy.
        """
        return

    def num_parameters(self) -> int:
        """Return the number of parameters of the scorer's model, or 0, to estimate costs."""
        return 0

    def resources(self) -> EngineResources:
        """Return the CPUs and GPUs that the scorer needs on a cluster."""
        return ONE_CPU

    async def start(self) -> None:
        """Load the scorer's models and files on the machine where the scorer runs."""
        return

    @abstractmethod
    async def score(self, beginning: Beginning) -> Scored:
        """Score a prefix. This method is called concurrently for many prefixes.

        Raises:
            EngineDied: the scorer's engine or device has failed.
            DataError: the prefix cannot be scored, so the search does not continue it.
        """

    async def close(self) -> None:
        """Release the models and files that `start` loaded."""
        return


def make_scorer(settings: StepScorerSettings) -> StepScorer:
    """Make the scorer that settings name, without loading anything.

    It is wrapped so that the types and ranges of its results are checked.

    Raises:
        ConfigError: the settings name no scorer.
        ComponentError: the constructor of a user's scorer failed.
    """
    rules = {
        "score": lambda scored, beginning: check_item_count(
            "scores for", scored.scores, "step", len(beginning.steps)
        )
    }
    return cast(StepScorer, make_guarded(StepScorer, settings, rules=rules))


class ConstantScorer(StepScorer):
    """Scorer that gives every step the score 0.5."""

    class Settings(StepScorerSettings):
        """The same score, 0.5, for every step, at no cost."""

    async def score(self, beginning: Beginning) -> Scored:
        """Return the score 0.5 for every step."""
        return Scored(scores=(0.5,) * len(beginning.steps))


class ExactScorer(StepScorer):
    """Scorer that gives 1 to steps before the first wrong step, and 0 to that and later steps."""

    class Settings(StepScorerSettings):
        """The true correctness of steps, from problems of arith and pyarith.

        Steps before the first wrong step get 1, and that step and later steps get 0. This scorer
        shows the results of a method with a perfect scorer.
        """

    is_truth: ClassVar[bool] = True

    async def score(self, beginning: Beginning) -> Scored:
        """Return the score 1 for steps before the first wrong step, and 0 from there on."""
        problem = beginning.problem
        if not has_known_truth(problem.meta):
            raise DataError(
                f"problem {problem.id}: scorer.kind=exact works only for problems of arith and "
                "pyarith, and this is another problem. Choose scorer.kind=prm"
            )
        error = find_true_first_error(problem.meta, [step.text for step in beginning.steps])
        num_sound = len(beginning.steps) if error is None else error
        return Scored(scores=tuple(float(i < num_sound) for i in range(len(beginning.steps))))
