"""A synthetic policy and scorer for search methods, with samples that arrive in any order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from mclabel.core.components import find_component
from mclabel.search.base import ROOT, Node, SearchMethod

Scorer = Callable[[Sequence[int]], float]
"""Function from a path of steps, which are numbers, to the score of its last step."""

SCORERS: Mapping[str, Scorer] = {
    "informative": lambda steps: 0.9 if set(steps) == {1} else 0.2,
    "graded": lambda steps: sum(step == 1 for step in steps) / len(steps),
    "not a number": lambda steps: math.nan if sum(steps) % 2 else 0.5,
    "constant": lambda steps: 0.5,
    "extreme": lambda steps: float(sum(steps) % 2),
    "decreasing": lambda steps: 1 / (1 + len(steps)),
}


@dataclass(frozen=True)
class World:
    """A simulated policy and scorer.

    A sample depends on the node and on the number of its earlier samples.
    """

    seed: int
    score: Scorer | None = None
    num_choices: int = 3
    """Number of different steps, at most 10: each is a digit of a node's id."""
    stop: float = 0.3
    """Chance that a step is the last one."""
    max_depth: int = 5
    """Depth at which an unfinished solution is cut."""
    least_depth: int = 1
    """Smallest number of steps of a solution."""

    def sample(self, node: Node, steps: int | None, number: int) -> Node:
        """Return one continuation.

        `number` is its 0-based index among the samples of the same node and number of steps.
        """
        rng = Random(f"{self.seed}:{node.id}:{steps}:{number}")
        path = [int(step) for step in node.id]
        for _ in range(self.max_depth if steps is None else steps):
            path.append(rng.randrange(self.num_choices))
            is_last = rng.random() < self.stop and len(path) >= self.least_depth
            if is_last or len(path) >= self.max_depth:
                return self._node(path, node, finished=is_last, cut=not is_last)
        return self._node(path, node)

    def _node(
        self, path: list[int], parent: Node, *, finished: bool = False, cut: bool = False
    ) -> Node:
        scores = [self.score(path[: i + 1]) for i in range(len(path))] if self.score else []
        return Node(
            id="".join(map(str, path)) + ("." if finished else "!" if cut else ""),
            parent=parent.id,
            depth=len(path),
            num_tokens=len(path),
            is_finished=finished,
            is_cut=cut,
            scores=tuple(scores),
        )


@dataclass
class Run:
    """The requests of a search method and their number."""

    method: SearchMethod
    asked: Counter[tuple[str, int | None]] = field(default_factory=Counter)
    """Number of samples by node and number of steps."""
    most: int = 0
    """Largest number of concurrent samples."""

    @property
    def num_samples(self) -> int:
        return self.asked.total()

    def samples_at(self, depth: int) -> int:
        """Return the number of samples from nodes at a depth."""
        nodes = self.method.nodes
        return sum(count for (node, _), count in self.asked.items() if nodes[node].depth == depth)


def begin(kind: str, root: Node | None = None, *, seed: int = 0, **settings: Any) -> SearchMethod:
    method = find_component("searches", kind)
    root = root or Node(id=ROOT, parent=None, depth=0, num_tokens=0)
    return method(method.Settings(**settings), root, seed=seed)


def search(method: SearchMethod, world: World, order: Random) -> Run:
    """Serve a method; samples arrive in random order, several of them between two requests."""
    run, due = Run(method), list[tuple[str, Node]]()
    while True:
        for wanted in method.wanted():
            node = method.nodes[wanted.node]
            assert node.is_open and wanted.count >= 1
            for _ in range(wanted.count):
                number = run.asked[node.id, wanted.steps]
                run.asked[node.id, wanted.steps] += 1
                due.append((node.id, world.sample(node, wanted.steps, number)))
        run.most = max(run.most, len(due))
        assert list(method.wanted()) == []
        assert run.num_samples < 5_000
        if not due:
            return run
        for _ in range(order.randint(1, len(due))):
            method.record(*due.pop(order.randrange(len(due))))
            assert all(method.nodes[node].is_finished for node in method.result())
