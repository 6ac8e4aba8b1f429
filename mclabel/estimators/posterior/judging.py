"""A solution's labels from the posterior over its first error."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
from numpy.typing import NDArray

from mclabel.estimators.base import Judgement, outcome_estimate, outcome_label
from mclabel.estimators.paths import ROOT, SolutionPath
from mclabel.estimators.posterior.calibration import Kind, calibrated
from mclabel.records import Counts, LabelSource, Outcome
from mclabel.stats.values import TruncatedPolicy, estimate_anytime

Floats = NDArray[np.float64]


def judge_solution(
    path: SolutionPath,
    counts: Sequence[Counts],
    *,
    first_error: Floats,
    means: Floats,
    recovered: Set[int],
    agreement: bool,
    min_gain_per_token: float,
    max_rollouts: int,
    truncated: TruncatedPolicy,
) -> Judgement:
    """Label one solution by the mode of its posterior.

    Args:
        path: of the solution.
        counts: outcomes of the completer whose values are estimated, one per prefix index.
        first_error: [R + 1], chances by steps to go, of the solution's chain.
        means: [R + 1], expected values by steps to go.
        recovered: prefixes from which a rollout or a sampled solution ended right.
        agreement: whether other samples' steps were compared.
        min_gain_per_token: gain per token below which nothing was rolled out.
        max_rollouts: largest number of rollouts that a prefix could have had.
        truncated: what a rollout cut by its length counts as.
    """
    steps = path.num_steps
    posterior = calibrated(
        np.append(first_error[steps:0:-1], first_error[0]),
        agreement=agreement,
        kind=_kind(path, recovered),
        min_gain_per_token=min_gain_per_token,
    )
    mode = int(posterior.argmax())
    # The last step's label is the outcome: it is wrong only if that is.
    spared = mode == steps - 1 and path.outcome is not Outcome.WRONG
    error = None if mode == steps or spared else mode
    hard = [error is None or t < error for t in range(steps - 1)]
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


def _kind(path: SolutionPath, recovered: Set[int]) -> Kind:
    """The kind of the solution, on which `calibrated` depends."""
    if path.outcome is Outcome.RIGHT:
        return "right"
    return "found" if not recovered.isdisjoint((ROOT, *path.prefixes)) else "lost"
