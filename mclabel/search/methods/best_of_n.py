"""Best of n: `n` whole solutions, sampled independently of each other (arXiv 2110.14168).

The baseline of every other method: scores steer nothing, and only rank what came out. It samples
exactly `n` continuations of the bare problem.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.search.base import Expansion, MethodSettings, Node, SearchMethod


class BestOfNSearch(SearchMethod):
    """Asks for everything at once."""

    class Settings(MethodSettings):
        """Samples `n` whole solutions that no score steers: the baseline of all searches."""

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Begin with a problem; see `SearchMethod`."""
        super().__init__(settings, root, seed=seed)
        self._pending: Sequence[Expansion] = (
            [Expansion(node=root.id, count=settings.n, steps=None)] if root.is_open else []
        )

    def wanted(self) -> Sequence[Expansion]:
        """All solutions at the first call, none after it."""
        pending, self._pending = self._pending, []
        return pending
