"""Solutions that begin alike, computed together: every common beginning once.

Samples of one problem share its prompt and often their first steps. As a tree of tokens, each
attending to its ancestors alone, they cost a transformer as many tokens as the tree has nodes, and
give what they would give one by one (tree attention, arXiv 2305.09781).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mclabel.prm.examples.encode import EncodedSolution

MAX_NODES = 512
"""Of a tree: its attention is quadratic."""
MIN_SAVING = 0.4
"""Share of the tokens that a tree must save to be worth its attention."""


@dataclass(frozen=True, kw_only=True)
class TokenTree:
    """The distinct beginnings of a batch of solutions, one node a token."""

    ids: Tensor
    """[nodes]"""
    depth: Tensor
    """[nodes]: position of the token in its solutions."""
    sees: Tensor
    """[nodes, nodes], bool: itself and its ancestors."""
    nodes: Tensor
    """[batch, seq]: the node of every token; 0 at padding."""

    def to(self, device: torch.device) -> TokenTree:
        """The same on another device."""
        return TokenTree(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def make_tree(solutions: Sequence[EncodedSolution]) -> TokenTree:
    """The tree of solutions, which must be sorted by their ids."""
    width = max(len(s.ids) for s in solutions)
    ids: list[int] = []
    parents: list[int] = []
    nodes = np.zeros((len(solutions), width), dtype=np.int64)
    path: list[int] = []
    before: tuple[int, ...] = ()
    for row, solution in enumerate(solutions):
        path = path[: _common(before, solution.ids)]
        for token in solution.ids[len(path) :]:
            parents.append(path[-1] if path else -1)
            path.append(len(ids))
            ids.append(token)
        nodes[row, : len(path)] = path
        before = solution.ids
    sees = np.zeros((len(ids), len(ids)), dtype=bool)
    depth = np.zeros(len(ids), dtype=np.int64)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sees[node] = sees[parent]
            depth[node] = depth[parent] + 1
        sees[node, node] = True
    return TokenTree(
        ids=torch.tensor(ids),
        depth=torch.from_numpy(depth),
        sees=torch.from_numpy(sees),
        nodes=torch.from_numpy(nodes),
    )


def tree_groups(
    solutions: Sequence[EncodedSolution],
) -> Iterator[tuple[list[EncodedSolution], bool]]:
    """Groups of solutions, and whether a tree of each is worth it.

    Args:
        solutions: sorted by their ids.
    """
    group: list[EncodedSolution] = []
    nodes = tokens = 0
    for one in solutions:
        fresh = len(one.ids) - (_common(group[-1].ids, one.ids) if group else 0)
        if group and nodes + fresh > MAX_NODES:
            yield group, nodes <= (1 - MIN_SAVING) * tokens
            group, nodes, tokens, fresh = [], 0, 0, len(one.ids)
        group.append(one)
        nodes, tokens = nodes + fresh, tokens + len(one.ids)
    if group:
        yield group, nodes <= (1 - MIN_SAVING) * tokens


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return min(len(a), len(b))
