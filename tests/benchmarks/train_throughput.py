"""Compare the training throughput with TRL's `PRMTrainer`: same model, labels, batch, machine.

    python -m tests.benchmarks.train_throughput [--smoke | --quick]

The solutions have a realistic spread of lengths: they are arith solutions, some repeated many times
in one text. Each trainer has one thread and float32. The figures are medians of three runs, each in
a separate process, with the trainers in turn. Throughput counts tokens of text without padding. The
last line is JSON. The benchmark needs TRL before 1.13, which removed its trainer.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from mclabel import jobs
from mclabel.core.records import LabeledSolution, Step
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser, need
from tests.support.labelled import arith_rows, arith_text, write_run

MODEL = {
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 768,
    "max_position_embeddings": 4096,
}
BATCH = 8


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--one", choices=["ours", "trl"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.read()
    if args.one:
        print(json.dumps((_ours if args.one == "ours" else _trl)(args.folder)))
        return
    need("trl", remedy="pip install 'trl>=1.0,<1.13'")
    size: BenchmarkSize = args.size
    runs: dict[str, list[dict[str, float]]] = {"ours": [], "trl": []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _prepare(folder, size.pick(smoke=4, quick=64, full=320))
        for _ in range(size.pick(smoke=1, quick=1, full=3)):
            for name, found in runs.items():
                found.append(_in_process(name, folder))
                print(name, found[-1], flush=True)
    speed = {n: statistics.median(r["tokens_per_s"] for r in found) for n, found in runs.items()}
    memory = {n: statistics.median(r["peak_mib"] for r in found) for n, found in runs.items()}
    figures = {
        "ratio_to_trl": round(speed["ours"] / speed["trl"], 3),
        "memory_ratio": round(memory["ours"] / memory["trl"], 3),
        "tokens_per_s": {n: round(s) for n, s in speed.items()},
        "peak_mib": {n: round(m) for n, m in memory.items()},
        "runs": {n: {str(i): run for i, run in enumerate(found)} for n, found in runs.items()},
    }
    finish(figures)


def _prepare(folder: Path, count: int) -> None:
    """Write the labels, their export for TRL, and a base model."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from mclabel.domains.arith import bundled_model

    tokenizer = AutoTokenizer.from_pretrained(bundled_model("strong"))
    config = LlamaConfig.from_dict({**MODEL, "vocab_size": len(tokenizer)})
    LlamaForCausalLM(config).save_pretrained(folder / "base")
    tokenizer.save_pretrained(folder / "base")
    rng = random.Random(0)
    # The number of repeats is log-normal, which gives lengths of about 130 to 1,500 tokens.
    rows = [
        _repeat(row, min(20, int(rng.lognormvariate(0.9, 0.9)) + 1)) for row in arith_rows(count)
    ]
    run = write_run(folder / "labels", rows)
    jobs.export_run(run, "trl", str(folder / "trl"))


def _repeat(row: LabeledSolution, times: int) -> LabeledSolution:
    solution, length = row.solution, len(row.solution.ids)
    text = solution.text if solution.text.endswith("\n") else solution.text + "\n"
    ids = arith_text().encode(text)
    steps = [*solution.steps[:-1], Step(text=solution.steps[-1].text, end=length)]
    if text != solution.text:
        steps[-1] = Step(text=steps[-1].text + "\n", end=len(ids))
    many = tuple(
        Step(text=step.text, end=step.end + turn * len(ids))
        for turn in range(times)
        for step in steps
    )
    return replace(
        row,
        solution=replace(solution, text=text * times, ids=ids * times, steps=many),
        steps=row.steps * times,
    )


def _in_process(name: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.train_throughput"]
    command += ["--one", name, "--folder", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _figures(num_tokens: int, train: Callable[[], Any]) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    started = time.perf_counter()
    train()
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"tokens_per_s": num_tokens / seconds, "peak_mib": peak, "seconds": seconds}


def _ours(folder: Path) -> dict[str, float]:
    from mclabel.engines.text import PolicyText
    from mclabel.prm.examples.build import ExampleSettings, make_examples
    from mclabel.prm.examples.encode import StepEncoder
    from mclabel.prm.model.network import start_step_model
    from mclabel.prm.model.settings import ModelSettings
    from mclabel.prm.training.settings import TrainerSettings
    from mclabel.prm.training.trainer import train_step_model

    base = str(folder / "base")
    text = PolicyText.load(base, revision=None, template="{problem}", system=None)
    encoder = StepEncoder(text, step_id=text.token_id("<|step|>"), max_tokens=4096)
    rows = read_labels(Store(str(folder / "labels")))
    examples = make_examples(rows, encoder, ExampleSettings(target="hard", validation=0.0)).train
    model = start_step_model(ModelSettings(base=base, head="token"))
    settings = TrainerSettings(
        epochs=1, batch_size=BATCH, backbone_lr=1e-5, head_lr=1e-5, save_steps=10**6
    )
    with tempfile.TemporaryDirectory() as out:
        return _figures(
            sum(examples.lengths),
            lambda: train_step_model(model, examples, [], Path(out), settings=settings),
        )


def _trl(folder: Path) -> dict[str, float]:
    from datasets import load_dataset
    from transformers import AutoModelForTokenClassification, AutoTokenizer
    from trl.experimental.prm import PRMConfig, PRMTrainer

    base = str(folder / "base")
    data = load_dataset(
        "json", data_files=str(folder / "trl/data.jsonl"), cache_dir=str(folder / "cache")
    )["train"]
    with tempfile.TemporaryDirectory() as out:
        trainer = PRMTrainer(
            model=AutoModelForTokenClassification.from_pretrained(base, num_labels=2),
            args=PRMConfig(
                output_dir=out,
                num_train_epochs=1,
                per_device_train_batch_size=BATCH,
                max_length=4096,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to=[],
                save_strategy="no",
                learning_rate=1e-5,
                disable_tqdm=True,
            ),
            train_dataset=data,
            processing_class=AutoTokenizer.from_pretrained(base),
        )
        num_tokens = sum(len(row) for row in trainer.train_dataset["input_ids"])  # type: ignore[index,misc]
        return _figures(num_tokens, trainer.train)


if __name__ == "__main__":
    main()
