"""Training in several workers by Ray Train: one process a worker, all in one process group."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed

from mclabel.errors import TrainingError
from mclabel.work.ray_cluster import ask_for_tokens

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
        address: of the Ray cluster, `local` starts one.
        num_workers: of the group.
        num_cpus: of a worker.
        num_gpus: of a worker.
        storage: folder for what Ray Train itself writes.

    Raises:
        TrainingError: a worker failed; its error is named.
    """
    if address == "local" and "RAY_ADDRESS" not in os.environ:
        ask_for_tokens()
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    started = not ray.is_initialized()
    if started:
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
    """Whether this is the worker that writes."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0


def from_first(value: T) -> T:
    """The value of the first worker, in all of them, so that they decide alike."""
    if not torch.distributed.is_initialized():
        return value
    box = [value]
    torch.distributed.broadcast_object_list(box)
    return box[0]
