"""Results that depend on the device: sampled tokens, and training of adapters in bf16."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate_problems
from mclabel.engines import PolicySettings
from mclabel.engines.hf import HfEngine
from mclabel.prm.examples.encode import EncodedSolution, Example
from mclabel.prm.model.network import add_adapters, is_adapter, start_step_model
from mclabel.prm.model.settings import ModelSettings
from mclabel.prm.training.settings import TrainerSettings
from mclabel.prm.training.trainer import train_step_model

pytestmark = pytest.mark.gpu
on_each_device = pytest.mark.parametrize("device", ["cpu", "cuda"])
"""The check of a machine runs the tests of its device: the GPU or, without one, the CPU."""
MAX_TOKENS = 40


@on_each_device
def test_greedy_tokens_are_those_of_transformers(device: str) -> None:
    """Completions with and without a shared prefix are sampled together in float32."""
    engine = HfEngine(
        PolicySettings(
            model="arith:policy",
            temperature=0,
            max_tokens=MAX_TOKENS,
            engine={"kind": "hf", "device": device, "dtype": "float32"},
        )
    )

    async def sample() -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
        await engine.start()
        try:
            prompts = [
                engine.prompt_ids(p.text) for p in generate_problems(4, seed=9, split="test")
            ]
            first = await asyncio.gather(*(engine.sample(p, (), seed=0) for p in prompts))
            requests = [
                (p, completion.ids[:length])
                for p, completion in zip(prompts, first, strict=True)
                for length in (0, 5, 5, 11)
            ]
            return [
                (*pair, completion.ids)
                for pair, completion in zip(
                    requests,
                    await asyncio.gather(*(engine.sample(*pair, seed=1) for pair in requests)),
                    strict=True,
                )
            ]
        finally:
            await engine.close()

    sampled = asyncio.run(sample())
    model = AutoModelForCausalLM.from_pretrained(bundled_model("policy"), dtype=torch.float32)
    model.to(device).eval()
    assert all(len(ids) > 5 for _, _, ids in sampled)
    for prompt, prefix, ids in sampled:
        context = torch.tensor([[*prompt, *prefix]], device=device)
        theirs = model.generate(context, do_sample=False, max_new_tokens=MAX_TOKENS - len(prefix))[
            0, context.shape[1] :
        ].tolist()
        assert list(ids) == theirs[: len(ids)]
        assert len(theirs) - len(ids) == (len(theirs) < MAX_TOKENS - len(prefix))


@on_each_device
def test_training_adapters_in_bfloat16_lowers_the_loss(device: str, tmp_path: Path) -> None:
    """The head hardly changes, so the adapters must fit the labels."""
    rng = random.Random(0)
    examples = [
        Example(
            problem_id=f"p{number}",
            encoded=EncodedSolution(
                ids=tuple(rng.randrange(2, 90) for _ in range(24)), num_prompt=4, positions=(9, 23)
            ),
            targets=(1.0, float(number % 2)),
            weights=(1.0, 1.0),
            is_right=None,
        )
        for number in range(8)
    ]
    torch.manual_seed(0)
    model = start_step_model(
        ModelSettings(base=str(bundled_model("policy")), lora_rank=4, dtype="bfloat16")
    )
    add_adapters(model.network, rank=4, alpha=32)
    model.to(device)
    of_body = set(model.body_and_head_parameters()[0])
    body = {n: p.clone() for n, p in model.named_parameters() if p in of_body}
    train_step_model(
        model,
        examples,
        [],
        tmp_path,
        settings=(
            TrainerSettings(
                max_steps=20,
                batch_size=8,
                backbone_lr=1e-2,
                head_lr=1e-9,
                bf16=True,
                save_steps=10**6,
            )
        ),
    )
    first, second = [
        json.loads(line)["loss"] for line in (tmp_path / "log.jsonl").open()
    ]  # means of ten steps each
    assert second < 0.9 * first
    changed = {n for n, p in model.named_parameters() if n in body and not torch.equal(p, body[n])}
    assert changed and all(map(is_adapter, changed))
