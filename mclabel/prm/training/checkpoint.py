"""Checkpoints, with which training continues after a kill: trained weights and the optimizer's
state.

Files hold whole tensors, also of a model that is split over workers. Workers call these functions
alike, and read from a folder that all of them see.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from transformers import Trainer
from transformers.trainer import SCALER_NAME, TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerState

from mclabel.core.errors import MclabelError, TrainingError
from mclabel.core.plain_files import check_plain_folder
from mclabel.engines.pretrained import load_state, load_tensors
from mclabel.prm.model.network import StepModel
from mclabel.prm.training.distributed import is_first, is_sharded, whole
from mclabel.run.trainings import COMPLETE, checkpoint_faults, mark_checkpoint, step_of

OPTIMIZER, SCHEDULER, WEIGHTS = "optimizer.pt", "scheduler.pt", "model.safetensors"
_MAX_REASON = 200
logger = logging.getLogger(__name__)


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, and remove incomplete ones."""
    checkpoints = _checkpoints(folder)
    for path in checkpoints:
        if not (path / COMPLETE).is_file():
            logger.warning("%s: was not written to its end, so it is removed", path)
            shutil.rmtree(path, ignore_errors=True)
    whole_ones = [path for path in checkpoints if (path / COMPLETE).is_file()]
    return whole_ones[-1] if whole_ones else None


def check_checkpoint(folder: Path) -> None:
    """Check that a checkpoint is undamaged, before training resumes from it.

    Raises:
        TrainingError: names a file that is damaged, missing, or of elsewhere, and what to do.
    """
    check_plain_folder(folder, TrainingError)
    check_trainer_files(folder)
    faults = list(checkpoint_faults(folder))
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise TrainingError(f"{folder / faults[0].name}: {faults[0].text}{more}. {_remedy(folder)}")


def check_trainer_files(folder: Path) -> None:
    """Check that training can resume from the state files of the Hugging Face trainer.

    Raises:
        TrainingError: the trainer's state is damaged, or the folder holds the state of a loss
            scaler, which mclabel's training never writes.
    """
    remedy = _remedy(folder)
    check_plain_folder(folder, TrainingError)
    path = folder / TRAINER_STATE_NAME
    try:
        state = TrainerState.load_from_json(str(path))
    except (OSError, ValueError, TypeError, RecursionError) as error:  # TypeError: other fields
        reason = " ".join(str(error).split())[:_MAX_REASON]
        raise TrainingError(
            f"{path}: holds no state of a training ({type(error).__name__}: {reason}). {remedy}"
        ) from error
    fields = {"global_step": int, "max_steps": int, "log_history": list, "stateful_callbacks": dict}
    for name, kind in fields.items():
        if not isinstance(value := getattr(state, name), kind):
            raise TrainingError(
                f"{path}: {name}={value!r} must be of type {kind.__name__}. {remedy}"
            )
    if state.global_step != (step := step_of(folder) or state.global_step):
        raise TrainingError(
            f"{path}: global_step={state.global_step} must be {step}, as the folder says. {remedy}"
        )
    scaler = folder / SCALER_NAME
    if scaler.exists():
        raise TrainingError(
            f"{scaler}: is the state of a loss scaler, which this training does not use, so the "
            "file comes from elsewhere. Remove the file if you trust the others. Otherwise: "
            f"{remedy}"
        )


@contextmanager
def writing(place: Path) -> Iterator[None]:
    """Add the place and the remedy to errors of writing.

    Raises:
        TrainingError: the disk is full, or refuses.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:  # the latter two: torch.save, weights
        above = next(path for path in (place, *place.parents) if path.exists())
        free = shutil.disk_usage(above).free
        reason = error.strerror if isinstance(error, OSError) else None
        reason = reason or " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_REASON]
        raise TrainingError(
            f"{place}: could not be written ({reason}; {free / 1e6:,.1f} MB are free on its disk). "
            "Whole checkpoints are kept. Free some space, or correct what the disk refuses, and "
            "run the same command again to resume"
        ) from error


@contextmanager
def resuming(folder: Path, *names: str) -> Iterator[None]:
    """Add the files and the remedy to errors of loading a checkpoint.

    Args:
        folder: folder of the checkpoint.
        names: names of the files.

    Raises:
        TrainingError: the files do not fit the training.
    """
    try:
        yield
    except Exception as error:  # a stranger's file fails in every way that unpickling can
        reason = f" ({error})" if isinstance(error, MclabelError) else f" ({type(error).__name__})"
        raise TrainingError(
            f"{folder / names[0]}{''.join(f' or {name}' for name in names[1:])}: cannot be resumed "
            f"from{reason}. {_remedy(folder)}"
        ) from error


class WholeCheckpoints:
    """Checkpoints of a `Trainer`: marks whole ones, and names damaged ones."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        trainer = cast(Trainer, self)
        folder = Path(trainer.args.output_dir or "") / f"checkpoint-{trainer.state.global_step}"
        with writing(folder):
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
        trainer.accelerator.wait_for_everyone()
        if trainer.args.should_save:
            with writing(folder):
                mark_checkpoint(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with resuming(Path(resume_from_checkpoint), WEIGHTS):
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with resuming(Path(checkpoint or ""), OPTIMIZER, SCHEDULER):
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with resuming(Path(checkpoint or ""), "rng_state.pth"):
            super()._load_rng_state(checkpoint)  # type: ignore[misc]


def _checkpoints(folder: Path) -> list[Path]:
    """Return the folders of checkpoints, complete or not, by step."""
    if not folder.is_dir():
        return []
    folders = [path for path in folder.iterdir() if step_of(path) is not None and path.is_dir()]
    return sorted(folders, key=lambda path: step_of(path) or 0)


def _remedy(folder: Path) -> str:
    """Return what to do about a damaged checkpoint: nobody but the user gives up what it has come
    to.
    """
    earlier = [
        path
        for path in _checkpoints(folder.parent)
        if (step_of(path) or 0) < (step_of(folder) or 0) and (path / COMPLETE).is_file()
    ]
    start = f"{earlier[-1].name}, the one before it" if earlier else "the start: there is no other"
    return f"Remove the folder {folder} to resume from {start}, or put back the file from a copy"


def save_weights(model: StepModel, path: Path) -> None:
    """Write the weights that are trained, whole or not at all; the first of all workers does."""
    trained = {}
    for name, parameter in model.trained():
        weight = whole(parameter.detach())
        if is_first():
            trained[name] = weight.cpu().contiguous()
    if is_first():
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            save_file(trained, partial, metadata={"format": "pt"})
            partial.replace(path)


def load_weights(model: StepModel, path: Path) -> None:
    """Load the weights that `save_weights` wrote."""
    first = is_first() or not is_sharded(model)
    weights: Any = load_tensors(path) if first else {}
    set_model_state_dict(model, weights, options=_loading(model))


def save_optimizer(model: StepModel, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Write an optimizer's state, by parameters' names; the first of all workers does."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_optimizer_state_dict(model, optimizer, options=options)
    if is_first():
        torch.save(state, path)


def load_optimizer(model: StepModel, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Load the optimizer state that `save_optimizer` wrote."""
    first = is_first() or not is_sharded(model)
    state = load_state(path) if first else {}
    if first and not (isinstance(state, dict) and state.get("state")):
        raise TrainingError(f"{path}: holds no state of an optimizer")
    set_optimizer_state_dict(model, optimizer, cast(Any, state), options=_loading(model))


def _loading(model: StepModel) -> StateDictOptions:
    """Return options for whole tensors, which the first worker reads and distributes.

    Not strict: fixed weights are not there, and weights that got no gradient have no state.
    """
    return StateDictOptions(
        full_state_dict=True, strict=False, broadcast_from_rank0=is_sharded(model)
    )
