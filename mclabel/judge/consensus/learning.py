"""Rates of judges and chances of first errors, learned from each other.

One round fits every judge's rates to how likely each first error is, and then multiplies what
rollouts show by how likely each opinion is (expectation maximisation; Dawid and Skene 1979).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.judge.consensus.models import JudgeModel
from mclabel.labeling.estimators.posterior.arithmetic import exp, log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DOUBT = 0.02
"""Chance that what a source says of a solution has nothing to do with it."""
LEAST = 1e-9
"""Chance of a first error by rollouts, at the least."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What some rounds have come to."""

    chances: Floats
    """[solution, T + 1]: of each first error, last of none."""
    models: Mapping[str, JudgeModel]
    """Of the judges, with their fitted rates."""
    log_likelihood: float
    """Of all opinions, given the rollouts."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What rollouts show of first errors."""

    chances: Floats
    """[solution, T + 1]: of each first error, last of none; zero beyond a solution's length."""
    num_steps: Ints
    """[solution]"""

    @property
    def there(self) -> NDArray[np.bool_]:
        """[solution, T + 1]: whether a solution can have this first error."""
        return np.asarray(np.arange(self.chances.shape[1]) <= self.num_steps[:, None])

    @property
    def least(self) -> Floats:
        """The chances, none of them zero within a solution's length."""
        return np.where(self.there, np.maximum(self.chances, LEAST), 0.0)

    def by_length(self) -> Floats:
        """Their usual value in solutions of the same length, [solution, T + 1]."""
        return usual(self.least / self.least.sum(1, keepdims=True), self.num_steps)

    def weighted(self, power: float) -> Floats:
        """With their likelihood raised to a power, against what is usual; see `doubted`."""
        expected = self.by_length()
        ratio = log(np.where(self.there, self.least, 1.0)) - log(
            np.where(self.there, expected, 1.0)
        )
        return doubted(np.where(self.there, expected * exp(power * ratio), 0.0), expected)


def learn(
    begun: Floats, num_steps: Ints, models: Mapping[str, JudgeModel], *, rounds: int
) -> Learned:
    """Fit rates to chances and chances to rates, by turns.

    Args:
        begun: [solution, T + 1], chances of each first error by rollouts.
        num_steps: [solution]
        models: of the judges, by name.
        rounds: at least one.
    """
    chances, current, likelihood = begun, dict(models), 0.0
    for _ in range(rounds):
        current = {name: model.fitted(chances) for name, model in current.items()}
        chances, likelihood = combined(begun, chances, num_steps, list(current.values()))
    return Learned(chances=chances, models=current, log_likelihood=likelihood)


def combined(
    begun: Floats, chances: Floats, num_steps: Ints, models: Sequence[JudgeModel]
) -> tuple[Floats, float]:
    """Multiply what rollouts show by how likely each opinion is.

    Args:
        begun: [solution, T + 1], by rollouts.
        chances: [solution, T + 1], by everything, as it was a round before.
        num_steps: [solution]
        models: of the judges.

    Returns:
        Chances by everything; the logarithm of how likely all opinions are.
    """
    there = np.arange(begun.shape[1]) <= num_steps[:, None]
    expected, found, likelihood = usual(chances, num_steps), begun, 0.0
    for model in models:
        likely = model.log_likelihood()
        most = np.where(there, likely, -np.inf).max(1, keepdims=True)
        opinion = np.where(there, exp(likely - most), 0.0)
        anyhow = (expected * opinion).sum(1, keepdims=True)
        found = found * ((1 - DOUBT) * opinion + DOUBT * anyhow)
        likelihood += float(most.sum())
    whole = found.sum(1, keepdims=True)
    return np.asarray(found / whole), likelihood + float(log(whole).sum())


def doubted(likely: Floats, expected: Floats) -> Floats:
    """Chances in proportion to these, and with some chance what is usual."""
    return np.asarray((1 - DOUBT) * likely / likely.sum(1, keepdims=True) + DOUBT * expected)


def usual(chances: Floats, num_steps: Ints) -> Floats:
    """[solution, T + 1]: the mean over the solutions of the same length."""
    found = np.zeros_like(chances)
    for steps in np.unique(num_steps):
        same = num_steps == steps
        found[same] = chances[same].mean(0)
    return found
