"""Diverse verifier tree search: independent greedy searches side by side.

From huggingface/search-and-learn (Beeching et al. 2024), a variant of beam search as in
arXiv 2408.03314.

`n / width` subtrees each sample `width` continuations and go on with the best of them, until that
one is finished. They share no ranking, so solutions stay diverse, and none waits for another.

The same tokens are the same node, so subtrees may stand on one node, as all do at the bare
problem. Samples of a node do not say for which subtree they are: once all have arrived they are
dealt out at random, by the seed, which for independent samples is the same thing.

Departs from search-and-learn in what comes out: that gives the last `width` continuations of every
subtree, finished or not; here it is every finished solution that was sampled, the ones that lost
to an open node included. A dead end is never gone on with while there is something else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from mclabel.search.base import Expansion, Node, SearchMethod
from mclabel.search.methods.levels import WidthSettings


class DvtsSearch(SearchMethod):
    """At most `n` samples are under way, and at most `n` at each depth."""

    class Settings(WidthSettings):
        """Runs `n / width` searches beside each other, each the best of `width` at every step."""

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Begin with a problem; see `SearchMethod`."""
        super().__init__(settings, root, seed=seed)
        self._moved: Counter[str] = Counter()
        """Number of subtrees that go on from a node and have not yet asked for its
        continuations."""
        if root.is_open:
            self._moved[root.id] = settings.n // settings.width
        self._missing: Counter[str] = Counter()
        """Number of continuations of a node that were asked for and have not arrived."""
        self._arrived: dict[str, list[str]] = {}
        """Continuations of a node, as they arrived."""

    def wanted(self) -> Sequence[Expansion]:
        """`width` continuations for every subtree that has moved on."""
        moved, self._moved = self._moved, Counter()
        asked = {node: moved[node] * self.settings.width for node in sorted(moved)}
        self._missing.update(asked)
        return [
            Expansion(node=node, count=count, steps=self.settings.every)
            for node, count in asked.items()
        ]

    def record(self, parent: str, node: Node) -> None:
        """Take a continuation; the last one of its parent moves the subtrees that stand there."""
        super().record(parent, node)
        self._arrived.setdefault(parent, []).append(node.id)
        self._missing[parent] -= 1
        if self._missing[parent] == 0:
            for best in self._best_of_each(parent, sorted(self._arrived.pop(parent))):
                if best.is_open:
                    self._moved[best.id] += 1

    def _best_of_each(self, parent: str, arrived: list[str]) -> list[Node]:
        """The node that each subtree on `parent` goes on with, once samples are dealt out."""
        Random(f"{self.seed}:{parent}").shuffle(arrived)
        width = self.settings.width
        hands = (arrived[place : place + width] for place in range(0, len(arrived), width))
        return [min((self.nodes[node] for node in hand), key=self._rank) for hand in hands]

    def _rank(self, node: Node) -> tuple[Any, ...]:
        return node.is_cut, -self.value(node), node.id
