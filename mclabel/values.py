"""From counts to values, intervals and labels: pure functions of what was observed.

A step's value is the probability that the policy, sampling on from the prefix that ends with
the step, reaches the right answer (Math-Shepherd, arXiv 2312.08935). Shards store counts;
everything here is derived from them, at labelling time or years later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from scipy.stats import beta

from mclabel.records import Counts

TruncatedPolicy = Literal["wrong", "exclude"]
"""What a rollout cut by its length counts as. Excluding biases values up."""


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


def clopper_pearson(num_right: int, num_trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a binomial proportion (Clopper and Pearson 1934).

    Covers the true value with probability at least `level` when `num_trials` was fixed
    beforehand.

    Raises:
        ValueError: not 0 <= num_right <= num_trials, or no trials.
    """
    if num_trials < 1 or not 0 <= num_right <= num_trials:
        raise ValueError(
            f"num_right={num_right}, num_trials={num_trials}: need 0 <= right <= n, n >= 1"
        )
    tail = (1 - level) / 2
    low = 0.0 if num_right == 0 else float(beta.ppf(tail, num_right, num_trials - num_right + 1))
    high = (
        1.0
        if num_right == num_trials
        else float(beta.ppf(1 - tail, num_right + 1, num_trials - num_right))
    )
    return low, high


def hard_label(
    step_value: float | None, *, threshold: float = 0.0, root_value: float | None = None
) -> bool | None:
    """Whether the policy still recovers from a step: its value is above the threshold.

    Args:
        step_value: in [0, 1], or None for no verdict.
        threshold: in [0, 1). 0 is Math-Shepherd's rule: one right rollout is enough.
        root_value: if given, the threshold is relative to this value of the bare problem,
            which asks less of steps in hard problems.
    """
    if step_value is None:
        return None
    scale = 1.0 if root_value is None else root_value
    return step_value > threshold * scale


def first_error(labels: Sequence[bool | None]) -> int | None:
    """Index of the first step whose hard label is False, or None.

    Steps without a verdict decide nothing.
    """
    return next((i for i, label in enumerate(labels) if label is False), None)
