"""Train the policy of pyarith, functions in Python, from arith's strong model, on CPU.

    python jobs/train_pyarith.py strong --out build/code-strong
    python jobs/train_pyarith.py policy --out build/code-policy --start build/code-strong
    python jobs/train_pyarith.py card   --out build/code-policy

`strong` gives arith's strong model the tokens of code and learns right functions, a few of them
with loops and helpers, and some of arith's solutions, so that it forgets nothing. `policy` is
fine-tuned from it on functions written under arith's misconceptions. The loop is that of
`train_arith.py`. Copy `code-policy` to mclabel/pyarith/models/policy to bundle it; `strong` is not
bundled.
"""

from __future__ import annotations

import argparse
import itertools
import random
from pathlib import Path
from typing import cast

import torch
from train_arith import CHUNK, Course, Document, add_settings, document, run_course
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from mclabel.arith import bundled_model
from mclabel.arith.problems import generate as generate_arith
from mclabel.arith.program import Program, reference_solution
from mclabel.arith.tokenizer import build_tokenizer
from mclabel.engines.pretrained import load_model, load_tokenizer
from mclabel.pyarith.interpreter import run
from mclabel.pyarith.problems import generate, stories
from mclabel.pyarith.solutions import write
from mclabel.records import Problem

STEPS = {"strong": 800, "policy": 250}
MUON_LR = {"strong": 0.012, "policy": 0.003}
ARITH_SHARE = 0.15
MAX_NEW_TOKENS = 240


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["strong", "policy", "card"])
    parser.add_argument("--out", type=Path, required=True, help="model folder")
    parser.add_argument("--start", type=Path, default=bundled_model("strong"))
    add_settings(parser)
    args = parser.parse_args()
    args.steps = args.steps or STEPS[args.task]
    rate = MUON_LR[args.task]
    run_course(args, Course(start=load, documents=documents, measure=greedy_passes, rate=rate))


def load(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    """The model to start from, with rows for the tokens of code if it has none yet."""
    start = {"model": args.start, "trust_remote_code": False, "key": "--start"}
    model = cast(LlamaForCausalLM, load_model(LlamaForCausalLM, **start, dtype=torch.float32))
    known = load_tokenizer(**start)
    told = itertools.islice(stories(0, "train"), 20_000)
    rng = random.Random(0)
    texts = (f"{text}\n{write(function, rng=rng, forms=True).text}" for text, function in told)
    tokenizer = build_tokenizer(texts, after=known.convert_ids_to_tokens(range(len(known))))
    if len(tokenizer) > len(known):
        _add_rows(model, known, tokenizer)
    return model, tokenizer


def _add_rows(
    model: LlamaForCausalLM, known: PreTrainedTokenizerBase, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Embeddings of new tokens. `ada` begins as `Ada` does, so that names are copied at once."""
    old = model.get_input_embeddings().weight.detach()[: len(known)].clone()
    words: dict[str, list[int]] = {}
    for word, i in known.get_vocab().items():
        words.setdefault(word.removeprefix("Ġ").lower(), []).append(i)
    model.resize_token_embeddings(-(-len(tokenizer) // 16) * 16, mean_resizing=False)
    rows = model.get_input_embeddings().weight
    with torch.no_grad():
        rows[len(known) :] = old.mean(0) + 0.5 * old.std(0) * torch.randn_like(rows[len(known) :])
        for word, i in tokenizer.get_vocab().items():
            same = words.get(word.removeprefix("Ġ").lower())
            if i >= len(known) and same and len(word) > 2:
                noise = torch.randn_like(rows[i])
                rows[i] = old[same].mean(0) + 0.1 * old.std(0) * noise


def documents(
    args: argparse.Namespace, tokenizer: PreTrainedTokenizerBase, seed: int, rng: random.Random
) -> list[Document]:
    """Functions of pyarith, misread for `policy`, and right solutions of arith."""
    num_arith = round(CHUNK * ARITH_SHARE)
    strength = args.strength if args.task == "policy" else 0.0
    made = [
        document(tokenizer, text, write(function, rng=rng, forms=True, strength=strength).text)
        for text, function in itertools.islice(stories(seed, "train"), CHUNK - num_arith)
    ]
    for problem in generate_arith(num_arith, seed=seed, split="train"):
        solution = reference_solution(Program.from_json(problem.meta["program"]))
        made.append(document(tokenizer, problem.text, solution))
    return made


def passes(problem: Problem, text: str) -> bool:
    """Whether a text returns what the hidden tests want."""
    return run(text, problem.gold["inputs"]) == tuple(problem.gold["outputs"])


@torch.no_grad()
def greedy_passes(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, count: int = 64
) -> float:
    """Share of validation problems whose greedy completion passes the hidden tests."""
    problems = generate(count, seed=0, split="validation")
    prompts = [tokenizer(p.text + "\n")["input_ids"] for p in problems]
    width = max(map(len, prompts))
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    made = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=MAX_NEW_TOKENS, do_sample=False
    )[:, width:].tolist()
    texts = [tokenizer.decode(list(itertools.takewhile(lambda t: t != end, m))) for m in made]
    return sum(map(passes, problems, texts)) / count


if __name__ == "__main__":
    main()
