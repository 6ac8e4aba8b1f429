"""Compare the speed of a search with the raw engine.

    python -m tests.benchmarks.search [--smoke | --quick]

Searches and raw sampling alternate on one loaded engine (vLLM if it is installed, otherwise the
embedded one). The figures are policy tokens per second of beam search, relative to the raw engine
that gets all solutions at once: median, minimum and maximum. They are measured with a constant
scorer, which costs nothing (`free`), and with a PRM in this process, whose own time is measured
separately. The PRM is trained first, from the bundled policy, on labels of other problems. The last
line is JSON.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.core.records import Problem
from mclabel.domains.arith.problems import generate_problems
from mclabel.search.config import SearchSettings
from mclabel.search.problem import SearchContext, search_problem
from mclabel.search.scorers import make_scorer
from tests.benchmarks.engine_common import LoadedPolicy, engine_name, loaded_policy, watch
from tests.benchmarks.figures import finish
from tests.benchmarks.runs import quickstart_prm
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

BEAM = {"kind": "beam", "n": 16}
COMPLETERS = "completers=[{model: 'arith:strong', max_tokens: 200, temperature: 0.8}]"
"""Override with the completer whose rollouts label the PRM's training data."""


@dataclass(frozen=True, kw_only=True)
class TimedSearch:
    """Measurements of one search of all problems."""

    seconds: float
    num_tokens: int
    """Number of tokens that the policy sampled."""
    scorer_seconds: float
    """Seconds in which the PRM computed, beside the engine; 0 without a PRM."""
    ledger_equal: bool
    """True if the search and the engine count the same number of sampled tokens."""


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    with tempfile.TemporaryDirectory() as folder:
        prm = quickstart_prm(Path(folder), size, COMPLETERS)
        finish(asyncio.run(_measure_speed(prm, size)))


async def _measure_speed(prm: Path, size: BenchmarkSize) -> dict[str, Any]:
    free = SearchSettings.model_validate({"search": BEAM, "scorer": "constant"})
    steered = SearchSettings.model_validate({"search": BEAM, "scorer": {"prm": str(prm)}})
    repeats = size.pick(smoke=1, quick=3, full=5)
    count = size.pick(smoke=2, quick=64, full=200)
    problems = generate_problems(count, seed=6, split="test")
    async with loaded_policy("arith:policy", max_tokens=160) as policy:
        free_ratios, _ = await _compare_with_raw(policy, free, problems, repeats)
        prm_ratios, searches = await _compare_with_raw(policy, steered, problems, repeats)
    shares = [search.scorer_seconds / search.seconds for search in searches]
    return {
        "ratio_free_scorer": _spread(free_ratios),
        "ratio_prm": _spread(prm_ratios),
        "prm_share_of_time": round(statistics.median(shares), 3),
        "ledger_equal": all(search.ledger_equal for search in searches),
        "engine": engine_name(),
    }


async def _compare_with_raw(
    policy: LoadedPolicy, settings: SearchSettings, problems: Sequence[Problem], repeats: int
) -> tuple[list[float], list[TimedSearch]]:
    """Return the searches' tokens per second relative to the raw engine, in alternating runs."""
    ratios, searches = [], []
    await _search(policy, settings, problems[:2])  # warms up the engine
    for _ in range(repeats):
        search = await _search(policy, settings, problems)
        raw = await _sample_whole_solutions(policy, problems, search.num_tokens)
        ratios.append(search.num_tokens / search.seconds / raw)
        searches.append(search)
    return ratios, searches


async def _search(
    policy: LoadedPolicy, settings: SearchSettings, problems: Sequence[Problem]
) -> TimedSearch:
    await policy.reset_cache()
    scorer = make_scorer(settings.scorer)
    await scorer.start()
    context = SearchContext(policy=policy, scorer=scorer, settings=settings)
    began, tokens_before = time.perf_counter(), policy.stats().num_sampled_tokens
    results = await asyncio.gather(
        *(search_problem(problem, context, priority=i) for i, problem in enumerate(problems))
    )
    seconds = time.perf_counter() - began
    num_tokens = sum(result.cost.num_sampled for result in results)
    scorer_seconds = getattr(scorer, "seconds", 0.0)
    await scorer.close()
    return TimedSearch(
        seconds=seconds,
        num_tokens=num_tokens,
        scorer_seconds=scorer_seconds,
        ledger_equal=policy.stats().num_sampled_tokens - tokens_before == num_tokens,
    )


async def _sample_whole_solutions(
    policy: LoadedPolicy, problems: Sequence[Problem], num_tokens: int
) -> float:
    """Return the tokens per second of whole solutions, all requested at once.

    Their number is chosen so that they have about `num_tokens` tokens.
    """
    await policy.reset_cache()
    prompts = [policy.prompt_ids(problem.text) for problem in problems]
    probe = await asyncio.gather(*(policy.sample(prompt, (), seed=0) for prompt in prompts))
    per_prompt = max(
        1, round(num_tokens / (sum(len(completion.ids) for completion in probe) + len(probe)))
    )
    await policy.reset_cache()
    async with watch(policy) as watched:
        await asyncio.gather(
            *(
                policy.sample(prompt, (), seed=seed)
                for prompt in prompts
                for seed in range(per_prompt)
            )
        )
    return watched.run(policy, 0).tokens_per_s


def _spread(ratios: Sequence[float]) -> list[float]:
    """Return the median, the minimum and the maximum."""
    return [round(ratio, 3) for ratio in (statistics.median(ratios), min(ratios), max(ratios))]


if __name__ == "__main__":
    main()
