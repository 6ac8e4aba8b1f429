"""Faults that settings of the scripted engine cause."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from mclabel.core.errors import EngineError
from mclabel.engines.scripted import ScriptedEngine
from tests.support.scripted_jobs import scripted


def texts(policy: ScriptedEngine, count: int = 200) -> list[str]:
    async def run() -> list[str]:
        await policy.start()
        prompt = policy.prompt_ids("P [answer 7]")
        asked = (policy.sample(prompt, (), seed=seed) for seed in range(count))
        return [completion.text for completion in await asyncio.gather(*asked)]

    return asyncio.run(run())


def test_seeds_decide_unless_settings_want_otherwise() -> None:
    assert texts(ScriptedEngine(scripted())) == texts(ScriptedEngine(scripted()))
    loose = ScriptedEngine(scripted(repeatable=False))
    assert texts(loose) != texts(loose)


def test_an_engine_that_crashed_stays_dead() -> None:
    policy = ScriptedEngine(scripted(crash_rate=0.05))
    with pytest.raises(EngineError, match="the engine died"):
        texts(policy)

    async def again() -> Counter[str]:
        prompt = policy.prompt_ids("P [answer 7]")
        asked = [policy.sample(prompt, (), seed=seed) for seed in range(50)]
        results = await asyncio.gather(*asked, return_exceptions=True)
        return Counter(type(result).__name__ for result in results)

    assert asyncio.run(again()) == {"EngineDied": 50}
