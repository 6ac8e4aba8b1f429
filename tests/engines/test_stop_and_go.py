"""Completions that end at a given text, their continuations, and engines that are closed."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.records import Completion
from mclabel.engines import Engine, PolicySettings, make_engine
from mclabel.engines.hf import HfEngine
from mclabel.engines.vllm import VllmEngine
from mclabel.labeling.completers import CompleterSettings
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.policy import PreparedModels, PreparedPolicy
from mclabel.run.settings import RayConfig

PROBLEM = (
    "Dan has 158 dollars. Dan earns 2 dollars a day for 8 days. Dan buys 2 plums for 30 dollars "
    "each. Dan pays 71 dollars for a ticket. Dan earns 15 dollars a day for 4 days. Dan pays 40 "
    "dollars for a ticket. How many dollars does Dan have left?"
)


def on_engine(test: Callable[[Engine], Awaitable[None]]) -> None:
    """Run a test on a started engine, and close the engine."""

    async def run() -> None:
        engine = make_engine(PolicySettings(model="arith:policy", max_tokens=120), seed=0)
        await engine.start()
        await test(engine)
        await engine.close()

    asyncio.run(run())


async def _by_steps(
    engine: Engine, seed: int, *, num_tokens: int | None = None
) -> list[Completion]:
    """Sample a solution line by line."""
    prompt, ids, parts = engine.prompt_ids(PROBLEM), (), []
    for number in range(100):
        part = await engine.sample(
            prompt,
            ids,
            seed=seed + number,
            stop=("\n",),
            max_tokens=None if num_tokens is None else len(ids) + num_tokens,
        )
        parts.append(part)
        ids += part.ids
        if not part.at_stop and part.finish_reason == "stop":
            break
    return parts


def test_a_line_ends_a_completion_that_is_continued() -> None:
    async def test(engine: Engine) -> None:
        before = engine.stats()
        parts = await _by_steps(engine, 7)
        assert len(parts) > 2 and parts[-1].finish_reason == "stop" and not parts[-1].at_stop
        assert all(part.at_stop and part.text.endswith("\n") for part in parts[:-1])
        assert all(part.text.count("\n") == 1 for part in parts[:-1])
        after = engine.stats()
        num_ids = sum(len(part.ids) for part in parts) + 1  # plus the end token
        assert after.num_sampled_tokens - before.num_sampled_tokens == num_ids
        assert (
            after.num_prefill_tokens - before.num_prefill_tokens
            == len(engine.prompt_ids(PROBLEM)) - 1
        )

    on_engine(test)


def test_many_go_on_from_one_end_each_by_itself() -> None:
    async def test(engine: Engine) -> None:
        prompt = engine.prompt_ids(PROBLEM)
        first = await engine.sample(prompt, (), seed=1, stop=("\n",))
        num_prefilled = engine.stats().num_prefill_tokens
        rest = await asyncio.gather(
            *(engine.sample(prompt, first.ids, seed=seed, stop=("\n",)) for seed in range(64)),
            *(engine.sample(prompt, first.ids, seed=seed) for seed in range(64)),
        )
        assert engine.stats().num_prefill_tokens == num_prefilled
        assert len({completion.text for completion in rest}) > 1
        for line, whole in zip(rest[:64], rest[64:], strict=True):
            assert whole.text.startswith(line.text) and not whole.at_stop
        assert (await engine.sample(prompt, first.ids, seed=3)) == rest[64 + 3]

    on_engine(test)


def test_a_step_is_cut_at_a_number_of_tokens() -> None:
    async def test(engine: Engine) -> None:
        parts = await _by_steps(engine, 3, num_tokens=4)
        assert all(len(part.ids) <= 4 for part in parts)
        assert any(part.finish_reason == "length" for part in parts)
        assert engine.decode(sum((part.ids for part in parts), ())) == "".join(
            part.text for part in parts
        )
        for a, b in pairwise(parts):
            assert a.ids and (b.ids or b.finish_reason == "stop")

    on_engine(test)


def test_a_closed_embedded_engine_frees_its_model_and_keeps_its_counts() -> None:
    async def run() -> None:
        engine = make_engine(PolicySettings(max_tokens=60))
        await engine.start()
        prompt = engine.prompt_ids("Eva has 3 pens. Eva buys 4 pens. How many pens?")
        await engine.sample(prompt, (), seed=3)
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


def make_prepared(settings: PolicySettings) -> PreparedPolicy:
    """Return a prepared policy without checking for the model or a GPU."""
    return PreparedPolicy(settings=settings, engine=make_engine(settings))


def test_models_that_do_not_fit_a_gpu_together_are_refused() -> None:
    """Each model's share of the GPU decides."""

    def prepare_models(share: float) -> PreparedModels:
        engine = VllmEngine.Settings(kind="vllm", gpu_memory_utilization=share)
        completer = CompleterSettings(model="b", engine=engine, cost=1)
        config = LabelConfig(
            out="x", policy=PolicySettings(model="a", engine=engine), completers=[completer]
        )
        return PreparedModels.prepare_all(config, make_prepared)

    for share in (0.45, 0.5):
        assert prepare_models(share).resources(RayConfig()).num_gpus == 1
    with pytest.raises(ConfigError, match=r"reserve 1.8 of a GPU.*set its engine.kind=openai"):
        prepare_models(0.9).resources(RayConfig())
    assert HfEngine(PolicySettings()).resources().gpu_memory == 0
