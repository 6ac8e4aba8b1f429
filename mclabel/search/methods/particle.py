"""Particle filtering: a population that is resampled by score after every step (arXiv 2502.01618).

`n` particles each take a step. Then each is weighted by the odds p / (1 - p) of its score p, which
is the paper's softmax of logits, and `n` particles are drawn in proportion. Finished particles keep
their weight and stay in the population; dead ends have none. The search ends when every particle is
finished.

Scores are noisy, above all early, and a few overrated particles would soon be the whole population.
The odds are therefore raised to an exponent in [0, 1], the largest at which the effective sample
size (sum w)^2 / sum w^2 is at least the share `least_ess` of the particles, as annealing of
sequential Monte Carlo does (arXiv 2510.05825 on the same failure).

Departs from the paper further in resampling systematically, with one random number for all
particles, where the paper draws each by itself: the expected counts are the same and their
variance is less. For the same reason nothing is drawn once all are finished: the solutions then
count by their weights, which are the expected counts of one more draw.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from pydantic import Field

from mclabel.search.base import MethodSettings, Node
from mclabel.search.methods.levels import LevelSearch

_LEAST = 1e-7
"""Scores are kept this far from 0 and 1 where their odds are taken, as in the paper's code."""
_HALVINGS = 50
"""Number of halvings of the interval in which the exponent lies."""


class ParticleSearch(LevelSearch):
    """At most `n` samples a level: one for every particle that is not finished."""

    class Settings(MethodSettings):
        """Keeps a population of beginnings that is resampled by the odds of their scores."""

        least_ess: float = Field(0.5, ge=0, le=1)
        """Least effective sample size, as a fraction of the particles, to which scores are tempered
        (arXiv 2510.05825). 0 never tempers (2502.01618); 1 ignores scores."""

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Begin with a problem; see `SearchMethod`."""
        super().__init__(settings, root, seed=seed)
        self._settled: dict[str, float] = {}
        """Finished nodes of the population, and how many particles are on each."""

    def choose(self, level: Counter[str]) -> Mapping[str, int]:
        """Resample the population; its open particles go on."""
        population = Counter({node: int(count) for node, count in self._settled.items()}) + level
        nodes = [node for node in self.ranked(population) if not node.is_cut]
        if not nodes:
            return {}
        counts = [population[node.id] for node in nodes]
        weights = tempered(
            [self._log_odds(node) for node in nodes], counts, self.settings.least_ess
        )
        shares = [count * weight for count, weight in zip(counts, weights, strict=True)]
        if not any(node.is_open for node in nodes):
            scale = self.settings.n / math.fsum(shares)
            self._settled = {
                node.id: scale * share for node, share in zip(nodes, shares, strict=True)
            }
            return {}
        start = Random(f"{self.seed}:{self.level}").random()
        drawn = resampled(shares, self.settings.n, start)
        kept = [(node, count) for node, count in zip(nodes, drawn, strict=True) if count]
        self._settled = {node.id: count for node, count in kept if node.is_finished}
        return {node.id: count for node, count in kept if node.is_open}

    def result(self) -> Mapping[str, float]:
        """The finished solutions on which particles are, and their number of particles.

        Where there are none, every finished solution counts that was ever sampled.
        """
        particles = dict(self._settled)
        for node, count in self.arrived.items():
            if self.nodes[node].is_finished:
                particles[node] = particles.get(node, 0) + count
        return particles or super().result()

    def _log_odds(self, node: Node) -> float:
        value = self.value(node)
        if self.settings.aggregate == "log_odds":
            return value
        bounded = min(max(value, _LEAST), 1 - _LEAST)
        return math.log(bounded / (1 - bounded))


def tempered(log_odds: Sequence[float], counts: Sequence[int], least: float) -> list[float]:
    """Weights that leave enough particles in effect.

    Args:
        log_odds: one for each node.
        counts: number of particles on each, at least 1.
        least: share of the particles that the effective sample size must reach, in [0, 1].

    Returns:
        The weight of one particle on each node, the greatest being 1: its odds to the power of
        the largest exponent in [0, 1] at which the effective sample size is large enough.
    """
    best, enough = max(log_odds), least * sum(counts)

    def weights(exponent: float) -> list[float]:
        return [math.exp(exponent * (one - best)) for one in log_odds]

    if effective_size(weights(1.0), counts) >= enough:
        return weights(1.0)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if effective_size(weights(middle), counts) >= enough:
            low = middle
        else:
            high = middle
    return weights(low)


def effective_size(weights: Sequence[float], counts: Sequence[int]) -> float:
    """Effective number of particles, (sum w)^2 / sum w^2.

    Args:
        weights: of one particle on each node.
        counts: number of particles on each node.
    """
    pairs = list(zip(weights, counts, strict=True))
    total = math.fsum(weight * count for weight, count in pairs)
    return float(total**2 / math.fsum(weight**2 * count for weight, count in pairs))


def resampled(shares: Sequence[float], total: int, start: float) -> list[int]:
    """Systematic resampling: evenly spaced points on a line that the shares divide.

    Args:
        shares: proportional to the expected counts; at least 0, and not all 0.
        total: number of particles to draw.
        start: where the first point lies between two boundaries of equal parts, uniform in [0, 1).

    Returns:
        A count for each share, `total` in all, each within 1 of its expectation.
    """
    whole = math.fsum(shares)
    counts, passed, seen = [], 0, 0.0
    for place, share in enumerate(shares):
        seen += share
        is_last = place == len(shares) - 1
        reached = total if is_last else math.ceil(total * (seen / whole) - start)
        reached = min(max(reached, passed), total)
        counts.append(reached - passed)
        passed = reached
    return counts
