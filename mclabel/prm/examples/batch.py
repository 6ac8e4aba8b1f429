"""Encoded solutions as padded tensors, many batches at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from mclabel.prm.examples.encode import EncodedSolution
from mclabel.prm.examples.token_tree import TokenTree, make_tree, tree_groups

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
    """What the network computes instead, where solutions begin alike."""

    def to(self, device: torch.device) -> StepBatch:
        """The same on another device."""
        there = {name: part.to(device) for name, part in vars(self).items() if part is not None}
        return StepBatch(**there)

    def run(self, network: Callable[..., T], output: Callable[[T], Tensor]) -> Tensor:
        """What a network gives for every token [batch, seq, width].

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
    """What `compute` gives for each solution, without gradients; equal ones are computed once.

    Args:
        encoded: in any order.
        compute: one result per solution of a batch.
        network: that it runs.
        threads: on a CPU; None for one a core.
        on_progress: called with distinct solutions done and in all.
    """
    distinct = sorted(set(encoded), key=lambda e: e.ids)
    found: dict[EncodedSolution, T] = {}

    def run(group: tuple[list[EncodedSolution], bool]) -> Sequence[T]:
        batch = make_batch(group[0], as_tree=group[1])
        with torch.no_grad():  # what is split over workers cannot be in inference mode
            return compute(batch.to(network.device), group[0])

    groups = _batches(distinct, trees=takes_masks(network))
    with side_by_side(network, threads) as each:
        for (group, _), results in zip(groups, each(run, groups), strict=True):
            found.update(zip(group, results, strict=True))
            on_progress(len(found), len(distinct))
    return [found[one] for one in encoded]


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
    """Whether a mask of any shape reaches the attention of all layers."""
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
    rest = sorted((one for group, tree in groups if not tree for one in group), key=_length)
    plain: list[list[EncodedSolution]] = []
    for one in rest:
        if plain and len(one.ids) * (len(plain[-1]) + 1) <= BATCH_TOKENS:
            plain[-1].append(one)
        else:
            plain.append([one])
    return [group for group in groups if group[1]] + [(group, False) for group in plain]


def _length(one: EncodedSolution) -> int:
    return len(one.ids)
