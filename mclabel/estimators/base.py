"""What an estimator is: a pure state machine that decides what to roll out.

One estimator serves one problem. It receives the problem's solutions as paths through a set of
prefixes, says which rollouts it wants next, records the outcome of each in whatever order they
arrive, and in the end gives a label for every step. It knows no engine, no thread, no clock
and no randomness, so the same outcomes always give the same labels.

A class that derives from `Estimator` has all that labelling asks of one, with defaults: it has to
say what it wants and how it labels. docs/extending.md writes one from the first line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import Field

from mclabel.answers.literals import read_literal
from mclabel.answers.normalize import normalize, squeeze
from mclabel.records import Counts, LabelSource, Outcome
from mclabel.settings import ComponentSettings, at_most
from mclabel.stats.values import NOTHING, StepEstimate, TruncatedPolicy

MAX_ROLLOUTS = 16_384
"""Of one prefix."""
_BOOLEAN = {"yes", "no", "true", "false"}
_CHOICE = re.compile(r"\(?[A-Ja-j]\)?")
EXACT = (
    "its decisions compute over all outcomes that are possible, in time that grows with the square "
    "of the number. kind=fixed takes more"
)
KEPT = "the text of every one is held in memory until its block is committed"


class EstimatorSettings(ComponentSettings):
    """Settings that every estimator has."""

    component_kind: ClassVar[str] = "estimators"

    truncated: TruncatedPolicy = "wrong"
    """What a rollout cut by its length counts as. Excluding biases values up."""

    @property
    def summary(self) -> str:
        """What is rolled out, for people: one short line."""
        return self.kind


class RolloutSettings(EstimatorSettings):
    """Settings of estimators that roll prefixes out."""

    rollouts: Annotated[int, at_most(MAX_ROLLOUTS, KEPT)] = Field(16, ge=1)
    """Rollouts of every prefix, of every one that is reached or probed, or at most of one: see the
    estimator."""

    @property
    def summary(self) -> str:
        """What is rolled out, for people: one short line."""
        return f"{self.kind}, {self.rollouts} a prefix at most"


@dataclass(frozen=True, kw_only=True)
class SolutionPath:
    """A solution as an estimator sees it.

    `prefixes[t]` is the index of the prefix that ends with step t, for every step but the
    last: after the last step nothing is left to roll out, and its label is the outcome.
    Solutions that begin alike share prefix indices.
    """

    prefixes: tuple[int, ...]
    outcome: Outcome
    sampled: bool = True
    """By the policy under the rollouts' sampling parameters, and not chosen by its outcome: then
    the outcome is a free rollout of each of its prefixes."""
    step_tokens: tuple[int, ...] = ()
    """Tokens of each step; none if they are not known."""
    step_keys: tuple[str, ...] = ()
    """What each step says, equal for steps that say the same (`mclabel.agreement`)."""

    @property
    def num_steps(self) -> int:
        return len(self.prefixes) + 1


@dataclass(frozen=True, kw_only=True)
class RecordedRollout:
    """One rollout's outcome, as an estimator receives it."""

    prefix: int
    """Index of the prefix it was rolled out from."""
    outcome: Outcome
    num_tokens: int = 0
    path: tuple[int, ...] = ()
    """Prefixes that the rollout went through after its own, in order: those in the table, or
    every one of its steps but the last where the estimator follows all."""
    step_keys: tuple[str, ...] = ()
    """What each of its steps says, as in `SolutionPath.step_keys`."""
    step_tokens: tuple[int, ...] = ()
    """Tokens of each of its steps, where the estimator follows all."""


@dataclass(frozen=True, kw_only=True)
class ProblemPaths:
    """A problem as an estimator sees it."""

    paths: Sequence[SolutionPath]
    """One per solution, in order."""
    answer_class: str = ""
    """Kind of the problem's gold answer, by which luck differs: see `answer_class`."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An estimator's labels of one solution."""

    hard: tuple[bool | None, ...]
    """One per step: the policy still recovers from it, or None for no verdict."""
    sources: tuple[LabelSource, ...]
    """One per step: how the label came about."""
    first_error: int | None
    estimates: tuple[StepEstimate, ...]
    """One per step: its value and interval under the rule."""
    posterior: tuple[float, ...] | None = None
    """Chance of each step that it is the first wrong one, and last of none."""
    root: StepEstimate | None = None
    """Of the bare problem, where its rollouts were stopped by their outcomes; None: the share of
    its rollouts and of the sampled solutions is unbiased."""


ROOT = 0
"""Index of the bare problem among the prefixes."""

Follow = Literal["nothing", "known", "all"]
"""What an estimator receives of a rollout's way: nothing, the prefixes of the table that it went
through, or every prefix, the table growing by those that are new."""


class Knowledge(Protocol):
    """What an estimator has learned from other problems of a run."""

    @property
    def id(self) -> str:
        """A hash of its content, which names the file `priors/ID.json` of the run."""
        ...

    def to_json(self) -> str:
        """Its content."""
        ...


class RunLearner(Protocol):
    """Learns over the problems of a run what later ones begin with. One per engine."""

    @property
    def knowledge(self) -> Knowledge:
        """For the next problem."""
        ...

    @property
    def min_gain_per_token(self) -> float:
        """For the next problem; stored with its labels."""
        ...

    @property
    def num_pilot(self) -> int:
        """Solutions that an engine labels before it learns anything; 0 if it began with some."""
        ...

    @property
    def is_due(self) -> bool:
        """Whether there is evidence enough for `fit`."""
        ...

    def record(self, problem: ProblemPaths, estimator: Any, *, num_tokens: int) -> None:
        """Take what an estimator has seen of a finished problem.

        Args:
            problem: that it labelled.
            estimator: when it is done.
            num_tokens: of the problem's rollouts.
        """
        ...

    def fit(self) -> None:
        """Learn from what was recorded; may take seconds."""
        ...

    def adopt(self, content: str) -> None:
        """Take the knowledge of another engine, or of an earlier start, if it rests on more."""
        ...


class Estimator(Protocol):
    """Decides which prefix of a problem to roll out next, and when to stop.

    Derive from it for the defaults. `Settings` is the class of its settings; a configuration that
    names the estimator by `kind` holds the others beside it.
    """

    Settings: ClassVar[type[EstimatorSettings]] = EstimatorSettings
    follow: ClassVar[Follow] = "nothing"
    """What it wants to receive of a rollout's way."""
    replayable: ClassVar[bool] = True
    """Whether recorded rollouts can be given to it again with other verdicts (by `regrade`)."""
    takes_all: ClassVar[bool] = False
    """Whether rollouts that it did not ask for are evidence to it, too, when it is replayed."""

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
        min_gain_per_token: float | None = None,
    ) -> Self:
        """The estimator of a problem.

        Args:
            settings: an instance of `Settings`.
            problem: with the paths of its solutions.
            knowledge: of the run's learner, where the estimator has one.
            min_gain_per_token: of the same.
        """
        return cls(settings, problem)

    @classmethod
    def learner(cls, settings: Any, read: Callable[[str], str]) -> RunLearner | None:
        """What learns over a run; None where problems are independent of one another.

        Args:
            settings: an instance of `Settings`.
            read: gives the text of a file or URL that the settings name.
        """
        return None

    @classmethod
    def read_knowledge(cls, content: str) -> Any:
        """The knowledge in a file that a learner's `knowledge.to_json` gave.

        Raises:
            ValueError: the file is none.
        """
        raise ValueError("this estimator learns nothing over a run")

    @property
    def is_due(self) -> bool:
        """Whether `wanted` takes long enough to be worth `decide_together`."""
        return False

    @classmethod
    def decide_together(cls, estimators: Sequence[Any]) -> None:
        """Decide for many problems at once, where that takes less time than one by one.

        Each estimator then wants what it would have wanted alone.

        Args:
            estimators: of this class, for which `is_due` holds.
        """

    def wanted(self) -> Sequence[int]:
        """Prefix indices to start one more rollout from, each as often as it is named.

        Each call returns only what was not asked for before. Nothing wanted while outcomes
        are still due means: wait for them. Nothing wanted and nothing due: done.
        """
        ...

    def record(self, rollout: RecordedRollout) -> None:
        """Take the outcome of one rollout that was asked for."""
        ...

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """One judgement per solution, in order, once done.

        Args:
            counts: outcomes so far, one per prefix index.
        """
        ...


def decide_together(estimators: Iterable[Estimator]) -> None:
    """Let estimators of many problems, of any classes, decide at once where they are due."""
    due: dict[type[Estimator], list[Estimator]] = defaultdict(list)
    for estimator in estimators:
        if estimator.is_due:
            due[type(estimator)].append(estimator)
    for kind, alike in due.items():
        kind.decide_together(alike)


def answer_class(answer: str) -> str:
    """The kind of a gold answer, by which it depends how often luck finds it.

    `boolean`, `choice` (one letter), `digit` (a whole number of one digit), `number`, `text`.
    """
    plain = normalize(answer)
    if plain.casefold() in _BOOLEAN:
        return "boolean"
    if _CHOICE.fullmatch(plain):
        return "choice"
    literal = read_literal(squeeze(plain))
    if literal is None:
        return "text"
    number = literal.value
    return "digit" if number.denominator == 1 and abs(number) < 10 else "number"


def outcome_label(outcome: Outcome) -> bool | None:
    """The hard label of a solution's last step."""
    return {Outcome.RIGHT: True, Outcome.WRONG: False}.get(outcome)


def outcome_estimate(outcome: Outcome) -> StepEstimate:
    """The value of a solution's last step: certain, and nothing to sample."""
    label = outcome_label(outcome)
    return NOTHING if label is None else StepEstimate(value=float(label), low=None, high=None)


def distinct_prefixes(paths: Sequence[SolutionPath]) -> list[int]:
    """The prefixes of these solutions, rising; the bare problem is not among them."""
    return sorted({prefix for path in paths for prefix in path.prefixes})


def sibling_counts(paths: Sequence[SolutionPath]) -> Counts:
    """Outcomes of the solutions that are free rollouts of the bare problem."""
    counts = Counts()
    for path in paths:
        if path.sampled:
            counts = counts.plus(path.outcome)
    return counts
