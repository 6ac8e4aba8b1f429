"""Does search pay, and how fast is it beside the raw engine and beside other ways to search?

    python -m tests.benchmarks.search [--smoke | --quick]

Speed, all ways in turn on one loaded engine (vLLM where it is installed, else the embedded one):
policy tokens a second of beam search, relative to the raw engine that is given whole solutions all
at once, with a free scorer, and with a PRM in this process, whose own time is measured apart;
problems a second, relative to one problem at a time with a barrier at every level and a PRM that
reads from the first token, as search-and-learn does, and to a barrier over all problems together.

Accuracy on test problems of arith: every method at several widths, relative to best-of-N at equal
floating-point operations (the better of PRM-best and PRM-weighted vote), and with the truth as the
scorer. Nothing is chosen on the test problems. A PRM is trained first, from the bundled policy, on
labels of other problems. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.domains.arith.problems import generate
from mclabel.evaluate.search.job import SearchEvalConfig
from mclabel.search.config import SearchSettings
from tests.benchmarks.engine_common import LoadedPolicy, engine_name, loaded_policy, watch
from tests.benchmarks.figures import finish, numbers
from tests.benchmarks.runs import quickstart_prm
from tests.benchmarks.search_ways import Way, by_levels, together
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

BEAM = {"kind": "beam", "n": 16}
COMPLETERS = "completers=[{model: 'arith:strong', max_tokens: 200, temperature: 0.8}]"
"""Of the labels that the PRM is trained on."""

METHODS: dict[str, dict[str, Any]] = {
    "beam": {"width": 2},
    "dvts": {"width": 4, "every": 2},
    "rebase": {},
    "particle": {},
}
AT_64 = {"dvts": {"width": 8}}
"""Other settings of a method, as validation chose them for this width."""
CHOSEN = {4: "particle", 16: "dvts", 64: "dvts"}
"""By width, the method that was best on 300 validation problems."""
FROM_ZERO = "barrier, from the first token"
ONE_BY_ONE = "one by one, from the first token"


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    with tempfile.TemporaryDirectory() as folder:
        prm = quickstart_prm(Path(folder), size, COMPLETERS)
        finish(asyncio.run(_speed(prm, size)) | _accuracy(prm, Path(folder), size))


# Accuracy


def _accuracy(prm: Path, work: Path, size: BenchmarkSize) -> dict[str, Any]:
    """Methods at several widths beside best-of-N, on test problems."""
    widths = size.pick(smoke=(4,), quick=(4, 16), full=(4, 16, 64))
    methods = {
        f"{kind}-{n}": {"kind": kind, "n": n, **(AT_64.get(kind, more) if n == 64 else more)}
        for kind, more in list(METHODS.items())[: size.pick(smoke=2, quick=4, full=4)]
        for n in widths
    }
    keys = {
        "problems": {"source": "arith", "split": "test", "seed": 77},
        "policy": {"model": "arith:policy", "temperature": 0.8, "max_tokens": 200},
        "scorer": {"kind": "prm", "prm": str(prm)},
        "best_of_n": [2**power for power in range(max(widths).bit_length())],
        "methods": methods,
        "oracle": size is not BenchmarkSize.QUICK,
        "block_problems": 32,
        "out": str(work / "searches"),
    }
    limit = size.pick(smoke=1, quick=60, full=1000)
    given = [f"{key}={json.dumps(value)}" for key, value in keys.items()]
    more = [f"problems.limit={limit}", "policy.engine={kind: hf, max_live: 1024}"]
    config = load_config(SearchEvalConfig, None, [*given, *more])
    found = jobs.eval_search(config, lambda name, state: None).result
    rows: dict[str, dict[str, Any]] = {"accuracy": {}, "best_minus_best_of_n": {}, "oracle": {}}
    for one in found.methods:
        kind, budget = one.name.rsplit("-", 1)
        rows["oracle" if one.is_oracle else "accuracy"].setdefault(kind, {})[budget] = numbers(
            one.accuracy
        )
        if one.reference is not None and kind == CHOSEN[int(budget)]:
            rows["best_minus_best_of_n"][budget] = numbers(one.reference.less)
    rows["best_of_n"] = {
        str(point.size): {name: numbers(value) for name, value in point.accuracy.items()}
        for point in found.reference
    }
    return rows


# Speed


async def _speed(prm: Path, size: BenchmarkSize) -> dict[str, Any]:
    free = SearchSettings.model_validate({"search": BEAM, "scorer": "constant"})
    steered = SearchSettings.model_validate({"search": BEAM, "scorer": {"prm": str(prm)}})
    anew = SearchSettings.model_validate(
        {"search": BEAM, "scorer": {"prm": str(prm), "cache_gib": 1e-9}}
    )
    repeats = size.pick(smoke=1, quick=3, full=5)
    count = size.pick(smoke=2, quick=64, full=200)
    problems = generate(count, seed=6, split="test")
    async with loaded_policy("arith:policy", max_tokens=160) as policy:
        free_ratios, _ = await _beside_raw(policy, free, problems, repeats)
        with_prm, ways = await _beside_raw(policy, steered, problems, repeats)
        share = statistics.median(way.scorer_seconds / way.seconds for way in ways)
        few = size.pick(smoke=1, quick=8, full=24)
        some = problems[:few]
        ways_to_search: dict[str, Callable[[], Awaitable[Way]]] = {
            "together": lambda: together(policy, steered, problems),
            "barrier": lambda: by_levels(policy, steered, problems, at_a_time=count),
            FROM_ZERO: lambda: by_levels(policy, anew, problems, at_a_time=count),
            ONE_BY_ONE: lambda: by_levels(policy, anew, some, at_a_time=1),
        }
        ledger, compared = True, dict[str, list[Way]]()
        for _ in range(repeats):
            for name, search in ways_to_search.items():
                await policy.forget()
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
    """Policy tokens a second of searches, relative to whole solutions at once, in turn."""
    ratios, ways = [], []
    await together(policy, settings, problems[:2])  # warm
    for _ in range(repeats):
        await policy.forget()
        way = await together(policy, settings, problems)
        raw = await _whole(policy, problems, way.num_tokens)
        ratios.append(way.tokens_per_s / raw)
        ways.append(way)
    return ratios, ways


async def _whole(policy: LoadedPolicy, problems: Sequence[Any], num_tokens: int) -> float:
    """Tokens a second of whole solutions, asked for all at once, about as many tokens."""
    await policy.forget()
    prompts = [policy.prompt_ids(problem.text) for problem in problems]
    probe = await asyncio.gather(*(policy.sample(one, (), seed=0) for one in prompts))
    each = max(1, round(num_tokens / (sum(len(one.ids) for one in probe) + len(probe))))
    await policy.forget()
    async with watch(policy) as watched:
        await asyncio.gather(
            *(policy.sample(one, (), seed=seed) for one in prompts for seed in range(each))
        )
    return watched.run(policy, 0).tokens_per_s


def _times(ours: Sequence[Way], others: Sequence[Way]) -> float:
    pairs = zip(ours, others, strict=True)
    return round(statistics.median(a.problems_per_s / b.problems_per_s for a, b in pairs), 2)


def _spread(ratios: Sequence[float]) -> list[float]:
    """Median, least and most."""
    return [round(one, 3) for one in (statistics.median(ratios), min(ratios), max(ratios))]


if __name__ == "__main__":
    main()
