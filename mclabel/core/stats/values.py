"""Derives values, intervals and hard labels from counts of rollouts, by pure functions.

A step's value is the probability that the policy reaches the right answer if it continues the
prefix that ends with the step (Math-Shepherd, arXiv 2312.08935). Shards store the counts, so the
values can be derived again later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import bdtrc

from mclabel.core.records import Counts, Probability
from mclabel.core.stats.intervals import StoppingRule, repeated_interval
from mclabel.core.stats.intervals import clopper_pearson as clopper_pearson

TruncatedPolicy = Literal["wrong", "exclude"]
"""Treatment of rollouts that the token limit truncated. `exclude` biases values upwards."""


@dataclass(frozen=True, kw_only=True)
class StepEstimate:
    """Estimate of a step's value from its counts, under the rule that stopped the rollouts."""

    value: Probability | None
    """Unbiased estimate under the stopping rule; None if there is no such estimate or it is too
    noisy."""
    low: Probability | None
    """Lower bound of the 95% interval."""
    high: Probability | None
    """Upper bound of the 95% interval, valid under the stopping rule; None, like `low`, if
    there are no rollouts to count."""
    mean: Probability | None = None
    """Posterior mean from a Bayesian estimator; None from others. It is right on average over many
    labels if the priors are right, but each single mean is shrunk towards the priors."""


NOTHING = StepEstimate(value=None, low=None, high=None)


def count_trials(counts: Counts, *, truncated: TruncatedPolicy = "wrong") -> int:
    """Return the number of rollouts from which values are estimated. Ungraded rollouts never count,
    and truncated ones count if `truncated` is `wrong`.
    """
    num_truncated = counts.num_truncated if truncated == "wrong" else 0
    return counts.num_right + counts.num_wrong + num_truncated


def estimate_value(counts: Counts, *, truncated: TruncatedPolicy = "wrong") -> float | None:
    """Return the share of right rollouts; None if there are no rollouts to count.

    `count_trials` says which rollouts count.
    The share is unbiased only if the number of rollouts did not depend on their outcomes.
    """
    trials = count_trials(counts, truncated=truncated)
    return counts.num_right / trials if trials else None


def estimate_fixed(counts: Counts, *, truncated: TruncatedPolicy = "wrong") -> StepEstimate:
    """Estimate the value from a number of rollouts that was fixed in advance.

    The value is the share of right rollouts, with its Clopper-Pearson interval.
    """
    trials = count_trials(counts, truncated=truncated)
    if not trials:
        return NOTHING
    low, high = clopper_pearson(counts.num_right, trials)
    return StepEstimate(value=counts.num_right / trials, low=low, high=high)


def estimate_after_early_stop(
    counts: Counts,
    boundary: StoppingRule,
    *,
    truncated: TruncatedPolicy = "wrong",
) -> StepEstimate:
    """Return an estimate without a value, with its exact interval under a stopping rule.

    The unbiased value would be the share of right rollouts in the first batch, which is too noisy
    for a soft label. Ungraded or excluded rollouts can make the counts differ from all stopping
    points of the rule. Then the interval is valid under any stopping rule.

    Args:
        counts: counts of rollouts after the rule stopped.
        boundary: stopping rule.
        truncated: whether a truncated rollout counts as wrong or not at all.
    """
    trials = count_trials(counts, truncated=truncated)
    if trials != counts.num_rollouts or not boundary.ends_at(counts.num_right, trials):
        return estimate_anytime(counts, horizon=boundary.looks[-1], truncated=truncated)
    low, high = boundary.interval(counts.num_right, trials)
    return StepEstimate(value=None, low=low, high=high)


def estimate_anytime(
    counts: Counts,
    *,
    horizon: int,
    truncated: TruncatedPolicy = "wrong",
    mean: float | None = None,
) -> StepEstimate:
    """Return an estimate without a value, whose interval is valid under any stopping rule.

    Args:
        counts: counts of the rollouts of the step's prefix.
        horizon: maximum number of rollouts that could have been sampled.
        truncated: whether a truncated rollout counts as wrong or not at all.
        mean: posterior mean of a Bayesian estimator; None for other estimators.
    """
    trials = count_trials(counts, truncated=truncated)
    if not trials:
        return StepEstimate(value=None, low=None, high=None, mean=mean)
    low, high = repeated_interval(counts.num_right, trials, horizon=horizon)
    return StepEstimate(value=None, low=low, high=high, mean=mean)


def is_recoverable(
    counts: Counts, *, truncated: TruncatedPolicy = "wrong", chance: float = 0.0
) -> bool | None:
    """Return whether more rollouts from a step are right than guessing would explain.

    Args:
        counts: counts of rollouts whose number was fixed in advance.
        truncated: whether a truncated rollout counts as wrong or not at all.
        chance: probability that a guess is right, in [0, 1). With 0, one right rollout is enough
            (Math-Shepherd, arXiv 2312.08935). Otherwise a one-sided binomial test at `GUESS_LEVEL`
            decides.

    Returns:
        True or False; None without graded rollouts, or if there are so few that guesses could
        explain even an all-right result.
    """
    trials = count_trials(counts, truncated=truncated)
    if not trials or (chance and chance**trials > GUESS_LEVEL):
        return None
    if not chance or not counts.num_right:
        return counts.num_right > 0
    return bool(bdtrc(counts.num_right - 1, trials, chance) <= GUESS_LEVEL)


GUESS_LEVEL = 0.05
"""Significance level of the test in `is_recoverable`."""


def find_first_error(labels: Sequence[bool | None]) -> int | None:
    """Return the 0-based index of the first step whose hard label is False; None if there is none.

    The result is also None if an earlier step has no verdict, because that step may be wrong.
    """
    index = next((i for i, label in enumerate(labels) if not label), None)
    return index if index is not None and labels[index] is False else None


def compute_advantages(
    values: Sequence[float | None], root_value: float | None
) -> list[float | None]:
    """Return each step's gain in value: V(t) - V(t - 1) (PAV, arXiv 2410.08146).

    The paper uses the values of another policy, the prover; to follow it, label with the prover as
    completer.

    Args:
        values: value after each step; None if a step has no value.
        root_value: value of the problem before its first step; None if unknown.
    """
    previous_values = [root_value, *values]
    return [
        None if value is None or previous_value is None else value - previous_value
        for previous_value, value in zip(previous_values, values, strict=False)
    ]


def estimate_root_value(
    root: Counts, siblings: Counts, *, truncated: TruncatedPolicy = "wrong"
) -> float | None:
    """Return the value of a problem before its first step: the share of right rollouts and sampled
    solutions.

    Sampled solutions count as rollouts of the problem without extra cost. The value is unbiased if
    the number of the other rollouts was fixed in advance.

    Args:
        root: counts of rollouts from the problem.
        siblings: outcome counts of the sampled solutions.
        truncated: whether a truncated rollout counts as wrong or not at all.
    """
    trials = count_trials(root, truncated=truncated) + count_trials(siblings, truncated=truncated)
    return (root.num_right + siblings.num_right) / trials if trials else None
