"""Low-rank adapters (LoRA, arXiv 2106.09685) in a step model's body, by `peft`.

They are trained in place of the body's own weights and merged into them in the end, so a finished
PRM is a plain checkpoint that needs no `peft`.
"""

from __future__ import annotations

from typing import Any, cast

from torch import nn
from transformers import PreTrainedModel

from mclabel.core.errors import ConfigError

_MARK = "lora_"


def is_adapter(parameter_name: str) -> bool:
    """Whether a parameter belongs to an adapter."""
    return _MARK in parameter_name


def add_adapters(network: PreTrainedModel, *, rank: int, alpha: int) -> None:
    """Put adapters into every linear layer of the body, in place; they change nothing at first.

    Args:
        network: with its head; the head gets none.
        rank: of the adapters.
        alpha: their output is scaled by alpha / rank.

    Raises:
        ConfigError: peft is not installed.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ConfigError(
            f"lora_rank={rank}: needs peft. Install it with pip install 'peft>=0.17'"
        ) from None
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
