"""A solution's labels from the posterior over its first error, which is calibrated before.

Calibrated means that a belief of 0.9 should be right nine times in ten.

The chain is fitted without truth, and some of what it must believe cannot be seen without: how
often a right answer is reached through a wrong step; that samples of one policy err alike, so that
they are less evidence than as many independent ones; and, most of all, where the error is if
nothing ever ended right, since then a step after which the policy will misread what comes next
looks like a wrong one. So the largest belief is moved on the scale of log odds by a rising curve,
straight between knots, apart for these three kinds of solutions; the others keep their
proportions. The likeliest first error stays what it is.

Two things shift the curve: with a higher minimum gain per token less was rolled out, and a longer
solution has more to misread.

The numbers were fitted by likelihood on the truth of 1,200 of arith's *validation* problems, at
four least gains together (`tests/benchmarks/estimators_calibration.py`), and reported on test
ones. They hold for the bundled policy and its problems. In another domain other errors are lucky,
and beliefs rank solutions well but are promises only where the same was done with some truth of
that domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Counts, LabelSource, Outcome
from mclabel.core.stats.values import TruncatedPolicy, estimate_anytime
from mclabel.labeling.estimators.base import Judgement, outcome_estimate, outcome_label
from mclabel.labeling.estimators.paths import ROOT, SolutionPath
from mclabel.labeling.estimators.posterior.arithmetic import exp, log
from mclabel.labeling.estimators.posterior.evidence import LEAST

Floats = NDArray[np.float64]


def judge_solution(
    path: SolutionPath,
    counts: Sequence[Counts],
    *,
    chances: Mapping[bool, Floats],
    means: Floats,
    recovered: Set[int],
    min_belief: float,
    min_gain_per_token: float,
    max_rollouts: int,
    truncated: TruncatedPolicy,
) -> Judgement:
    """Label one solution by the mode of its posterior, if that is believed enough.

    Args:
        path: of the solution.
        counts: outcomes of the completer whose values are estimated, one per prefix index.
        chances: of each first error by steps to go, [R + 1], of the solution's chain: False on
            outcomes alone, True with the agreement of other samples, where that is used.
        means: [R + 1], expected values by steps to go.
        recovered: prefixes from which a rollout or a sampled solution ended right.
        min_belief: least chance of the likeliest first error that decides; under it, steps that
            are not sound with this chance have no hard label.
        min_gain_per_token: gain per token below which nothing was rolled out.
        max_rollouts: largest number of rollouts that a prefix could have had.
        truncated: what a rollout cut by its length counts as.
    """
    steps = path.num_steps
    posterior = pooled(
        [
            calibrated(
                np.append(own[steps:0:-1], own[0]),
                agreement=agreement,
                kind=_kind(path, recovered),
                min_gain_per_token=min_gain_per_token,
            )
            for agreement, own in chances.items()
        ]
    )
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


def pooled(posteriors: Sequence[Floats]) -> Floats:
    """One posterior of several that rest on the same evidence, read in different ways.

    Their normalised geometric mean (a logarithmic opinion pool: Genest and Zidek 1986): where one
    rules out a first error, so does the pool, and evidence that they share counts once.

    Args:
        posteriors: [steps + 1] each, summing to 1.
    """
    if len(posteriors) == 1:
        return posteriors[0]
    logs = [log(np.maximum(one, LEAST)) for one in posteriors]
    mean = exp(np.mean(logs, axis=0))
    return np.asarray(mean / mean.sum())


def likeliest(posterior: Floats, outcome: Outcome, min_belief: float) -> tuple[int | None, bool]:
    """The likeliest first error, None for none, and whether it is believed enough.

    A last step is wrong only if the outcome is; and with a wrong outcome some step is wrong, at
    the latest the last.

    Args:
        posterior: [steps + 1], the chance of none being the last.
        outcome: of the solution.
        min_belief: least chance.
    """
    last = len(posterior) - 2
    # The last step and none say the same of all steps but the last, whose label is the outcome.
    chances = np.append(posterior[:last], posterior[last] + posterior[last + 1])
    mode = int(chances.argmax())
    error = mode if mode < last or outcome is Outcome.WRONG else None
    return error, bool(chances[mode] >= min_belief)


def _kind(path: SolutionPath, recovered: Set[int]) -> Kind:
    """The kind of the solution, on which `calibrated` depends."""
    if path.outcome is Outcome.RIGHT:
        return "right"
    return "found" if not recovered.isdisjoint((ROOT, *path.prefixes)) else "lost"


KNOTS = np.array([-1.5, -0.5, 0.5, 1.5, 3.0, 5.0])
"""Log odds of the largest belief, as the chain has it."""

Kind = Literal["right", "found", "lost"]
"""The solution ended right; it did not, but a sample from one of its prefixes did; none did."""


class Curve(NamedTuple):
    """Maps the chain's belief to how often it turns out right."""

    knots: tuple[float, ...]
    """Log odds as they turned out, at `KNOTS`, where the least gain a token is `GAIN` and the
    solution has `STEPS` steps."""
    gain: float
    """Shift for each decade of the least gain above that."""
    steps: float
    """Shift for each step above that."""


CURVES: dict[tuple[bool, Kind], Curve] = {
    (False, "right"): Curve((-1.601, 0.23, 1.49, 1.926, 1.926, 2.469), 0.053, -0.131),
    (False, "found"): Curve((-2.349, 0.668, 1.694, 1.935, 2.612, 5.729), 0.491, -0.165),
    (False, "lost"): Curve((-1.358, -1.358, -1.358, 1.968, 2.243, 5.036), -1.375, -0.512),
    (True, "right"): Curve((-1.573, -0.246, -0.246, 0.447, 0.8, 2.478), 0.097, -0.184),
    (True, "found"): Curve((-0.103, 0.687, 0.878, 1.904, 2.265, 2.827), 0.415, -0.094),
    (True, "lost"): Curve((-2.301, -0.218, -0.088, 0.451, 1.22, 4.614), -0.039, -0.17),
}
"""By whether agreement was used, and by kind."""

GAIN, STEPS = 1e-3, 5
"""Least gain a token and number of steps at which the knots hold."""
GAINS, LENGTHS = (1e-4, 3e-3), (3, 8)
"""Ranges in which the curves were fitted; beyond, they are those of the nearest end."""

_LN10 = 2.302585092994046
_EDGE = 1e-6
_RIDGE = 5.0
"""Weight, in labels, of the belief that a knot is right as it is."""


def calibrated(
    posterior: Floats, *, agreement: bool, kind: Kind, min_gain_per_token: float
) -> Floats:
    """Move the largest belief of a posterior to how often it turns out right.

    Args:
        posterior: [steps + 1], sums to 1.
        agreement: whether other samples' steps were compared.
        kind: of the solution.
        min_gain_per_token: gain per token below which nothing was rolled out.
    """
    mode = int(np.argmax(posterior))
    rest = posterior.copy()
    rest[mode] = 0.0
    left = float(rest.sum())
    if left <= 0.0:
        return posterior
    curve = CURVES[agreement, kind]
    found = np.interp(log_odds(posterior[mode]), KNOTS, curve.knots)
    decades, steps = covariates(min_gain_per_token, len(posterior) - 1)
    odds = float(exp(found + (decades * curve.gain + steps * curve.steps)))
    second = float(rest.max()) / left
    # At the least as large as the second, which keeps its share of what is left.
    moved = max(odds / (1 + odds), (1 + _EDGE) * second / (1 + second))
    rest *= (1 - moved) / left
    rest[mode] = moved
    return rest


def covariates(min_gain_per_token: float, num_steps: int) -> Floats:
    """What shifts a curve [2]: decades of the least gain and steps, from where its knots hold."""
    bounded = min(max(min_gain_per_token, GAINS[0]), GAINS[1])
    steps = min(max(num_steps, LENGTHS[0]), LENGTHS[1])
    return np.array([float(log(np.array(bounded / GAIN))) / _LN10, steps - STEPS])


def log_odds(chance: float | Floats) -> Floats:
    """Log odds of a chance, bounded."""
    bounded = np.clip(chance, _EDGE, 1 - _EDGE)
    return log(np.asarray(bounded / (1 - bounded)))


def fit_curve(beliefs: Floats, shifts: Floats, right: NDArray[np.bool_]) -> Curve:
    """Fit a curve by the penalised likelihood of being right.

    Args:
        beliefs: [n], largest posteriors as the chain has them.
        shifts: [n, 2], `covariates`.
        right: [n], whether they were right.
    """
    from scipy.optimize import isotonic_regression  # at the top it would delay every command

    found = log_odds(beliefs)
    hats = [np.interp(found, KNOTS, row) for row in np.eye(len(KNOTS))]
    design = np.stack([*hats, *shifts.T], axis=1)
    start = np.append(KNOTS, [0.0, 0.0])
    theta = start.copy()
    ridge = _RIDGE / 4 * np.eye(len(theta))
    for _ in range(100):
        chance = 1 / (1 + np.exp(-design @ theta))
        slope = design.T @ (right - chance) - ridge @ (theta - start)
        curve = (design.T * (chance * (1 - chance))) @ design + ridge
        step = np.linalg.solve(curve, slope)
        theta = theta + step / max(1.0, float(np.abs(step).max()))
    rising = isotonic_regression(theta[:-2], weights=np.diag(curve)[:-2]).x
    return Curve(
        knots=tuple(float(t) for t in np.round(rising, 3)),
        gain=round(float(theta[-2]), 3),
        steps=round(float(theta[-1]), 3),
    )
