"""Step models: a language model's body with a head that returns the log-odds of every step.

This module creates, adapts, loads and saves step models. LoRA adapters (arXiv 2106.09685, from the
package `peft`) are trained instead of the body's own weights. They are merged into the weights at
the end, so a finished PRM is a plain checkpoint that does not need `peft`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from mclabel.engines.loading import silence_transformers
from mclabel.engines.pretrained import load_model
from mclabel.prm.examples.batch import StepBatch
from mclabel.prm.model.settings import HEADS, ModelSettings


class StepModel(nn.Module, ABC):
    """A network that returns the log-odds that each step is sound."""

    network: PreTrainedModel
    """The language model, with its head if the head is part of the checkpoint."""

    @classmethod
    @abstractmethod
    def start(
        cls,
        settings: ModelSettings,
        *,
        setting_key: str = "base",
        has_neutral: bool = False,
        trains_body: bool = True,
    ) -> Self:
        """Return a model with a new head on a pretrained base (called by `start_step_model`)."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, *, dtype: str, trust_remote_code: bool) -> Self:
        """Load a saved model (called by `load_step_model`)."""

    def forward(self, batch: StepBatch | Tensor, *, with_head: bool = True) -> Tensor:
        """Return the log-odds that each step is sound [batch, steps].

        A head with three classes returns their logits [batch, steps, 3] instead.

        Args:
            batch: encoded solutions, or the result of `compute_head_inputs` for them.
            with_head: false to return the result of `compute_head_inputs` instead. A sharded model
                needs this, as its layers are gathered only by a call of the model itself.
        """
        head_inputs = batch if isinstance(batch, Tensor) else self.compute_head_inputs(batch)
        return self.apply_head(head_inputs) if with_head else head_inputs

    @staticmethod
    def log_odds(logits: Tensor) -> Tensor:
        """Return the log-odds that each step is sound [batch, steps].

        If the head has three classes (wrong, neutral, sound), neutral counts as sound, as in Let's
        Verify Step by Step (arXiv 2305.20050, appendix F).

        Args:
            logits: result of `forward`.
        """
        return (
            logits
            if logits.dim() == 2
            else torch.logsumexp(logits[..., 1:], dim=-1) - logits[..., 0]
        )

    @property
    @abstractmethod
    def head_input_width(self) -> int:
        """Return the number of head inputs per step, the width in `compute_head_inputs`."""

    @abstractmethod
    def compute_head_inputs(self, batch: StepBatch) -> Tensor:
        """Run the body and return the inputs of the head for each step [batch, steps, width]."""

    @abstractmethod
    def apply_head(self, head_inputs: Tensor) -> Tensor:
        """Compute the result of `forward` from the result of `compute_head_inputs`."""

    @abstractmethod
    def body_and_head_parameters(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """Return the parameters of the body and the parameters of the head."""

    @abstractmethod
    def head_modules(self) -> list[nn.Module]:
        """Return the layers of the head."""

    @property
    def has_adapters(self) -> bool:
        """Return whether LoRA adapters are trained instead of the body's own weights."""
        return any(is_adapter(name) for name, _ in self.named_parameters())

    def freeze(self, *, body: bool) -> None:
        """Freeze the weights that are not trained.

        Args:
            body: true to freeze the whole body. If false, a body with adapters is frozen except for
                its adapters, and a body without adapters is trained.
        """
        adapted = self.has_adapters
        inside = {id(parameter) for parameter in self.body_and_head_parameters()[0]}
        for name, parameter in self.named_parameters():
            if id(parameter) in inside:
                parameter.requires_grad_(not body and (is_adapter(name) or not adapted))

    def trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return the names and values of the parameters that are trained."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save the model for `load_step_model`. Its adapters must have been merged before."""


def select_step_states(states: Tensor, batch: StepBatch) -> Tensor:
    """Return the states at the positions at which steps are scored, [batch, steps, width].

    Args:
        states: hidden states or logits of every token [batch, seq, width].
        batch: the solutions of the states.
    """
    at = batch.positions.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1])
    return states.gather(1, at)


def load_network(network_class: Any, base: str, *, dtype: str, **arguments: Any) -> PreTrainedModel:
    """Load a transformers network and suppress the warnings about a new head.

    Args:
        network_class: transformers class that loads the network.
        base: folder or Hugging Face name.
        dtype: name of a torch dtype.
        **arguments: further arguments of `load_model`.
    """
    silence_transformers()
    return load_model(network_class, base, dtype=getattr(torch, dtype), **arguments)


_MARK = "lora_"


def is_adapter(parameter_name: str) -> bool:
    """Return whether a parameter belongs to an adapter."""
    return _MARK in parameter_name


def add_adapters(network: PreTrainedModel, *, rank: int, alpha: int) -> None:
    """Add LoRA adapters to every linear layer of the body, in place.

    The network's outputs do not change before the adapters are trained.

    Args:
        network: the network with its head. The head gets no adapters.
        rank: rank of the adapters.
        alpha: scale of the adapters; the output of the adapters is multiplied by alpha / rank.
    """
    from peft import LoraConfig, inject_adapter_in_model

    body = cast(nn.Module, getattr(network, network.base_model_prefix))
    inject_adapter_in_model(
        LoraConfig(
            r=rank,
            lora_alpha=alpha,
            target_modules=[
                name for name, part in body.named_modules() if isinstance(part, nn.Linear)
            ],
            lora_dropout=0.0,
        ),
        body,
    )  # freezes the body's own weights
    for name, parameter in body.named_parameters():
        if is_adapter(name):  # in bfloat16, small updates would be lost to rounding
            parameter.data = parameter.data.float()


def merge_adapters(network: nn.Module) -> None:
    """Merge the adapters into the weights that they adapt, and remove the adapters, in place."""
    for name, part in list(network.named_modules()):
        if not hasattr(part, "get_base_layer") or not hasattr(part, "merge"):
            continue
        layer = cast(Any, part)
        layer.merge()
        parent, _, child = name.rpartition(".")
        setattr(network.get_submodule(parent), child, layer.get_base_layer())


def start_step_model(
    settings: ModelSettings,
    *,
    has_neutral: bool = False,
    trains_body: bool = True,
    device: str = "cpu",
    setting_key: str = "base",
) -> StepModel:
    """Return a step model with a new head on a pretrained language model.

    Args:
        settings: settings of the network; `base` is a folder or a Hugging Face name.
        has_neutral: true for the classes wrong, neutral and sound; only for a token classifier.
        trains_body: true if the body will be trained. If `settings.states` is None, the likelihood
            head receives hidden states only if this is true.
        device: torch device on which the model will be trained.
        setting_key: key of the setting that names the base, for error messages.

    Raises:
        EngineError: the base cannot be loaded, or its architecture has no token classifier.
    """
    dtype = settings.weights_dtype(
        device, trains_weights=trains_body and settings.lora_rank is None
    )
    kind = _import_step_model(settings.head)
    settings = settings.model_copy(update={"dtype": dtype})
    return kind.start(
        settings, setting_key=setting_key, has_neutral=has_neutral, trains_body=trains_body
    )


def load_step_model(
    folder: Path,
    head: str,
    *,
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> StepModel:
    """Load a saved step model.

    Args:
        folder: folder of the model's files.
        head: name of the model's head, in `HEADS`.
        dtype: name of the torch dtype of the body.
        trust_remote_code: true if Python code that comes with the model may run.

    Raises:
        EngineError: the model cannot be loaded.
    """
    return _import_step_model(head).load(folder, dtype=dtype, trust_remote_code=trust_remote_code)


def _import_step_model(head: str) -> type[StepModel]:
    module, _, name = HEADS[head].model.partition(":")
    return cast(type[StepModel], getattr(import_module(module), name))
