"""A solution's labels from the posterior over its first error.

The chain counts every sample of one policy as independent evidence. Samples of one policy err
alike, so they are less evidence than that, and beliefs would be too high. So the posterior is
raised to the power `POWER` and normalised, as a coarsened posterior is (arXiv 1506.06101). The
likeliest first error stays what it is.
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
from mclabel.labeling.estimators.posterior.evidence import LEAST

Floats = NDArray[np.float64]


def judge_solution(
    path: SolutionPath,
    counts: Sequence[Counts],
    *,
    chances: Sequence[Floats],
    means: Floats,
    min_belief: float,
    max_rollouts: int,
    truncated: TruncatedPolicy,
) -> Judgement:
    """Label one solution by the mode of its posterior, if that is believed enough.

    Args:
        path: path of the solution.
        counts: outcomes of the completer whose values are estimated, one per prefix index.
        chances: chances of each first error by steps to go, [R + 1] each, by every reading of the
            evidence.
        means: [R + 1], expected values by steps to go.
        min_belief: least chance of the likeliest first error that decides; under it, steps that
            are not sound with this chance have no hard label.
        max_rollouts: largest number of rollouts that a prefix could have had.
        truncated: what a rollout cut by its length counts as.
    """
    steps = path.num_steps
    posterior = coarsened(pooled([np.append(own[steps:0:-1], own[0]) for own in chances]))
    error, is_sure = likeliest(posterior, path.outcome, min_belief)
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
            mean=float(means[steps - 1 - t]),
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
"""Power of the posterior. A lower one makes beliefs less sure and leaves more solutions undecided.
On the choosing halves of `tests/benchmarks/starting_priors.py`, powers of 1, 0.9, 0.8 and 0.7 leave
beliefs .10, .08, .06 and .03 above accuracy on arith and .20, .18, .15 and .12 on plain text, and
.80, .79, .78 and .77 of arith's first errors right, undecided ones counting as wrong."""


def coarsened(posterior: Floats) -> Floats:
    """Raise a posterior to the power `POWER`, and normalise it.

    Args:
        posterior: [steps + 1], sums to 1.
    """
    powers = exp(POWER * log(np.maximum(posterior, LEAST)))
    return np.asarray(powers / powers.sum())


def pooled(posteriors: Sequence[Floats]) -> Floats:
    """One posterior of several that rest on the same evidence, read in different ways.

    Their normalised geometric mean (a logarithmic opinion pool: Genest and Zidek 1986): where one
    rules out a first error, so does the pool, and evidence that they share counts once.

    Args:
        posteriors: [steps + 1] each, summing to 1.
    """
    if len(posteriors) == 1:
        return posteriors[0]
    logs = [log(np.maximum(posterior, LEAST)) for posterior in posteriors]
    mean = exp(np.mean(logs, axis=0))
    return np.asarray(mean / mean.sum())


def likeliest(posterior: Floats, outcome: Outcome, min_belief: float) -> tuple[int | None, bool]:
    """The likeliest first error, None for none, and whether it is believed enough.

    A last step is wrong only if the outcome is; and with a wrong outcome some step is wrong, at
    the latest the last.

    Args:
        posterior: [steps + 1], the chance of none being the last.
        outcome: outcome of the solution.
        min_belief: least chance.
    """
    last = len(posterior) - 2
    # The last step and none say the same of all steps but the last, whose label is the outcome.
    chances = np.append(posterior[:last], posterior[last] + posterior[last + 1])
    mode = int(chances.argmax())
    error = mode if mode < last or outcome is Outcome.WRONG else None
    return error, bool(chances[mode] >= min_belief)
