"""Train the two bundled models of the arith domain from scratch, on CPU.

    python jobs/train_arith.py first  --out build/first
    python jobs/train_arith.py strong --out build/strong --start build/first
    python jobs/train_arith.py policy --out build/policy --start build/strong
    python jobs/train_arith.py card   --out build/strong --title strong
    python jobs/train_arith.py card   --out build/policy --title policy

`first` is trained from scratch on right solutions and arithmetic drills. At its learning rate the
gradient noise of small batches hides subtle patterns. So `first` solves the problem families in
which the events follow one another, and fails on the families in which names have to be matched
(trading, comparing). `strong` continues the training of `first` at a third of the learning rate,
with trading and comparing drawn twice as often. `policy` is fine-tuned from `strong` on solutions
written under misconceptions. `card` measures a model and writes its model card.

The trained weights depend only on the seed and the number of processes, up to the machine's
rounding. On two cores `first` takes 70 minutes, `strong` 45 minutes and `policy` seven minutes.
Copy the folders to mclabel/domains/arith/models to bundle them.

The optimiser is Muon (https://kellerjordan.github.io/posts/muon) for matrices and AdamW for all
other parameters. The learning rate falls linearly over the second half of the steps. The loss is
computed on the tokens of solutions, and in drills on the tokens of results.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from mclabel.answers import grade_completion
from mclabel.core.records import Problem, Verdict
from mclabel.core.seeds import derive_sampling_seed
from mclabel.core.stats.values import clopper_pearson
from mclabel.domains.arith.misconceptions import write_misread_solution
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.arith.program import MAX_VALUE, Program, write_reference_solution
from mclabel.domains.arith.stories import HELD_OUT_FAMILIES, TRAIN_FAMILIES
from mclabel.domains.arith.tokenizer import build_tokenizer
from mclabel.domains.arith.verify import StepTruth, verify_steps
from mclabel.engines import PolicySettings
from mclabel.engines.hf import HfEngine
from mclabel.engines.pretrained import load_model, load_tokenizer

IGNORE = -100
MAX_TOKENS = 240  # maximum tokens of a sampled solution
CHUNK = 2048  # number of documents that are generated and sorted by length at once
STEPS = {"first": 7000, "strong": 4500, "policy": 600}
MUON_LR = {"first": 0.02, "strong": 0.006, "policy": 0.003}
DRILLS = {"first": 1 / 6, "strong": 1 / 10, "policy": 1 / 12}  # drills' share of the documents
ADAM_PER_MUON = 0.15
NAMES_MATTER = ("trading", "comparing")  # families drawn twice as often for `strong`

Document = tuple[list[int], list[int]]
"""Token ids, and their labels: the token ids, with IGNORE at positions without a loss."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """Start model, data, metric and learning rate of a training."""

    start: Callable[[argparse.Namespace], tuple[LlamaForCausalLM, PreTrainedTokenizerBase]]
    make_documents: Callable[
        [argparse.Namespace, PreTrainedTokenizerBase, int, random.Random], list[Document]
    ]
    """Function that makes CHUNK documents. The seed determines the problems; the random generator
    makes all other choices."""
    measure: Callable[[LlamaForCausalLM, PreTrainedTokenizerBase], float]
    """Validation metric of the model."""
    rate: float
    """Peak learning rate of Muon."""
    every: int = 250
    """Number of steps between two measurements, after each of which the model is saved."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["first", "strong", "policy", "card"])
    parser.add_argument("--out", type=Path, required=True, help="model folder")
    parser.add_argument("--start", type=Path, help="model folder to continue from (strong, policy)")
    parser.add_argument("--title", help="name on the card")
    add_settings(parser)
    args = parser.parse_args()
    if args.task == "card":
        title = args.title or args.out.name
        about = INTRODUCTION.format(title=title, about=ABOUT.get(title, ABOUT["strong"]))
        write_card(args.out, about, generate=generate_problems, judge=_judge_completion)
        return
    if (args.task == "first") == (args.start is not None):
        parser.error("`strong` and `policy` need --start; `first` must not have it")
    args.steps = args.steps or STEPS[args.task]
    rate = MUON_LR[args.task]
    run_course(
        args,
        Course(
            start=load_start_model,
            make_documents=make_documents,
            measure=measure_greedy_accuracy,
            rate=rate,
        ),
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that all trainings have."""
    parser.add_argument("--steps", type=int)
    parser.add_argument(
        "--done", type=int, default=0, help="number of steps that --start was trained"
    )
    parser.add_argument("--batch", type=int, default=16, help="documents per process and step")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--strength", type=float, default=1.0, help="strength of the misconceptions"
    )
    parser.add_argument("--seed", type=int, default=0)


def run_course(args: argparse.Namespace, course: Course) -> None:
    """Train in `args.processes` processes."""
    args.out.parent.mkdir(parents=True, exist_ok=True)
    mp.spawn(train, args=(args, course), nprocs=args.processes)  # type: ignore[attr-defined, no-untyped-call]


def train(rank: int, args: argparse.Namespace, course: Course) -> None:
    """Run one data-parallel process. It has one thread; gloo averages the gradients."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rendezvous = f"file://{args.out.absolute()}.rendezvous"
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=args.processes)
    model, tokenizer = course.start(args)
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed_tokens" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed_tokens" in name]
    rate = course.rate
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(matrices, lr=rate, momentum=0.95, weight_decay=0.01),
        torch.optim.AdamW(others, lr=rate * ADAM_PER_MUON, betas=(0.9, 0.95), weight_decay=0.0),
    ]
    factor = _make_rate_schedule(args.steps, args.done)
    schedules = [torch.optim.lr_scheduler.LambdaLR(o, factor) for o in optimizers]
    batches = _generate_batches(args, course, tokenizer, rank)
    started, tokens, running = time.monotonic(), 0, 0.0
    for step in range(args.done + 1, args.steps + 1):
        ids, labels = next(batches)
        loss = _compute_loss(model, ids, labels)
        loss.backward()
        _average_gradients(model, args.processes)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        tokens += ids.numel() * args.processes
        running += (loss.item() - running) / min(step - args.done, 50)
        if rank == 0 and (step % course.every == 0 or step == args.steps):
            row = {
                "step": step,
                "seconds": round(time.monotonic() - started),
                "tokens": tokens,
                "loss": round(running, 4),
                "greedy": course.measure(model, tokenizer),
            }
            print(json.dumps(row), flush=True)
            with args.out.with_suffix(".log.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
            _save_rounded_model(model, tokenizer, args.out)
    dist.barrier()
    dist.destroy_process_group()


def load_start_model(args: argparse.Namespace) -> tuple[LlamaForCausalLM, PreTrainedTokenizerBase]:
    if args.start is not None:
        start = {"model": args.start, "trust_remote_code": False, "key": "--start"}
        model = load_model(LlamaForCausalLM, **start, dtype=torch.float32)
        return cast(LlamaForCausalLM, model), load_tokenizer(**start)
    tokenizer = build_tokenizer(
        _format_worked_problem(p) + "\n" for p in generate_problems(20_000, seed=0, split="train")
    )
    config = LlamaConfig(
        vocab_size=-(-len(tokenizer) // 16) * 16,
        hidden_size=128,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=384,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config), tokenizer


def _format_worked_problem(problem: Problem) -> str:
    return f"{problem.text}\n{write_reference_solution(Program.from_json(problem.meta['program']))}"


def _average_gradients(model: LlamaForCausalLM, processes: int) -> None:
    """Replace the gradients by their mean over processes, with the norm clipped to 1."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= processes
    flat *= min(1.0, 1.0 / (flat.norm().item() + 1e-6))
    parts = flat.split([g.numel() for g in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def _make_rate_schedule(steps: int, done: int) -> Callable[[int], float]:
    def compute_rate_factor(step: int) -> float:
        return min(1.0, (step + 1) / 100, 2 * max(steps - done - step, 0) / steps)

    return compute_rate_factor


def _compute_loss(model: LlamaForCausalLM, ids: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy over the labelled positions; padding is on the right."""
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    wanted = labels[:, 1:] != IGNORE
    logits = model.lm_head(hidden[:, :-1][wanted])
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:][wanted])


def _generate_batches(
    args: argparse.Namespace, course: Course, tokenizer: PreTrainedTokenizerBase, rank: int
) -> Iterator[tuple[Tensor, Tensor]]:
    rng = random.Random(f"{args.task}:{args.seed}:{rank}:{args.done}")
    pad = tokenizer.pad_token_id
    for chunk in range(args.done, 10**9):
        seed = args.seed * 10**6 + chunk * args.processes + rank
        made = course.make_documents(args, tokenizer, seed, rng)
        made.sort(key=lambda d: len(d[0]))
        groups = [made[i : i + args.batch] for i in range(0, len(made), args.batch)]
        rng.shuffle(groups)
        for group in groups:
            width = max(len(ids) for ids, _ in group)
            yield (
                torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in group]),
                torch.tensor([lab + [IGNORE] * (width - len(lab)) for _, lab in group]),
            )


def make_documents(
    args: argparse.Namespace, tokenizer: PreTrainedTokenizerBase, seed: int, rng: random.Random
) -> list[Document]:
    """Make solutions of arith problems, and drills. For `policy`, solutions have misconceptions."""
    families = (*TRAIN_FAMILIES, *NAMES_MATTER) if args.task == "strong" else TRAIN_FAMILIES
    num_drills = round(CHUNK * DRILLS[args.task])
    made = [make_drill_document(rng, tokenizer) for _ in range(num_drills)]
    for problem in generate_problems(
        CHUNK - num_drills, seed=seed, split="train", families=families
    ):
        program = Program.from_json(problem.meta["program"])
        solution = write_reference_solution(program)
        if args.task == "policy":
            solution, _ = write_misread_solution(
                program, problem.text, rng=rng, strength=args.strength
            )
        made.append(make_document(tokenizer, problem.text, solution))
    return made


def make_document(tokenizer: PreTrainedTokenizerBase, problem: str, solution: str) -> Document:
    """Make a document of a problem and its solution, with the loss only on the solution."""
    prompt = tokenizer(problem + "\n")["input_ids"]
    answer = [*tokenizer(solution)["input_ids"], tokenizer.eos_token_id]
    return prompt + answer, [IGNORE] * len(prompt) + answer


def make_drill_document(rng: random.Random, tokenizer: PreTrainedTokenizerBase) -> Document:
    """Make a document of twelve random equations, with the loss only on their results."""
    ids: list[int] = []
    labels: list[int] = []
    for _ in range(12):
        question, result = _draw_equation(rng)
        left = tokenizer(question)["input_ids"]
        right = tokenizer(f" {result}")["input_ids"]
        end = tokenizer("\n")["input_ids"]
        ids += left + right + end
        labels += [IGNORE] * len(left) + right + [IGNORE] * len(end)
    return ids, labels


def _draw_equation(rng: random.Random) -> tuple[str, int]:
    op = rng.choice("++--*/q")
    if op == "+":
        total = rng.randint(4, MAX_VALUE)
        a = rng.randint(2, total - 2)
        return f" {a} + {total - a} =", total
    if op == "-":
        a = rng.randint(4, MAX_VALUE)
        b = rng.randint(2, a - 2)
        return f" {a} - {b} =", a - b
    k = rng.randint(2, 9)
    n = rng.randint(2, MAX_VALUE // k)
    if op == "*":
        return rng.choice([f" {k} * {n} =", f" {n} * {k} ="]), k * n
    if op == "/":
        return f" {k * n} / {k} =", n
    b = rng.randint(2, MAX_VALUE)
    a = rng.randint(b, min(MAX_VALUE, 6 * b - 1))
    return f" {a} // {b} =", a // b


@torch.no_grad()
def measure_greedy_accuracy(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, count: int = 200
) -> float:
    """Return the share of validation problems whose reference solution is the greedy completion."""
    right = 0
    for problem in generate_problems(count, seed=0, split="validation"):
        prompt = tokenizer(problem.text + "\n")["input_ids"]
        solution = write_reference_solution(Program.from_json(problem.meta["program"]))
        answer = [*tokenizer(solution)["input_ids"], tokenizer.eos_token_id]
        logits = model(torch.tensor([prompt + answer]), use_cache=False).logits[0]
        right += logits[len(prompt) - 1 : -1].argmax(-1).tolist() == answer
    return right / count


def _save_rounded_model(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, out: Path
) -> None:
    """Save the model in bfloat16, which halves its size. The card measures the rounded model."""
    rounded = copy.deepcopy(model)
    cast(torch.nn.Module, rounded).to(torch.bfloat16)
    rounded.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)  # safetensors makes the file private to its owner
    tokenizer.save_pretrained(out)


def write_card(
    folder: Path,
    introduction: str,
    *,
    generate: Callable[..., list[Problem]],
    judge: Callable[[Problem, str], tuple[bool, str]],
) -> None:
    """Measure a model on test problems and write its card.

    Args:
        folder: folder of the model.
        introduction: title and first paragraph of the card.
        generate: function that generates the problems of a domain.
        judge: function that returns whether a solution is right, and the kind of its first wrong
            step; "none" if no step is wrong.
    """
    rows = []
    for name, families in (("training families", None), ("held out", list(HELD_OUT_FAMILIES))):
        problems = generate(400, seed=99, split="test", families=families)
        for temperature in (0.8, 1.0):
            texts = asyncio.run(sample_completions(folder, problems, temperature))
            samples = [(*judge(problem, text), problem) for problem, text in texts]
            rows.append((name, temperature, samples))
    lines = []
    for name, temperature, samples in rows:
        right = sum(ok for ok, _, _ in samples)
        low, high = clopper_pearson(right, len(samples))
        lines.append(
            f"| {name} | {temperature} | {right / len(samples):.3f} [{low:.3f}, {high:.3f}] |"
        )
    samples = rows[0][2]
    kinds = Counter(kind for _, kind, _ in samples if kind != "none")
    by_steps: dict[str, list[bool]] = {}
    for ok, _, problem in samples:
        by_steps.setdefault(problem.meta["num_steps"], []).append(ok)
    solved = Counter(problem.id for ok, _, problem in samples if ok)
    mixed = sum(0 < solved[identity] < 4 for identity in {p.id for _, _, p in samples})
    errors = ", ".join(f"{k} {n / max(1, kinds.total()):.0%}" for k, n in kinds.most_common())
    steps = ", ".join(f"{k}: {sum(v) / len(v):.2f}" for k, v in sorted(by_steps.items()))
    config = json.loads((folder / "config.json").read_text())
    card = CARD.format(
        introduction=introduction,
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        vocabulary=config["vocab_size"],
        table="\n".join(lines),
        errors=errors,
        steps=steps,
        mixed=mixed,
    )
    (folder / "README.md").write_text(card)
    print(card)


async def sample_completions(
    folder: Path, problems: list[Problem], temperature: float, max_tokens: int = MAX_TOKENS
) -> list[tuple[Problem, str]]:
    """Sample four solutions of each problem."""
    policy = HfEngine(
        PolicySettings(
            model=str(folder),
            temperature=temperature,
            max_tokens=max_tokens,
            engine=HfEngine.Settings(threads=1),
        )
    )
    await policy.start()
    work = [
        policy.sample(policy.prompt_ids(p.text), (), seed=derive_sampling_seed(0, p.id, "card", i))
        for p in problems
        for i in range(4)
    ]
    completions = await asyncio.gather(*work)
    await policy.close()
    return [(problems[number // 4], one.text) for number, one in enumerate(completions)]


def _judge_completion(problem: Problem, text: str) -> tuple[bool, str]:
    _, grade = grade_completion(text, problem.answer)
    truths = verify_steps(Program.from_json(problem.meta["program"]), text.split("\n"))
    kind = next((str(t) for t in truths if t is not StepTruth.RIGHT), "none")
    return grade.verdict is Verdict.RIGHT, kind


ABOUT = {
    "strong": (
        "It is the strong model, trained on right solutions and arithmetic drills. It solves "
        "problems that the policy misunderstands."
    ),
    "policy": (
        "It was fine-tuned from `strong` on solutions written under misconceptions (a wrong "
        "operand, a flipped operation, a skipped step). It misunderstands a few kinds of events "
        "in most cases, and all other kinds seldom. So its errors are intended, consistent, and "
        "mostly errors of logic."
    ),
}

INTRODUCTION = """# arith {title}

A tiny language model for mclabel's built-in domain of multi-step word problems, trained from
scratch on generated text by `jobs/train_arith.py`. {about}
"""

CARD = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
{introduction}

The model is a Llama of width {width} with {layers} layers in bfloat16. Its vocabulary has
{vocabulary} tokens: words of the domain, single digits, and bytes for all other text. It was
trained only on this domain.

| problems | temperature | pass@1 [95%] |
|---|---|---|
{table}

Each row is measured on 400 test problems that are not in the training data, with four samples per
problem. pass@1 at temperature 0.8 by number of steps: {steps}. Kinds of first wrong steps:
{errors}. {mixed} of 400 problems were solved by some of their samples, but not by all of them.
"""


if __name__ == "__main__":
    main()
