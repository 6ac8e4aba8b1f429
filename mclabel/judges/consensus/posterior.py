"""One posterior of the first error over rollouts and judges, whose error rates it learns.

What rollouts show of the first error e is what the posterior estimator makes of them, with priors
that are fitted to the whole run (`mclabel.estimators.posterior`). Given e, a judge's opinion is
taken not to depend on the rollouts, so each opinion multiplies the chance of every e by how likely
it is under e. How likely that is, the judge's own rates say, which are learned by expectation
maximisation on the run itself, without truth: a judge that knows nothing gets the same rates for
every e and weighs nothing (Dawid and Skene 1979; for step labels arXiv 2512.03244 votes instead).

Two things keep one source from outvoting all others. Rollouts of one model go wrong together, so
what they show weighs `ROLLOUTS` of what it would if they did not. And no source is trusted without
end: with the chance `DOUBT` what it says of a solution has nothing to do with it. So a step from
which rollouts recover by luck can still be wrong if a judge is sure of it. Both numbers were chosen
on arith's validation problems, where they made labels 2 points more accurate on solutions with an
error, and found a quarter more of the right answers through wrong steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.estimators.posterior.arithmetic import exp, log
from mclabel.judges.consensus.models import JudgeModel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDS = 10
"""Of expectation maximisation."""
ROLLOUTS = 0.5
"""Weight of what rollouts show, as a power of its likelihood."""
DOUBT = 0.02
"""Chance that what a source says of a solution has nothing to do with it."""
LEAST = 1e-9
"""Chance of a first error by rollouts, at the least."""


@dataclass(frozen=True, kw_only=True)
class Fused:
    """The posterior of a run's solutions."""

    chances: Floats
    """[solution, T + 1]: of each first error, last of none; zero beyond a solution's length."""
    models: Mapping[str, JudgeModel]
    """Of the judges, with their fitted rates."""


def fuse(rollouts: Floats, num_steps: Ints, models: Mapping[str, JudgeModel]) -> Fused:
    """Learn the rates of judges, and combine their opinions with what rollouts show.

    Args:
        rollouts: [solution, T + 1], chances of each first error by rollouts, that of none at the
            index of a solution's number of steps; zero beyond it.
        num_steps: [solution]
        models: of the judges, by name.
    """
    there = np.arange(rollouts.shape[1]) <= num_steps[:, None]
    least = np.where(there, np.maximum(rollouts, LEAST), 0.0)
    usual = _usual(least / least.sum(1, keepdims=True), num_steps)
    # Rates are learned against what is usual, as weakened beliefs would find errors everywhere.
    shown = log(np.where(there, least, 1.0)) - log(np.where(there, usual, 1.0))
    begun = _doubted(np.where(there, usual * exp(ROLLOUTS * shown), 0.0), usual)
    chances, current = begun, dict(models)
    for _ in range(ROUNDS):
        current = {name: model.fitted(chances) for name, model in current.items()}
        chances = _combined(begun, chances, num_steps, list(current.values()))
    # Where judges say nothing, the likeliest first error is that of the rollouts.
    own = _doubted(np.where(there, exp(ROLLOUTS * log(np.where(there, least, 1.0))), 0.0), usual)
    chances = _combined(own, chances, num_steps, list(current.values()))
    return Fused(chances=chances, models=current)


def _combined(
    begun: Floats, chances: Floats, num_steps: Ints, models: Sequence[JudgeModel]
) -> Floats:
    """Multiply what rollouts show by how likely each opinion is.

    Args:
        begun: [solution, T + 1], by rollouts.
        chances: [solution, T + 1], by everything, as it was a round before.
        num_steps: [solution]
        models: of the judges.
    """
    there = np.arange(begun.shape[1]) <= num_steps[:, None]
    usual, found = _usual(chances, num_steps), begun
    for model in models:
        likely = model.log_likelihood()
        most = np.where(there, likely, -np.inf).max(1, keepdims=True)
        opinion = np.where(there, exp(likely - most), 0.0)
        anyhow = (usual * opinion).sum(1, keepdims=True)
        found = found * ((1 - DOUBT) * opinion + DOUBT * anyhow)
    return np.asarray(found / found.sum(1, keepdims=True))


def _doubted(likely: Floats, usual: Floats) -> Floats:
    """Chances in proportion to these, and with some chance what is usual."""
    return np.asarray((1 - DOUBT) * likely / likely.sum(1, keepdims=True) + DOUBT * usual)


def _usual(chances: Floats, num_steps: Ints) -> Floats:
    """[solution, T + 1]: the mean over the solutions of the same length."""
    found = np.zeros_like(chances)
    for steps in np.unique(num_steps):
        same = num_steps == steps
        found[same] = chances[same].mean(0)
    return found
