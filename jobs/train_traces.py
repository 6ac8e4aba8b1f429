r"""Train the policy that thinks aloud and corrects itself, from arith's policy, on CPU.

    python -m jobs.train_traces train --out build/first
    python -m jobs.train_traces train --out build/reflective --start build/first --steps 300 \
        --rate 0.003 --processes 2 --seed 1
    python -m jobs.train_traces card --out build/reflective

`train` adds the tokens of traces to arith's policy, and trains it on traces that
`mclabel.domains.arith.misconceptions.write_trace` writes. The second command continues the training
at half the learning rate. The training loop is that of `train_arith.py`. `card` samples test
problems and writes the model card. Copy the folder to mclabel/domains/arith/models to bundle it. On
two busy cores the training takes half an hour and `card` a minute. The loss still falls at the end,
so more steps would give a model with fewer errors.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast, get_args

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from jobs.train_arith import (
    CHUNK,
    Course,
    Document,
    add_settings,
    make_document,
    make_drill_document,
    run_course,
    sample_completions,
)
from jobs.train_pyarith import add_token_embeddings
from mclabel.answers import grade_completion
from mclabel.core.records import Problem, StepState, Verdict
from mclabel.core.stats.values import clopper_pearson
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.misconceptions import write_trace
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.arith.program import Program
from mclabel.domains.arith.tokenizer import build_tokenizer
from mclabel.domains.arith.verify import (
    SILENT_LINES,
    read_answer,
    read_commitment,
    read_statement,
    verify_trace_states,
)
from mclabel.engines.pretrained import load_model, load_tokenizer

STEPS, MUON_LR = 1200, 0.006
BATCH = 8
"""Documents per optimizer step. Traces are long, and one core can afford only few updates."""
DRILLS = 1 / 20
"""Share of drills in the documents."""
NUM_STEPS = (6, 10)
"""Range of the number of steps of the training problems. Shorter problems leave little to check."""
CARD_STEPS = ((4, 7), (6, 10))
"""Ranges of the number of steps of the test problems for the card."""
MAX_TOKENS = 850
"""Maximum tokens of a sampled trace. The model's context of 1,024 tokens includes the problem."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["train", "card"])
    parser.add_argument("--out", type=Path, required=True, help="model folder")
    parser.add_argument("--start", type=Path, default=bundled_model("policy"))
    parser.add_argument(
        "--answer-rate", type=float, default=1.0, help="rate of intermediate answers"
    )
    parser.add_argument("--rate", type=float, default=MUON_LR, help="learning rate of Muon")
    add_settings(parser)
    parser.set_defaults(batch=BATCH, processes=1)
    args = parser.parse_args()
    if args.task == "card":
        write_card(args)
        return
    args.steps = args.steps or STEPS
    course = Course(
        start=load_start_model,
        make_documents=make_documents,
        measure=measure_greedy_token_accuracy,
        rate=args.rate,
        every=100,
    )
    run_course(args, course)


def load_start_model(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """Load the start model, and add embeddings for the words of traces if they are missing."""
    start = {"model": args.start, "trust_remote_code": False, "key": "--start"}
    model = cast(LlamaForCausalLM, load_model(LlamaForCausalLM, **start, dtype=torch.float32))
    known = load_tokenizer(**start)
    texts = (text for _, text in generate_traces(2000, 0, args, random.Random(0)))
    tokenizer = build_tokenizer(
        texts, base_vocabulary=known.convert_ids_to_tokens(list(range(len(known))))
    )
    if len(tokenizer) > len(known):
        add_token_embeddings(model, known, tokenizer)
    return model, tokenizer


def generate_traces(
    count: int, seed: int, args: argparse.Namespace, rng: random.Random
) -> Iterable[tuple[Problem, str]]:
    """Yield training problems, each with a trace."""
    for problem in generate_problems(count, seed=seed, split="train", num_steps=NUM_STEPS):
        yield (
            problem,
            write_trace(
                Program.from_json(problem.meta["program"]),
                problem.text,
                rng=rng,
                strength=args.strength,
                answer_rate=args.answer_rate,
            ),
        )


def make_documents(
    args: argparse.Namespace, tokenizer: PreTrainedTokenizerBase, seed: int, rng: random.Random
) -> list[Document]:
    """Make traces and drills."""
    num_drills = round(CHUNK * DRILLS)
    made = [make_drill_document(rng, tokenizer) for _ in range(num_drills)]
    for problem, text in generate_traces(CHUNK - num_drills, seed, args, rng):
        one = make_document(tokenizer, problem.text, text)
        if len(one[0]) <= tokenizer.model_max_length:
            made.append(one)
    return made


@torch.no_grad()
def measure_greedy_token_accuracy(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, count: int = 40
) -> float:
    """Return the share of tokens in validation traces that are the model's greedy choice."""
    rng, right, total = random.Random(0), 0, 0
    for problem in generate_problems(count, seed=0, split="validation", num_steps=NUM_STEPS):
        program = Program.from_json(problem.meta["program"])
        text = write_trace(program, problem.text, rng=rng, strength=1.0)
        ids, labels = make_document(tokenizer, problem.text, text)
        logits = model(torch.tensor([ids]), use_cache=False).logits[0]
        same = logits[:-1].argmax(-1) == torch.tensor(labels[1:])
        right, total = right + int(same.sum()), total + sum(one >= 0 for one in labels)
    return round(right / total, 4)


def write_card(args: argparse.Namespace) -> None:
    """Measure a model's traces beside generated traces of the same problems, and write its card."""
    rows = {}
    for low, high in CARD_STEPS:
        problems = generate_problems(100, seed=99, split="test", num_steps=(low, high))
        rng = random.Random(99)
        written = []
        for problem in problems * 4:
            program = Program.from_json(problem.meta["program"])
            text = write_trace(program, problem.text, rng=rng, strength=args.strength)
            written.append((problem, text))
        rows[f"{low} to {high}, sampled"] = _compute_trace_figures(
            asyncio.run(sample_completions(args.out, problems, 0.8, MAX_TOKENS))
        )
        rows[f"{low} to {high}, generated like its training data"] = _compute_trace_figures(written)
    head = " | ".join(("steps of the problem", *FIGURES))
    table = "\n".join(f"| {name} | {' | '.join(found)} |" for name, found in rows.items())
    card = CARD.format(head=head, line="|---" * (len(FIGURES) + 1) + "|", table=table)
    (args.out / "README.md").write_text(card)
    print(card)


FIGURES = (
    "pass@1 [95%]",
    "with an error",
    "errors repaired",
    "first errors repaired",
    "lines",
    "intermediate answers",
    "sound / error / carried / recovered",
    "no statement",
    "right by luck",
)


def _compute_trace_figures(traces: Sequence[tuple[Problem, str]]) -> tuple[str, ...]:
    states: Counter[str] = Counter()
    right: list[bool] = []
    with_error: list[bool] = []
    mended: list[bool] = []
    answers = steps = nonsense = lucky = 0
    for problem, text in traces:
        program = Program.from_json(problem.meta["program"])
        lines = [line for line in text.split("\n") if line.strip() not in SILENT_LINES]
        found = verify_trace_states(program, lines)
        states.update(found)
        right.append(grade_completion(text, problem.answer)[1].verdict is Verdict.RIGHT)
        with_error.append("error" in found)
        mended += ["recovered" in found] if with_error[-1] else []
        lucky += right[-1] and bool(found) and found[-1] in ("error", "carried")
        steps += len(lines)
        for line in lines:
            said = read_commitment(line)
            answers += said is not None
            if said is None and read_answer(line) is None and read_statement(line) is None:
                nonsense += 1
    low, high = clopper_pearson(sum(right), len(right))
    shares = [f"{states[s] / states.total():.3f}" for s in get_args(StepState)]
    return (
        f"{sum(right) / len(right):.3f} [{low:.3f}, {high:.3f}]",
        f"{sum(with_error) / len(with_error):.2f}",
        f"{states['recovered'] / max(1, states['error']):.2f}",
        f"{sum(mended) / max(1, len(mended)):.2f}",
        f"{steps / len(traces):.1f}",
        f"{answers / len(traces):.2f}",
        " / ".join(shares),
        f"{nonsense / steps:.4f}",
        f"{lucky / max(1, sum(right)):.3f}",
    )


CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# arith reflective

A tiny language model for mclabel's built-in domain of multi-step word problems, trained from
`arith:policy` by `jobs/train_traces.py`, on traces written by
`mclabel.domains.arith.misconceptions`. It thinks aloud before it answers: it misreads events,
states intermediate answers, checks steps, and repairs some of its errors.

The model is a Llama of width 128 with 6 layers in bfloat16. It was trained only on this domain.

| {head} |
{line}
{table}

Each row is measured on 100 test problems that are not in the training data, with four traces per
problem at temperature 0.8 and with at most 850 tokens. States of steps are exact
(`mclabel.domains.arith.verify`). "no statement" is the share of lines that state nothing. "right by
luck" is the share of right answers whose last step is an error or depends on one.
"""


if __name__ == "__main__":
    main()
