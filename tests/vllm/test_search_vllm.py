"""Searches on vLLM: ends of steps and an exact ledger.

`test_openai_vllm` tests searches on a server, beside the engine that uses the server.
"""

from __future__ import annotations

import asyncio

from mclabel.data.boundaries import find_newline_ends
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate_problems
from mclabel.engines import Engine, PolicySettings
from mclabel.engines.vllm import VllmEngine
from mclabel.search import SEARCHES
from mclabel.search.config import SearchSettings
from mclabel.search.problem import SearchContext, search_problem
from mclabel.search.scorers import make_scorer
from tests.support.needs_vllm import NEEDS_VLLM

pytestmark = NEEDS_VLLM

POLICY = {"max_model_len": 512, "max_tokens": 160, "temperature": 0.8}


async def search_all(engine: Engine, *, counts_end_tokens: bool) -> None:
    """Search with every method on one engine, and compare each ledger with the engine's counter."""
    await engine.start()
    try:
        for method in SEARCHES:
            settings = SearchSettings.model_validate(
                {"search": {"kind": method, "n": 4}, "scorer": "exact"}
            )
            scorer = make_scorer(settings.scorer)
            shared = SearchContext(policy=engine, scorer=scorer, settings=settings)
            before = engine.stats().num_sampled_tokens
            problems = generate_problems(3, seed=5, split="test")
            results = await asyncio.gather(
                *(search_problem(problem, shared) for problem in problems)
            )
            sampled = engine.stats().num_sampled_tokens - before
            ends = sum(
                entry.count
                for result in results
                for entry in result.tree.sampled_nodes()
                if entry.node.is_finished
            )
            counted = sum(result.cost.num_sampled for result in results)
            assert sampled == counted - (0 if counts_end_tokens else ends), method
            for result in results:
                assert result.weights, method
                for name in result.weights:
                    steps = result.tree.steps(name)
                    assert all(
                        find_newline_ends(step.text) == [len(step.text)] for step in steps[:-1]
                    )
                    assert engine.decode(result.tree.ids(name)) == "".join(s.text for s in steps)
    finally:
        await engine.close()


def test_in_this_process() -> None:
    settings = VllmEngine.Settings(
        device="cpu", dtype="float32", engine_args={"enforce_eager": True}
    )
    policy = PolicySettings(model=str(bundled_model("policy")), engine=settings, **POLICY)
    asyncio.run(search_all(VllmEngine(policy), counts_end_tokens=True))
