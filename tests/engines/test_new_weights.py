"""An engine that takes new weights samples as one that was loaded with them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from mclabel.core.errors import EngineError
from mclabel.core.records import Completion
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate
from mclabel.engines import Engine, PolicySettings, make_engine
from mclabel.engines.pretrained import load_tensors, save_weights

PROBLEMS = [one.text for one in generate(3, seed=11, split="test")]


def engine(model: str, **settings: object) -> Engine:
    policy = {"model": f"arith:{model}", "max_tokens": 120, **settings}
    return make_engine(PolicySettings.model_validate(policy), seed=0)


def weights(model: str) -> dict[str, torch.Tensor]:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(str(bundled_model(model))).state_dict()


async def samples(one: Engine) -> list[Completion]:
    asked = (
        one.sample(one.prompt_ids(text), (), seed=seed) for seed, text in enumerate(PROBLEMS * 4)
    )
    return list(await asyncio.gather(*asked))


@pytest.mark.slow
def test_new_weights_leave_nothing_of_the_old_ones() -> None:
    async def run() -> None:
        changed, other = engine("policy"), engine("strong")
        await changed.start()
        await other.start()
        before = await samples(changed)
        await changed.update_weights(weights("strong"))
        assert await samples(changed) == await samples(other) != before
        await changed.update_weights(weights("policy"))
        assert await samples(changed) == before
        await changed.close()
        await other.close()

    asyncio.run(run())


def test_weights_are_refused_while_sampling_and_of_another_model() -> None:
    async def run() -> None:
        one, same = engine("policy"), weights("policy")
        await one.start()
        sampling = asyncio.create_task(samples(one))
        while not one.stats().num_live + one.stats().num_waiting:
            await asyncio.sleep(0)
        with pytest.raises(EngineError, match="while it samples"):
            await one.update_weights(same)
        await sampling
        with pytest.raises(EngineError, match="not those of this model"):
            await one.update_weights({"weight": torch.zeros(1)})
        await one.close()

    asyncio.run(run())


def test_an_engine_that_cannot_says_so() -> None:
    one = make_engine(PolicySettings.model_validate({"engine": "scripted"}), seed=0)
    with pytest.raises(EngineError, match="scripted: cannot take new weights"):
        asyncio.run(one.update_weights({}))


def test_saved_weights_hold_tied_tensors_once(tmp_path: Path) -> None:
    tensor = torch.arange(6.0).reshape(2, 3)
    save_weights({"a": tensor, "tied": tensor, "b": tensor + 1}, tmp_path)
    found = load_tensors(tmp_path / "model.safetensors")
    assert found.keys() == {"a", "b"}
    assert torch.equal(found["b"], tensor + 1)
