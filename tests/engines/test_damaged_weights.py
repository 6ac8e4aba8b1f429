"""A policy that computes no numbers is refused, and samples nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from mclabel.cli import main
from mclabel.core.errors import EngineError
from mclabel.domains.arith import bundled_model
from mclabel.engines.cascade import Row
from mclabel.engines.decoder import draw
from mclabel.engines.pretrained import check_finite


def damaged(folder: Path, damage: float) -> Path:
    """The bundled policy with one number of one of its weights changed."""
    shutil.copytree(bundled_model("policy"), folder)
    (path,) = folder.glob("*.safetensors")
    weights = load_file(path)
    name = next(key for key in sorted(weights) if "mlp" in key)
    weights[name][0, 0] = damage
    save_file(weights, path, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
def test_a_policy_whose_weights_are_no_numbers_is_refused(tmp_path: Path, damage: float) -> None:
    model = damaged(tmp_path / "model", damage)
    job = [f"policy.model={model}", "policy.engine=hf", "problems.source=arith", "ray.address=none"]
    job += ["problems.limit=1", f"out={tmp_path / 'out'}"]
    result = CliRunner().invoke(main, ["label", "/dev/null", *job])
    assert result.exit_code == 2, result.output
    said = " ".join(result.output.split())
    assert f"policy.model='{model}': its weight" in said
    assert "holds NaN or infinities" in said and "Train or download it again" in said
    assert not list((tmp_path / "out" / "labels").glob("*"))


@pytest.mark.parametrize("tied", [False, True])
def test_rows_of_tokens_that_no_text_has_may_be_anything(tied: bool) -> None:
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.get_input_embeddings().weight[96] = float("nan")
    if not tied:
        check_finite(model, "m")
        return
    with pytest.raises(EngineError, match=r"m: its weight model.embed_tokens.weight holds NaN"):
        check_finite(model, "m")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_draw_nothing(temperature: float) -> None:
    logits = torch.zeros(2, 5)
    lanes = [[Row(context=(1,), max_tokens=4, seed=seed, tag=seed)] for seed in range(2)]
    drawn = draw(logits, lanes, temperature=temperature, top_p=1.0, top_k=0)
    assert [len(row) for row in drawn] == [1, 1]
    logits[1, 3] = float("nan")
    with pytest.raises(EngineError, match="logits are NaN"):
        draw(logits, lanes, temperature=temperature, top_p=1.0, top_k=0)
