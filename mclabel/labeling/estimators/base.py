"""The interface of estimators: pure state machines that decide which prefixes to roll out.

One estimator serves one problem. It receives the problem's solutions as paths through a set of
prefixes, requests rollouts, records their outcomes in whatever order they arrive, and in the end
labels every step. It uses no engine, no thread, no clock and no randomness, so the same outcomes
always give the same labels. Models that sample rollouts are called completers.

A class derived from `Estimator` has to implement only `wanted`, `record` and `judge`.
docs/extending-estimator.md builds an example estimator step by step.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import Field

from mclabel.core.boundary import Boundary
from mclabel.core.records import (
    Counts,
    Index,
    LabelSource,
    Outcome,
    Probability,
    StepState,
    TupleOf,
)
from mclabel.core.seeds import ID_LENGTH
from mclabel.core.settings import ComponentSettings, at_most
from mclabel.core.stats.values import NOTHING, StepEstimate, TruncatedPolicy
from mclabel.labeling.estimators.paths import Probe, ProblemPaths, RecordedRollout

MAX_SOURCE = 64
"""Maximum length of an entry of `Judgement.sources`, in characters."""
MAX_ROLLOUTS = 16_384
"""Maximum number of rollouts from one prefix."""
SLOW_DECISIONS = (
    "the estimator computes each decision over all possible outcomes, and the time for this grows "
    "with the square of the number. estimator.kind=fixed allows more"
)
"""Reason that error messages give for the limit on `rollouts` of an estimator that computes its
decisions over all possible outcomes."""
MAX_LAG = 256
"""Maximum number of problems that `RunLearner.lag` may return."""
TEXTS_IN_MEMORY = "the text of every rollout is held in memory until its block is committed"
"""Reason that error messages give for a limit on a number of rollouts."""

Follow = Literal["nothing", "known", "all"]
"""Selects which prefixes that a rollout passes through are reported to the estimator: `nothing`
reports none, `known` those that are already in the problem's table of prefixes, and `all` every
one, adding new prefixes to the table."""


class EstimatorSettings(ComponentSettings):
    """Settings that every estimator has."""

    component_kind: ClassVar[str] = "estimators"

    truncated: TruncatedPolicy = "wrong"
    """Effect of a truncated rollout: `wrong` counts it as wrong, `exclude` leaves it out, which
    biases values upwards."""

    @property
    def summary(self) -> str:
        """A short description of the estimator and its rollouts, for display."""
        return self.kind


class RolloutSettings(EstimatorSettings):
    """Settings of estimators that sample rollouts."""

    rollouts: Annotated[int, at_most(MAX_ROLLOUTS, TEXTS_IN_MEMORY)] = Field(16, ge=1)
    """Maximum number of rollouts from each prefix. The estimators `fixed`, `first_error` and `tree`
    sample exactly this number from each prefix that they roll out."""

    @property
    def summary(self) -> str:
        """A short description of the estimator and its rollouts, for display."""
        return f"{self.kind}, at most {self.rollouts} per prefix"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An estimator's labels of one solution."""

    hard: TupleOf[bool | None]
    """One label per step: True if the policy can still reach the right answer after the step, False
    if it cannot, None if this is undecided."""
    sources: TupleOf[Annotated[LabelSource, Field(min_length=1, max_length=MAX_SOURCE)]]
    """One name per step: the kind of observation on which the step's label is based, such as its
    rollouts or the solution's outcome."""
    first_error: Index | None
    """Index of the first wrong step, from 0. None if no step is wrong, or if the first error is
    undecided; in the second case at least one entry of `hard` is None."""
    estimates: TupleOf[StepEstimate]
    """One estimate per step: its value, and an interval that is valid under the rule by which the
    step's rollouts were stopped."""
    posterior: TupleOf[Probability] | None = None
    """[steps + 1]: for each step, the probability that it is the first wrong one, and last the
    probability that no step is wrong. None if the estimator computes no probabilities."""
    states: TupleOf[StepState | None] | None = None
    """One state per step, from an estimator that also labels steps after the first error. An entry
    is None if the state is uncertain."""
    root: StepEstimate | None = None
    """Value of the problem before its first step, if its rollouts were stopped depending on their
    outcomes. None if the fraction of right answers among these rollouts and the sampled solutions
    is an unbiased value."""

    @property
    def is_decided(self) -> bool:
        """Return whether the labels locate the first error, or establish that there is none."""
        return self.first_error is not None or all(self.hard[:-1])


class Knowledge(Protocol):
    """Parameters of an estimator that a `RunLearner` fitted to other problems of a run.

    A class that derives from this one inherits `id`, a hash of its parameters.
    """

    @property
    def id(self) -> str:
        """Hash of the content, which names the file `priors/ID.json` of the run."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:ID_LENGTH]

    @abstractmethod
    def to_json(self) -> str:
        """Return the content as JSON, the text of its file."""


class RunLearner(Protocol):
    """Fits an estimator's parameters to the finished problems of a run; the estimators of later
    problems start from them.

    Every engine has its own learner. A class that derives from this one inherits the defaults.
    """

    @property
    @abstractmethod
    def knowledge(self) -> Knowledge:
        """The parameters learned so far, from which the estimator of the next problem starts."""

    @property
    def min_gain(self) -> float | None:
        """The minimum expected gain for which the next problem's estimator requests rollouts.

        It is stored with the problem's labels. None if the estimator has no such threshold.
        """
        return None

    def lag(self, number: int) -> int:
        """Return the distance in problems from a problem to the latest problem that it learns from.

        Problem n begins with the knowledge that was learned from the problems up to n - lag, and
        waits until these have ended. So the lag is also the maximum number of problems that an
        engine rolls out at a time. A short lag lets a run learn early; a long lag keeps an engine
        with hundreds of slots full once the run is long. The lag must not depend on timing.

        Args:
            number: index of the problem in the order in which problems begin on the engine.

        Returns:
            The lag in problems, from 1 to `MAX_LAG`. It may grow by at most 1 from one problem to
            the next.
        """
        return max(64, min(MAX_LAG, number // 2))

    @property
    def is_due(self) -> bool:
        """Return whether enough evidence has been recorded since the last fit to fit again."""
        return False

    @abstractmethod
    def record(self, problem: ProblemPaths, estimator: Any, *, num_tokens: int) -> None:
        """Record what an estimator has observed on a finished problem, for the next `fit`.

        Args:
            problem: problem that the estimator labelled.
            estimator: estimator of the problem, after its last rollout.
            num_tokens: number of tokens of the problem's rollouts.
        """

    def fit(self) -> None:
        """Fit the parameters to everything recorded. This may take seconds."""

    def adopt(self, content: str) -> None:
        """Adopt the knowledge of another engine or an earlier run if it was fitted to more
        solutions.

        Args:
            content: JSON that `to_json` of the other knowledge wrote.
        """


class Estimator(Protocol):
    """Decides which prefix of a problem to roll out next, and when to stop.

    A class that derives from this one inherits the defaults. `Settings` is the class of the
    estimator's settings. In a configuration these settings stand beside `kind`, the name of the
    estimator.
    """

    Settings: ClassVar[type[EstimatorSettings]] = EstimatorSettings
    follow: ClassVar[Follow] = "nothing"
    """Selects which of a rollout's prefixes are reported to the estimator; see `Follow`."""
    replayable: ClassVar[bool] = True
    """True if recorded rollouts can be replayed to the estimator with different verdicts, as
    `regrade` does."""
    takes_all: ClassVar[bool] = False
    """True if the estimator also receives recorded rollouts that it did not request."""
    joint: ClassVar[bool] = False
    """True if one instance serves all completers of a problem. Otherwise each completer has an
    independent instance, and the labels are those of the strongest completer's instance."""

    def __init__(self, settings: Any, problem: ProblemPaths) -> None:
        """Initialise the estimator of a problem.

        Args:
            settings: an instance of `Settings`.
            problem: problem with the paths of its solutions.
        """

    @classmethod
    def begin(
        cls,
        settings: Any,
        problem: ProblemPaths,
        *,
        knowledge: Any = None,
        min_gain: float | None = None,
    ) -> Self:
        """Make the estimator of a problem.

        Args:
            settings: an instance of `Settings`.
            problem: problem with the paths of its solutions.
            knowledge: parameters from `RunLearner.knowledge`; None if the run has no learner.
            min_gain: minimum expected gain for requesting rollouts, from `RunLearner.min_gain`;
                None keeps the setting.
        """
        return cls(settings, problem)

    @classmethod
    def learner(cls, settings: Any, read: Callable[[str], str]) -> RunLearner | None:
        """Make the learner of a run, or return None if the estimator learns nothing from other
        problems.

        Args:
            settings: an instance of `Settings`.
            read: function that returns the text of a file or URL named in the settings.
        """
        return None

    @classmethod
    def read_knowledge(cls, content: str) -> Any:
        """Parse the JSON that the learner's `Knowledge.to_json` wrote.

        Raises:
            ValueError: the content is not such JSON.
        """
        raise ValueError(
            "the labels name priors of the run, but this estimator learns nothing from other "
            "problems"
        )

    @property
    def is_due(self) -> bool:
        """Return whether the next call of `wanted` will be slow, so that `decide_together` should
        be called before it.
        """
        return False

    @classmethod
    def decide_together(cls, estimators: Sequence[Any]) -> None:
        """Compute the next decisions of many problems at once, if this is faster than one by one.

        Afterwards `wanted` of each estimator returns the same requests as without this call.

        Args:
            estimators: estimators of this class for which `is_due` is true.
        """

    @abstractmethod
    def wanted(self) -> Sequence[int | Probe]:
        """Return the indices of the prefixes to roll out, one rollout per entry.

        A `joint` estimator returns `Probe` records, which also name the completer. Each call
        returns only new requests. An empty list means that the estimator waits for outstanding
        rollouts or, if no rollout is outstanding, that it is done.
        """

    @abstractmethod
    def record(self, rollout: RecordedRollout) -> None:
        """Record the outcome of one rollout that `wanted` requested."""

    @abstractmethod
    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label the solutions once the estimator is done; return one judgement each, in order.

        Args:
            counts: counts of rollout outcomes, one entry per prefix index.
        """

    def judge_completers(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Label the solutions from the rollouts of all completers, if the estimator is `joint`.

        Args:
            counts: for each completer, counts of rollout outcomes, one entry per prefix index.
        """
        raise NotImplementedError(
            f"{type(self).__name__}: joint=True, so it must define judge_completers"
        )


def decide_together(estimators: Iterable[Estimator]) -> None:
    """Call `Estimator.decide_together` once per class for all estimators that are due."""
    due: dict[type[Estimator], list[Estimator]] = defaultdict(list)
    for estimator in estimators:
        if estimator.is_due:
            due[type(estimator)].append(estimator)
    for kind, alike in due.items():
        Boundary("estimators", kind).call("decide_together", kind.decide_together, alike)


def outcome_label(outcome: Outcome) -> bool | None:
    """Return the hard label of a solution's last step: True for a right outcome, False for a wrong
    one, None if the solution is truncated or ungraded.
    """
    return {Outcome.RIGHT: True, Outcome.WRONG: False}.get(outcome)


def outcome_estimate(outcome: Outcome) -> StepEstimate:
    """Return the value of a solution's last step: 1 for a right outcome, 0 for a wrong one, none
    otherwise.
    """
    label = outcome_label(outcome)
    return NOTHING if label is None else StepEstimate(value=float(label), low=None, high=None)
