"""Encoded solutions as padded tensors, many batches at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from mclabel.prm.encode import EncodedSolution

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

    def to(self, device: torch.device) -> StepBatch:
        """The same on another device."""
        return StepBatch(**{name: tensor.to(device) for name, tensor in vars(self).items()})


def make_batch(solutions: Sequence[EncodedSolution]) -> StepBatch:
    """Pad solutions to one length."""
    width = max(len(s.ids) for s in solutions)
    most = max(len(s.positions) for s in solutions)
    return StepBatch(
        ids=torch.tensor([[*s.ids, *[0] * (width - len(s.ids))] for s in solutions]),
        mask=torch.tensor([[1] * len(s.ids) + [0] * (width - len(s.ids)) for s in solutions]),
        num_prompt=torch.tensor([s.num_prompt for s in solutions]),
        positions=torch.tensor(
            [[*s.positions, *[PADDING] * (most - len(s.positions))] for s in solutions]
        ),
    )


def map_solutions(
    encoded: Sequence[EncodedSolution],
    compute: Callable[[StepBatch, Sequence[EncodedSolution]], Sequence[T]],
    *,
    device: torch.device,
    threads: int | None,
    on_progress: Callable[[int, int], None],
) -> list[T]:
    """What `compute` gives for each solution, without gradients; equal ones are computed once.

    On a CPU, batches run side by side in threads of one core each, which share cores with other
    programs better than one batch in several threads does.

    Args:
        encoded: in any order.
        compute: one result per solution of a batch.
        device: of the batches.
        threads: on a CPU; None for one a core.
        on_progress: called with distinct solutions done and in all.
    """
    distinct = sorted(set(encoded), key=lambda e: (len(e.ids), e.ids))
    found: dict[EncodedSolution, T] = {}

    def run(group: Sequence[EncodedSolution]) -> Sequence[T]:
        with torch.inference_mode():
            return compute(make_batch(group).to(device), group)

    before = torch.get_num_threads()
    workers = 1 if device.type != "cpu" else threads or os.cpu_count() or 1
    with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        groups = _batches(distinct)
        for group, results in zip(groups, pool.map(run, groups), strict=True):
            found.update(zip(group, results, strict=True))
            on_progress(len(found), len(distinct))
    torch.set_num_threads(before)
    return [found[one] for one in encoded]


def _batches(encoded: Sequence[EncodedSolution]) -> list[list[EncodedSolution]]:
    """Cut solutions, sorted by length, into batches of bounded size."""
    groups: list[list[EncodedSolution]] = []
    for one in encoded:
        if groups and len(one.ids) * (len(groups[-1]) + 1) <= BATCH_TOKENS:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups
