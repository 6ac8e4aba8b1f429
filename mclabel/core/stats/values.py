"""From counts to values, intervals and labels: pure functions of what was observed.

A step's value is the probability that the policy, sampling on from the prefix that ends with
the step, reaches the right answer (Math-Shepherd, arXiv 2312.08935). Shards store counts;
everything here is derived from them, at labelling time or years later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import bdtrc

from mclabel.core.records import Chance, Counts
from mclabel.core.stats.intervals import Boundary, repeated_interval
from mclabel.core.stats.intervals import clopper_pearson as clopper_pearson

TruncatedPolicy = Literal["wrong", "exclude"]
"""Treatment of rollouts that were cut by the token limit. Excluding them biases values upwards."""


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """A step's value as its counts estimate it, under the rule that stopped them."""

    value: Chance | None
    """Unbiased under the rule; None where no such estimate is worth having."""
    low: Chance | None
    high: Chance | None
    """95% interval, valid under the rule; None without evidence."""
    mean: Chance | None = None
    """Expected value given every piece of evidence there is, of a Bayesian estimator: right on
    average over labels as far as its priors are, but drawn towards them at each single one."""


NOTHING = StepEstimate(value=None, low=None, high=None)


def num_trials(counts: Counts, *, truncated: TruncatedPolicy = "wrong") -> int:
    """Rollouts that count as evidence; ungraded ones never do."""
    cut = counts.num_truncated if truncated == "wrong" else 0
    return counts.num_right + counts.num_wrong + cut


def value(counts: Counts, *, truncated: TruncatedPolicy = "wrong") -> float | None:
    """Share of the rollouts that end right, or None without evidence.

    Unbiased only if the number of rollouts did not depend on their outcomes.
    """
    trials = num_trials(counts, truncated=truncated)
    return counts.num_right / trials if trials else None


def estimate_fixed(counts: Counts, *, truncated: TruncatedPolicy = "wrong") -> StepEstimate:
    """Share and Clopper-Pearson interval, where the number of rollouts was fixed beforehand."""
    trials = num_trials(counts, truncated=truncated)
    if not trials:
        return NOTHING
    low, high = clopper_pearson(counts.num_right, trials)
    return StepEstimate(value=counts.num_right / trials, low=low, high=high)


def estimate_stopped(
    counts: Counts, boundary: Boundary, *, truncated: TruncatedPolicy = "wrong", soft: bool = True
) -> StepEstimate:
    """Unbiased value and exact interval under a stopping rule known in advance.

    Rollouts that are no evidence take the counts off the rule's lattice; then there is no
    unbiased value, and the interval is one that holds however the sampling stopped.

    Args:
        counts: after the rule stopped.
        boundary: the rule.
        truncated: whether a truncated rollout counts as wrong or not at all.
        soft: False withholds the value. Where a rule stops at the first success the unbiased
            one is the first batch's share, too noisy to be a soft label.
    """
    trials = num_trials(counts, truncated=truncated)
    if trials != counts.num_rollouts or not boundary.ends_at(counts.num_right, trials):
        return estimate_anytime(counts, horizon=boundary.looks[-1], truncated=truncated)
    low, high = boundary.interval(counts.num_right, trials)
    value = boundary.value(counts.num_right, trials) if soft else None
    return StepEstimate(value=value, low=low, high=high)


def estimate_anytime(
    counts: Counts,
    *,
    horizon: int,
    truncated: TruncatedPolicy = "wrong",
    mean: float | None = None,
) -> StepEstimate:
    """Return an interval valid under any stopping within `horizon` rollouts, and no value.

    Args:
        counts: rollouts of the step's prefix.
        horizon: the largest number of rollouts that there could have been.
        truncated: whether a truncated rollout counts as wrong or not at all.
        mean: the posterior mean, of an estimator that has one.
    """
    trials = num_trials(counts, truncated=truncated)
    if not trials:
        return StepEstimate(value=None, low=None, high=None, mean=mean)
    low, high = repeated_interval(counts.num_right, trials, horizon=horizon)
    return StepEstimate(value=None, low=low, high=high, mean=mean)


def recovers(
    counts: Counts, *, truncated: TruncatedPolicy = "wrong", chance: float = 0.0
) -> bool | None:
    """Return whether more rollouts from a step end right than by guessing.

    Args:
        counts: counts of a number of rollouts that was fixed beforehand.
        truncated: whether a truncated rollout counts as wrong or not at all.
        chance: probability that a guess is right, in [0, 1). With 0 one right rollout is enough
            (Math-Shepherd, arXiv 2312.08935); else a one-sided binomial test at `GUESS_LEVEL`.

    Returns:
        None without a verdict, and where even right rollouts alone could be guesses.
    """
    trials = num_trials(counts, truncated=truncated)
    if not trials or (chance and chance**trials > GUESS_LEVEL):
        return None
    if not chance or not counts.num_right:
        return counts.num_right > 0
    return bool(bdtrc(counts.num_right - 1, trials, chance) <= GUESS_LEVEL)


GUESS_LEVEL = 0.05


def first_error(labels: Sequence[bool | None]) -> int | None:
    """Return the index of the first step whose hard label is False, or None.

    None, too, where a step before it has no verdict, which may be the first wrong one.
    """
    unsound = next((i for i, label in enumerate(labels) if not label), None)
    return unsound if unsound is not None and labels[unsound] is False else None


def advantages(values: Sequence[float | None], root_value: float | None) -> list[float | None]:
    """Return each step's gain in value: V(t) - V(t - 1) (PAV, arXiv 2410.08146).

    In the paper the values are those of another policy, the prover: label with that one.

    Args:
        values: one per step.
        root_value: value of the bare problem, before the first step.
    """
    before = [root_value, *values]
    return [
        None if now is None or then is None else now - then
        for then, now in zip(before, values, strict=False)
    ]


def root_value(
    root: Counts, siblings: Counts, *, truncated: TruncatedPolicy = "wrong"
) -> float | None:
    """Value of the bare problem: its rollouts and the sampled solutions' outcomes together.

    Unbiased where the number of rollouts of the bare problem was fixed: sampled solutions are
    rollouts of it that come for free.
    """
    trials = num_trials(root, truncated=truncated) + num_trials(siblings, truncated=truncated)
    return (root.num_right + siblings.num_right) / trials if trials else None
