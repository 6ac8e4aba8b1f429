"""Encoded solutions as padded tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mclabel.prm.encode import EncodedSolution

PADDING = -1
"""Position of a step that is not there."""


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
