"""Training in a process group without a cluster, set up as by Ray Train but cheaper."""

from __future__ import annotations

import multiprocessing
import os
from datetime import timedelta
from pathlib import Path

import torch.distributed

from mclabel.core.config.load import load_config
from mclabel.core.errors import TrainingError
from mclabel.prm.config import TrainConfig
from mclabel.prm.job import _train_worker, choose_blocks

_CONTEXT = multiprocessing.get_context("forkserver")
"""Start method whose server process imports torch and the trainer; each worker is a fork of it."""
_CONTEXT.set_forkserver_preload(["mclabel.prm.training.trainer", __name__])


def train_in_group(overrides: list[str], folder: Path, num_workers: int = 2) -> None:
    """Run a training's workers to their end, as `distributed.run_workers` does.

    Args:
        overrides: configuration overrides of a training that has begun or is not claimed yet.
        folder: folder for the file by which the workers find each other.
        num_workers: number of workers in the group.
    """
    meeting = folder / "meeting"
    meeting.unlink(missing_ok=True)
    workers = [
        _CONTEXT.Process(target=_run_worker, args=(overrides, str(meeting), rank, num_workers))
        for rank in range(num_workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    codes = [worker.exitcode for worker in workers]
    if any(codes):
        raise TrainingError(f"workers of the group ended with exit codes {codes}")


def _run_worker(overrides: list[str], meeting: str, rank: int, num_workers: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(num_workers)}
    # Transformers reads these variables, although the group meets by a file.
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=num_workers,
        timeout=timedelta(minutes=5),  # after this time a worker ends if another worker has died
    )
    config = load_config(TrainConfig, None, overrides)
    _train_worker(config, choose_blocks(config))
    torch.distributed.destroy_process_group()
