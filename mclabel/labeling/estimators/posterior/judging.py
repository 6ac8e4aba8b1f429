"""Labels the steps of a solution by the posterior over its first error.

The hidden Markov chains that compute the posterior treat samples as independent. But samples of one
policy make similar errors, so the probabilities would be overconfident. So the posterior is raised
to the power `POWER` and normalised (a coarsened posterior, arXiv 1506.06101). This does not change
which first error is the most likely. A reading is a rule for counting samples as evidence; each
reading gives a posterior, and these are combined.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Counts, LabelSource, Outcome
from mclabel.core.stats.values import TruncatedPolicy, estimate_anytime
from mclabel.labeling.estimators.base import Judgement, outcome_estimate, outcome_label
from mclabel.labeling.estimators.paths import SolutionPath
from mclabel.labeling.estimators.posterior.arithmetic import exp, log
from mclabel.labeling.estimators.posterior.evidence import MIN_LIKELIHOOD

Floats = NDArray[np.float64]


def judge_solution(
    path: SolutionPath,
    counts: Sequence[Counts],
    *,
    first_error_chances: Sequence[Floats],
    expected_values: Floats,
    min_belief: float,
    max_rollouts: int,
    truncated: TruncatedPolicy,
) -> Judgement:
    """Label one solution by the most likely first error, if its probability is high enough.

    Args:
        path: path of the solution.
        counts: counts of rollout outcomes of the completer whose values are estimated, one entry
            per prefix index.
        first_error_chances: for each reading, an array [R + 1] of the probabilities that the first
            wrong step is the one before which e steps are left; e = 0 means that no step is wrong.
            R is at least the number of the solution's steps.
        expected_values: [R + 1], expected values of the prefixes, indexed by their number of steps
            to go.
        min_belief: minimum probability of the most likely first error. Below it, the first error is
            undecided, and only steps that are sound with at least this probability get a hard
            label.
        max_rollouts: largest number of rollouts that a prefix could have received.
        truncated: rule for counting truncated rollouts.
    """
    steps = path.num_steps
    posterior = temper_posterior(
        geometric_mean_posterior(
            [np.append(own[steps:0:-1], own[0]) for own in first_error_chances]
        )
    )
    error, is_sure = find_most_likely_first_error(posterior, path.outcome, min_belief)
    hard: list[bool | None] = [error is None or t < error for t in range(steps - 1)]
    if not is_sure:
        still_sound = 1 - np.cumsum(posterior)
        error = None
        hard = [True if still_sound[t] >= min_belief else None for t in range(steps - 1)]
    sources: list[LabelSource] = ["posterior"] * (steps - 1)
    estimates = [
        estimate_anytime(
            counts[prefix],
            horizon=max_rollouts,
            truncated=truncated,
            mean=float(expected_values[steps - 1 - t]),
        )
        for t, prefix in enumerate(path.prefixes)
    ]
    return Judgement(
        hard=(*hard, outcome_label(path.outcome)),
        sources=(*sources, "outcome"),
        first_error=error,
        estimates=(*estimates, outcome_estimate(path.outcome)),
        posterior=tuple(posterior.tolist()),
    )


POWER = 0.8
"""Exponent of the posterior. A lower exponent makes probabilities less confident and leaves more
solutions undecided.

Exponents of 1, 0.9, 0.8 and 0.7 were compared on the problems that
`tests/benchmarks/starting_priors.py` reserves for choosing settings. On bundled arithmetic
problems, the mean probability of the most likely first error exceeds its accuracy by .10, .08, .06
and .03, and .80, .79, .78 and .77 of first errors are right, with undecided ones counted as wrong.
On plain text the excess is .20, .18, .15 and .12."""


def temper_posterior(posterior: Floats) -> Floats:
    """Raise a posterior to the power `POWER`, and normalise it.

    Args:
        posterior: [steps + 1], probabilities that sum to 1.
    """
    powers = exp(POWER * log(np.maximum(posterior, MIN_LIKELIHOOD)))
    return np.asarray(powers / powers.sum())


def geometric_mean_posterior(posteriors: Sequence[Floats]) -> Floats:
    """Combine several posteriors over the first error that count the same samples by different
    rules.

    The result is their normalised geometric mean (a logarithmic opinion pool, Genest and Zidek
    1986). If one posterior rules out a first error, so does the result. What all posteriors are
    based on counts once, not once per posterior.

    Args:
        posteriors: arrays [steps + 1] of probabilities that sum to 1, all in the same order.
    """
    if len(posteriors) == 1:
        return posteriors[0]
    logs = [log(np.maximum(posterior, MIN_LIKELIHOOD)) for posterior in posteriors]
    mean = exp(np.mean(logs, axis=0))
    return np.asarray(mean / mean.sum())


def find_most_likely_first_error(
    posterior: Floats, outcome: Outcome, min_belief: float
) -> tuple[int | None, bool]:
    """Return the most likely first error that agrees with the outcome, and whether it is probable
    enough.

    The last step is wrong if and only if the outcome is wrong. So if the outcome is wrong and no
    step before the last is, the last step is the first error.

    Args:
        posterior: [steps + 1], the probability of each step to be the first wrong one, and last the
            probability that no step is wrong.
        outcome: outcome of the solution.
        min_belief: minimum probability.

    Returns:
        A pair: the index of the first wrong step from 0, or None for no error; and True if the
        probability of this is at least `min_belief`.
    """
    last = len(posterior) - 2
    # An error in the last step and no error imply the same labels for all steps before it.
    chances = np.append(posterior[:last], posterior[last] + posterior[last + 1])
    mode = int(chances.argmax())
    error = mode if mode < last or outcome is Outcome.WRONG else None
    return error, bool(chances[mode] >= min_belief)
