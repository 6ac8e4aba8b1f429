"""A step model: a language model's body, with a head that gives a log-odds for every step; how it
is made, adapted and saved.

Low-rank adapters (LoRA, arXiv 2106.09685, by `peft`) are trained in place of the body's own weights
and merged into them in the end, so a finished PRM is a plain checkpoint that needs no `peft`.
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

from mclabel.engines.loading import quiet_transformers
from mclabel.engines.pretrained import load_model
from mclabel.prm.examples.batch import StepBatch
from mclabel.prm.model.settings import HEADS, ModelSettings


class StepModel(nn.Module, ABC):
    """A network that gives a log-odds for every step."""

    network: PreTrainedModel

    @classmethod
    @abstractmethod
    def start(
        cls,
        settings: ModelSettings,
        *,
        key: str = "base",
        has_neutral: bool = False,
        trains_body: bool = True,
    ) -> Self:
        """A model with a fresh head on a pretrained base; see `start_step_model`."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, *, dtype: str, trust_remote_code: bool) -> Self:
        """A model that was saved; see `load_step_model`."""

    def forward(self, batch: StepBatch | Tensor) -> Tensor:
        """Log-odds that each step is sound [batch, steps], or of three classes [batch, steps, 3].

        Args:
            batch: solutions, or what `observe` gave for them.
        """
        observed = batch if isinstance(batch, Tensor) else self.observe(batch)
        return self.apply_head(observed)

    @staticmethod
    def log_odds(logits: Tensor) -> Tensor:
        """Log-odds that each step is sound [batch, steps], from what `forward` gives."""
        return logits if logits.dim() == 2 else three_class_log_odds(logits)

    @property
    @abstractmethod
    def observed_width(self) -> int:
        """Return how many numbers `observe` gives for a step."""

    @abstractmethod
    def observe(self, batch: StepBatch) -> Tensor:
        """Return what the body gives for each step [batch, steps, width], all that the head
        needs.
        """

    @abstractmethod
    def apply_head(self, observed: Tensor) -> Tensor:
        """The result of `forward`, from that of `observe`."""

    @abstractmethod
    def parts(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The parameters of the body, and those of the head."""

    @abstractmethod
    def head_modules(self) -> list[nn.Module]:
        """The layers of the head."""

    @property
    def has_adapters(self) -> bool:
        """Return whether adapters are trained in place of the body's own weights."""
        return any(is_adapter(name) for name, _ in self.named_parameters())

    def freeze(self, *, body: bool) -> None:
        """Fix the weights that are not trained.

        Args:
            body: fix the whole body; else, in a body with adapters, all but these.
        """
        adapted = self.has_adapters
        inside = {id(parameter) for parameter in self.parts()[0]}
        for name, parameter in self.named_parameters():
            if id(parameter) in inside:
                parameter.requires_grad_(not body and (is_adapter(name) or not adapted))

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Names and parameters that are not fixed."""
        return ((name, p) for name, p in self.named_parameters() if p.requires_grad)

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Save for `load_step_model`. Adapters must have been merged."""


def three_class_log_odds(logits: Tensor) -> Tensor:
    """Log-odds [...] that a step is not wrong, from [..., 3]: neutral counts as sound.

    As in Let's Verify Step by Step (arXiv 2305.20050, appendix F).
    """
    return torch.logsumexp(logits[..., 1:], dim=-1) - logits[..., 0]


def at_steps(states: Tensor, batch: StepBatch) -> Tensor:
    """Hidden states [batch, seq, width] at the steps' positions [batch, steps, width]."""
    at = batch.positions.clamp(min=0)[..., None].expand(-1, -1, states.shape[-1])
    return states.gather(1, at)


def load_network(kind: Any, base: str, *, dtype: str, **arguments: Any) -> PreTrainedModel:
    """A network of transformers, without its warnings about a fresh head.

    Args:
        kind: class that loads it.
        base: folder or Hugging Face name.
        dtype: name of a torch dtype.
        **arguments: arguments of `load_model`.
    """
    quiet_transformers()
    return load_model(kind, base, dtype=getattr(torch, dtype), **arguments)


_MARK = "lora_"


def is_adapter(parameter_name: str) -> bool:
    """Return whether a parameter belongs to an adapter."""
    return _MARK in parameter_name


def add_adapters(network: PreTrainedModel, *, rank: int, alpha: int) -> None:
    """Put adapters into every linear layer of the body, in place; they change nothing at first.

    Args:
        network: with its head; the head gets none.
        rank: rank of the adapters.
        alpha: their output is scaled by alpha / rank.
    """
    from peft import LoraConfig, inject_adapter_in_model

    body = cast(nn.Module, getattr(network, network.base_model_prefix))
    linear = [name for name, part in body.named_modules() if isinstance(part, nn.Linear)]
    config = LoraConfig(r=rank, lora_alpha=alpha, target_modules=linear, lora_dropout=0.0)
    inject_adapter_in_model(config, body)  # fixes all else in the body
    for name, parameter in body.named_parameters():
        if is_adapter(name):  # bfloat16 would round small changes of them away
            parameter.data = parameter.data.float()


def merge_adapters(network: nn.Module) -> None:
    """Add the adapters to the weights that they adapt, and remove them, in place."""
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
    key: str = "base",
) -> StepModel:
    """A step model with a fresh head on a pretrained language model.

    Args:
        settings: settings of the network; `base` is a folder or a Hugging Face name.
        has_neutral: its classes are wrong, neutral and sound; of a classifier of tokens.
        trains_body: the body will be trained, so that its states are worth seeing.
        device: torch device that it will be trained on.
        key: key of the setting that names the base, for messages.

    Raises:
        EngineError: the base cannot be loaded, or has no token classification.
    """
    dtype = settings.weights_dtype(
        device, trains_weights=trains_body and settings.lora_rank is None
    )
    kind = _step_model(settings.head)
    settings = settings.model_copy(update={"dtype": dtype})
    return kind.start(settings, key=key, has_neutral=has_neutral, trains_body=trains_body)


def load_step_model(
    folder: Path,
    head: str,
    *,
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> StepModel:
    """A step model that was saved.

    Args:
        folder: folder of its files.
        head: name of its head, in `HEADS`.
        dtype: torch dtype of the body.
        trust_remote_code: run Python code that comes with it.

    Raises:
        EngineError: it cannot be loaded.
    """
    return _step_model(head).load(folder, dtype=dtype, trust_remote_code=trust_remote_code)


def _step_model(head: str) -> type[StepModel]:
    module, _, name = HEADS[head].model.partition(":")
    return cast(type[StepModel], getattr(import_module(module), name))
