"""Measure which share of the engine's own speed a labelling job reaches.

    python -m tests.benchmarks.engine_efficiency [--smoke | --quick]

One loaded engine (vLLM on this CPU if it is installed, otherwise hf) is driven three times, in
turn, by a labelling job and by a flat run. The flat run submits every completion that the job
requested at once, without any decisions, grading or writing. Both begin with an empty prefix cache.
The ratio compares output tokens per second. The time runs from the first request to the last
completion, and for the job to the last shard. `ratio_50m` is for a Llama of 50M random weights,
whose completions are cut after 24 tokens and seldom end earlier. `ratio_1m` is for the bundled
policy, whose decoding steps are so fast that all overhead shows. `--quick` measures only the
bundled policy. `share_under_256_live` is a share of the job's whole time, including its beginning
and end. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
from pathlib import Path

from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate_problems
from tests.benchmarks.engine_common import (
    LoadedPolicy,
    Run,
    engine_name,
    label_job,
    loaded_policy,
    watch,
)
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

REPEATS = 3


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    repeats = size.pick(smoke=1, quick=REPEATS, full=REPEATS)
    count = size.pick(smoke=2, quick=96, full=200)
    bundled = str(bundled_model("policy"))
    small = asyncio.run(_compare(bundled, count, repeats, rollouts=4))
    large = None
    if size is not BenchmarkSize.QUICK:
        count = 2 if size is BenchmarkSize.SMOKE else 480
        with tempfile.TemporaryDirectory(prefix="mclabel-50m-") as folder:
            random_model(Path(folder))
            large = asyncio.run(_compare(folder, count, repeats, rollouts=2, max_tokens=24))
    result = {
        "ratio_50m": None if large is None else _ratios(large),
        "ratio_1m": _ratios(small),
        "share_under_256_live": round(_median_share_under_full(large or small), 3),
        "share_under_256_live_1m": round(_median_share_under_full(small), 3),
        "loop_lag_s": round(max(job.loop_lag_s for job in small[0]), 3),
        "engine": engine_name(),
    }
    finish(result)


Pairs = tuple[list[Run], list[Run]]


async def _compare(
    model: str, num_problems: int, repeats: int, *, rollouts: int, max_tokens: int = 200
) -> Pairs:
    """Run jobs and flat runs in turn."""
    problems = generate_problems(num_problems, seed=3, split="test")
    async with loaded_policy(model, max_tokens=max_tokens) as policy:
        await label_job(policy, problems[:16], kind="fixed", rollouts=1)  # warms up the engine
        jobs, flats = [], []
        for _ in range(repeats):
            jobs.append(await label_job(policy, problems, kind="fixed", rollouts=rollouts))
            flats.append(await _submit_at_once(policy))
    return jobs, flats


async def _submit_at_once(policy: LoadedPolicy) -> Run:
    """Submit all completions that the previous job requested at once."""
    requests = policy.requests
    await policy.reset_cache()
    async with watch(policy) as watched:
        await asyncio.gather(
            *(policy.sample(prompt, prefix, seed=seed) for prompt, prefix, seed in requests)
        )
    return watched.run(policy, 0)


def _ratios(pairs: Pairs) -> list[float]:
    """Return the median, the minimum and the maximum of the speed ratios."""
    ratios = [job.tokens_per_s / flat.tokens_per_s for job, flat in zip(*pairs, strict=True)]
    return [round(ratio, 3) for ratio in (statistics.median(ratios), min(ratios), max(ratios))]


def _median_share_under_full(pairs: Pairs) -> float:
    return statistics.median(job.share_under_full for job in pairs[0])


def random_model(folder: Path) -> None:
    """Save a Llama of 50M random weights with the bundled tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    source = bundled_model("policy")
    for file in source.iterdir():
        if file.suffix == ".json" or file.suffix == ".jinja":
            shutil.copy(file, folder)
    torch.manual_seed(0)
    config = LlamaConfig.from_pretrained(source)
    config.hidden_size, config.intermediate_size = 768, 2048
    config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads = 7, 12, 12
    config.head_dim = 64
    model = LlamaForCausalLM(config)
    assert sum(weight.numel() for weight in model.parameters()) >= 49e6
    model.save_pretrained(folder)


if __name__ == "__main__":
    main()
