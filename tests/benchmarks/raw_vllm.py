"""CPU cost of a labelling job compared with `vllm.LLM.generate` for the same requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import psutil

from mclabel.data.readers.generated import WordsReader
from mclabel.engines.hub import resolve_model
from mclabel.engines.vllm import CPU_BLOCK
from tests.benchmarks.engine_common import label_job, loaded_policy

MAX_LIVE, MAX_TOKENS, MAX_MODEL_LEN = 128, 200, 512


def ratios_to_raw(num_problems: int, *, alternations: int, rollouts: int) -> list[float]:
    """Return vLLM's own CPU-seconds per token divided by the job's, one ratio per alternation.

    The job labels word problems by `fixed` with `smollm2:words`: it decides, grades and writes
    shards. Then `LLM.generate` gets all of the job's requests at once, as token ids, with the same
    limits and seeds. It does not decode its output. Both engines stay loaded in child processes,
    whose CPU time counts; one is idle while the other computes.
    """
    return asyncio.run(_alternate_runs(num_problems, alternations, rollouts))


async def _alternate_runs(num_problems: int, alternations: int, rollouts: int) -> list[float]:
    folder = resolve_model("smollm2:words")
    settings = WordsReader.Settings(limit=num_problems)
    problems = [problem for _, problem in WordsReader(settings).rows()]
    ratios = []
    async with loaded_policy(folder, max_tokens=MAX_TOKENS, max_live=MAX_LIVE) as policy:
        raw = _raw_engine(folder)
        await label_job(policy, problems[:4], kind="fixed", rollouts=1)  # warms up the engine
        for _ in range(alternations):
            began = _cpu_s()
            await label_job(policy, problems, kind="fixed", rollouts=rollouts)
            job = (_cpu_s() - began) / policy.num_tokens
            raw.reset_prefix_cache()
            began = _cpu_s()
            num_tokens = _generate(raw, policy.requests)
            ratios.append((_cpu_s() - began) / num_tokens / job)
        raw.llm_engine.engine_core.shutdown()
    return ratios


def _raw_engine(folder: str) -> Any:
    """Load vLLM with the settings that `loaded_policy` gives it."""
    from vllm import LLM

    return LLM(
        model=folder,
        dtype="float32",
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=MAX_LIVE,
        kv_cache_memory_bytes=2 * 2**30,
        enforce_eager=True,
        enable_chunked_prefill=False,  # a prefill in two steps kills the seeded CPU engine
        block_size=CPU_BLOCK,
    )


def _generate(raw: Any, requests: Sequence[tuple[Sequence[int], Sequence[int], int]]) -> int:
    """Sample these requests with vLLM; return the number of sampled tokens."""
    from vllm import SamplingParams

    outputs = raw.generate(
        [{"prompt_token_ids": [*prompt, *prefix]} for prompt, prefix, _ in requests],
        [
            SamplingParams(
                temperature=0.8,
                max_tokens=MAX_TOKENS - len(prefix),
                seed=seed,
                detokenize=False,
            )
            for _, prefix, seed in requests
        ],
        use_tqdm=False,
    )
    return sum(len(output.outputs[0].token_ids) for output in outputs)


def _cpu_s() -> float:
    """Return the CPU-seconds of this process and of all processes that it started."""
    this_process = psutil.Process()
    times = [
        process.cpu_times() for process in (this_process, *this_process.children(recursive=True))
    ]
    return sum(used.user + used.system for used in times)
