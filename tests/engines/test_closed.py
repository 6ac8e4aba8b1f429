"""A closed engine is free, and engines that a GPU does not hold together are refused."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from mclabel.core.errors import ConfigError, EngineError
from mclabel.engines import PolicySettings, make_engine
from mclabel.engines.hf import HfEngine
from mclabel.engines.vllm import VllmEngine
from mclabel.labeling.completers import CompleterSettings
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.policy import PreparedModels, PreparedPolicy
from mclabel.run.settings import RayConfig


def test_a_closed_embedded_engine_frees_its_model_and_keeps_its_counts() -> None:
    async def run() -> None:
        engine = make_engine(PolicySettings(max_tokens=60))
        await engine.start()
        prompt = engine.prompt_ids("Eva has 3 pens. Eva buys 4 pens. How many pens?")
        await engine.sample(prompt, (), seed=3)
        assert isinstance(engine, HfEngine) and engine._decoder is not None
        memory, before = weakref.ref(engine._decoder), engine.stats()
        await engine.close()
        assert memory() is None
        after = engine.stats()
        assert after.num_live == 0 and after.num_sampled_tokens == before.num_sampled_tokens > 0
        assert engine.room(len(prompt), 0) > 0
        assert engine.decode(engine.encode("3 pens")) == "3 pens"
        with pytest.raises(EngineError, match="was closed"):
            await engine.sample(prompt, (), seed=3)

    asyncio.run(run())


def prepared(settings: PolicySettings) -> PreparedPolicy:
    """Without looking for the model or a GPU."""
    return PreparedPolicy(settings=settings, engine=make_engine(settings))


def test_models_that_do_not_fit_a_gpu_together_are_refused() -> None:
    """By the share of a GPU that each reserves."""

    def models(share: float) -> PreparedModels:
        engine = VllmEngine.Settings(kind="vllm", gpu_memory_utilization=share)
        completer = CompleterSettings(model="b", engine=engine, cost=1)
        policy = PolicySettings(model="a", engine=engine)
        config = LabelConfig(out="x", policy=policy, completers=[completer])
        return PreparedModels.of(config, prepared)

    for share in (0.45, 0.5):
        assert models(share).resources(RayConfig()).num_gpus == 1
    with pytest.raises(ConfigError, match=r"reserve 1.8 of a GPU.*set its engine.kind=openai"):
        models(0.9).resources(RayConfig())
    assert HfEngine(PolicySettings()).resources().gpu_memory == 0
