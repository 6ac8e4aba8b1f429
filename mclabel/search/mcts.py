"""Monte Carlo tree search over steps: PUCT selection, values from a scorer or from rollouts."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from mclabel.core.settings import MAX_AMOUNT, rule
from mclabel.search.base import MAX_WIDTH, Expansion, MethodSettings, Node, SearchMethod

_EXPANSIONS_EACH = 4
"""Most leaves expanded for each of the `n` solutions."""


@dataclass(eq=False)
class TreeNode:
    """Node of the tree, with the statistics for the selection."""

    node: Node
    parent: TreeNode | None
    prior: float
    """Fraction of the parent's continuations that are this node."""
    visits: int = 0
    """Number of continuations sampled at or below it, including pending ones."""
    total: float = 0.0
    """Sum of the values of the visits; pending ones count as 0."""
    num_leaves: int = 0
    """Number of nodes at or below it that can be expanded."""
    children: list[TreeNode] = field(default_factory=list)

    def best_child(self, c: float) -> TreeNode:
        """Return the child with a leaf that PUCT selects; ties go to the lower id."""
        scale = c * math.sqrt(self.visits)

        def rank(child: TreeNode) -> tuple[float, str]:
            unsure = scale * child.prior / (1 + child.visits)
            return -(child.total / child.visits + unsure), child.node.id

        return min((child for child in self.children if child.num_leaves), key=rank)

    def add(self, *, visits: int = 0, total: float = 0.0, leaves: int = 0) -> None:
        """Add to the statistics of this node and all its ancestors."""
        place: TreeNode | None = self
        while place is not None:
            place.visits += visits
            place.total += total
            place.num_leaves += leaves
            place = place.parent


@dataclass(eq=False)
class Growth:
    """Pending expansion of a leaf."""

    leaf: TreeNode
    num_due: int
    """Number of continuations that have not arrived."""
    arrived: Counter[str] = field(default_factory=Counter)
    """Number of samples of each continuation, by id."""
    rolled: dict[str, float | None] = field(default_factory=dict)
    """Value at the end of the rollout from a continuation; None until it has arrived."""
    num_solved: int = 0
    """Number of finished solutions among continuations and rollouts."""

    @property
    def is_complete(self) -> bool:
        """True if everything that it requested has arrived."""
        return not self.num_due and None not in self.rolled.values()


class MctsSearch(SearchMethod):
    """Monte Carlo tree search.

    It takes at most 4 * `n` * `width` samples, and as many rollouts if they give the values.

    It follows ReST-MCTS* (arXiv 2406.03816) and rStar (arXiv 2408.06195), with the selection of
    AlphaZero (arXiv 1712.01815). An expansion descends from the root to a leaf, always to the child
    with the greatest

        Q + c * P * sqrt(visits of the parent) / (1 + visits)

    It samples `width` continuations of the leaf, values each of them, and adds the values to every
    node on the path. Each sampled continuation is one visit, and Q is the mean value of the visits.
    Equal continuations are one child, whose prior P is its share of them. Nothing is sampled twice
    from one node, so a branch is left out of the selection once it holds no leaf to expand.

    Up to `parallel` expansions are pending at a time. A pending one counts as visits of value 0
    (virtual loss), which sends the next one elsewhere. Expansions are added to the tree in the
    order in which they began, each as soon as it is complete, and a new one then begins. So the
    search does not depend on the order of arrival, and no expansion waits for one that began later.
    """

    class Settings(MethodSettings):
        """Grows a tree of steps, by value and by what was little tried, to `n` solutions."""

        width: int = Field(4, ge=1, le=MAX_WIDTH)
        """Continuations of each kept prefix; for beam and dvts a divisor of `n`."""
        c: float = Field(1.25, ge=0, le=MAX_AMOUNT)
        """Exploration constant of PUCT (arXiv 1911.08265)."""
        parallel: int = Field(4, ge=1, le=MAX_WIDTH)
        """Leaves expanded at a time."""
        value: Literal["prm", "rollout", "both"] = "prm"
        """Value of a continuation: its score, that of a solution sampled from it (which counts
        towards `n`), or their mean."""

        @rule
        def _not_too_much_is_under_way(self) -> str | None:
            if self.width * self.parallel <= MAX_WIDTH:
                return None
            return (
                f"parallel={self.parallel}: times width={self.width} must be at most {MAX_WIDTH}, "
                "since all continuations under way are held in memory. Set "
                f"parallel={MAX_WIDTH // self.width}, or lower width"
            )

    def __init__(self, settings: Settings, root: Node, *, seed: int) -> None:
        """Begin with a problem; see `SearchMethod`."""
        super().__init__(settings, root, seed=seed)
        self.tree = TreeNode(root, None, 1.0, num_leaves=int(root.is_open))
        self._expansions_left = _EXPANSIONS_EACH * settings.n
        self._growing: deque[Growth] = deque()
        """Expansions under way, in the order in which they began."""
        self._growing_at: dict[str, Growth] = {}
        """Expansions by their leaf, and by the continuations that are rolled out."""
        self._num_solved = 0
        """Finished solutions of the expansions that were taken into the tree."""
        self._pending: list[Expansion] = []

    def wanted(self) -> Sequence[Expansion]:
        """Add complete expansions to the tree, and begin as many new ones as `parallel` allows."""
        self._begin()
        while self._growing and self._growing[0].is_complete:
            self._take_in(self._growing.popleft())
            self._begin()
        pending, self._pending = self._pending, []
        return pending

    def record(self, parent: str, node: Node) -> None:
        """Record a continuation or the end of a rollout; see `SearchMethod`."""
        super().record(parent, node)
        growth = self._growing_at[parent]
        if parent != growth.leaf.node.id:
            growth.rolled[parent] = self._worth(node) if node.is_finished else 0.0
        else:
            growth.arrived[node.id] += 1
            growth.num_due -= 1
            if not growth.num_due and self.settings.value != "prm":
                self._roll_out(growth)
        growth.num_solved += node.is_finished

    def _begin(self) -> None:
        """Begin expansions until enough are pending, no leaf remains, or no more solutions are
        needed.
        """
        while (
            len(self._growing) < self.settings.parallel
            and self._expansions_left
            and self._num_solved < self.settings.n
            and self.tree.num_leaves
        ):
            leaf, width = self._select(), self.settings.width
            leaf.add(visits=width, leaves=-1)
            self._expansions_left -= 1
            growth = Growth(leaf, num_due=width)
            self._growing.append(growth)
            self._growing_at[leaf.node.id] = growth
            self._pending.append(
                Expansion(node=leaf.node.id, count=width, steps=self.settings.every)
            )

    def _select(self) -> TreeNode:
        """Return the leaf that PUCT selects."""
        place = self.tree
        while place.children:
            place = place.best_child(self.settings.c)
        return place

    def _roll_out(self, growth: Growth) -> None:
        """Request a rollout from every distinct open continuation."""
        for node in sorted(growth.arrived):
            if self.nodes[node].is_open:
                growth.rolled[node] = None
                self._growing_at[node] = growth
                self._pending.append(Expansion(node=node, count=1, steps=None))

    def _take_in(self, growth: Growth) -> None:
        """Make the continuations children of the leaf, and add their values to its ancestors."""
        leaf, width = growth.leaf, growth.arrived.total()
        for name, count in sorted(growth.arrived.items()):
            node, total = self.nodes[name], count * self._value(growth, name)
            leaf.children.append(TreeNode(node, leaf, count / width, count, total, 0))
            leaf.add(total=total)
            leaf.children[-1].add(leaves=int(node.is_open))
        self._num_solved += growth.num_solved

    def _value(self, growth: Growth, name: str) -> float:
        """Return the value of a continuation, in [0, 1]; 0 for a dead end."""
        node, rolled = self.nodes[name], growth.rolled.get(name)
        if node.is_cut:
            return 0.0
        if rolled is None or self.settings.value == "prm":
            return self._worth(node)
        return rolled if self.settings.value == "rollout" else (self._worth(node) + rolled) / 2

    def _worth(self, node: Node) -> float:
        """Return the value of a node's scores, in [0, 1] with any aggregation."""
        value = self.value(node)
        return (1 + math.tanh(value / 2)) / 2 if self.settings.aggregate == "log_odds" else value
