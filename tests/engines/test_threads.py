"""The embedded engine's own number of threads, whatever else computes in the process."""

from __future__ import annotations

import asyncio

import torch

from mclabel.engines import PolicySettings, make_engine
from mclabel.engines.hf import HfEngine


def test_an_engine_keeps_its_number_of_threads_beside_others() -> None:
    policy = PolicySettings.model_validate({"model": "arith:policy", "max_tokens": 8})
    engine = make_engine(policy, seed=0)
    assert isinstance(engine, HfEngine)
    seen: list[int] = []

    async def run() -> None:
        await engine.start()
        decoder = engine._decoder
        assert decoder is not None
        step = decoder.step

        def watched() -> object:
            seen.append(torch.get_num_threads())
            return step()

        decoder.step = watched  # type: ignore[method-assign, assignment]
        torch.set_num_threads(3)  # as a trainer does before the engine's first step
        await engine.sample(engine.prompt_ids("1 + 1 = ?"), (), seed=0)
        await engine.close()

    before = torch.get_num_threads()
    try:
        asyncio.run(run())
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
