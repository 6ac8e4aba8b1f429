"""The interface of estimators. An estimator is a pure state machine that decides what to roll out.

One estimator serves one problem. It receives the problem's solutions as paths through a set of
prefixes, asks for rollouts, records the outcome of each in whatever order they arrive, and in the
end labels every step. It knows no engine, no thread, no clock and no randomness, so the same
outcomes always give the same labels.

A class that derives from `Estimator` has all that labelling asks of one, with defaults: it only
has to write `wanted`, `record` and `judge`. docs/extending-estimator.md writes one from the first
line.
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
from mclabel.core.records import Chance, Counts, Index, LabelSource, Many, Outcome, StepState
from mclabel.core.seeds import ID_LENGTH
from mclabel.core.settings import ComponentSettings, at_most
from mclabel.core.stats.values import NOTHING, StepEstimate, TruncatedPolicy
from mclabel.labeling.estimators.paths import Probe, ProblemPaths, RecordedRollout

MAX_SOURCE = 64
"""Characters of the name of a label's source."""
MAX_ROLLOUTS = 16_384
"""Largest number of rollouts of one prefix."""
EXACT = (
    "its decisions compute over all outcomes that are possible, in time that grows with the square "
    "of the number. kind=fixed takes more"
)
MAX_LAG = 256
"""Largest number of problems between a problem and those that it learns from."""
KEPT = "the text of every one is held in memory until its block is committed"

Follow = Literal["nothing", "known", "all"]
"""Which prefixes of a rollout are reported to an estimator: none, those that are in the table of
prefixes already, or all of them, with new ones added to the table."""


class EstimatorSettings(ComponentSettings):
    """Settings that every estimator has."""

    component_kind: ClassVar[str] = "estimators"

    truncated: TruncatedPolicy = "wrong"
    """Effect of a truncated rollout: `wrong` counts it as wrong, `exclude` leaves it out, which
    biases values upwards."""

    @property
    def summary(self) -> str:
        """A short description of what is rolled out, for display."""
        return self.kind


class RolloutSettings(EstimatorSettings):
    """Settings of estimators that sample rollouts."""

    rollouts: Annotated[int, at_most(MAX_ROLLOUTS, KEPT)] = Field(16, ge=1)
    """Maximum number of rollouts from each prefix. `fixed`, `first_error` and `tree` sample all."""

    @property
    def summary(self) -> str:
        """A short description of what is rolled out, for display."""
        return f"{self.kind}, at most {self.rollouts} per prefix"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An estimator's labels of one solution."""

    hard: Many[bool | None]
    """One label per step: whether the policy still recovers from it; None where there is no
    verdict."""
    sources: Many[Annotated[LabelSource, Field(min_length=1, max_length=MAX_SOURCE)]]
    """One name per step: how the label came about."""
    first_error: Index | None
    """Index of the first wrong step; None where no step is wrong, or where it is not decided: then
    some step has no verdict."""
    estimates: Many[StepEstimate]
    """One per step: its value and interval under the rule that stopped its rollouts."""
    posterior: Many[Chance] | None = None
    """For each step, the probability that it is the first wrong one; the last entry is the
    probability that no step is wrong."""
    states: Many[StepState | None] | None = None
    """One per step, by an estimator that follows errors beyond the first; None where it is not
    sure."""
    root: StepEstimate | None = None
    """Value of the bare problem, if its rollouts were stopped depending on their outcomes. None if
    the fraction of right answers among its rollouts and sampled solutions is unbiased."""

    @property
    def is_decided(self) -> bool:
        """Return whether the labels say where the first error is, or that there is none."""
        return self.first_error is not None or all(self.hard[:-1])


class Knowledge(Protocol):
    """Knowledge that an estimator has learned from other problems of a run.

    Derive from it for the id.
    """

    @property
    def id(self) -> str:
        """Hash of the content, which names the file `priors/ID.json` of the run."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:ID_LENGTH]

    @abstractmethod
    def to_json(self) -> str:
        """Return the content as the file stores it."""


class RunLearner(Protocol):
    """Learns over the problems of a run what later ones begin with. Every engine has its own.

    Derive from it for the defaults.
    """

    @property
    @abstractmethod
    def knowledge(self) -> Knowledge:
        """The parameters learned so far, from which the estimator of the next problem starts."""

    @property
    def min_gain(self) -> float | None:
        """The minimum expected gain for rollouts of the next problem; see `posterior`.

        It is stored with the problem's labels. None where the estimator has no such limit.
        """
        return None

    def lag(self, number: int) -> int:
        """Return the number of problems of an engine between a problem and those it learns from.

        Problem n begins with what was learned after problem n - lag, and waits for that one to end,
        so the lag bounds how many problems are rolled out at a time. A short lag lets a run learn
        early; a long one keeps an engine with hundreds of slots full once the run is long. It must
        not depend on timing.

        Args:
            number: index of the problem in the order in which problems begin on the engine.

        Returns:
            At least 1, and at most `MAX_LAG`; growing by at most one a problem.
        """
        return max(64, min(MAX_LAG, number // 2))

    @property
    def is_due(self) -> bool:
        """Return whether enough evidence has been recorded to call `fit`."""
        return False

    @abstractmethod
    def record(self, problem: ProblemPaths, estimator: Any, *, num_tokens: int) -> None:
        """Record the evidence that an estimator has on a finished problem.

        Args:
            problem: that the estimator labelled.
            estimator: when it is done.
            num_tokens: number of tokens of the problem's rollouts.
        """

    def fit(self) -> None:
        """Learn from the recorded evidence; this may take seconds."""

    def adopt(self, content: str) -> None:
        """Adopt the knowledge of another engine or an earlier run if it rests on more evidence.

        Args:
            content: as the other's `Knowledge.to_json` wrote it.
        """


class Estimator(Protocol):
    """Decides which prefix of a problem to roll out next, and when to stop.

    Derive from it for the defaults. `Settings` is the class of its settings; a configuration that
    names the estimator by `kind` holds the others beside it.
    """

    Settings: ClassVar[type[EstimatorSettings]] = EstimatorSettings
    follow: ClassVar[Follow] = "nothing"
    """Which of the prefixes that a rollout passes through are reported to the estimator."""
    replayable: ClassVar[bool] = True
    """True if recorded rollouts can be replayed to it with different verdicts, as `regrade`
    does."""
    takes_all: ClassVar[bool] = False
    """True if it is also given rollouts on record that it does not ask for, as evidence."""
    joint: ClassVar[bool] = False
    """True if one instance serves all completers of a problem. Otherwise each completer has an
    instance of its own, which knows of no other, and their judgements are combined."""

    def __init__(self, settings: Any, problem: ProblemPaths) -> None:
        """Begin with a problem.

        Args:
            settings: an instance of `Settings`.
            problem: with the paths of its solutions.
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
            problem: with the paths of its solutions.
            knowledge: knowledge of the run's learner, where the estimator has one.
            min_gain: minimum expected gain, from the same learner; None keeps the setting.
        """
        return cls(settings, problem)

    @classmethod
    def learner(cls, settings: Any, read: Callable[[str], str]) -> RunLearner | None:
        """Make the learner of a run; None if problems are labelled independently.

        Args:
            settings: an instance of `Settings`.
            read: gives the text of a file or URL that the settings name.
        """
        return None

    @classmethod
    def read_knowledge(cls, content: str) -> Any:
        """Parse the JSON that the learner's `Knowledge.to_json` wrote.

        Raises:
            ValueError: the file holds something else.
        """
        raise ValueError("this estimator learns nothing over a run")

    @property
    def is_due(self) -> bool:
        """Return whether the next `wanted` takes long enough to be worth `decide_together`."""
        return False

    @classmethod
    def decide_together(cls, estimators: Sequence[Any]) -> None:
        """Decide for many problems at once, if this is faster than one by one.

        Each estimator then wants what it would have wanted alone.

        Args:
            estimators: estimators of this class, for which `is_due` holds.
        """

    @abstractmethod
    def wanted(self) -> Sequence[int | Probe]:
        """Return the indices of the prefixes to roll out, one rollout per entry.

        A `joint` estimator names the completer, too, by a `Probe`. Each call returns only new
        requests. An empty list means that the estimator waits for outstanding rollouts, or, if
        there are none, that it is done.
        """

    @abstractmethod
    def record(self, rollout: RecordedRollout) -> None:
        """Record the outcome of one rollout that `wanted` asked for."""

    @abstractmethod
    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label the solutions when the estimator is done: one judgement each, in order.

        Args:
            counts: outcomes so far, one per prefix index.
        """

    def judge_completers(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Label the solutions by what all completers rolled out, where the estimator is `joint`.

        Args:
            counts: outcomes so far, of each completer one per prefix index.
        """
        raise NotImplementedError("a joint estimator writes judge_completers")


def decide_together(estimators: Iterable[Estimator]) -> None:
    """Let the due estimators of many problems, of any classes, decide together."""
    due: dict[type[Estimator], list[Estimator]] = defaultdict(list)
    for estimator in estimators:
        if estimator.is_due:
            due[type(estimator)].append(estimator)
    for kind, alike in due.items():
        Boundary("estimators", kind).call("decide_together", kind.decide_together, alike)


def outcome_label(outcome: Outcome) -> bool | None:
    """Return the hard label of a solution's last step."""
    return {Outcome.RIGHT: True, Outcome.WRONG: False}.get(outcome)


def outcome_estimate(outcome: Outcome) -> StepEstimate:
    """Return the value of a solution's last step, which is certain and needs no samples."""
    label = outcome_label(outcome)
    return NOTHING if label is None else StepEstimate(value=float(label), low=None, high=None)
