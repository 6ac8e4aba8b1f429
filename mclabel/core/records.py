"""The records that flow through mclabel, from a problem to a labelled solution.

The records are plain frozen dataclasses, so every layer can build and test them without an engine,
a file or Ray. Step indices and token positions start at 0, and ends are exclusive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from mclabel.core.errors import DataError
from mclabel.core.notebook import render_steps_html

T = TypeVar("T")

AUTHOR = "policy"
"""Name, among the completers (models that sample rollouts), of the policy itself, the model that
writes the solutions."""
NO_ROOM = "not rolled out: a rollout from this prefix usually needs more tokens than are left"
"""`Rollout.reason` of a rollout that was not sampled, because the token limit would truncate most
completions of its prefix."""


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bound, both inclusive, of a number that a third-party component returns.

    The class replaces pydantic's `Field`, because this module must load without any dependency.
    """

    low: int
    high: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        bounds = {"ge": self.low} if self.high is None else {"ge": self.low, "le": self.high}
        return {**handler(source), **bounds}


class ListAsTuple:
    """Annotation of a tuple field for which a third-party component may also return a list."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        conversion = {
            "type": "no-info",
            "function": lambda value: tuple(value) if type(value) is list else value,
        }
        return {"type": "function-before", "function": conversion, "schema": handler(source)}


Probability = Annotated[float, Bounds(0, 1)]
Index = Annotated[int, Bounds(0)]
TokenId = Annotated[int, Bounds(0, 2**31 - 1)]
"""A token id. The upper bound is the largest id that a shard's column can hold."""
TupleOf = Annotated[tuple[T, ...], ListAsTuple()]

FinishReason = Literal["stop", "length", "failed"]
"""Reason why a text ended. `stop`: the policy ended the text. `length`: the token budget truncated
the text. `failed`: the engine could not sample the text."""


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
    """Id that is unique in a run; a hash of text and answer if the source has no ids."""
    text: str
    answer: str
    """The gold answer, as the source writes it."""
    meta: Mapping[str, str] = field(default_factory=dict)
    """Metadata that label shards repeat unchanged, such as level or subject."""
    answer_is_json: bool = False
    """True if the source's gold answer is an object or a list, which `answer` holds as JSON
    text."""

    @property
    def chance(self) -> float | None:
        """Probability that a guessed answer is right, in [0, 1); None if the settings of the
        problems' source do not state it.
        """
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
        """The gold answer for the checker: text, or parsed JSON if `answer_is_json`."""
        return json.loads(self.answer) if self.answer_is_json else self.answer


@dataclass(frozen=True, kw_only=True)
class GivenSolution:
    """A solution to be labelled that the policy did not sample."""

    text: str
    step_ends: tuple[int, ...] | None = None
    """Character positions where the solution's steps end. If None, the step splitter splits the
    solution."""
    is_separated: bool = False
    """True if line breaks were inserted between steps that no white space separated."""
    index: int | None = None
    """0-based index among all given solutions of the problem. None if all of these are labelled, so
    that the position among the labelled solutions is the index."""
    selection: Selection | None = None
    """Selection that chose the solution from a pool; None if there was no selection."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Selection of a solution from a pool to be labelled (`mclabel select`)."""

    probability: float
    """Probability of choosing the solution, given the pool and its scores, in (0, 1]."""
    by_content: bool
    """True if the choice depended on the texts or the endings of solutions. Then the solutions'
    outcomes say nothing about the values of prefixes."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a solution. The texts of a solution's steps join to its text exactly."""

    text: str
    """Text of the step, including its separator."""
    end: int
    """Number of the solution's token ids from its start to the end of this step."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One text that a policy sampled after a prompt."""

    ids: tuple[TokenId, ...]
    """Sampled token ids, without the end token."""
    text: str
    finish_reason: FinishReason
    at_stop: bool = False
    """True if a stop text that the caller set for this completion alone ended it. Then the policy
    has not ended the solution, which can be continued."""
    num_counted: int | None = None
    """Number of sampled tokens, if a service counts tokens but does not return their ids; else
    None."""
    is_counted: bool = True
    """False if a service returns neither the ids nor the number of the sampled tokens."""

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
    """Token ids of `text` as the policy sampled them. If the text was given instead, its ids come
    from tokenising it once."""
    steps: tuple[Step, ...]
    finish_reason: FinishReason
    origin: Literal["sampled", "given", "searched"]
    """Origin of the solution. `sampled`: by the policy with the sampling parameters of the
    rollouts. `given`: read from a source. `searched`: by a search that chose among samples of the
    policy."""
    prediction: str | None
    """Answer extracted from the text; None if no answer was found."""
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One completion sampled from a prefix, with its identity and its outcome."""

    problem_id: str
    prefix_id: str
    index: int
    """0-based index among the completer's rollouts of this prefix, in the order of requests."""
    seed: int
    text: str
    num_tokens: int
    finish_reason: FinishReason
    prediction: str | None
    outcome: Outcome
    reason: str | None = None
    """The checker's reason for the outcome, at most 500 characters; None if nothing was graded."""
    step_ends: tuple[int, ...] | None = None
    """Character positions of the text where its steps end; None if no estimator requests them."""
    through: tuple[str, ...] | None = None
    """Ids of the longer prefixes of the problem's solutions that the rollout passes through (its
    text begins with their further steps), in order; None if no estimator requests them."""
    completer: str = AUTHOR
    """Name of the model that sampled the rollout. `index` counts only this model's rollouts."""


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Numbers of rollouts of one prefix by outcome, and their cost in tokens."""

    num_right: int = 0
    num_wrong: int = 0
    num_truncated: int = 0
    num_ungraded: int = 0
    num_tokens: int = 0
    """Number of sampled tokens, without the tokens of the prefix."""

    @property
    def num_rollouts(self) -> int:
        """Number of all rollouts, with any outcome."""
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
    """Cost of one token of this completer, relative to a token of the cheapest completer."""
    root: Counts
    """Counts of rollouts from the problem before its first step."""
    steps: tuple[Counts, ...]
    """Counts of rollouts from the prefix that ends with each step."""


def add_counts(parts: Iterable[Counts]) -> Counts:
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
"""Source of a step's label.

`fixed`: a fixed number of rollouts. `first_success`: rollouts until the first right completion or
until a maximum number, so the share of right ones is biased. `posterior`: the posterior of a
Bayesian search, with or without rollouts from this step. `implied`: no rollouts; the label follows
from other steps or from the solution's outcome, because hard labels never change from False to True
along a solution. `outcome`: the solution's outcome, for its last step. `judge`: a judge, whose
scores are in `StepLabel.mean`. `given`: imported from elsewhere. `none`: no label. A third-party
estimator may add other sources.
"""
OUTCOME_SOURCE: LabelSource = "outcome"

StepState = Literal["sound", "error", "carried", "recovered"]
"""State of a step in a solution that may correct itself (error, propagation and cessation in arXiv
2505.14391). `sound`: the solution has no uncorrected error up to this step. `error`: the step makes
a new error. `carried`: the step depends on an uncorrected error. `recovered`: the step corrects the
error, so that the following steps are sound again."""


@dataclass(frozen=True, kw_only=True)
class StepLabel:
    """Label of one step: the counts of its rollouts, and the values derived from them."""

    prefix_id: str
    """Id of the prefix that ends with this step. Solutions with the same prefix share the id."""
    counts: Counts
    """Counts of rollouts by all completers together."""
    source: LabelSource
    hard: bool | None
    """True if the completers can still reach the right answer from this step, False if they cannot;
    None if this is undecided."""
    value: float | None
    """Estimated probability that a rollout of the model `LabeledSolution.values_of` from this step
    ends right; None if the rule by which rollouts were sampled would bias it."""
    low: float | None
    """Lower end of the value's 95% interval."""
    high: float | None
    """Upper end of the value's 95% interval, which is valid under the rule by which rollouts were
    sampled."""
    mean: float | None = None
    """Posterior mean of the value, from a Bayesian estimator; None from others."""
    state: StepState | None = None
    """State of the step, from an estimator that also labels steps after the first error; None if
    unknown."""
    committed: Outcome | None = None
    """Outcome of the answer that the step states, if it is not the last step; None if it states
    none."""

    @property
    def estimate(self) -> float | None:
        """Return the value, or the posterior mean if there is no value."""
        return self.mean if self.value is None else self.value

    @property
    def is_from_outcome(self) -> bool:
        """Return whether the label is the solution's outcome, as it is for the last step."""
        return self.source == OUTCOME_SOURCE


Claim = Literal["where", "at_or_before", "scores"]
"""Kind of statement that an opinion makes about the first error. `where`: its step, or that there
is no error. `at_or_before`: a step that is the first error or comes after it; without a step, the
first error is unknown. `scores`: one score per step."""


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A wrong passage in a step, found by a judge."""

    step: Index
    """0-based index of the step."""
    start: Index
    """0-based position of the passage's first character in the step's text."""
    end: int
    """Position after the passage's last character."""
    reason: str
    """Description of the error, in plain English."""


@dataclass(frozen=True, kw_only=True)
class SourceOpinion:
    """Opinion of one source, the rollouts or a judge, on a solution's first error."""

    source: str
    """`rollouts`, or the judge's name."""
    claim: Claim
    is_known: bool
    """True if the source has decided where the first error is, or that there is none."""
    first_error: int | None
    """0-based index of the first wrong step according to the source; None if the source found no
    error or has not decided."""
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Consensus:
    """Combination of the opinions of several sources, rollouts and judges, into one label."""

    rule: str
    kept: bool
    """True if the sources agree as `rule` requires. If False, the solution is neither trained on
    nor exported."""
    opinions: tuple[SourceOpinion, ...]


@dataclass(frozen=True, kw_only=True)
class LabeledSolution:
    """A solution with a label for every step: one row of a labels shard."""

    problem: Problem
    solution: Solution
    prompt_ids: tuple[int, ...]
    steps: tuple[StepLabel, ...]
    """One label per step of the solution."""
    first_error: int | None
    """0-based index of the first step labelled wrong. None if no step is wrong, or if the labels do
    not decide it (`is_decided` is False)."""
    root: Counts
    """Counts of the rollouts that the estimator requested from the problem before its first
    step."""
    siblings: Counts
    """Outcome counts of the first batch of solutions that the policy sampled for the problem,
    including discarded ones. The size of the batch was fixed in advance, so the counts are an
    unbiased sample of the policy's success."""
    root_value: float | None = None
    """Value of the problem before its first step, unbiased under the rule by which the estimator
    sampled; None if there is no such value."""
    posterior: tuple[float, ...] | None = None
    """Probability of each step to be the first wrong one, and last the probability that no step is
    wrong, from a Bayesian estimator; None from others."""
    priors: str | None = None
    """Id of the fitted parameters that the estimator used, in the file `priors/ID.json` of the run;
    None if it uses none."""
    min_gain: float | None = None
    """Minimum expected gain for which the estimator requested rollouts; None if it has no such
    limit."""
    num_sampled: int = 0
    """Number of solutions sampled for the problem, including discarded ones; 0 if the solutions
    were given."""
    num_sampled_right: int = 0
    """Number of right solutions among `num_sampled`, which gives the problem's pass rate."""
    chosen_by_outcome: bool = False
    """True if the solution was kept because of its outcome or found by a search. Then its outcome
    says nothing about the values of its prefixes."""
    selection_probability: float | None = None
    """Probability with which `mclabel select` chose the solution from a pool; None without
    selection."""
    num_missing: int | None = None
    """Number of rollouts that the estimator requested when `mclabel regrade` labelled again, but
    that the run had never sampled; None for labels of `mclabel label`."""
    completers: tuple[CompleterCounts, ...] = ()
    """Counts of the rollouts of each completer, in the order of the job's configuration. An empty
    tuple stands for the policy alone, with the counts in `root` and `steps`."""
    values_of: str = AUTHOR
    """Name of the completer whose values the labels hold."""
    consensus: Consensus | None = None
    """Opinions of judges that were combined with the rollouts; None if the labels come from
    rollouts alone."""

    def __repr__(self) -> str:
        """Return the outcome and the first error, then a line for each step with its value."""
        lines = [f"LabeledSolution({self.solution.outcome}, first error: {self.shown_error})"]
        for step, label in zip(self.solution.steps, self.steps, strict=True):
            value = "   ?" if label.estimate is None else f"{label.estimate:.2f}"
            text = "".join(c if c.isprintable() else " " for c in step.text.strip())
            lines.append(f"  {value}  {text}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        pairs = zip(self.solution.steps, self.steps, strict=True)
        return render_steps_html(
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
    def pool_weight(self) -> float:
        """Number of solutions of the pool that this solution represents: 1 /
        `selection_probability`.
        """
        return 1.0 if self.selection_probability is None else 1 / self.selection_probability

    @property
    def is_decided(self) -> bool:
        """Return whether the labels decide which step is the first error, or that there is none.

        They do not decide it if a step before the first wrong one has no verdict, or if only the
        last step is labelled (estimator `outcome`). Nor do they if the solution was truncated or
        not graded, or has no steps.
        """
        graded = self.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)
        is_known = self.first_error is not None or all(step.hard for step in self.steps[:-1])
        return graded and is_known and bool(self.steps)

    @property
    def is_kept(self) -> bool:
        """Return whether the labels may be used: False if a required consensus was not reached."""
        return self.consensus is None or self.consensus.kept

    def with_first_error(self, error: int | None) -> LabeledSolution:
        """Return a copy with this first error and the hard labels that follow from it.

        The last step keeps its hard label, which follows from the outcome.

        Args:
            error: index of the first error; None if the solution has no error.
        """
        steps = [
            replace(step, hard=error is None or index < error)
            for index, step in enumerate(self.steps[:-1])
        ]
        return replace(self, first_error=error, steps=(*steps, *self.steps[-1:]))

    def value_counts(self, step: int) -> Counts:
        """Return the counts of rollouts from which a step's value is estimated, that is, the counts
        of the completer named by `values_of`.
        """
        for completer in self.completers:
            if completer.name == self.values_of:
                return completer.steps[step]
        return self.steps[step].counts

    def format_counts_by_completer(self, step: int) -> str:
        """Return the numbers of right and of all rollouts from a step for each completer, as in
        `policy 1/4, strong 3/4`.

        The text is empty if there is only one completer.
        """
        if len(self.completers) < 2:
            return ""
        shown = ((completer.name, completer.steps[step]) for completer in self.completers)
        return ", ".join(
            f"{name} {counts.num_right}/{counts.num_rollouts}" for name, counts in shown
        )
