"""Training in several workers by Ray Train: one process a worker, all in one process group."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from mclabel.core.errors import TrainingError
from mclabel.prm.model.network import StepModel
from mclabel.run.ray_cluster import ask_for_tokens, explained

T = TypeVar("T")


def run_workers(
    work: Callable[[], None],
    *,
    address: str,
    num_workers: int,
    num_cpus: float,
    num_gpus: float,
    storage: Path,
) -> None:
    """Run a function in every worker of a process group, and wait for all.

    Args:
        work: importable where the workers run; each has its rank in its environment.
        address: address of the Ray cluster, `local` starts one.
        num_workers: number of workers of the group.
        num_cpus: number of cpus of a worker.
        num_gpus: number of gpus of a worker.
        storage: folder for what Ray Train itself writes.

    Raises:
        EngineError: Ray cannot be reached, or does not start.
        TrainingError: a worker failed; its error is named.
    """
    if address == "local" and "RAY_ADDRESS" not in os.environ:
        ask_for_tokens()
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    started = not ray.is_initialized()
    if started:
        with explained(address):
            ray.init(
                address=None if address == "local" else address,
                include_dashboard=False,
                log_to_driver=False,
                runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
            )
    try:
        TorchTrainer(
            _loop,
            train_loop_config={"work": work},
            scaling_config=ScalingConfig(
                num_workers=num_workers,
                use_gpu=num_gpus > 0,
                resources_per_worker={"CPU": num_cpus, "GPU": num_gpus},
            ),
            torch_config=TorchConfig(backend="nccl" if num_gpus > 0 else "gloo"),
            run_config=RunConfig(name="train", storage_path=str(storage.absolute())),
        ).fit()
    except Exception as error:
        raise TrainingError(f"a worker failed: {error}") from error
    finally:
        if started:
            ray.shutdown()


def _loop(arguments: dict[str, Any]) -> None:
    arguments["work"]()


def is_first() -> bool:
    """Return whether this is the worker that writes."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def from_first(value: T) -> T:
    """The value of the first worker, in all of them, so that they decide alike."""
    if not torch.distributed.is_initialized():
        return value
    box = [value]
    torch.distributed.broadcast_object_list(box)
    return box[0]


# Weights, gradients and optimizer state split over workers (FSDP2, arXiv 2304.11277).


def shard(model: StepModel, device: str, *, bf16: bool) -> None:
    """Split a model's parameters over the workers, in place, and move them to their devices.

    Each of the body's layers is gathered for its own computation alone; what lies outside of them,
    embeddings above all, for the whole of a forward or backward pass. All workers call this alike.

    Args:
        model: on the CPU, the same in every worker.
        device: type of the workers' devices, as in "cuda" or "cpu".
        bf16: gather the body's weights in bfloat16; gradients are added up in float32.

    Raises:
        TrainingError: the body's class does not name its layers.
    """
    mesh = init_device_mesh(device, (torch.distributed.get_world_size(),))
    reduced = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if bf16 else None, reduce_dtype=torch.float32
    )
    names = set(model.network._no_split_modules or ())
    layers = [part for part in model.network.modules() if type(part).__name__ in names]
    if not layers:
        raise TrainingError(
            f"shard=true: {type(model.network).__name__} does not name its layers "
            "(`_no_split_modules`), so its layers cannot be sharded one by one. Set shard=false, "
            "and train with lora_rank to save memory"
        )
    for part in reversed(layers):
        fully_shard(part, mesh=mesh, mp_policy=reduced)
    for part in model.head_modules():  # a group is of one type, and the head in float32
        fully_shard(part, mesh=mesh)
    # By default the outermost would stay whole after a forward pass that no backward pass follows.
    fully_shard(model, mesh=mesh, mp_policy=reduced, reshard_after_forward=True)


def is_sharded(model: nn.Module) -> bool:
    """Return whether `shard` was called on it."""
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
