"""The records that flow through mclabel, from a problem to a labelled solution.

They are plain frozen dataclasses, so every layer can build and test them without an engine,
a file or Ray. Step indices and token positions are 0-based, ends are exclusive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from mclabel.core.errors import DataError
from mclabel.core.notebook import steps_html

T = TypeVar("T")

AUTHOR = "policy"
"""Name of the model that writes the solutions, among the completers that roll out."""
NO_ROOM = "not rolled out: less room than is usually needed from there"
"""Reason of a rollout that was not sampled, as most from its prefix would be cut."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of a number that a third-party component returns.

    They replace pydantic's `Field`, since this module must load without any dependency.
    """

    low: int
    high: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        bounds = {"ge": self.low} if self.high is None else {"ge": self.low, "le": self.high}
        return {**handler(source), **bounds}


class Listed:
    """Marks a tuple of which components of somebody's own may make a list."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        made = {"type": "no-info", "function": lambda it: tuple(it) if type(it) is list else it}
        return {"type": "function-before", "function": made, "schema": handler(source)}


Chance = Annotated[float, Bounds(0, 1)]
Index = Annotated[int, Bounds(0)]
TokenId = Annotated[int, Bounds(0, 2**31 - 1)]
"""Shards hold no larger one."""
Many = Annotated[tuple[T, ...], Listed()]

FinishReason = Literal["stop", "length", "failed"]
"""Reason why a text ended. `stop`: the policy ended it. `length`: it was cut by the token budget.
`failed`: the engine could not give it."""


class Verdict(StrEnum):
    """Verdict of the answer checker."""

    RIGHT = "right"
    WRONG = "wrong"
    UNKNOWN = "unknown"
    """The checker could not decide. It counts neither for nor against a step."""


class Outcome(StrEnum):
    """Outcome of a completion: the checker's verdict, or the reason why it was not graded."""

    RIGHT = "right"
    WRONG = "wrong"
    UNGRADED = "ungraded"
    TRUNCATED = "truncated"


CHANCE = "mclabel.chance"
"""Key of a problem's metadata that holds `Problem.chance`."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A question whose final answer is known."""

    id: str
    """Unique in a run. Where the source has none, a hash of text and answer."""
    text: str
    answer: str
    """The gold answer, as the source writes it."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """Carried to the label shards untouched (level, subject, a problem's hidden truth)."""
    answer_is_json: bool = False
    """True if the source holds an object or a list as the gold: `answer` is its JSON text."""

    @property
    def chance(self) -> float | None:
        """Chance that a guess is right, in [0, 1), where the source's settings give it."""
        given = self.meta.get(CHANCE)
        if given is None:
            return None
        try:
            chance = float(given)
        except ValueError:
            chance = -1.0
        if not 0 <= chance < 1:
            raise DataError(
                f"problem {self.id!r}: metadata {CHANCE}={given!r}: must be a number of at least 0 "
                "and less than 1. Label the problem again, with problems.chance"
            )
        return chance

    @property
    def gold(self) -> Any:
        """The gold as a checker takes it: text, or data where the source holds data."""
        return json.loads(self.answer) if self.answer_is_json else self.answer


@dataclass(frozen=True, kw_only=True)
class GivenSolution:
    """A solution to be labelled that the policy did not sample."""

    text: str
    step_ends: tuple[int, ...] | None = None
    """Character positions where its steps end; None splits it as sampled ones are."""
    is_separated: bool = False
    """True if a line break was put between its steps, which had no white space there."""
    index: int | None = None
    """Its place among all that are given for the problem, where some of them are chosen; None for
    its place among these."""
    selection: Selection | None = None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selection of a solution from a pool to be labelled (`mclabel select`)."""

    probability: float
    """With which it was chosen, given the pool and its scores, in (0, 1]."""
    by_content: bool
    """True if what solutions say, or how they ended, decided which were chosen: then outcomes are
    no evidence of the values of prefixes."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a solution. The texts of a solution's steps join to its text exactly."""

    text: str
    """Its separator included."""
    end: int
    """Number of the solution's token ids up to and including this step."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """Sample of a policy after a prompt."""

    ids: tuple[TokenId, ...]
    """Sampled token ids, without the end token."""
    text: str
    finish_reason: FinishReason
    at_stop: bool = False
    """True if a text ended it that the caller gave for this completion alone: then the policy has
    not ended the solution, and it can be continued."""
    num_counted: int | None = None
    """Number of sampled tokens, from a service that counts them and does not give their ids."""
    is_counted: bool = True
    """False if a service gives neither the ids of the sampled tokens nor their number."""

    @property
    def num_tokens(self) -> int | None:
        """The number of sampled tokens; None if it is unknown."""
        if not self.is_counted:
            return None
        return len(self.ids) if self.num_counted is None else self.num_counted


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A solution to be labelled, split into steps on token boundaries."""

    id: str
    problem_id: str
    sample_index: int
    text: str
    ids: tuple[int, ...]
    """Token ids of `text` as the policy generated them, or tokenised once if it was given."""
    steps: tuple[Step, ...]
    finish_reason: FinishReason
    origin: Literal["sampled", "given", "searched"]
    """`sampled` by the policy with the sampling parameters of the rollouts, `given`, or found by a
    search, which chose among what the policy sampled."""
    prediction: str | None
    """The answer extracted from the text."""
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One completion sampled from a prefix, with its identity and its outcome."""

    problem_id: str
    prefix_id: str
    index: int
    """Counts the rollouts of a prefix, in the order they were asked for."""
    seed: int
    text: str
    num_tokens: int
    finish_reason: FinishReason
    prediction: str | None
    outcome: Outcome
    reason: str | None = None
    """Why the checker decided so, 500 characters at most; None where there was nothing to grade."""
    step_ends: tuple[int, ...] | None = None
    """Characters of the text where its steps end; None where no estimator asked for them."""
    through: tuple[str, ...] | None = None
    """Prefixes of the problem's solutions that it went through after its own, by id and in order;
    None where no estimator asked for them."""
    completer: str = AUTHOR
    """Name of the model that sampled it. Its `index` counts this model's rollouts alone."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Outcomes of the rollouts of one prefix, and their cost."""

    num_right: int = 0
    num_wrong: int = 0
    num_truncated: int = 0
    num_ungraded: int = 0
    num_tokens: int = 0
    """Sampled tokens; the prefix's own are not counted."""

    @property
    def num_rollouts(self) -> int:
        """All rollouts, whatever their outcome."""
        return self.num_right + self.num_wrong + self.num_truncated + self.num_ungraded

    def plus(self, outcome: Outcome, num_tokens: int = 0) -> Counts:
        """Return these counts with one more rollout."""
        return Counts(
            num_right=self.num_right + (outcome is Outcome.RIGHT),
            num_wrong=self.num_wrong + (outcome is Outcome.WRONG),
            num_truncated=self.num_truncated + (outcome is Outcome.TRUNCATED),
            num_ungraded=self.num_ungraded + (outcome is Outcome.UNGRADED),
            num_tokens=self.num_tokens + num_tokens,
        )


@dataclass(frozen=True, kw_only=True)
class CompleterCounts:
    """Rollouts of one completer from the prefixes of a solution."""

    name: str
    cost: float
    """Cost of one token, relative to the cheapest completer's."""
    root: Counts
    """Counts of rollouts from the bare problem."""
    steps: tuple[Counts, ...]
    """Counts of rollouts from the prefix that ends with each step."""


def total_counts(parts: Iterable[Counts]) -> Counts:
    """Return the sum of several counts of rollouts."""
    total = Counts()
    for part in parts:
        total = Counts(
            num_right=total.num_right + part.num_right,
            num_wrong=total.num_wrong + part.num_wrong,
            num_truncated=total.num_truncated + part.num_truncated,
            num_ungraded=total.num_ungraded + part.num_ungraded,
            num_tokens=total.num_tokens + part.num_tokens,
        )
    return total


LabelSource = str
"""Source of a step's label. `fixed`: a fixed number of rollouts. `first_success`: rolled out until
the first right completion or a cap, so a share would be biased. `posterior`: by the posterior of a
Bayesian search, with or without rollouts of its own. `implied`: not rolled out, it follows from
other steps or from the solution's outcome if hard labels do not rise along a solution. `outcome`:
the last step, whose label is the solution's own outcome. `judge`: by a judge, whose scores are the
means. `given`: imported, somebody else's. `none`: no label. An estimator of your own may give
others."""
OUTCOME_SOURCE: LabelSource = "outcome"

StepState = Literal["sound", "error", "carried", "recovered"]
"""State of a step in a solution that may correct itself (arXiv 2505.14391 has error, propagation
and cessation). `sound`: nothing is wrong before it or in it. `error`: it goes wrong where nothing
was. `carried`: it rests on an error that stands. `recovered`: it repairs what was wrong, so that
the steps behind it are sound again."""


@dataclass(frozen=True, kw_only=True)
class StepLabel:
    """Evidence about one step: counts first, everything else derived from them."""

    prefix_id: str
    """Id of the prefix that ends with this step. Solutions that begin alike share it."""
    counts: Counts
    """Rollouts by all completers together."""
    source: LabelSource
    hard: bool | None
    """True: who rolls out still recovers from here. None: no verdict."""
    value: float | None
    """Estimated share of completions that end right, under the model that the row's `values_of`
    names; None where the source biases it."""
    low: float | None
    high: float | None
    """95% interval of the value, valid under the source."""
    mean: float | None = None
    """Expected value given every piece of evidence, by a Bayesian estimator's priors."""
    state: StepState | None = None
    """Effect of the step, by an estimator that follows errors beyond the first."""
    committed: Outcome | None = None
    """Outcome of the answer that an intermediate step states; None if it states none."""

    @property
    def estimate(self) -> float | None:
        """Return the value, or the posterior mean where the source gives no value."""
        return self.mean if self.value is None else self.value

    @property
    def is_outcome(self) -> bool:
        """Return whether the label is the solution's own outcome, as that of its last step."""
        return self.source == OUTCOME_SOURCE


Claim = Literal["where", "at_or_before", "scores"]
"""Kind of statement that an opinion makes about the first error: `where` it is, or that there is
none; that it is at a step or before it, where no statement means unknown; or a score per step."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A place in a step that cannot be right, as a judge found it."""

    step: Index
    """Index of the step, from 0."""
    start: Index
    """First character of the place in the step's text."""
    end: int
    """Character behind the place."""
    reason: str
    """Description of the fault, in plain English."""


@dataclass(frozen=True, kw_only=True)
class SourceOpinion:
    """Opinion of one source, rollouts or a judge, on a solution's first error."""

    source: str
    """`rollouts`, or the judge's name."""
    claim: Claim
    is_known: bool
    """True if the source has a verdict; an unknown verdict does not mean "no error"."""
    first_error: int | None
    """The step it names, None for none."""
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Consensus:
    """Combination of the opinions of several sources into one label."""

    rule: str
    kept: bool
    """True if the sources agree as the rule demands: what is not kept is not trained on, and not
    exported."""
    opinions: tuple[SourceOpinion, ...]


@dataclass(frozen=True, kw_only=True)
class LabeledSolution:
    """A solution with a label for every step: one row of a labels shard."""

    problem: Problem
    solution: Solution
    prompt_ids: tuple[int, ...]
    steps: tuple[StepLabel, ...]
    """One per step of the solution."""
    first_error: int | None
    """Index of the first step labelled wrong. None if there is none, or if it is undecided whether
    there is: see `is_decided`."""
    root: Counts
    """Rollouts of the bare problem, asked for by the estimator."""
    siblings: Counts
    """Outcomes of the solutions of the problem that the policy sampled, whatever they would be:
    free observations of the bare problem's value under the policy."""
    root_value: float | None = None
    """Value of the bare problem, unbiased under the estimator's rule, or None."""
    posterior: tuple[float, ...] | None = None
    """Chance of each step that it is the first wrong one, and last of none, by a Bayesian
    estimator."""
    priors: str | None = None
    """Id of what the estimator had learned over the run, in its `priors/ID.json`."""
    min_gain: float | None = None
    """Minimum expected gain for which the estimator requested rollouts; None where it has none."""
    num_sampled: int = 0
    """Solutions sampled of the problem, before any were chosen; 0 if they were given."""
    num_sampled_right: int = 0
    """Number of right ones among these: the problem's pass rate."""
    chosen_by_outcome: bool = False
    """The solution was kept for its outcome, or found by a search, so that its outcome is no
    evidence of any value."""
    selection_probability: float | None = None
    """With which the solution was chosen from a pool by `mclabel select`; None if it was not."""
    num_missing: int | None = None
    """Rollouts of the problem that its estimator wanted and that nobody had sampled, where the
    labels were graded again; None where they were sampled for it."""
    completers: tuple[CompleterCounts, ...] = ()
    """Rollouts of each model, in the order of the job."""
    values_of: str = AUTHOR
    """Name of the completer whose values they are."""
    consensus: Consensus | None = None
    """Which opinions the labels rest on beside rollouts; None where they rest on these alone."""

    def __repr__(self) -> str:
        """Return the outcome and the first error, then a line for each step with its value."""
        lines = [f"LabeledSolution({self.solution.outcome}, first error: {self.shown_error})"]
        for step, label in zip(self.solution.steps, self.steps, strict=True):
            value = "   ?" if label.estimate is None else f"{label.estimate:.2f}"
            text = "".join(c if c.isprintable() else " " for c in step.text.strip())
            lines.append(f"  {value}  {text}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        pairs = zip(self.solution.steps, self.steps, strict=True)
        return steps_html(
            self.problem.text,
            f"answer: {self.solution.outcome}, first error: {self.shown_error}",
            (
                (step.text, label.estimate, index == self.first_error)
                for index, (step, label) in enumerate(pairs)
            ),
        )

    @property
    def shown_error(self) -> str:
        """Return the index of the first error, `none`, or `undecided`."""
        if not self.is_decided:
            return "undecided"
        return "none" if self.first_error is None else str(self.first_error)

    @property
    def stands_for(self) -> float:
        """Number of solutions of its pool that it represents: 1 / `selection_probability`."""
        return 1.0 if self.selection_probability is None else 1 / self.selection_probability

    @property
    def is_decided(self) -> bool:
        """Return whether the labels say where the first error is, or that there is none.

        Not so where a step before it has no verdict, where only the last step is labelled
        (estimator `outcome`), and where the solution was cut, not graded, or has no steps.
        """
        graded = self.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)
        is_known = self.first_error is not None or all(step.hard for step in self.steps[:-1])
        return graded and is_known and bool(self.steps)

    @property
    def is_kept(self) -> bool:
        """Return whether the labels are to be used: not if a consensus was asked for and not
        reached.
        """
        return self.consensus is None or self.consensus.kept

    def with_first_error(self, error: int | None) -> LabeledSolution:
        """Return a copy with this first error, and with hard labels that follow from it.

        The last step keeps its hard label, which follows from the outcome.

        Args:
            error: index of the first error; None if the solution has no error.
        """
        steps = [replace(s, hard=error is None or i < error) for i, s in enumerate(self.steps[:-1])]
        return replace(self, first_error=error, steps=(*steps, *self.steps[-1:]))

    def value_counts(self, step: int) -> Counts:
        """Return the counts of rollouts on which a step's value rests."""
        for completer in self.completers:
            if completer.name == self.values_of:
                return completer.steps[step]
        return self.steps[step].counts

    def counts_by_completer(self, step: int) -> str:
        """Return right and all rollouts per completer, such as `policy 1/4, strong 3/4`; empty if
        there is only one completer.
        """
        if len(self.completers) < 2:
            return ""
        shown = ((completer.name, completer.steps[step]) for completer in self.completers)
        return ", ".join(f"{name} {own.num_right}/{own.num_rollouts}" for name, own in shown)
