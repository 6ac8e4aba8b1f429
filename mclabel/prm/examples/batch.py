"""Batches of encoded solutions, as padded tensors or as trees of tokens.

It also has the functions that apply a network to such batches, in parallel on a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from mclabel.prm.examples.encode import EncodedSolution

# Token trees: shared prefixes of solutions are computed only once.
#
# Solutions of one problem share its prompt and often their first steps. They are merged into a tree
# of tokens in which each token attends only to its ancestors. A transformer then computes each node
# once, with the same results as for separate solutions (tree attention, arXiv 2305.09781).

MAX_NODES = 512
"""Maximum number of tokens in a token tree, because the cost of attention grows quadratically."""
MIN_SAVING = 0.4
"""Minimum fraction of a group's tokens that a token tree must save. If it saves fewer, its
attention costs more than it saves."""


@dataclass(frozen=True, kw_only=True)
class TokenTree:
    """A prefix tree of a batch of solutions.

    Each node is one token. Solutions share the nodes of their common prefix.
    """

    token_ids: Tensor
    """Token id of each node [nodes]."""
    token_positions: Tensor
    """Position of each node's token in its solutions, from 0 [nodes]."""
    attention_mask: Tensor
    """Attention mask [nodes, nodes]: True if the row's node attends to the column's node, which is
    the same node or an ancestor."""
    node_indices: Tensor
    """Node index of every token of every solution [batch, seq]; 0 at padding."""

    def to(self, device: torch.device) -> TokenTree:
        """Return a copy on another device."""
        return TokenTree(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def make_tree(solutions: Sequence[EncodedSolution]) -> TokenTree:
    """Build the token tree of solutions, which must be sorted by their token ids."""
    width = max(len(s.ids) for s in solutions)
    ids: list[int] = []
    parents: list[int] = []
    nodes = np.zeros((len(solutions), width), dtype=np.int64)
    path: list[int] = []
    before: tuple[int, ...] = ()
    for row, solution in enumerate(solutions):
        path = path[: _count_common_prefix_ids(before, solution.ids)]
        for token in solution.ids[len(path) :]:
            parents.append(path[-1] if path else -1)
            path.append(len(ids))
            ids.append(token)
        nodes[row, : len(path)] = path
        before = solution.ids
    attention_mask = np.zeros((len(ids), len(ids)), dtype=bool)
    depth = np.zeros(len(ids), dtype=np.int64)
    for node, parent in enumerate(parents):
        if parent >= 0:
            attention_mask[node] = attention_mask[parent]
            depth[node] = depth[parent] + 1
        attention_mask[node, node] = True
    return TokenTree(
        token_ids=torch.tensor(ids),
        token_positions=torch.from_numpy(depth),
        attention_mask=torch.from_numpy(attention_mask),
        node_indices=torch.from_numpy(nodes),
    )


class SolutionGroup(NamedTuple):
    """Solutions that are computed together as one batch."""

    solutions: Sequence[EncodedSolution]
    is_tree: bool
    """True if the solutions are computed as a token tree."""


def split_into_tree_groups(solutions: Sequence[EncodedSolution]) -> Iterator[SolutionGroup]:
    """Yield groups of solutions. A group is a tree if a token tree saves computation.

    Args:
        solutions: solutions sorted by their token ids.
    """
    group: list[EncodedSolution] = []
    nodes = tokens = 0
    for solution in solutions:
        fresh = len(solution.ids) - (
            _count_common_prefix_ids(group[-1].ids, solution.ids) if group else 0
        )
        if group and nodes + fresh > MAX_NODES:
            yield SolutionGroup(group, is_tree=nodes <= (1 - MIN_SAVING) * tokens)
            group, nodes, tokens, fresh = [], 0, 0, len(solution.ids)
        group.append(solution)
        nodes, tokens = nodes + fresh, tokens + len(solution.ids)
    if group:
        yield SolutionGroup(group, is_tree=nodes <= (1 - MIN_SAVING) * tokens)


def _count_common_prefix_ids(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the number of ids in the longest common prefix of two sequences."""
    for place, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return place
    return min(len(a), len(b))


PADDING = -1
"""Value that pads the step positions of a solution that has fewer steps than the longest in its
batch."""
BATCH_TOKENS = 16_384
"""Maximum number of tokens in a batch, including padding. A longer solution gets its own batch."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class StepBatch:
    """Solutions of different lengths, padded on the right."""

    ids: Tensor
    """Token ids [batch, seq]."""
    mask: Tensor
    """Attention mask [batch, seq]: 1 for tokens, 0 for padding."""
    num_prompt: Tensor
    """Number of prompt tokens of each solution [batch]."""
    positions: Tensor
    """Token index at which each step is scored [batch, steps]; `PADDING` after a solution's last
    step."""
    tree: TokenTree | None = None
    """Token tree that the network computes instead of the padded rows; None if the rows are
    computed."""

    def to(self, device: torch.device) -> StepBatch:
        """Return a copy on another device."""
        return StepBatch(
            **{name: part.to(device) for name, part in vars(self).items() if part is not None}
        )

    def run(self, network: Callable[..., T], output: Callable[[T], Tensor]) -> Tensor:
        """Run a network and return its output for every token [batch, seq, width].

        Args:
            network: a transformer, called with keyword arguments.
            output: function that extracts a tensor [1 or batch, tokens, width] from the network's
                return value.
        """
        if self.tree is None:
            return output(network(input_ids=self.ids, attention_mask=self.mask, use_cache=False))
        tree = self.tree
        states = output(
            network(
                input_ids=tree.token_ids[None],
                position_ids=tree.token_positions[None],
                attention_mask=tree.attention_mask[None, None],
                use_cache=False,
            )
        )
        return states[0][tree.node_indices]


def make_batch(solutions: Sequence[EncodedSolution], *, as_tree: bool = False) -> StepBatch:
    """Pad solutions to the same length and return them as a batch.

    Args:
        solutions: encoded solutions; they must be sorted by their token ids if `as_tree` is true.
        as_tree: true to add a token tree, so that shared prefixes are computed once.
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
    compute_batch: Callable[[StepBatch, Sequence[EncodedSolution]], Sequence[T]],
    *,
    network: PreTrainedModel,
    threads: int | None,
    on_progress: Callable[[int, int], None],
) -> list[T]:
    """Run `compute_batch` on batches of solutions without gradients, and return the results.

    Equal solutions are computed once.

    Args:
        encoded: encoded solutions, in any order.
        compute_batch: function that returns one result per solution of a batch.
        network: network that `compute_batch` runs.
        threads: number of threads on a CPU; None uses one thread per core.
        on_progress: called with the number of finished and the number of all distinct solutions.
    """
    distinct = sorted(set(encoded), key=lambda e: e.ids)
    by_solution: dict[EncodedSolution, T] = {}

    def compute_group(group: SolutionGroup) -> Sequence[T]:
        batch = make_batch(group.solutions, as_tree=group.is_tree)
        with torch.no_grad():  # sharded models do not support inference mode
            return compute_batch(batch.to(network.device), group.solutions)

    groups = _group_into_batches(distinct, trees=accepts_attention_masks(network))
    with open_parallel_map(network, threads) as each:
        for group, results in zip(groups, each(compute_group, groups), strict=True):
            by_solution.update(zip(group.solutions, results, strict=True))
            on_progress(len(by_solution), len(distinct))
    return [by_solution[solution] for solution in encoded]


@contextmanager
def open_parallel_map(
    network: PreTrainedModel, threads: int | None
) -> Iterator[Callable[..., Any]]:
    """Yield a function that maps another function over batches in parallel, like `map`.

    Results are in the order of the batches. On a CPU, each batch is computed in a thread with one
    core, which works better than several threads per batch if other programs use the cores, too.
    """
    before, workers = torch.get_num_threads(), count_parallel_batches(network, threads)
    if network.device.type == "cpu":
        torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            # With one worker, batches run in this thread, whose current device is set correctly.
            yield map if workers == 1 else pool.map
    finally:
        torch.set_num_threads(before)


def count_parallel_batches(network: PreTrainedModel, threads: int | None) -> int:
    """Return the number of batches that run in parallel: one per thread on a CPU, else one."""
    return 1 if network.device.type != "cpu" else threads or os.cpu_count() or 1


def accepts_attention_masks(network: PreTrainedModel) -> bool:
    """Return whether all attention layers of a network accept an arbitrary attention mask."""
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


def _group_into_batches(distinct: Sequence[EncodedSolution], *, trees: bool) -> list[SolutionGroup]:
    """Return groups of solutions of bounded size; only if `trees` is true, some are token trees."""
    groups = (
        list(split_into_tree_groups(distinct))
        if trees
        else [SolutionGroup(distinct, is_tree=False)]
    )
    rest = [solution for group in groups if not group.is_tree for solution in group.solutions]
    rest.sort(key=lambda solution: len(solution.ids))
    plain: list[list[EncodedSolution]] = []
    for solution in rest:
        if plain and len(solution.ids) * (len(plain[-1]) + 1) <= BATCH_TOKENS:
            plain[-1].append(solution)
        else:
            plain.append([solution])
    return [
        *(group for group in groups if group.is_tree),
        *(SolutionGroup(solutions, is_tree=False) for solutions in plain),
    ]
