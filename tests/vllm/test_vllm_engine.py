"""The vLLM engine in this process on the CPU: sampling, ends, continuation, failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.errors import EngineError
from mclabel.core.records import Completion
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate_problems
from mclabel.engines import PolicySettings
from mclabel.engines.vllm import VllmEngine
from tests.support.continuation import (
    NUM_SOLUTIONS,
    TEMPERATURE,
    Calls,
    chat_model,
    count_exact,
    label_all,
    num_other_tokens,
)
from tests.support.needs_vllm import NEEDS_VLLM

pytestmark = NEEDS_VLLM

FOLDER = str(bundled_model("policy"))
CPU = {"device": "cpu", "dtype": "float32", "engine_args": {"enforce_eager": True}}


def engine(
    settings: Mapping[str, Any] = CPU,
    *,
    model: str = FOLDER,
    max_model_len: int = 512,
    **policy: Any,
) -> VllmEngine:
    """Return an engine for the CPU that is not started."""
    chosen = VllmEngine.Settings(**settings)
    return VllmEngine(
        PolicySettings(model=model, max_model_len=max_model_len, engine=chosen, **policy)
    )


def test_completions_end_as_they_should_and_follow_seeds_weights_and_a_second_start() -> None:
    """The test uses one engine, because loading takes most of the time."""
    problem = generate_problems(1, seed=5, split="test")[0].text

    async def check_policy(policy: VllmEngine) -> None:
        await policy.start()
        prompt = policy.prompt_ids(problem)

        async def sample_many(seeds: range, prefix: tuple[int, ...] = ()) -> list[Completion]:
            requests = [policy.sample(prompt, prefix, seed=2**62 + s) for s in seeds]
            return await asyncio.gather(*requests)

        lines = await sample_many(range(40))
        assert {c.finish_reason for c in lines} == {"stop"}
        assert all(c.text.count("\n") == 1 and c.text.endswith("\n") for c in lines)
        assert all(policy.decode(c.ids) == c.text for c in lines)
        assert len({c.text for c in lines}) > 1
        ids = [c.ids for c in lines]
        assert [c.ids for c in await sample_many(range(40))] == ids

        prefix = policy.encode("1")[-1:] * 98
        assert {len(c.ids) for c in await sample_many(range(10), prefix)} <= {1, 2}
        full = policy.encode("1")[-1:] * 100
        assert await policy.sample(prompt, full, seed=1) == Completion(
            ids=(), text="", finish_reason="length"
        )
        request = asyncio.create_task(policy.sample(prompt, (), seed=3))
        await asyncio.sleep(0.01)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert (await policy.sample(prompt, (), seed=3)).finish_reason == "stop"
        assert policy.stats().num_live == 0
        assert policy.stats().num_sampled_tokens >= sum(map(len, ids)) * 2

    async def run() -> None:
        seeded = {**CPU, "per_request_seeds": True}
        policy = engine(seeded, temperature=1.5, max_tokens=100, stop=["\n"])
        try:
            await check_policy(policy)
        finally:
            await policy.close()

    asyncio.run(run())


def test_prefixes_are_continued_by_the_ids_that_were_sampled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test compares the ids that vLLM received with those that it sampled."""
    from vllm.v1.engine.async_llm import AsyncLLM

    calls, generate_all = Calls(), AsyncLLM.generate

    async def record_generation(
        running: AsyncLLM, *arguments: Any, **named: Any
    ) -> AsyncIterator[Any]:
        async for output in generate_all(running, *arguments, **named):
            prompt_ids, sampled = output.prompt_token_ids, output.outputs[0].token_ids
            calls.made.append((tuple(prompt_ids), tuple(sampled)))
            yield output

    monkeypatch.setattr(AsyncLLM, "generate", record_generation)
    policy = engine(model=chat_model(tmp_path), temperature=TEMPERATURE, max_tokens=96)
    results = asyncio.run(label_all(policy))
    assert count_exact(results, calls) > 2 * NUM_SOLUTIONS
    assert num_other_tokens(policy, results) > NUM_SOLUTIONS / 50


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"device": "cuda"},
            r"policy\.engine\.device=cuda: the installed .* build for CPUs",
        ),
        (
            {"kv_cache_gib": 100_000.0},
            r"vLLM could not load the model: ValueError: Available memory",
        ),
        ({"max_model_len": 10**6}, r"vLLM rejects the model or its settings: .*max_model_len"),
        ({"engine_args": {"enforce_eage": True}}, "did you mean enforce_eager?"),
        ({"quantization": "magic"}, "vLLM rejects the model or its settings"),
    ],
)
def test_an_engine_that_cannot_load_says_why(changes: dict[str, Any], message: str) -> None:
    settings = {**CPU, **changes}
    max_model_len = settings.pop("max_model_len", 512)
    policy = engine(settings, max_model_len=max_model_len)
    with pytest.raises(EngineError, match=message):
        asyncio.run(policy.start())
