"""Checkpoints of a training run: trained weights, and the state of the optimizer.

A killed run resumes from its last checkpoint. Files hold complete tensors, even if the model is
sharded over workers. All workers must call these functions together, on a folder that all of them
can access.
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
from torch import Tensor
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
from mclabel.engines.pretrained import load_tensors, load_torch_state
from mclabel.prm.model.network import StepModel
from mclabel.prm.training.distributed import gather_tensor, is_first_worker, is_sharded
from mclabel.run.trainings import (
    COMPLETE,
    find_checkpoint_faults,
    mark_checkpoint,
    parse_checkpoint_step,
)

OPTIMIZER, SCHEDULER, WEIGHTS = "optimizer.pt", "scheduler.pt", "model.safetensors"
"""Names of the files of a checkpoint."""
_MAX_REASON = 200
"""Maximum number of characters of an underlying error that a message quotes."""
logger = logging.getLogger(__name__)


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, and remove incomplete ones."""
    checkpoints = _list_checkpoints(folder)
    for path in checkpoints:
        if not (path / COMPLETE).is_file():
            logger.warning("%s: this checkpoint is incomplete, so it is removed", path)
            shutil.rmtree(path, ignore_errors=True)
    complete = [path for path in checkpoints if (path / COMPLETE).is_file()]
    return complete[-1] if complete else None


def check_checkpoint(folder: Path) -> None:
    """Check that a checkpoint is undamaged, before training resumes from it.

    Raises:
        TrainingError: a file is damaged, missing, or does not belong to the checkpoint. The error
            names the file and the remedy.
    """
    check_plain_folder(folder, TrainingError)
    check_trainer_files(folder)
    faults = list(find_checkpoint_faults(folder))
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise TrainingError(
            f"{folder / faults[0].name}: {faults[0].description}{more}. "
            f"{_describe_checkpoint_remedy(folder)}"
        )


def check_trainer_files(folder: Path) -> None:
    """Check that training can resume from the state files of the Hugging Face trainer.

    Raises:
        TrainingError: the trainer's state is damaged, or the folder holds the state of a loss
            scaler, which mclabel's training never writes.
    """
    remedy = _describe_checkpoint_remedy(folder)
    check_plain_folder(folder, TrainingError)
    path = folder / TRAINER_STATE_NAME
    try:
        state = TrainerState.load_from_json(str(path))
    except (OSError, ValueError, TypeError, RecursionError) as error:  # TypeError: other fields
        reason = " ".join(str(error).split())[:_MAX_REASON]
        raise TrainingError(
            f"{path}: does not hold the state of a training run ({type(error).__name__}: "
            f"{reason}). {remedy}"
        ) from error
    fields = {"global_step": int, "max_steps": int, "log_history": list, "stateful_callbacks": dict}
    for name, kind in fields.items():
        if not isinstance(value := getattr(state, name), kind):
            raise TrainingError(
                f"{path}: {name}={value!r} must be of type {kind.__name__}. {remedy}"
            )
    if state.global_step != (step := parse_checkpoint_step(folder) or state.global_step):
        raise TrainingError(
            f"{path}: global_step={state.global_step} must be {step}, as the folder says. {remedy}"
        )
    scaler = folder / SCALER_NAME
    if scaler.exists():
        raise TrainingError(
            f"{scaler}: holds the state of a loss scaler. This training does not use a loss "
            "scaler, so the file comes from another program. Remove the file if you trust the "
            f"other files of the checkpoint. Otherwise: {remedy}"
        )


@contextmanager
def explain_write_errors(place: Path) -> Iterator[None]:
    """Turn a write error in this context into an error with path, free disk space and remedy.

    Args:
        place: file or folder that is written.

    Raises:
        TrainingError: the disk is full, or the path cannot be written.
    """
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:  # torch.save raises RuntimeError
        above = next(path for path in (place, *place.parents) if path.exists())
        free = shutil.disk_usage(above).free
        reason = error.strerror if isinstance(error, OSError) else None
        reason = reason or " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_REASON]
        raise TrainingError(
            f"{place}: could not be written ({reason}; {free / 1e6:,.1f} MB are free on its disk). "
            "Complete checkpoints are kept. Free some disk space or make the folder writable, then "
            "run the same command again to resume"
        ) from error


@contextmanager
def explain_resume_errors(folder: Path, *file_names: str) -> Iterator[None]:
    """Turn an error of loading a checkpoint into one that names the files and the remedy.

    Args:
        folder: folder of the checkpoint.
        file_names: names of the files that are loaded.

    Raises:
        TrainingError: the files are damaged or do not fit the training run.
    """
    try:
        yield
    except Exception as error:  # unpickling an unknown file can raise any exception
        reason = f" ({error})" if isinstance(error, MclabelError) else f" ({type(error).__name__})"
        raise TrainingError(
            f"{folder / file_names[0]}{''.join(f' or {name}' for name in file_names[1:])}: "
            "training cannot "
            f"resume from this file{reason}. {_describe_checkpoint_remedy(folder)}"
        ) from error


class CheckpointMarkingMixin:
    """A mixin for `Trainer` that marks complete checkpoints and reports damaged ones."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        trainer = cast(Trainer, self)
        folder = Path(trainer.args.output_dir or "") / f"checkpoint-{trainer.state.global_step}"
        with explain_write_errors(folder):
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
        trainer.accelerator.wait_for_everyone()
        if trainer.args.should_save:
            with explain_write_errors(folder):
                mark_checkpoint(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with explain_resume_errors(Path(resume_from_checkpoint), WEIGHTS):
            super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with explain_resume_errors(Path(checkpoint or ""), OPTIMIZER, SCHEDULER):
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with explain_resume_errors(Path(checkpoint or ""), "rng_state.pth"):
            super()._load_rng_state(checkpoint)  # type: ignore[misc]


def _list_checkpoints(folder: Path) -> list[Path]:
    """Return the folders of all checkpoints, including incomplete ones, sorted by step."""
    if not folder.is_dir():
        return []
    folders = [
        path
        for path in folder.iterdir()
        if parse_checkpoint_step(path) is not None and path.is_dir()
    ]
    return sorted(folders, key=lambda path: parse_checkpoint_step(path) or 0)


def _describe_checkpoint_remedy(folder: Path) -> str:
    """Return the advice for a damaged checkpoint.

    mclabel does not remove the checkpoint itself, because this would discard progress.
    """
    earlier = [
        path
        for path in _list_checkpoints(folder.parent)
        if (parse_checkpoint_step(path) or 0) < (parse_checkpoint_step(folder) or 0)
        and (path / COMPLETE).is_file()
    ]
    if earlier:
        remedy = f"to resume from {earlier[-1].name}, the one before it"
    else:
        remedy = "to train from the start, as no earlier checkpoint exists"
    return f"Remove the folder {folder} {remedy}, or restore the file from a backup"


def save_weights(model: StepModel, path: Path) -> None:
    """Write the trained weights to a file atomically, in the first worker only."""
    trained = {}
    for name, parameter in model.trained_parameters():
        weight = gather_tensor(parameter.detach())
        if is_first_worker():
            trained[name] = weight.cpu().contiguous()
    if is_first_worker():
        with explain_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial")
            save_file(trained, partial, metadata={"format": "pt"})
            partial.replace(path)


def load_weights(model: StepModel, path: Path) -> None:
    """Load the weights that `save_weights` wrote."""
    set_weights(model, load_tensors(path) if is_first_worker() or not is_sharded(model) else {})


def set_weights(model: StepModel, weights: dict[str, Tensor]) -> None:
    """Set weights by name. The other weights stay as they are.

    If the model is sharded, the first worker's weights are used.
    """
    used = weights if is_first_worker() or not is_sharded(model) else {}
    set_model_state_dict(model, cast(Any, used), options=_make_state_dict_options(model))


def save_optimizer(model: StepModel, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Write an optimizer's state by parameter name, in the first worker only."""
    state = get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if is_first_worker():
        torch.save(state, path)


def load_optimizer(model: StepModel, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Load the optimizer state that `save_optimizer` wrote."""
    first = is_first_worker() or not is_sharded(model)
    state = load_torch_state(path) if first else {}
    if first and not (isinstance(state, dict) and state.get("state")):
        raise TrainingError(f"{path}: does not hold the state of an optimizer")
    set_optimizer_state_dict(
        model, optimizer, cast(Any, state), options=_make_state_dict_options(model)
    )


def _make_state_dict_options(model: StepModel) -> StateDictOptions:
    """Return options for loading complete tensors, which the first worker reads and distributes.

    Missing entries are allowed: checkpoints do not hold frozen weights, and weights that never had
    a gradient have no optimizer state.
    """
    return StateDictOptions(
        full_state_dict=True, strict=False, broadcast_from_rank0=is_sharded(model)
    )
