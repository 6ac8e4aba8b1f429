"""Encoded solutions as padded tensors, many batches at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from mclabel.prm.examples.encode import EncodedSolution

# Solutions that begin alike, computed together: every common beginning once.
#
# Samples of one problem share its prompt and often their first steps. As a tree of tokens, each
# attending to its ancestors alone, they cost a transformer as many tokens as the tree has nodes,
# and give what they would give one by one (tree attention, arXiv 2305.09781).

MAX_NODES = 512
"""Maximum number of nodes of a tree, whose attention is quadratic."""
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
    for solution in solutions:
        fresh = len(solution.ids) - (_common(group[-1].ids, solution.ids) if group else 0)
        if group and nodes + fresh > MAX_NODES:
            yield group, nodes <= (1 - MIN_SAVING) * tokens
            group, nodes, tokens, fresh = [], 0, 0, len(solution.ids)
        group.append(solution)
        nodes, tokens = nodes + fresh, tokens + len(solution.ids)
    if group:
        yield group, nodes <= (1 - MIN_SAVING) * tokens


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return min(len(a), len(b))


PADDING = -1
"""Position of a step that is not there."""
BATCH_TOKENS = 16_384

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """Solutions of different lengths, padded on the right."""

    ids: Tensor
    """[batch, seq]"""
    mask: Tensor
    """[batch, seq], 1 for tokens, 0 for padding."""
    num_prompt: Tensor
    """[batch]"""
    positions: Tensor
    """[batch, steps], `PADDING` where a solution has fewer steps."""
    tree: TokenTree | None = None
    """Tree that the network computes instead if solutions begin alike."""

    def to(self, device: torch.device) -> StepBatch:
        """The same on another device."""
        there = {name: part.to(device) for name, part in vars(self).items() if part is not None}
        return StepBatch(**there)

    def run(self, network: Callable[..., T], output: Callable[[T], Tensor]) -> Tensor:
        """Return what a network gives for every token [batch, seq, width].

        Args:
            network: a transformer, called by keyword arguments.
            output: takes [1 or batch, tokens, width] out of what it returns.
        """
        if self.tree is None:
            return output(network(input_ids=self.ids, attention_mask=self.mask, use_cache=False))
        tree = self.tree
        states = output(
            network(
                input_ids=tree.ids[None],
                position_ids=tree.depth[None],
                attention_mask=tree.sees[None, None],
                use_cache=False,
            )
        )
        return states[0][tree.nodes]


def make_batch(solutions: Sequence[EncodedSolution], *, as_tree: bool = False) -> StepBatch:
    """Pad solutions to one length.

    Args:
        solutions: sorted by their ids, if `as_tree`.
        as_tree: compute common beginnings once.
    """
    width = max(len(s.ids) for s in solutions)
    most = max(len(s.positions) for s in solutions)
    return StepBatch(
        ids=torch.tensor([[*s.ids, *[0] * (width - len(s.ids))] for s in solutions]),
        mask=torch.tensor([[1] * len(s.ids) + [0] * (width - len(s.ids)) for s in solutions]),
        num_prompt=torch.tensor([s.num_prompt for s in solutions]),
        positions=torch.tensor(
            [[*s.positions, *[PADDING] * (most - len(s.positions))] for s in solutions]
        ),
        tree=make_tree(solutions) if as_tree else None,
    )


def map_solutions(
    encoded: Sequence[EncodedSolution],
    compute: Callable[[StepBatch, Sequence[EncodedSolution]], Sequence[T]],
    *,
    network: PreTrainedModel,
    threads: int | None,
    on_progress: Callable[[int, int], None],
) -> list[T]:
    """Return what `compute` gives for each solution, without gradients; equal ones are computed
    once.

    Args:
        encoded: in any order.
        compute: one result per solution of a batch.
        network: that it runs.
        threads: on a CPU; None for one a core.
        on_progress: called with distinct solutions done and in all.
    """
    distinct = sorted(set(encoded), key=lambda e: e.ids)
    by_solution: dict[EncodedSolution, T] = {}

    def run(group: tuple[list[EncodedSolution], bool]) -> Sequence[T]:
        batch = make_batch(group[0], as_tree=group[1])
        with torch.no_grad():  # what is split over workers cannot be in inference mode
            return compute(batch.to(network.device), group[0])

    groups = _batches(distinct, trees=takes_masks(network))
    with side_by_side(network, threads) as each:
        for (group, _), results in zip(groups, each(run, groups), strict=True):
            by_solution.update(zip(group, results, strict=True))
            on_progress(len(by_solution), len(distinct))
    return [by_solution[solution] for solution in encoded]


@contextmanager
def side_by_side(network: PreTrainedModel, threads: int | None) -> Iterator[Callable[..., Any]]:
    """A `map` that runs a network on several batches at a time, in their order.

    On a CPU, batches run side by side in threads of one core each, which share cores with other
    programs better than one batch in several threads does.
    """
    before, workers = torch.get_num_threads(), num_workers(network, threads)
    if network.device.type == "cpu":
        torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            # One after the other in this thread, whose device is the worker's.
            yield map if workers == 1 else pool.map
    finally:
        torch.set_num_threads(before)


def num_workers(network: PreTrainedModel, threads: int | None) -> int:
    """Number of batches that run side by side."""
    return 1 if network.device.type != "cpu" else threads or os.cpu_count() or 1


def takes_masks(network: PreTrainedModel) -> bool:
    """Return whether a mask of any shape reaches the attention of all layers."""
    config = network.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    windowed = getattr(config, "sliding_window", None) and getattr(
        config, "use_sliding_window", True
    )
    return (
        network.config._attn_implementation == "sdpa"
        and kinds == {"full_attention"}
        and not windowed
    )


def _batches(
    distinct: Sequence[EncodedSolution], *, trees: bool
) -> list[tuple[list[EncodedSolution], bool]]:
    """Batches of bounded size, and whether each is computed as a tree."""
    groups = list(tree_groups(distinct)) if trees else [(list(distinct), False)]
    rest = [solution for group, is_tree in groups if not is_tree for solution in group]
    rest.sort(key=lambda solution: len(solution.ids))
    plain: list[list[EncodedSolution]] = []
    for solution in rest:
        if plain and len(solution.ids) * (len(plain[-1]) + 1) <= BATCH_TOKENS:
            plain[-1].append(solution)
        else:
            plain.append([solution])
    return [group for group in groups if group[1]] + [(group, False) for group in plain]
