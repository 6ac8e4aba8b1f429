"""Train the policy of pyarith (short Python functions) from arith's strong model, on CPU.

    python -m jobs.train_pyarith strong --out build/code-strong
    python -m jobs.train_pyarith policy --out build/code-policy --start build/code-strong
    python -m jobs.train_pyarith card   --out build/code-policy

`strong` adds the tokens of code to arith's strong model, and trains it on right functions, a few of
them with loops and helper functions. The data also contain solutions of arith problems, so that
the model does not forget arith. `policy` is fine-tuned from `strong` on functions written under
arith's misconceptions. The training loop is that of `train_arith.py`. Copy `code-policy` to
mclabel/domains/pyarith/models/policy to bundle it; `strong` is not bundled. On two busy cores
`strong` takes 45 minutes and `policy` four minutes.
"""

from __future__ import annotations

import argparse
import itertools
import random
from pathlib import Path
from typing import Any, cast

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from jobs.train_arith import (
    CHUNK,
    MAX_TOKENS,
    Course,
    Document,
    add_settings,
    make_document,
    run_course,
    write_card,
)
from mclabel.core.records import Problem
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate_problems as generate_arith
from mclabel.domains.arith.program import Program, write_reference_solution
from mclabel.domains.arith.tokenizer import build_tokenizer
from mclabel.domains.arith.verify import StepTruth
from mclabel.domains.pyarith.interpreter import run_solve
from mclabel.domains.pyarith.problems import Function, generate_problems, stream_stories
from mclabel.domains.pyarith.solutions import SolutionVerifier, write_solution
from mclabel.engines.pretrained import load_model, load_tokenizer

STEPS = {"strong": 3000, "policy": 250}
MUON_LR = {"strong": 0.012, "policy": 0.003}
ARITH_SHARE = 0.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["strong", "policy", "card"])
    parser.add_argument("--out", type=Path, required=True, help="model folder")
    parser.add_argument("--start", type=Path, default=bundled_model("strong"))
    add_settings(parser)
    args = parser.parse_args()
    if args.task == "card":
        write_card(args.out, INTRODUCTION, generate=generate_problems, judge=judge_completion)
        return
    args.steps = args.steps or STEPS[args.task]
    rate = MUON_LR[args.task]
    run_course(
        args,
        Course(
            start=load_start_model,
            make_documents=make_documents,
            measure=measure_greedy_pass_rate,
            rate=rate,
        ),
    )


def load_start_model(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """Load the start model, and add embeddings for the tokens of code if they are missing."""
    start = {"model": args.start, "trust_remote_code": False, "key": "--start"}
    model = cast(LlamaForCausalLM, load_model(LlamaForCausalLM, **start, dtype=torch.float32))
    known = load_tokenizer(**start)
    told = itertools.islice(stream_stories(0, "train"), 20_000)
    rng = random.Random(0)
    texts = (
        f"{text}\n{write_solution(function, rng=rng, varies_forms=True).text}"
        for text, function in told
    )
    tokenizer = build_tokenizer(
        texts, base_vocabulary=known.convert_ids_to_tokens(list(range(len(known))))
    )
    if len(tokenizer) > len(known):
        add_token_embeddings(model, known, tokenizer)
    return model, tokenizer


def add_token_embeddings(
    model: LlamaForCausalLM, known: PreTrainedTokenizerBase, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Add embeddings for new tokens.

    A new token that differs from a known one only in case, such as `ada` and `Ada`, starts near its
    embedding. So the model can copy names from the start.
    """
    old = _get_embedding_weights(model).detach()[: len(known)].clone()
    words: dict[str, list[int]] = {}
    for word, i in known.get_vocab().items():
        words.setdefault(word.removeprefix("Ġ").lower(), []).append(i)
    model.resize_token_embeddings(-(-len(tokenizer) // 16) * 16, mean_resizing=False)
    rows = _get_embedding_weights(model)
    with torch.no_grad():
        rows[len(known) :] = old.mean(0) + 0.5 * old.std(0) * torch.randn_like(rows[len(known) :])
        for word, i in tokenizer.get_vocab().items():
            same = words.get(word.removeprefix("Ġ").lower())
            if i >= len(known) and same and len(word) > 2:
                noise = torch.randn_like(rows[i])
                rows[i] = old[same].mean(0) + 0.1 * old.std(0) * noise


def _get_embedding_weights(model: LlamaForCausalLM) -> torch.Tensor:
    return cast(torch.nn.Embedding, model.get_input_embeddings()).weight


def make_documents(
    args: argparse.Namespace, tokenizer: PreTrainedTokenizerBase, seed: int, rng: random.Random
) -> list[Document]:
    """Make functions of pyarith, and right solutions of arith problems.

    For `policy`, misconceptions change the functions.
    """
    num_arith = round(CHUNK * ARITH_SHARE)
    strength = args.strength if args.task == "policy" else 0.0
    made = [
        make_document(
            tokenizer,
            text,
            write_solution(function, rng=rng, varies_forms=True, strength=strength).text,
        )
        for text, function in itertools.islice(stream_stories(seed, "train"), CHUNK - num_arith)
    ]
    for problem in generate_arith(num_arith, seed=seed, split="train"):
        solution = write_reference_solution(Program.from_json(problem.meta["program"]))
        made.append(make_document(tokenizer, problem.text, solution))
    return made


def judge_completion(problem: Problem, text: str) -> tuple[bool, str]:
    """Return whether a text passes the hidden tests, and the kind of its first wrong line."""
    truths = SolutionVerifier(Function.from_json(problem.meta["function"])).verify(
        text.splitlines(True)
    )
    kind = str(truths[-1]) if truths and truths[-1] is not StepTruth.RIGHT else "none"
    return passes_hidden_tests(problem, text), kind


def passes_hidden_tests(problem: Problem, text: str) -> bool:
    """Return whether a text gives the outputs that the hidden tests expect."""
    return run_solve(text, problem.gold["inputs"]) == tuple(problem.gold["outputs"])


@torch.no_grad()
def measure_greedy_pass_rate(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, count: int = 64
) -> float:
    """Return the share of validation problems whose greedy completion passes the hidden tests."""
    problems = generate_problems(count, seed=0, split="validation")
    prompts = [tokenizer(p.text + "\n")["input_ids"] for p in problems]
    width = max(map(len, prompts))
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    made = (
        cast(Any, model)
        .generate(input_ids=ids, attention_mask=mask, max_new_tokens=MAX_TOKENS, do_sample=False)[
            :, width:
        ]
        .tolist()
    )
    texts = [str(tokenizer.decode(list(itertools.takewhile(lambda t: t != end, m)))) for m in made]
    return sum(map(passes_hidden_tests, problems, texts)) / count


INTRODUCTION = """# pyarith policy

A tiny language model for mclabel's built-in domain of Python functions, trained from arith's strong
model on generated text by `jobs/train_pyarith.py`. It was fine-tuned on functions written under
misconceptions (a wrong operand, a flipped operation, a skipped step). It misunderstands a few kinds
of events in most cases, and all other kinds seldom. So its errors are intended, consistent, and
mostly errors of logic. It still solves problems of arith. A solution is right if it passes the
hidden tests."""


if __name__ == "__main__":
    main()
