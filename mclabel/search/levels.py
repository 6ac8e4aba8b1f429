"""Search methods that go level by level: best of n, beams, DVTS, REBASE and particles.

A level ends when every requested continuation has arrived. Only then is the next level chosen, so
the order of arrival has no effect.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from random import Random
from typing import Any

from pydantic import Field

from mclabel.core.settings import MAX_AMOUNT, rule
from mclabel.search.base import MAX_WIDTH, Expansion, MethodSettings, Node, SearchMethod


class WidthSettings(MethodSettings):
    """Settings of the methods that keep one of `width` continuations."""

    width: int = Field(4, ge=1, le=MAX_WIDTH)
    """Continuations of each kept prefix; must divide `n`."""

    @rule
    def _width_divides_n(self) -> str | None:
        if self.n % self.width == 0:
            return None
        fitting = max(size for size in range(1, min(self.width, self.n) + 1) if self.n % size == 0)
        return (
            f"width={self.width}: must divide n={self.n}. Set width={fitting}, or "
            f"n={(self.n // self.width + 1) * self.width}"
        )


class LevelSearch(SearchMethod):
    """Base of methods that sample one level at a time; a derived class chooses the next level.

    No more than `n` continuations are sampled for a level, so a search takes at most `n` times the
    greatest depth.
    """

    def __init__(self, settings: Any, root: Node, *, seed: int) -> None:
        """Start the search of a problem; see `SearchMethod`."""
        super().__init__(settings, root, seed=seed)
        self.level = 0
        """Number of levels that were requested."""
        self.arrived: Counter[str] = Counter({root.id: settings.n})
        """Nodes of the level that is under way, and how often each was sampled. The level before
        the first one is the problem alone, `n` times."""
        self._num_due = 0

    def wanted(self) -> Sequence[Expansion]:
        """Return the next level once the previous one is complete."""
        if self._num_due or not self.arrived:
            return []
        complete, self.arrived = self.arrived, Counter()
        counts = {node: count for node, count in self.choose(complete).items() if count}
        self.level += 1
        self._num_due = sum(counts.values())
        return [
            Expansion(node=node, count=count, steps=self.settings.every)
            for node, count in counts.items()
        ]

    @abstractmethod
    def choose(self, level: Counter[str]) -> Mapping[str, int]:
        """Choose the nodes to continue.

        Args:
            level: all nodes of the last level, finished and cut ones included, and how often each
                was sampled.

        Returns:
            Number of continuations of each open node, at most `n` in all; none ends the search.
        """

    def record(self, parent: str, node: Node) -> None:
        """Record a continuation; see `SearchMethod`."""
        super().record(parent, node)
        self.arrived[node.id] += 1
        self._num_due -= 1

    @property
    def num_missing(self) -> int:
        """Number of solutions that are missing to `n` finished ones."""
        return max(0, int(self.settings.n) - self.finished.total())

    def ranked(self, nodes: Iterable[str]) -> list[Node]:
        """Return the nodes by decreasing value; ties go to the lower id."""
        nodes_of_ids = (self.nodes[node] for node in nodes)
        return sorted(nodes_of_ids, key=lambda node: (-self.value(node), node.id))


def open_nodes(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that can be continued, in the same order."""
    return [node for node in nodes if node.is_open]


class BestOfNSearch(SearchMethod):
    """Best of n: `n` whole solutions, sampled independently of each other (arXiv 2110.14168).

    The baseline of every other method: scores steer nothing, and only rank what came out. It
    samples exactly `n` continuations of the problem alone.
    """

    class Settings(MethodSettings):
        """Samples `n` whole solutions that no score steers: the baseline of all searches."""

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Start the search of a problem; see `SearchMethod`."""
        super().__init__(settings, root, seed=seed)
        self._pending: Sequence[Expansion] = (
            [Expansion(node=root.id, count=settings.n, steps=None)] if root.is_open else []
        )

    def wanted(self) -> Sequence[Expansion]:
        """Return all solutions at the first call, none later."""
        pending, self._pending = self._pending, []
        return pending


class BeamSearch(LevelSearch):
    """Beam search: the best beginnings of all are continued (arXiv 2408.03314).

    Of every level the best `n / width` distinct open nodes share the samples of the next one. A
    solution that ends is put aside and takes its place with it, so that the search ends with `n`
    finished solutions, or earlier where nothing is open.

    Departs from the paper's reimplementation in search-and-learn, which goes on to sample `n`
    continuations a level however many are finished, cuts the surplus by score, and repeats
    solutions where there are too few. Identical continuations compete as one node there only by
    an option, and here always.
    """

    class Settings(WidthSettings):
        """Continues the best beginnings of all, `width` times each."""

    def choose(self, level: Counter[str]) -> Mapping[str, int]:
        """Give the best open nodes even shares; the better ones get the remainder."""
        kept = open_nodes(self.ranked(level))[: ceil(self.num_missing / self.settings.width)]
        if not kept:
            return {}
        share, rest = divmod(self.num_missing, len(kept))
        return {node.id: share + (place < rest) for place, node in enumerate(kept)}


class DvtsSearch(SearchMethod):
    """Diverse verifier tree search: independent greedy searches side by side.

    From huggingface/search-and-learn (Beeching et al. 2024), a variant of beam search as in arXiv
    2408.03314.

    `n / width` subtrees each sample `width` continuations and go on with the best of them, until
    that one is finished. They share no ranking, so solutions stay diverse, and none waits for
    another.

    The same tokens are the same node, so subtrees may stand on one node, as all do at the bare
    problem. Samples of a node do not say for which subtree they are: once all have arrived they
    are dealt out at random, by the seed, which for independent samples is the same thing.

    Departs from search-and-learn in what comes out: that gives the last `width` continuations of
    every subtree, finished or not; here it is every finished solution that was sampled, the ones
    that lost to an open node included. A dead end is never gone on with while there is something
    else.
    """

    class Settings(WidthSettings):
        """Runs `n / width` searches beside each other, each the best of `width` at every step."""

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Start the search of a problem; see `SearchMethod`."""
        super().__init__(settings, root, seed=seed)
        self._moved: Counter[str] = Counter()
        """Number of subtrees that go on from a node and have not yet asked for its
        continuations."""
        if root.is_open:
            self._moved[root.id] = settings.n // settings.width
        self._missing: Counter[str] = Counter()
        """Number of requested continuations of a node that have not arrived."""
        self._arrived: dict[str, list[str]] = {}
        """Continuations of a node, as they arrived."""

    def wanted(self) -> Sequence[Expansion]:
        """Return `width` continuations for every subtree that has moved to a new node."""
        moved, self._moved = self._moved, Counter()
        asked = {node: moved[node] * self.settings.width for node in sorted(moved)}
        self._missing.update(asked)
        return [
            Expansion(node=node, count=count, steps=self.settings.every)
            for node, count in asked.items()
        ]

    def record(self, parent: str, node: Node) -> None:
        """Record a continuation; after the last one of a parent, its subtrees move on."""
        super().record(parent, node)
        self._arrived.setdefault(parent, []).append(node.id)
        self._missing[parent] -= 1
        if self._missing[parent] == 0:
            for best in self._best_of_each(parent, sorted(self._arrived.pop(parent))):
                if best.is_open:
                    self._moved[best.id] += 1

    def _best_of_each(self, parent: str, arrived: list[str]) -> list[Node]:
        """Deal out the samples to the subtrees on `parent`, and return the best node of each."""
        Random(f"{self.seed}:{parent}").shuffle(arrived)
        width = self.settings.width
        hands = (arrived[place : place + width] for place in range(0, len(arrived), width))
        return [min((self.nodes[node] for node in hand), key=self._rank) for hand in hands]

    def _rank(self, node: Node) -> tuple[Any, ...]:
        return node.is_cut, -self.value(node), node.id


class RebaseSearch(LevelSearch):
    """REBASE, reward balanced search: better beginnings go on more often (arXiv 2408.00724).

    Of every level, the solutions that are still missing are split among the open nodes in
    proportion to exp(value / temperature). A node that was sampled several times counts as often,
    as in the paper, where each sample is a leaf of its own.

    Departs from the paper's code in rounding: that goes down from the best leaf and rounds every
    share of what is left up, which favours good leaves; here the largest remainders are rounded
    up. Either way the shares add up to what is missing. A dead end is no solution and takes no
    place, which in the paper's code it does.
    """

    class Settings(MethodSettings):
        """Continues every beginning as often as its value deserves."""

        temperature: float = Field(0.2, gt=0, le=MAX_AMOUNT)
        """Temperature of the softmax over scores (arXiv 2408.00724)."""

    def choose(self, level: Counter[str]) -> Mapping[str, int]:
        """Split the missing solutions among all open nodes."""
        nodes = open_nodes(self.ranked(level))
        if not nodes:
            return {}
        values = [self.value(node) for node in nodes]
        shares = [
            level[node.id] * math.exp((value - values[0]) / self.settings.temperature)
            for node, value in zip(nodes, values, strict=True)
        ]
        counts = split(self.num_missing, shares)
        return {node.id: count for node, count in zip(nodes, counts, strict=True)}


def split(total: int, shares: Sequence[float]) -> list[int]:
    """Split a number into whole parts by the method of the largest remainder.

    Args:
        total: number to be split, at least 0.
        shares: weights of the parts before rounding; at least 0, and not all 0.

    Returns:
        A part for each share, `total` in all. Equal remainders are rounded up from the left.
    """
    whole = math.fsum(shares)
    exact = [total * (share / whole) for share in shares]
    parts = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts


LEAST_ESS = 0.5
"""Least effective sample size, as a fraction of the particles (arXiv 2510.05825)."""
_LEAST = 1e-7
"""Scores are kept this far from 0 and 1 where their odds are taken, as in the paper's code."""
_HALVINGS = 50
"""Number of halvings of the interval in which the exponent lies."""


class ParticleSearch(LevelSearch):
    """Particle filtering: at most `n` samples per level, one per unfinished particle.

    A population is resampled by score after every step (arXiv 2502.01618): `n` particles each take
    a step. Then each is weighted by the odds p / (1 - p) of its score p, which is the paper's
    softmax of logits, and `n` particles are drawn in proportion. Finished particles keep their
    weight and stay in the population; dead ends have none. The search ends when every particle is
    finished.

    Scores are noisy, above all early, and a few overrated particles would soon be the whole
    population. The odds are therefore raised to an exponent in [0, 1], the largest at which the
    effective sample size (sum w)^2 / sum w^2 is at least the share `LEAST_ESS` of the particles, as
    annealing of sequential Monte Carlo does (arXiv 2510.05825 on the same failure).

    Departs further from the paper in resampling systematically, with one random number for all
    particles, where the paper draws each by itself: the expected counts are the same and their
    variance is less. For the same reason nothing is drawn once all are finished: the solutions then
    count by their weights, which are the expected counts of one more draw.
    """

    class Settings(MethodSettings):
        """Keeps a population of beginnings that is resampled by the odds of their scores."""

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Start the search of a problem; see `SearchMethod`."""
        super().__init__(settings, root, seed=seed)
        self._settled: dict[str, float] = {}
        """Number of particles on each finished node of the population."""

    def choose(self, level: Counter[str]) -> Mapping[str, int]:
        """Resample the population, and continue its open particles."""
        population = Counter({node: int(count) for node, count in self._settled.items()}) + level
        nodes = [node for node in self.ranked(population) if not node.is_cut]
        if not nodes:
            return {}
        counts = [population[node.id] for node in nodes]
        weights = tempered([self._log_odds(node) for node in nodes], counts, LEAST_ESS)
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
    """Return tempered weights at which the effective sample size is large enough.

    Args:
        log_odds: log odds of each node's score.
        counts: number of particles on each node, at least 1.
        least: fraction of the particles that the effective sample size must reach, in [0, 1].

    Returns:
        The weight of one particle on each node, the greatest being 1: its odds to the power of the
        largest exponent in [0, 1] at which the effective sample size is large enough.
    """
    best, enough = max(log_odds), least * sum(counts)

    def weights(exponent: float) -> list[float]:
        return [math.exp(exponent * (value - best)) for value in log_odds]

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
    """Return the effective number of particles, (sum w)^2 / sum w^2.

    Args:
        weights: weight of one particle on each node.
        counts: number of particles on each node.
    """
    pairs = list(zip(weights, counts, strict=True))
    total = math.fsum(weight * count for weight, count in pairs)
    return float(total**2 / math.fsum(weight**2 * count for weight, count in pairs))


def resampled(shares: Sequence[float], total: int, start: float) -> list[int]:
    """Resample systematically, by evenly spaced points on a line that the shares divide.

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
