"""Layers on top of a language model that see what came, and what had been expected of it.

What a model expects of a token stands in its last state one position before the token; which token
came is lost from the states on its way up. A plain head on a body therefore cannot see a surprise,
which a likelihood head has for one subtraction. Here the body gets a wider stream, in which a code
of each token is carried past its layers unchanged, and a first layer on top that fetches the state
before, and multiplies the two: their product is the token's logit. Layers behind it, which start
at random, learn the rest. All of it is ordinary weights of the same architecture, wider and deeper,
which every server loads.

The body computes what it did. Its stream is scaled by a power of two, which its norms undo, so that
it is as nothing beside the new layers; it cannot be trained with them.
"""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForTokenClassification,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from mclabel.errors import EngineError

KINDS = ("llama", "mistral", "qwen2", "qwen3")
"""Whose layers are known here: norms of root mean squares before attention and a gated MLP."""
MAX_CARRIED = 256
"""Numbers that the stream is widened by, at most."""
MIN_CARRIED, MIN_HEAD_DIM = 8, 12
QUIET = 2.0**-10
"""Of the codes beside the embeddings in the body, and of the body's stream in the layers above."""
SHARPNESS = 256.0
"""Of the attention to the token before: its queries and its keys are multiplied by it."""
MAX_FAST = 16
"""Most rotary frequencies that are used to find the token before: the fastest ones."""
NUM_PROBED = 64
"""Tokens on which the usual size of the body's states is measured."""
LOGIT_SCALE = 0.2
"""Of the logit in the stream, so that it is no larger than the other numbers there."""


def with_hindsight(
    language: PreTrainedModel, count: int, *, num_labels: int
) -> tuple[PreTrainedModel, list[nn.Module]]:
    """A token classification model on a causal language model that computes what that computes.

    Args:
        language: of one of `KINDS`.
        count: layers on top, at least one.
        num_labels: classes of a token.

    Returns:
        The model, and its parts above the body. Of the first new layer only the MLP can be
        trained; `requires_grad` is false for what is fixed.

    Raises:
        EngineError: the language model is of another kind, too narrow, or damaged.
    """
    config, shape = _check(language, count)
    old = cast(Any, language.base_model)
    with torch.no_grad():
        usual = _usual_norm(language)
        size_of_embeddings = float(old.embed_tokens.weight.float().square().mean().sqrt())
    scale = _power(QUIET * math.sqrt(shape.carried) / usual)
    quiet = _power(QUIET * scale * size_of_embeddings)
    wide = _wider(config, shape, count, num_labels)
    wide.rms_norm_eps = config.rms_norm_eps * scale**2 * shape.width / shape.wide
    network: PreTrainedModel = AutoModelForTokenClassification.from_config(
        wide, dtype=language.dtype
    ).to(language.device)
    new = cast(Any, network.base_model)
    with torch.no_grad():
        codes, read, size = _codes(language, shape.carried)
        _copy_body(old, new, shape, scale)
        table = new.embed_tokens.weight
        table[:, shape.code] = (codes * quiet).to(table.dtype)
        table[:, shape.one] = quiet
        first, *others = new.layers[config.num_hidden_layers :]
        _fetch(first, new.rotary_emb.inv_freq, read, shape, one=scale * usual / quiet)
        _multiply(first, shape, quiet=quiet, size=size)
        for layer in others:
            _randomise(layer)
        nn.init.ones_(new.norm.weight)
    first.requires_grad_(False)
    first.mlp.requires_grad_(True)
    return network, [first, *others, new.norm]


class _Shape:
    """The wider stream: the body's numbers, a token's code, a constant, the token's logit."""

    def __init__(self, config: PreTrainedConfig) -> None:
        self.width = config.hidden_size
        self.num_heads, self.num_kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or self.width // self.num_heads
        room = min(self.width, self.num_kv_heads * self.head_dim, 3 * config.intermediate_size // 8)
        even = math.lcm(8, self.num_heads)  # widths that servers can split
        self.wide = (self.width + min(room + 2, MAX_CARRIED)) // even * even
        self.carried = self.wide - self.width - 2
        """Numbers of a token's code."""
        self.code = slice(self.width, self.width + self.carried)
        self.one, self.logit = self.wide - 2, self.wide - 1


def _check(language: PreTrainedModel, count: int) -> tuple[PreTrainedConfig, _Shape]:
    config, name = language.config.get_text_config(), type(language).__name__
    if config.model_type not in KINDS:
        rule = f"the layers of {name} are not known; known are {', '.join(KINDS)}"
    elif config.hidden_act != "silu" or getattr(config, "mlp_bias", False):
        rule = f"the MLPs of {name} have other activations than silu, or biases"
    elif config.model_type == "qwen2" and "sliding_attention" in config.layer_types:
        rule = f"the sliding windows of {name} are not known"
    else:
        shape = _Shape(config)
        if shape.head_dim >= MIN_HEAD_DIM and shape.carried >= MIN_CARRIED:
            return config, shape
        rule = f"{name} is too narrow: heads of {shape.head_dim}, must be >= {MIN_HEAD_DIM}, and"
        rule += f" room for {shape.carried} numbers of a code, must be >= {MIN_CARRIED}"
    raise EngineError(f"extra_layers={count}: {rule}. Leave it out, or choose another base")


_OF_QWEN2 = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "hidden_act", "max_position_embeddings", "initializer_range",
    "rope_parameters", "attention_dropout", "pad_token_id", "bos_token_id", "eos_token_id",
)  # fmt: skip


def _wider(
    config: PreTrainedConfig, shape: _Shape, count: int, num_labels: int
) -> PreTrainedConfig:
    wide = deepcopy(config)
    if config.model_type == "qwen2":
        # As a Llama with biases, which it is: vLLM takes Qwen2's heads to split its whole stream.
        known = {name: value for name, value in config.to_dict().items() if name in _OF_QWEN2}
        wide = LlamaConfig(**known, attention_bias=True)
    wide.hidden_size, wide.head_dim = shape.wide, shape.head_dim
    wide.num_hidden_layers += count
    wide.tie_word_embeddings = False
    if (kinds := getattr(wide, "layer_types", None)) is not None:
        wide.layer_types = [*kinds, *kinds[-1:] * count]
    wide.architectures = None
    wide.num_labels = num_labels
    return wide


@torch.no_grad()
def _codes(language: PreTrainedModel, rank: int) -> tuple[Tensor, Tensor, float]:
    """A code of every token [vocabulary, rank], of unit mean square; directions [rank, width] in
    which a normed last state is read; and by what the product of the two is to be multiplied to be
    the token's logit, as nearly as the rank allows.
    """
    body = cast(Any, language.base_model)
    weight = cast(nn.Linear, language.get_output_embeddings()).weight.float()
    weight = weight * body.norm.weight.float()
    # The right singular vectors are the eigenvectors of a small matrix; their signs are settled,
    # so that a run that is resumed elsewhere finds the same codes.
    _, vectors = torch.linalg.eigh((weight.T @ weight).double())
    read = vectors.flip(1)[:, :rank].T.float()
    read = read * read.gather(1, read.abs().argmax(1, keepdim=True)).sign()
    codes = weight @ read.T
    size = float(codes.square().mean().sqrt())
    rows = body.embed_tokens.weight.shape[0]
    full = codes.new_zeros(rows, rank)
    full[: len(codes)] = codes[:rows] / size
    return full, read, size


def _usual_norm(language: PreTrainedModel) -> float:
    """Median norm of the last states, before their norm, over tokens of the whole vocabulary."""
    body = cast(Any, language.base_model)
    seen: list[Tensor] = []
    hook = body.norm.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    vocabulary = body.embed_tokens.weight.shape[0]
    ids = torch.linspace(0, vocabulary - 1, NUM_PROBED, device=language.device).long()
    body(input_ids=ids[None], use_cache=False)
    hook.remove()
    norm = float(seen[0][0].float().norm(dim=-1).median())
    if not 0 < norm < math.inf:
        raise EngineError(
            f"{type(language).__name__}: its last hidden states have the norm {norm}, so its "
            "weights are damaged. Download or train it again"
        )
    return norm


def _copy_body(old: Any, new: Any, shape: _Shape, scale: float) -> None:
    """The body's layers, blind to what is carried, which they leave as it is."""
    width, shrink = shape.width, math.sqrt(shape.width / shape.wide)
    new.embed_tokens.weight.zero_()
    new.embed_tokens.weight[:, :width] = old.embed_tokens.weight * scale
    for theirs, ours in zip(old.layers, new.layers, strict=False):
        given = dict(theirs.named_parameters())
        for name, parameter in ours.named_parameters():
            source = given.get(name)
            parameter.zero_()
            if source is None:
                continue
            if parameter.shape == source.shape:  # norms of heads, biases
                parameter.copy_(source)
            elif parameter.dim() == 1:
                parameter[:width] = source * (shrink if "norm" in name else scale)
            elif parameter.shape[0] == source.shape[0]:
                parameter[:, :width] = source
            else:
                parameter[:width] = source * scale


def _fetch(layer: Any, frequencies: Tensor, read: Tensor, shape: _Shape, *, one: float) -> None:
    """Attention that fetches the normed state before, as far as it is read, whatever the tokens."""
    attention = layer.self_attn
    for parameter in layer.parameters():
        parameter.zero_()
    layer.input_layernorm.weight[: shape.width] = math.sqrt(shape.width / shape.wide)
    layer.input_layernorm.weight[shape.one] = SHARPNESS * one / math.sqrt(shape.wide)
    query, key = _one_back(frequencies)
    attention.q_proj.weight[:, shape.one] = query.repeat(shape.num_heads)
    attention.k_proj.weight[:, shape.one] = key.repeat(shape.num_kv_heads)
    if hasattr(attention, "q_norm"):
        attention.q_norm.weight.fill_(SHARPNESS)
        attention.k_norm.weight.fill_(SHARPNESS)
    attention.v_proj.weight[: shape.carried, : shape.width] = read
    group = shape.num_heads // shape.num_kv_heads
    for index in range(shape.carried):
        head, place = divmod(index, shape.head_dim)
        attention.o_proj.weight[index, head * group * shape.head_dim + place] = 1.0


def _one_back(frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """A query and a key [head_dim], the same everywhere, whose score is zero at a distance of one
    token and negative at any other, so that a key wins there whatever the sizes of keys.

    The rotary embedding (arXiv 2104.09864) turns them by their positions. The fast frequencies
    agree at distance one; the slowest, which hardly turns, subtracts what they come to there.
    """
    half = len(frequencies)
    number = min(MAX_FAST, half // 2)
    fast = frequencies[:number].float().cpu()
    query, key = torch.zeros(2, 2 * half)
    query[:number], query[half : half + number] = fast.cos(), -fast.sin()
    query[half - 1], key[half - 1], key[:number] = -float(number), 1.0, 1.0
    return query, key


def _multiply(layer: Any, shape: _Shape, *, quiet: float, size: float) -> None:
    """An MLP that multiplies codes with states, two units a number, as a = silu(a) - silu(-a); the
    other units start at random.
    """
    norm, mlp = layer.post_attention_layernorm.weight, layer.mlp
    norm.fill_(math.sqrt(shape.carried / shape.wide))
    norm[shape.code] /= quiet
    norm[shape.one] /= quiet
    gate, up, down = (part.weight for part in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    for weight in (gate, up):
        weight.normal_(0, 1 / math.sqrt(shape.wide))
    down.normal_(0, 0.02)
    products = slice(0, 2 * shape.carried)
    gate[products], up[products], down[:, products] = 0.0, 0.0, 0.0
    number = torch.arange(shape.carried)
    for offset, sign in ((0, 1.0), (1, -1.0)):
        gate[2 * number + offset, shape.width + number] = sign
        up[2 * number + offset, number] = sign * size
    down[shape.logit, products] = LOGIT_SCALE


def _randomise(layer: Any) -> None:
    """A layer that adds little at first."""
    for name, parameter in layer.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(0.0 if name.endswith("bias") else 1.0)
        else:
            parameter.normal_(0, 1 / math.sqrt(parameter.shape[1]))
    for outward in (layer.self_attn.o_proj, layer.mlp.down_proj):
        outward.weight *= 0.2


def _power(number: float) -> float:
    """The power of two next to it: scaling by it is exact in any type."""
    return 2.0 ** round(math.log2(number))
