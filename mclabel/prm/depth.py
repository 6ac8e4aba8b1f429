"""Layers added on top of a body: room for what a scorer has to compute and a language model not.

What a language model expects next stands in its last layer's output; only a layer above can hold it
against what came. A new layer is a copy of the last one whose outputs are zero, so that it changes
nothing until it is trained (block expansion, LLaMA Pro, arXiv 2401.02415). The result is an
ordinary, deeper model of the same architecture, which every server loads.
"""

from __future__ import annotations

import copy
from typing import Any, cast

from torch import nn
from transformers import PreTrainedModel

from mclabel.errors import EngineError

_OUTPUTS = ("self_attn.o_proj", "mlp.down_proj")
"""Of a layer of Llama's kind: what it adds to the stream."""


def add_layers(network: PreTrainedModel, count: int) -> list[nn.Module]:
    """Put layers on top of a network's body, in place; they change nothing at first.

    Args:
        network: with a body of Llama's kind (Qwen, Mistral, …).
        count: how many.

    Returns:
        The new layers.

    Raises:
        EngineError: the body is of another kind.
    """
    if not count:
        return []
    layers = getattr(network.base_model, "layers", None)
    last = dict(layers[-1].named_modules()) if isinstance(layers, nn.ModuleList) else {}
    if not all(isinstance(last.get(name), nn.Linear) for name in _OUTPUTS):
        raise EngineError(
            f"extra_layers={count}: the layers of {type(network).__name__} are not of Llama's kind "
            f"({', '.join(_OUTPUTS)}). Leave it out"
        )
    assert isinstance(layers, nn.ModuleList)
    config = network.config.get_text_config()
    for _ in range(count):
        new = copy.deepcopy(layers[-1])
        for name in _OUTPUTS:
            for parameter in new.get_submodule(name).parameters():
                nn.init.zeros_(parameter)
        for part in new.modules():
            if hasattr(part, "layer_idx"):
                cast(Any, part).layer_idx = len(layers)
        layers.append(new)
        config.num_hidden_layers += 1
        if (kinds := getattr(config, "layer_types", None)) is not None:
            config.layer_types = [*kinds, kinds[-1]]
    return list(layers)[-count:]
