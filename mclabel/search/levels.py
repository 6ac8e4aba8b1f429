"""The built-in search methods: best of n, beam search, DVTS, REBASE and particle filtering.

Most methods sample level by level: the continuations that are requested together form a level,
which is complete when all of them have arrived. Only then does the method choose the nodes to
continue, so the order of arrival has no effect.
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
    """Settings of methods that sample `width` continuations of each kept prefix."""

    width: int = Field(4, ge=1, le=MAX_WIDTH)
    """Number of continuations of each kept prefix; must divide `n`."""

    @rule
    def _check_width_divides_n(self) -> str | None:
        if self.n % self.width == 0:
            return None
        fitting = max(size for size in range(1, min(self.width, self.n) + 1) if self.n % size == 0)
        return (
            f"width={self.width}: must divide n={self.n}. Set width={fitting}, or "
            f"n={(self.n // self.width + 1) * self.width}"
        )


class LevelSearch(SearchMethod):
    """Base of methods that sample one level at a time.

    A derived class chooses the nodes that the next level continues. A level has at most `n`
    continuations.
    """

    def __init__(self, settings: Any, root: Node, *, seed: int) -> None:
        """Start the search of a problem at its root node."""
        super().__init__(settings, root, seed=seed)
        self.level = 0
        """Number of levels that were requested."""
        self.arrived: Counter[str] = Counter({root.id: settings.n})
        """Maps the ids of the current level's nodes to the number of times that each was sampled.
        Before the first level, this is the root node, `n` times."""
        self._num_due = 0

    def wanted(self) -> Sequence[Expansion]:
        """Return the expansions of the next level once the current level is complete."""
        if self._num_due or not self.arrived:
            return []
        complete, self.arrived = self.arrived, Counter()
        counts = {
            node: count for node, count in self.choose_continuations(complete).items() if count
        }
        self.level += 1
        self._num_due = sum(counts.values())
        return [
            Expansion(node=node, count=count, steps=self.settings.every)
            for node, count in counts.items()
        ]

    @abstractmethod
    def choose_continuations(self, level: Counter[str]) -> Mapping[str, int]:
        """Choose the nodes to continue.

        Args:
            level: maps the ids of the last level's nodes, including finished and cut nodes, to the
                number of times that each was sampled.

        Returns:
            Number of continuations by the id of an open node, at most `n` in total. The search
            ends if there are none.
        """

    def record(self, parent: str, node: Node) -> None:
        """Record a continuation of the node `parent` that was requested."""
        super().record(parent, node)
        self.arrived[node.id] += 1
        self._num_due -= 1

    @property
    def num_missing(self) -> int:
        """Number of finished solutions that are still missing to reach `n`."""
        return max(0, int(self.settings.n) - self.finished.total())

    def rank_by_score(self, nodes: Iterable[str]) -> list[Node]:
        """Return the nodes by decreasing aggregate score; ties go to the lower id."""
        nodes_of_ids = (self.nodes[node] for node in nodes)
        return sorted(nodes_of_ids, key=lambda node: (-self.value(node), node.id))


def select_open_nodes(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that can be continued, in the same order."""
    return [node for node in nodes if node.is_open]


class BestOfNSearch(SearchMethod):
    """Best of n: `n` complete solutions, sampled independently of each other (arXiv 2110.14168).

    This is the baseline of all other methods: scores do not steer the sampling, but only rank the
    solutions.
    """

    class Settings(MethodSettings):
        """Samples `n` complete solutions without steering: the baseline of all searches."""

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Start the search of a problem at its root node."""
        super().__init__(settings, root, seed=seed)
        self._pending: Sequence[Expansion] = (
            [Expansion(node=root.id, count=settings.n, steps=None)] if root.is_open else []
        )

    def wanted(self) -> Sequence[Expansion]:
        """Return one expansion for all solutions at the first call, and none later."""
        pending, self._pending = self._pending, []
        return pending


class BeamSearch(LevelSearch):
    """Beam search: continues the best prefixes of each level (arXiv 2408.03314).

    The samples of a level are divided among the best distinct open nodes of the previous level, at
    most `n / width` nodes. Each finished solution reduces the number of samples per level by one.
    The search ends with `n` finished solutions, or earlier if no node is open.

    It departs from the reimplementation of the paper in search-and-learn. That code samples `n`
    continuations per level no matter how many solutions are finished, drops surplus solutions by
    score, and repeats solutions if there are too few. Identical continuations count as one node
    here; in that code this is an option.
    """

    class Settings(WidthSettings):
        """Continues the best prefixes of each level, `width` times each."""

    def choose_continuations(self, level: Counter[str]) -> Mapping[str, int]:
        """Divide the samples evenly among the best open nodes; better nodes get the remainder."""
        kept = select_open_nodes(self.rank_by_score(level))[
            : ceil(self.num_missing / self.settings.width)
        ]
        if not kept:
            return {}
        share, rest = divmod(self.num_missing, len(kept))
        return {node.id: share + (place < rest) for place, node in enumerate(kept)}


class DvtsSearch(SearchMethod):
    """Diverse verifier tree search (DVTS): several independent greedy searches.

    The method is from huggingface/search-and-learn (Beeching et al. 2024), as a variant of the beam
    search in arXiv 2408.03314.

    There are `n / width` greedy searches, called subtrees. Each one samples `width` continuations
    and moves to the best of them, until the best one is finished. Subtrees are not ranked against
    each other, so solutions stay diverse. No subtree waits for another one.

    Several subtrees may be at the same node; at the beginning, all are at the root. Their samples
    are requested together, and once all have arrived, they are assigned to the subtrees at random,
    by the seed. Since the samples are independent, the result is the same as with separate
    requests.

    The results depart from search-and-learn. That code returns the last `width` continuations of
    every subtree, finished or not. Here the results are all finished solutions, including those
    that were worse than an open node. A subtree moves to a node that was cut by a token limit only
    if all its continuations were cut.
    """

    class Settings(WidthSettings):
        """Runs `n / width` independent searches; each takes the best of `width` continuations."""

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Start the search of a problem, with all subtrees at its root node."""
        super().__init__(settings, root, seed=seed)
        self._moved: Counter[str] = Counter()
        """Maps the id of a node to the number of subtrees that have moved to it and have not yet
        requested its continuations."""
        if root.is_open:
            self._moved[root.id] = settings.n // settings.width
        self._missing: Counter[str] = Counter()
        """Maps the id of a node to the number of requested continuations that have not arrived."""
        self._arrived: dict[str, list[str]] = {}
        """Maps the id of a node to the ids of its arrived continuations."""

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
        """Record a continuation.

        Once all continuations of a parent have arrived, the subtrees at the parent move on.
        """
        super().record(parent, node)
        self._arrived.setdefault(parent, []).append(node.id)
        self._missing[parent] -= 1
        if self._missing[parent] == 0:
            for best in self._choose_best_per_subtree(parent, sorted(self._arrived.pop(parent))):
                if best.is_open:
                    self._moved[best.id] += 1

    def _choose_best_per_subtree(self, parent: str, arrived: list[str]) -> list[Node]:
        """Assign samples to the subtrees at `parent`, and return the best node of each subtree.

        Args:
            parent: id of the continued node.
            arrived: ids of all its continuations, sorted.
        """
        Random(f"{self.seed}:{parent}").shuffle(arrived)
        width = self.settings.width
        hands = (arrived[place : place + width] for place in range(0, len(arrived), width))
        return [
            min(
                (self.nodes[node] for node in hand),
                key=lambda node: (node.is_cut, -self.value(node), node.id),
            )
            for hand in hands
        ]


class RebaseSearch(LevelSearch):
    """REBASE (reward balanced search): continues better prefixes more often (arXiv 2408.00724).

    In every level, the number of solutions that are missing to reach `n` is divided among the open
    nodes, in proportion to exp(value / temperature). The share of a node that was sampled several
    times counts as many times, as in the paper, where each sample is a separate leaf.

    The rounding departs from the paper's code, which goes through the leaves from the best one and
    rounds each share of the remaining number up. That favours good leaves. Here the shares with the
    largest remainders are rounded up. In both cases the shares add up to the missing number. In the
    paper's code a solution that was cut by a token limit counts as one of the `n` solutions; here
    it does not.
    """

    class Settings(MethodSettings):
        """Continues every open prefix, in proportion to the softmax of its score."""

        temperature: float = Field(0.2, gt=0, le=MAX_AMOUNT)
        """Temperature of the softmax over scores (arXiv 2408.00724)."""

    def choose_continuations(self, level: Counter[str]) -> Mapping[str, int]:
        """Divide the number of missing solutions among all open nodes."""
        nodes = select_open_nodes(self.rank_by_score(level))
        if not nodes:
            return {}
        values = [self.value(node) for node in nodes]
        shares = [
            level[node.id] * math.exp((value - values[0]) / self.settings.temperature)
            for node, value in zip(nodes, values, strict=True)
        ]
        counts = split_by_largest_remainder(self.num_missing, shares)
        return {node.id: count for node, count in zip(nodes, counts, strict=True)}


def split_by_largest_remainder(total: int, shares: Sequence[float]) -> list[int]:
    """Split an integer into integer parts by the largest remainder method.

    Args:
        total: number to split, at least 0.
        shares: relative sizes of the parts, at least 0 and not all 0.

    Returns:
        One part per share, with the sum `total`. Among equal remainders, earlier parts are rounded
        up first.
    """
    whole = math.fsum(shares)
    exact = [total * (share / whole) for share in shares]
    parts = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts


LEAST_ESS = 0.5
"""Minimum effective sample size of the weights, as a fraction of the number of particles (arXiv
2510.05825)."""
_LEAST = 1e-7
"""Minimum distance of a score from 0 and 1 before its odds are computed, as in the paper's code."""
_HALVINGS = 50
"""Number of bisections by which the exponent of the weights is found."""


class ParticleSearch(LevelSearch):
    """Particle filtering: resamples a population of prefixes by score (arXiv 2502.01618).

    The population has `n` particles. In every level, each unfinished particle samples one
    continuation. Then each particle is weighted by the odds p / (1 - p) of its score p, which is
    the paper's softmax of logits, and `n` particles are drawn in proportion to the weights.
    Finished particles stay in the population with their weights. Particles that were cut by a token
    limit get no weight. The search ends when all particles are finished.

    Scores are noisy, most of all at early steps, so a few overrated particles would soon make up
    the whole population. The odds are therefore raised to an exponent in [0, 1]. It is the largest
    exponent at which the effective sample size (sum w)^2 / sum w^2 is at least the fraction
    `LEAST_ESS` of the particles. This is annealing, as known from sequential Monte Carlo; arXiv
    2510.05825 describes the same failure.

    Resampling also departs from the paper, which draws each particle independently. Here it is
    systematic, with one random number for all particles. The expected counts are the same, and
    their variance is lower. For the same reason, nothing is drawn once all particles are finished.
    The solutions then count by their weights, which are the expected counts of another draw.
    """

    class Settings(MethodSettings):
        """Keeps a population of prefixes that is resampled by the odds of their scores."""

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Start the search of a problem, with all particles at its root node."""
        super().__init__(settings, root, seed=seed)
        self._settled: dict[str, float] = {}
        """Maps the id of a finished node in the population to its number of particles."""

    def choose_continuations(self, level: Counter[str]) -> Mapping[str, int]:
        """Resample the population, and continue its open particles."""
        population = Counter({node: int(count) for node, count in self._settled.items()}) + level
        nodes = [node for node in self.rank_by_score(population) if not node.is_cut]
        if not nodes:
            return {}
        counts = [population[node.id] for node in nodes]
        weights = temper_weights(
            [self._compute_log_odds(node) for node in nodes], counts, LEAST_ESS
        )
        shares = [count * weight for count, weight in zip(counts, weights, strict=True)]
        if not any(node.is_open for node in nodes):
            scale = self.settings.n / math.fsum(shares)
            self._settled = {
                node.id: scale * share for node, share in zip(nodes, shares, strict=True)
            }
            return {}
        start = Random(f"{self.seed}:{self.level}").random()
        drawn = resample_systematically(shares, self.settings.n, start)
        kept = [(node, count) for node, count in zip(nodes, drawn, strict=True) if count]
        self._settled = {node.id: count for node, count in kept if node.is_finished}
        return {node.id: count for node, count in kept if node.is_open}

    def result(self) -> Mapping[str, float]:
        """Return the number of particles of each finished solution in the population.

        If the population has no finished solution, return all finished solutions that were sampled,
        with the numbers of times that they were sampled.
        """
        particles = dict(self._settled)
        for node, count in self.arrived.items():
            if self.nodes[node].is_finished:
                particles[node] = particles.get(node, 0) + count
        return particles or super().result()

    def _compute_log_odds(self, node: Node) -> float:
        value = self.value(node)
        if self.settings.aggregate == "log_odds":
            return value
        bounded = min(max(value, _LEAST), 1 - _LEAST)
        return math.log(bounded / (1 - bounded))


def temper_weights(
    log_odds: Sequence[float], counts: Sequence[int], min_ess_fraction: float
) -> list[float]:
    """Return weights that are flattened until the effective sample size is large enough.

    The weights are the odds raised to the largest exponent in [0, 1] that reaches this size.

    Args:
        log_odds: log odds of each node's score.
        counts: number of particles of each node, at least 1.
        min_ess_fraction: minimum effective sample size as a fraction of the particles, in [0, 1].

    Returns:
        The weight of one particle of each node, scaled so that the largest weight is 1.
    """
    best, enough = max(log_odds), min_ess_fraction * sum(counts)

    def compute_weights(exponent: float) -> list[float]:
        return [math.exp(exponent * (value - best)) for value in log_odds]

    if compute_effective_sample_size(compute_weights(1.0), counts) >= enough:
        return compute_weights(1.0)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if compute_effective_sample_size(compute_weights(middle), counts) >= enough:
            low = middle
        else:
            high = middle
    return compute_weights(low)


def compute_effective_sample_size(weights: Sequence[float], counts: Sequence[int]) -> float:
    """Return the effective number of particles, (sum w)^2 / sum w^2.

    Args:
        weights: weight of one particle of each node.
        counts: number of particles of each node.
    """
    pairs = list(zip(weights, counts, strict=True))
    total = math.fsum(weight * count for weight, count in pairs)
    return float(total**2 / math.fsum(weight**2 * count for weight, count in pairs))


def resample_systematically(shares: Sequence[float], total: int, start: float) -> list[int]:
    """Draw counts by systematic resampling: `total` evenly spaced points on a line of the shares.

    Args:
        shares: relative expected counts, at least 0 and not all 0.
        total: number of particles to draw.
        start: position of the first point as a fraction of the distance between points: a uniform
            random number in [0, 1).

    Returns:
        One count per share, with the sum `total`. Each count differs from its expectation by less
        than 1.
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
