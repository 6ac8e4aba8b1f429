r"""Chains that a program writes about solutions of arith, and models that learn to write them.

Each step of a solution gets a line: what should stand there, from the problem alone; then the value
that the step states; then the verdict in the form of ThinkPRM (arXiv 2504.16828). A wrong step's
line is the last. What is said of a step has one of four forms:

    claim    Step 2: Mia has 15 - 4 = 11 pens. written 19 \boxed{incorrect}
    copy     Mia has 15 - 4 = 11 pens. Step 2: Mia has 15 + 4 = 19 pens. \boxed{incorrect}
    quote    Step 2: Mia gives 4 pens to Leo. 15 - 4 = 11 written 19 \boxed{incorrect}
    short    Step 2: 15 - 4 = 11 written 19 \boxed{incorrect}

Models start from the bundled policy, as the PRMs that they are compared with do, and are trained an
epoch a piece:

    taught/NAME/epoch-N      the model after N epochs, with its tokenizer
    taught/NAME/log.jsonl    its loss
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from jobs.train_arith import ADAM_PER_MUON, IGNORE, Document, document
from mclabel.core.records import LabeledSolution, Problem
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.program import Node, Program, answer_line
from mclabel.domains.arith.tokenizer import build_tokenizer
from mclabel.domains.arith.verify import StepTruth, verify_steps
from mclabel.engines.pretrained import load_model, load_tokenizer
from tests.benchmarks.pieces import Piece, write_json
from tests.benchmarks.runs import read_rows

_SENTENCE_END = re.compile(r"(?<=[.?]) ")
_ASIDE = re.compile(r"(\w+) (?:has|buys) \d+ \w+\.")
"""A sentence of this form derives nothing, unless the person in focus buys."""
_EQUATION = re.compile(r"(\d+) (?:\+|-|\*|//|/) (\d+) = (\d+)")
_VALUE = re.compile(r"(?:= |\\boxed\{)(\d+)")
RATE = 0.006
"""Of Muon; the bundled models were trained at 0.003 to 0.02."""
WARMUP = 50
BATCH = 16
LOG_STEPS = 25
Form = Literal["claim", "copy", "quote", "short"]
Exchange = tuple[str, str]
"""A prompt and what is to be written after it."""


def chains(rows: Sequence[LabeledSolution], form: Form) -> Iterator[Exchange]:
    """Chains about the solutions."""
    for row in rows:
        steps = steps_of(row)
        text, _ = chain(row.problem, steps, form)
        yield question(row.problem.text, steps), text


def steps_of(row: LabeledSolution) -> list[str]:
    """Texts of the steps."""
    return [step.text for step in row.solution.steps]


def question(problem: str, steps: Sequence[str]) -> str:
    """What the verifier is asked: the problem, and the steps by number."""
    lines = [f"Step {number}: {step.strip()}" for number, step in enumerate(steps, 1)]
    return "\n".join([problem, *lines])


def chain(problem: Problem, steps: Sequence[str], form: Form) -> tuple[str, int | None]:
    """The chain about a solution, and the first error that it names.

    Args:
        problem: of a family that training uses.
        steps: of the solution.
        form: what should stand there as a solution has it, the equation after the sentence of the
            problem that it rests on, or the equation alone; after it the value that the step
            states, in `copy` the whole step.
    """
    program = Program.from_json(problem.meta["program"])
    in_words = form in ("claim", "copy")
    sentences = sentences_of(problem.text, program.nodes)
    stated: set[int] = set()
    lines: list[str] = []
    truths = verify_steps(program, steps)
    for number, (step, truth) in enumerate(zip(steps, truths, strict=True), 1):
        is_right = truth is StepTruth.RIGHT
        index = _node_of(program, step, stated) if is_right else _next_node(program, stated)
        if index is None:
            should = answer_line(program.answer) if in_words else f"answer {program.answer}"
        else:
            stated.add(index)
            node = program.nodes[index]
            should = node.text() if in_words else node.equation
            should = f"{sentences[index]} {should}" if form == "quote" else should
        value = _VALUE.search(step)
        written = "nothing" if value is None else value[1]
        verdict = f"\\boxed{{{'correct' if is_right else 'incorrect'}}}"
        if form == "copy":
            lines.append(f"{should} Step {number}: {step.strip()} {verdict}")
        else:
            lines.append(f"Step {number}: {should} written {written} {verdict}")
        if not is_right:
            return "\n".join(lines), number - 1
    return "\n".join(lines), None


def sentences_of(text: str, nodes: Sequence[Node]) -> list[str]:
    """For each node the sentence that derives it.

    Every event of a story says one sentence and derives the nodes that follow from it; between
    events stand asides. A story that does not begin with a node begins with a fact.
    """
    told = _SENTENCE_END.split(text)[:-1]
    place = 0 if nodes[0].event == "start" else 1
    found: list[str] = []
    while len(found) < len(nodes):
        node = nodes[len(found)]
        while (aside := _ASIDE.fullmatch(told[place])) and not (
            node.event == "buy" and aside[1] == node.claim.split()[0]
        ):
            place += 1
        found += [told[place]] * (2 if node.event in _OF_TWO_NODES else 1)
        place += 1
    return found


_OF_TWO_NODES = frozenset(
    (
        *("give_part", "pass_on_half", "add_containers", "buy_several", "earn"),
        *("spend_part", "drive", "customers", "break_part"),
    )
)
"""Events that derive two nodes from one sentence."""


def _node_of(program: Program, step: str, stated: set[int]) -> int | None:
    """The node that a right step states; None for the answer."""
    equation = _EQUATION.search(step)
    if equation is None:
        return None
    claim = step.strip().replace(equation[0], "{}")
    operands = {int(equation[1]), int(equation[2])}
    fits = [
        index
        for index, node in enumerate(program.nodes)
        if node.claim == claim
        and {node.left, node.right} == operands
        and node.value == int(equation[3])
        and stated.issuperset(node.needs)
    ]
    fresh = [index for index in fits if index not in stated]
    return (fresh or fits)[0]


def _next_node(program: Program, stated: set[int]) -> int | None:
    """What should be stated next; None for the answer."""
    return next((index for index in program.needed() if index not in stated), None)


@dataclass(frozen=True, kw_only=True)
class Course:
    """What a model learns, and for how long."""

    name: str
    exchanges: Callable[[Sequence[LabeledSolution]], Iterator[Exchange]]
    """From the labelled solutions of the run `train`."""
    epochs: int
    max_steps: int | None = None
    """Of each epoch; None for all."""
    seed: int = 0

    def folder(self, out: Path, epoch: int) -> Path:
        """Of the model after so many epochs."""
        return out / "taught" / self.name / f"epoch-{epoch}"

    def pieces(self, out: Path) -> list[Piece]:
        """One an epoch; each goes on where the one before it ended."""
        return [
            Piece(
                result=out / "taught" / self.name / f"{self.name}-{epoch}.json",
                work=partial(_train, out, self, epoch),
            )
            for epoch in range(1, self.epochs + 1)
        ]

    def parameters(self, out: Path) -> int:
        """Of the model."""
        held = json.loads(self.pieces(out)[0].result.read_text())
        return int(held["parameters"])


class _Lesson:
    """A model in training, and the state of its optimisers."""

    def __init__(self, exchanges: Sequence[Exchange], course: Course) -> None:
        start = {"model": str(bundled_model("policy")), "trust_remote_code": False, "key": "start"}
        model = load_model(LlamaForCausalLM, **start, dtype=torch.float32)  # type: ignore[arg-type]
        self.model = cast(LlamaForCausalLM, model)
        known = load_tokenizer(**start)  # type: ignore[arg-type]
        self.tokenizer = build_tokenizer(
            ("\n".join(one) for one in exchanges),
            after=known.convert_ids_to_tokens(list(range(len(known)))),
        )
        self.model.resize_token_embeddings(
            max(self.model.config.vocab_size, -(-len(self.tokenizer) // 16) * 16),
            mean_resizing=False,
        )
        with torch.no_grad():  # rows that no training has used make the new tokens impossible
            embeddings = self.model.model.embed_tokens.weight
            embeddings[len(known) :] = embeddings[: len(known)].mean(0)
        self._exchanges, self._course = exchanges, course
        named = list(self.model.named_parameters())
        is_matrix = [p.ndim == 2 and "embed_tokens" not in name for name, p in named]
        parameters = [p for _, p in named]
        pairs = list(zip(parameters, is_matrix, strict=True))
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon([p for p, yes in pairs if yes], lr=RATE, weight_decay=0.01),
            torch.optim.AdamW(
                [p for p, yes in pairs if not yes],
                lr=RATE * ADAM_PER_MUON,
                betas=(0.9, 0.95),
                weight_decay=0.0,
            ),
        ]

    @cached_property
    def documents(self) -> list[Document]:
        """Tokens of the exchanges; only what is to be written is learned."""
        return [document(self.tokenizer, *one) for one in self._exchanges]

    @property
    def epoch_steps(self) -> int:
        """Optimiser steps of an epoch."""
        steps = -(-len(self._exchanges) // BATCH)
        return min(steps, self._course.max_steps or steps)

    def restore(self, state: Path) -> None:
        """Go on from an epoch's end."""
        held = torch.load(state, weights_only=True)
        self.model.load_state_dict(held["model"])
        for optimizer, one in zip(self.optimizers, held["optimizers"], strict=True):
            optimizer.load_state_dict(one)

    def save(self, folder: Path, state: Path) -> None:
        """Keep the model, and all that the next epoch needs."""
        self.model.save_pretrained(folder)
        cast(PreTrainedTokenizerBase, self.tokenizer).save_pretrained(folder)
        held = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }
        torch.save(held, state)

    def run(self, epoch: int, log: Path) -> float:
        """Learn from every document once; gives the mean loss of the last steps."""
        total, before = self._course.epochs * self.epoch_steps, (epoch - 1) * self.epoch_steps
        began, running = time.monotonic(), 0.0
        batches = _batches(self.documents, self.tokenizer.pad_token_id, self._course.seed + epoch)
        for number, (ids, labels) in zip(range(self.epoch_steps), batches, strict=False):
            step = before + number
            rate = min(1.0, (step + 1) / WARMUP, 2 * (total - step) / total)
            loss = self._loss(ids, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for optimizer, full in zip(self.optimizers, (RATE, RATE * ADAM_PER_MUON), strict=True):
                optimizer.param_groups[0]["lr"] = rate * full
                optimizer.step()
                optimizer.zero_grad()
            running += (loss.item() - running) / min(number + 1, LOG_STEPS)
            if (number + 1) % LOG_STEPS == 0:
                row = {"step": step + 1, "of": total, "loss": round(running, 4)}
                row["seconds"] = round(time.monotonic() - began)
                with log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        return running

    def _loss(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy over what is learned; padding is on the right."""
        hidden = self.model.model(input_ids=ids, use_cache=False).last_hidden_state
        wanted = labels[:, 1:] != IGNORE
        logits = self.model.lm_head(hidden[:, :-1][wanted])
        return torch.nn.functional.cross_entropy(logits, labels[:, 1:][wanted])


def _train(out: Path, course: Course, epoch: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(course.seed)
    rows = read_rows(out / "runs" / "train")
    lesson = _Lesson(list(course.exchanges(rows)), course)
    home = out / "taught" / course.name
    if epoch > 1:
        lesson.restore(home / f"state-{epoch - 1}.pt")
    home.mkdir(parents=True, exist_ok=True)
    loss = lesson.run(epoch, home / "log.jsonl")
    lesson.save(course.folder(out, epoch), home / f"state-{epoch}.pt")
    parameters = sum(p.numel() for p in lesson.model.parameters())
    tokens = sum(len(ids) for ids, _ in lesson.documents)
    write_json(
        home / f"{course.name}-{epoch}.json",
        {"loss": loss, "parameters": parameters, "documents": len(rows), "tokens": tokens},
    )
    (home / f"state-{epoch - 1}.pt").unlink(missing_ok=True)


def _batches(documents: Sequence[Document], pad: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """All documents once, those of like length together, in random order."""
    rng = random.Random(seed)
    mixed = sorted(documents, key=lambda one: len(one[0]) + rng.random() * 30)
    groups = [mixed[i : i + BATCH] for i in range(0, len(mixed), BATCH)]
    rng.shuffle(groups)
    for group in groups:
        width = max(len(ids) for ids, _ in group)
        yield (
            torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in group]),
            torch.tensor([lab + [IGNORE] * (width - len(lab)) for _, lab in group]),
        )
