"""Weights, gradients and optimizer state split over workers (FSDP2, arXiv 2304.11277)."""

from __future__ import annotations

from typing import cast

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from mclabel.prm.model import StepModel


def shard(model: StepModel, device: str) -> None:
    """Split a model's parameters over the workers, in place, and move them to their devices.

    Each of the body's layers is gathered for its own computation alone; what lies outside of them,
    embeddings above all, for the whole of a forward or backward pass. All workers call this alike.

    Args:
        model: on the CPU, the same in every worker.
        device: type of the workers' devices, as in "cuda" or "cpu".
    """
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    layers = set(model.network._no_split_modules or ())
    for part in list(model.network.modules()):
        if type(part).__name__ in layers:
            fully_shard(part, mesh=mesh)
    for part in model.head_modules():  # a group is of one type, and the head in float32
        fully_shard(part, mesh=mesh)
    # By default the outermost would stay whole after a forward pass that no backward pass follows.
    fully_shard(model, mesh=mesh, reshard_after_forward=True)


def is_sharded(model: nn.Module) -> bool:
    """Whether `shard` was called on it."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def whole(tensor: Tensor) -> Tensor:
    """All of a parameter; itself where it is not split. All workers call this alike."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def here(tensor: Tensor) -> Tensor:
    """A worker's own part of a parameter; itself where it is not split."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """All weights, in the first worker's memory; in others nothing. All workers call this alike."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return cast(dict[str, Tensor], get_model_state_dict(model, options=options))
