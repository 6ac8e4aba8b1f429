"""Layers that see what came and what had been expected of it, on bodies of several kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    GemmaConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from mclabel.arith import bundled_model
from mclabel.errors import EngineError
from mclabel.prm.model.hindsight import LOGIT_SCALE, MAX_CARRIED, _codes, _one_back, with_hindsight

SMALL = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
WINDOWS = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
CONFIGS = {
    "llama": LlamaConfig(**SMALL),
    "llama, biased": LlamaConfig(**SMALL, attention_bias=True),
    "llama, all heads": LlamaConfig(**{**SMALL, "num_key_value_heads": 4}),
    "mistral": MistralConfig(**SMALL, sliding_window=4),
    "qwen2": Qwen2Config(**{**SMALL, "head_dim": 12}),
    "qwen3": Qwen3Config(**SMALL, **WINDOWS),
}


def language_model(config: PreTrainedConfig) -> PreTrainedModel:
    """With norms and biases that are not those of a fresh one."""
    torch.manual_seed(3)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, float("norm" in name), 0.2)
    return model


def unit(states: Tensor) -> Tensor:
    return states / states.norm(dim=-1, keepdim=True)


def watched(module: nn.Module) -> list[Any]:
    """What a layer gets and gives, once it has run."""
    seen: list[Any] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Any) -> None:
        seen.extend([inputs[0], output if torch.is_tensor(output) else output[0]])

    module.register_forward_hook(keep)
    return seen


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_body_computes_what_it_did_and_a_layer_what_it_expected(
    config: PreTrainedConfig, tmp_path: Path
) -> None:
    language = language_model(config)
    network, extra = with_hindsight(language, 2, num_labels=2)
    network.eval()
    width, depth = config.hidden_size, config.num_hidden_layers
    assert network.config.num_hidden_layers == depth + 2
    wide = network.config.hidden_size
    assert width < wide <= width + MAX_CARRIED and wide % 8 == wide % 4 == 0
    first = cast(Any, network.base_model).layers[depth]
    assert extra[0] is first
    rank = wide - width - 2
    with torch.no_grad():  # the units that start at random are none of this test's
        first.mlp.down_proj.weight[:, 2 * rank :] = 0.0
    seen = watched(first)
    ids = torch.randint(config.vocab_size, (3, 40))
    with torch.no_grad():
        states = language.base_model(ids).last_hidden_state
        states = states / cast(Any, language.base_model).norm.weight  # normed alone
        codes, read, size = _codes(language, rank)
        network(ids)
        came, gave = seen
        assert torch.allclose(unit(came[..., :width]), unit(states), atol=1e-4)
        before = states[:, :-1] @ read.T
        assert torch.allclose(gave[:, 1:, :rank], before, atol=0.02 * float(before.abs().max()))
        logits = (codes[ids[:, 1:]] * before).sum(-1) * size
        wanted = LOGIT_SCALE * logits * rank / before.square().sum(-1)
        assert float(wanted.std()) > 0.02
        assert torch.allclose(gave[:, 1:, -1], wanted, atol=0.05 * float(wanted.abs().max()))
        network.save_pretrained(tmp_path)
        again = AutoModelForTokenClassification.from_pretrained(tmp_path).eval()
        assert torch.equal(again(ids).logits, network(ids).logits)


def test_of_the_bundled_model_the_product_is_the_logit() -> None:
    language = AutoModelForCausalLM.from_pretrained(bundled_model("strong"), dtype=torch.float32)
    codes, read, size = _codes(language, 126)
    ids = torch.arange(3, 300)[None]
    with torch.no_grad():
        out = language(ids, output_hidden_states=True)
        states = out.hidden_states[-1] / cast(Any, language.base_model).norm.weight
        wanted = out.logits[0]
        assert torch.allclose(states[0] @ read.T @ codes.T * size, wanted, atol=0.5)
    assert float(wanted.std()) > 3
    again = _codes(language, 126)
    assert torch.equal(codes, again[0]) and torch.equal(read, again[1])


@pytest.mark.parametrize(
    ("head_dim", "theta", "longest"),
    [(16, 1e4, 1024), (32, 1e4, 1024), (64, 1e4, 4096), (128, 1e4, 4096), (128, 1e6, 32768)],
)
def test_attention_finds_the_token_before_and_no_other(
    head_dim: int, theta: float, longest: int
) -> None:
    frequencies = theta ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    query, key = (part.double() for part in _one_back(frequencies))
    turns = torch.arange(longest)[:, None] * frequencies
    turned = torch.cat(
        [
            query[: head_dim // 2] * turns.cos() - query[head_dim // 2 :] * turns.sin(),
            query[head_dim // 2 :] * turns.cos() + query[: head_dim // 2] * turns.sin(),
        ],
        dim=1,
    )
    scores = turned @ key
    assert abs(float(scores[1])) < 1e-4
    others = torch.cat([scores[:1], scores[2:]])
    assert float(others.max()) < (-0.4 if head_dim > 16 else -0.15)


def test_only_what_learns_is_trained() -> None:
    network, extra = with_hindsight(language_model(CONFIGS["qwen3"]), 2, num_labels=3)
    assert network.config.num_labels == 3
    fixed = {name for name, p in extra[0].named_parameters() if not p.requires_grad}
    assert {name.split(".")[0] for name in fixed} == {
        "self_attn",
        "input_layernorm",
        "post_attention_layernorm",
    }
    assert all(p.requires_grad for part in extra[1:] for p in part.parameters())
    assert extra[-1] is cast(Any, network.base_model).norm


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16), "layers of GPT2LMHeadModel"),
        (GemmaConfig(**SMALL), "layers of GemmaForCausalLM are not known"),
        (LlamaConfig(**SMALL, hidden_act="gelu"), "other activations"),
        (LlamaConfig(**{**SMALL, "head_dim": 8}), "too narrow: heads of 8, must be >= 12"),
        (Qwen2Config(**{**SMALL, "head_dim": 12}, **WINDOWS), "sliding windows"),
    ],
)
def test_what_is_not_known_is_refused(config: PreTrainedConfig, why: str) -> None:
    with pytest.raises(EngineError, match=f"extra_layers=2: .*{why}.*another base"):
        with_hindsight(AutoModelForCausalLM.from_config(config), 2, num_labels=2)


def test_a_damaged_body_is_refused() -> None:
    language = language_model(CONFIGS["llama"])
    nn.init.constant_(cast(Any, language.base_model).embed_tokens.weight, float("nan"))
    with pytest.raises(EngineError, match="last hidden states have the norm nan"):
        with_hindsight(language, 1, num_labels=2)
