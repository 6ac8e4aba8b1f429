"""How much of the engine's own speed a labelling job reaches.

    python -m tests.benchmarks.engine_efficiency [--smoke | --quick]

One loaded engine (vLLM on this CPU where it is installed, else hf) is driven three times in turn
by a labelling job and flat: every completion that the job asked for is given to the engine at
once, nothing is decided, graded or written. Both begin with an empty prefix cache. The ratio is
of output tokens a second, each in seconds from the first request to the last completion, for the
job up to the last shard. `ratio_50m`: a Llama of 50M random weights, whose completions seldom
end by themselves and are cut after 24 tokens; `ratio_1m`: the bundled policy, of which a step
takes so little that everything around it shows. --quick measures the bundled one alone.
`share_under_256_live`: of the job's time, its beginning and end included. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
from pathlib import Path

from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate
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
        "share_under_256_live": round(_under(large or small), 3),
        "share_under_256_live_1m": round(_under(small), 3),
        "loop_lag_s": round(max(job.loop_lag_s for job in small[0]), 3),
        "engine": engine_name(),
    }
    finish(result)


Pairs = tuple[list[Run], list[Run]]


async def _compare(
    model: str, num_problems: int, repeats: int, *, rollouts: int, max_tokens: int = 200
) -> Pairs:
    """Jobs and flat runs, in turn."""
    problems = generate(num_problems, seed=3, split="test")
    async with loaded_policy(model, max_tokens=max_tokens) as policy:
        await label_job(policy, problems[:16], kind="fixed", rollouts=1)  # warm
        jobs, flats = [], []
        for _ in range(repeats):
            jobs.append(await label_job(policy, problems, kind="fixed", rollouts=rollouts))
            flats.append(await _flat(policy))
    return jobs, flats


async def _flat(policy: LoadedPolicy) -> Run:
    """What the job before has asked for, all at once."""
    asked = policy.asked
    await policy.forget()
    async with watch(policy) as watched:
        await asyncio.gather(
            *(policy.sample(prompt, prefix, seed=seed) for prompt, prefix, seed in asked)
        )
    return watched.run(policy, 0)


def _ratios(pairs: Pairs) -> list[float]:
    """Median, least and most."""
    found = [job.tokens_per_s / flat.tokens_per_s for job, flat in zip(*pairs, strict=True)]
    return [round(one, 3) for one in (statistics.median(found), min(found), max(found))]


def _under(pairs: Pairs) -> float:
    return statistics.median(job.share_under_full for job in pairs[0])


def random_model(folder: Path) -> None:
    """A Llama of 50M random weights under the bundled tokenizer."""
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
