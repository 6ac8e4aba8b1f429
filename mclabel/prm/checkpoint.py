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
from transformers.trainer_utils import sort_checkpoints

from mclabel.policy.pretrained import load_state, load_tensors
from mclabel.prm.distributed import is_first
from mclabel.prm.model import StepModel
from mclabel.prm.sharding import is_sharded, whole

COMPLETE = "complete"
"""Empty file, the last to be written into a checkpoint."""


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
