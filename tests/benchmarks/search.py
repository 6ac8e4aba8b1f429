"""Compare the speed of a search with the raw engine and with other ways to search.

    python -m tests.benchmarks.search [--smoke | --quick]

All ways run in turn on one loaded engine (vLLM if it is installed, otherwise the embedded one). The
first figures are policy tokens per second of beam search, relative to the raw engine that gets all
solutions at once. They are measured with a constant scorer, which costs nothing (`free`), and with
a PRM in this process, whose own time is measured separately. The other figures are problems per
second, relative to two ways. One searches one problem at a time with a barrier at every level and a
PRM that reads from the first token, as search-and-learn does. The other has a barrier over all
problems. The PRM is trained first, from the bundled policy, on labels of other problems. The last
line is JSON.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from mclabel.domains.arith.problems import generate_problems
from mclabel.search.config import SearchSettings
from tests.benchmarks.engine_common import LoadedPolicy, engine_name, loaded_policy, watch
from tests.benchmarks.figures import finish
from tests.benchmarks.runs import quickstart_prm
from tests.benchmarks.search_ways import Way, by_levels, search_concurrently
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

BEAM = {"kind": "beam", "n": 16}
COMPLETERS = "completers=[{model: 'arith:strong', max_tokens: 200, temperature: 0.8}]"
"""Override with the completer whose rollouts label the PRM's training data."""

FROM_ZERO = "barrier, from the first token"
ONE_BY_ONE = "one by one, from the first token"


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    with tempfile.TemporaryDirectory() as folder:
        prm = quickstart_prm(Path(folder), size, COMPLETERS)
        finish(asyncio.run(_speed(prm, size)))


async def _speed(prm: Path, size: BenchmarkSize) -> dict[str, Any]:
    free = SearchSettings.model_validate({"search": BEAM, "scorer": "constant"})
    steered = SearchSettings.model_validate({"search": BEAM, "scorer": {"prm": str(prm)}})
    anew = SearchSettings.model_validate(
        {"search": BEAM, "scorer": {"prm": str(prm), "cache_gib": 1e-9}}
    )
    repeats = size.pick(smoke=1, quick=3, full=5)
    count = size.pick(smoke=2, quick=64, full=200)
    problems = generate_problems(count, seed=6, split="test")
    async with loaded_policy("arith:policy", max_tokens=160) as policy:
        free_ratios, _ = await _beside_raw(policy, free, problems, repeats)
        with_prm, ways = await _beside_raw(policy, steered, problems, repeats)
        share = statistics.median(way.scorer_seconds / way.seconds for way in ways)
        few = size.pick(smoke=1, quick=8, full=24)
        some = problems[:few]
        ways_to_search: dict[str, Callable[[], Awaitable[Way]]] = {
            "together": lambda: search_concurrently(policy, steered, problems),
            "barrier": lambda: by_levels(policy, steered, problems, at_a_time=count),
            FROM_ZERO: lambda: by_levels(policy, anew, problems, at_a_time=count),
            ONE_BY_ONE: lambda: by_levels(policy, anew, some, at_a_time=1),
        }
        ledger, compared = True, dict[str, list[Way]]()
        for _ in range(repeats):
            for name, search in ways_to_search.items():
                await policy.reset_cache()
                before = policy.stats().num_sampled_tokens
                compared.setdefault(name, []).append(found := await search())
                ledger &= policy.stats().num_sampled_tokens - before == found.num_tokens
    times = {name: _times(compared["together"], ways) for name, ways in compared.items()}
    return {
        "ratio_free_scorer": _spread(free_ratios),
        "ratio_prm": _spread(with_prm),
        "prm_share_of_time": round(share, 3),
        "times_search_and_learn": times[ONE_BY_ONE],
        "times_barrier": times["barrier"],
        "ledger_equal": ledger,
        "times_barrier_from_the_first_token": times[FROM_ZERO],
        "engine": engine_name(),
    }


async def _beside_raw(
    policy: LoadedPolicy, settings: SearchSettings, problems: Sequence[Any], repeats: int
) -> tuple[list[float], list[Way]]:
    """Return the searches' tokens per second relative to the raw engine, in alternating runs."""
    ratios, ways = [], []
    await search_concurrently(policy, settings, problems[:2])  # warms up the engine
    for _ in range(repeats):
        await policy.reset_cache()
        way = await search_concurrently(policy, settings, problems)
        raw = await _whole(policy, problems, way.num_tokens)
        ratios.append(way.tokens_per_s / raw)
        ways.append(way)
    return ratios, ways


async def _whole(policy: LoadedPolicy, problems: Sequence[Any], num_tokens: int) -> float:
    """Return the tokens per second of whole solutions, all requested at once.

    Their number is chosen so that they have about `num_tokens` tokens.
    """
    await policy.reset_cache()
    prompts = [policy.prompt_ids(problem.text) for problem in problems]
    probe = await asyncio.gather(*(policy.sample(one, (), seed=0) for one in prompts))
    each = max(1, round(num_tokens / (sum(len(one.ids) for one in probe) + len(probe))))
    await policy.reset_cache()
    async with watch(policy) as watched:
        await asyncio.gather(
            *(policy.sample(one, (), seed=seed) for one in prompts for seed in range(each))
        )
    return watched.run(policy, 0).tokens_per_s


def _times(ours: Sequence[Way], others: Sequence[Way]) -> float:
    pairs = zip(ours, others, strict=True)
    return round(statistics.median(a.problems_per_s / b.problems_per_s for a, b in pairs), 2)


def _spread(ratios: Sequence[float]) -> list[float]:
    """Return the median, the minimum and the maximum."""
    return [round(one, 3) for one in (statistics.median(ratios), min(ratios), max(ratios))]


if __name__ == "__main__":
    main()
