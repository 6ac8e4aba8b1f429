"""Distributed training with Ray Train: each worker is a process of one process group."""

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
from mclabel.run.ray_cluster import enable_token_authentication, explain_ray_errors

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
    """Run a function in every worker of a process group, and wait until all have finished.

    Args:
        work: function that each worker calls. The workers must be able to import it. The worker's
            rank is in its environment variables.
        address: address of the Ray cluster; `local` starts a new cluster.
        num_workers: number of workers in the process group.
        num_cpus: number of CPUs reserved for each worker.
        num_gpus: number of GPUs reserved for each worker.
        storage: folder for the files of Ray Train itself.

    Raises:
        EngineError: Ray cannot be reached, or does not start.
        TrainingError: a worker failed; the message contains the worker's error.
    """
    if address == "local" and "RAY_ADDRESS" not in os.environ:
        enable_token_authentication()
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    started = not ray.is_initialized()
    if started:
        with explain_ray_errors(address):
            ray.init(
                address=None if address == "local" else address,
                include_dashboard=False,
                log_to_driver=False,
                runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}},
            )
    try:
        TorchTrainer(
            _run_training_worker,
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


def _run_training_worker(arguments: dict[str, Any]) -> None:
    arguments["work"]()


def is_first_worker() -> bool:
    """Return whether this process is the first worker, which writes the files."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def broadcast_from_first(value: T) -> T:
    """Broadcast the first worker's value to all workers, so that all take the same decision."""
    if not torch.distributed.is_initialized():
        return value
    box = [value]
    torch.distributed.broadcast_object_list(box)
    return box[0]


# Sharding of weights, gradients and optimizer state over workers (FSDP2, arXiv 2304.11277).


def shard_model(model: StepModel, device: str, *, bf16: bool) -> None:
    """Shard a model's parameters over the workers, in place, and move them to their devices.

    A layer of the body is gathered only while it is computed. Parameters outside of the layers,
    mainly embeddings, stay gathered for a whole forward or backward pass. All workers must call
    this function together.

    Args:
        model: the same model in every worker, on the CPU.
        device: type of the workers' devices, such as "cuda" or "cpu".
        bf16: true to gather the body's weights in bfloat16. Gradients are summed in float32.

    Raises:
        TrainingError: the class of the body does not name the body's layers.
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
    for part in model.head_modules():  # a group has one dtype, and the head is in float32
        fully_shard(part, mesh=mesh)
    # By default the outermost module stays gathered after a forward pass without a backward pass.
    fully_shard(model, mesh=mesh, mp_policy=reduced, reshard_after_forward=True)


def is_sharded(model: nn.Module) -> bool:
    """Return whether `shard_model` has sharded the model."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def gather_tensor(tensor: Tensor) -> Tensor:
    """Return the complete tensor of a sharded parameter; any other tensor is returned as it is.

    All workers must call this function together.
    """
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def get_local_shard(tensor: Tensor) -> Tensor:
    """Return this worker's shard of a sharded parameter; any other tensor is returned as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gather_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Return all weights by name in the first worker, and an empty dictionary in the others.

    All workers must call this function together.
    """
    return cast(
        dict[str, Tensor],
        get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        ),
    )
