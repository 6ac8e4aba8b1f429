"""Makes step models: fresh ones on a pretrained base, and ones that were saved."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from mclabel.prm.model.network import StepModel
from mclabel.prm.model.settings import HEADS, ModelSettings


def start_step_model(
    settings: ModelSettings,
    *,
    has_neutral: bool = False,
    has_concentration: bool = False,
    trains_body: bool = True,
    device: str = "cpu",
    key: str = "base",
) -> StepModel:
    """A step model with a fresh head on a pretrained language model.

    Args:
        settings: of the network; `base` is a folder or a Hugging Face name.
        has_neutral: its classes are wrong, neutral and sound; of a classifier of tokens.
        has_concentration: it gives a mean and how sure that is, in place of a mean alone.
        trains_body: the body will be trained, so that its states are worth seeing.
        device: torch device that it will be trained on.
        key: of the setting that names the base, for messages.

    Raises:
        EngineError: the base cannot be loaded, or has no token classification.
    """
    dtype = settings.weights_dtype(
        device, trains_weights=trains_body and settings.lora_rank is None
    )
    kind = _step_model(settings.head)
    settings = settings.model_copy(update={"dtype": dtype})
    model = kind.start(settings, key=key, has_neutral=has_neutral, trains_body=trains_body)
    if has_concentration:
        model.add_concentration()
    return model


def load_step_model(
    folder: Path,
    head: str,
    *,
    has_concentration: bool = False,
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> StepModel:
    """A step model that was saved.

    Args:
        folder: of its files.
        head: name of its head, in `HEADS`.
        has_concentration: it was saved with a concentration.
        dtype: torch dtype of the body.
        trust_remote_code: run Python code that comes with it.

    Raises:
        EngineError: it cannot be loaded.
    """
    model = _step_model(head).load(folder, dtype=dtype, trust_remote_code=trust_remote_code)
    if has_concentration:
        model.load_concentration(folder)
    return model


def _step_model(head: str) -> type[StepModel]:
    module, _, name = HEADS[head].model.partition(":")
    return cast(type[StepModel], getattr(import_module(module), name))
