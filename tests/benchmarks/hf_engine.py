"""Speed of the embedded engine: tokens a second of two processes of one thread each.

    python -m tests.benchmarks.hf_engine [--smoke | --quick]

Rolls out every step prefix of reference solutions 16 times with the bundled policy, in as many
processes as there are cores, beside transformers' own `generate` given the same prefixes in
batches, three times each in turn. The last line is JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import time

from tests.benchmarks.sizes import BenchmarkSize, SizedParser

ROLLOUTS = 16
MAX_TOKENS = 200


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    cores = os.cpu_count() or 1
    problems = size.pick(smoke=1, quick=6, full=24)
    rollouts = size.pick(smoke=2, quick=ROLLOUTS, full=ROLLOUTS)
    ours, theirs = [], []
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        for repeat in range(size.pick(smoke=1, quick=3, full=3)):
            seeds = [100 * repeat + core for core in range(cores)]
            ours.append(sum(pool.starmap(_ours, [(problems, rollouts, s) for s in seeds])))
            few = max(1, problems // 6)
            theirs.append(sum(pool.starmap(_generate, [(few, rollouts, s) for s in seeds])))
            print(f"round {repeat}: hf engine {ours[-1]:,.0f} tokens/s, generate {theirs[-1]:,.0f}")
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(
        json.dumps(
            {
                "processes": cores,
                "tokens_per_s": [min(ours), statistics.median(ours), max(ours)],
                "generate_tokens_per_s": [min(theirs), statistics.median(theirs), max(theirs)],
                "ratio_to_generate": [min(ratios), statistics.median(ratios), max(ratios)],
            }
        )
    )


def _prefixes(count: int, seed: int) -> list[tuple[int, ...]]:
    from mclabel.domains.arith import bundled_model
    from mclabel.domains.arith.problems import generate
    from mclabel.domains.arith.program import Program, reference_solution
    from mclabel.engines.text import PolicyText

    text = PolicyText.load(str(bundled_model("policy")), revision=None, template=None, system=None)
    prefixes = []
    for problem in generate(count, seed=seed, split="test"):
        lines = reference_solution(Program.from_json(problem.meta["program"])).splitlines(True)
        prompt = text.prompt_ids(problem.text)
        prefixes += [prompt + text.encode("".join(lines[:n])) for n in range(1, len(lines))]
    return prefixes


def _ours(count: int, rollouts: int, seed: int) -> float:
    """Tokens a second of one process, loading not counted."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from mclabel.domains.arith import bundled_model
    from mclabel.engines.cascade import ATTENTION, Row
    from mclabel.engines.decoder import SharedPrefixDecoder

    torch.set_num_threads(1)
    folder = bundled_model("policy")
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=ATTENTION
    )
    end = AutoTokenizer.from_pretrained(folder).eos_token_id
    engine = SharedPrefixDecoder(model, end_ids=[end], temperature=0.8, max_live=1024)
    waiting = [
        Row(context=prefix, max_tokens=MAX_TOKENS, seed=seed * 10**6 + number)
        for number, prefix in enumerate(p for p in _prefixes(count, seed) for _ in range(rollouts))
    ]
    waiting.reverse()
    started = time.perf_counter()
    while waiting or engine.num_live:
        while waiting and engine.admit(waiting[-1], (row.context for row in waiting[-512:])):
            waiting.pop()
        engine.step()
    return engine.num_sampled_tokens / (time.perf_counter() - started)


def _generate(count: int, rollouts: int, seed: int) -> float:
    """The same with transformers' generate: 16 prefixes at a time, 16 sequences of each."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from mclabel.domains.arith import bundled_model

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    folder = bundled_model("policy")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    prefixes = _prefixes(count, seed)
    tokens = 0
    started = time.perf_counter()
    for start in range(0, len(prefixes), 16):
        batch = tokenizer.pad(
            {"input_ids": [list(p) for p in prefixes[start : start + 16]]}, return_tensors="pt"
        )
        with torch.inference_mode():
            out = model.generate(  # type: ignore[misc]
                **batch,
                do_sample=True,
                temperature=0.8,
                top_k=0,
                max_new_tokens=MAX_TOKENS,
                num_return_sequences=rollouts,
                pad_token_id=tokenizer.pad_token_id,
            )
        tokens += int((out[:, batch["input_ids"].shape[1] :] != tokenizer.pad_token_id).sum())
    return tokens / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
