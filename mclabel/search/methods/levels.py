"""Search level by level: what the methods share that wait for all samples before they decide.

A level is over when every continuation that was asked for has arrived. Only then is the next one
chosen, from the whole of it, so that the order of arrival decides nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import Field

from mclabel.search.base import MAX_WIDTH, Expansion, MethodSettings, Node, SearchMethod
from mclabel.settings import rule


class WidthSettings(MethodSettings):
    """Settings of the methods that keep one of `width` continuations."""

    width: int = Field(4, ge=1, le=MAX_WIDTH)
    """Number of continuations sampled from each kept prefix; n / `width` prefixes are kept. 4 as in
    arXiv 2408.03314. Must divide `n`."""

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
    """Asks for a level at a time; a derived class chooses what the next one continues.

    No more than `n` continuations are sampled for a level, so a search takes at most `n` times the
    greatest depth.
    """

    def __init__(self, settings: Any, root: Node, *, seed: int) -> None:
        """Begin with a problem; see `SearchMethod`."""
        super().__init__(settings, root, seed=seed)
        self.level = 0
        """Number of levels that were asked for."""
        self.arrived: Counter[str] = Counter({root.id: settings.n})
        """Nodes of the level that is under way, and how often each was sampled. The level before
        the first one is the bare problem, `n` times."""
        self._num_due = 0

    def wanted(self) -> Sequence[Expansion]:
        """The next level, once the one before has arrived."""
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
        """Decide what to continue.

        Args:
            level: all nodes of the last level, finished and cut ones included, and how often each
                was sampled.

        Returns:
            Number of continuations of each open node, at most `n` in all; none ends the search.
        """
        ...

    def record(self, parent: str, node: Node) -> None:
        """Take a continuation; see `SearchMethod`."""
        super().record(parent, node)
        self.arrived[node.id] += 1
        self._num_due -= 1

    @property
    def num_missing(self) -> int:
        """Number of solutions that still lack to `n` finished ones."""
        return max(0, int(self.settings.n) - self.finished.total())

    def ranked(self, nodes: Iterable[str]) -> list[Node]:
        """Nodes by falling value; equal ones by id."""
        found = (self.nodes[node] for node in nodes)
        return sorted(found, key=lambda node: (-self.value(node), node.id))


def open_nodes(nodes: Iterable[Node]) -> list[Node]:
    """Those that can be continued, in the same order."""
    return [node for node in nodes if node.is_open]
