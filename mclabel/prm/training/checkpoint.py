"""What training writes to go on after a kill: trained weights and the optimizer's state.

Files hold whole tensors, also of a model that is split over workers. Workers call these functions
alike, and read from a folder that all of them see.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from transformers.trainer import SCALER_NAME, TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import sort_checkpoints

from mclabel.engines.pretrained import load_state, load_tensors
from mclabel.errors import TrainingError
from mclabel.plain_files import check_plain_folder
from mclabel.prm.model.network import StepModel
from mclabel.prm.training.distributed import is_first
from mclabel.prm.training.sharding import is_sharded, whole

COMPLETE = "complete"
"""Empty file, the last to be written into a checkpoint."""
_MAX_REASON = 200


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint; torn ones are removed."""
    if not folder.is_dir():
        return None
    found = []
    for name in sort_checkpoints(str(folder)):
        if (Path(name) / COMPLETE).is_file():
            found.append(Path(name))
        else:
            shutil.rmtree(name, ignore_errors=True)
    return found[-1] if found else None


def check_trainer_files(folder: Path) -> None:
    """See that a checkpoint's files of the trainer itself can be resumed from.

    Raises:
        TrainingError: the trainer's state is damaged, or there is a file that training here never
            writes: no training of ours scales its loss.
    """
    remedy = (
        f"Remove the folder {folder} to resume from the checkpoint before it, or from the start "
        "if there is none"
    )
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
    scaler = folder / SCALER_NAME
    if scaler.exists():
        raise TrainingError(
            f"{scaler}: is the state of a loss scaler, which this training does not use, so the "
            "file comes from elsewhere. Remove the file if you trust the others. Otherwise: "
            f"{remedy}"
        )


def save_weights(model: StepModel, path: Path) -> None:
    """Write the weights that are trained, whole or not at all; the first of all workers does."""
    trained = {}
    for name, parameter in model.trained():
        weight = whole(parameter.detach())
        if is_first():
            trained[name] = weight.cpu().contiguous()
    if is_first():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        save_file(trained, partial, metadata={"format": "pt"})
        partial.replace(path)


def load_weights(model: StepModel, path: Path) -> None:
    """Take over the weights that `save_weights` wrote."""
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
    """Take over what `save_optimizer` wrote."""
    first = is_first() or not is_sharded(model)
    state = load_state(path) if first else {}
    set_optimizer_state_dict(model, optimizer, cast(Any, state), options=_loading(model))


def _loading(model: StepModel) -> StateDictOptions:
    """Of whole tensors, which the first worker reads and gives to the others their parts of.

    Not strict: fixed weights are not there, and weights that got no gradient have no state.
    """
    return StateDictOptions(
        full_state_dict=True, strict=False, broadcast_from_rank0=is_sharded(model)
    )
