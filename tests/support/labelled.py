"""Labelled solutions and a tiny model for tests of training and evaluation."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mclabel import jobs
from mclabel.core.config.load import check_config
from mclabel.core.records import Counts, LabeledSolution, Outcome, Solution, StepLabel
from mclabel.core.seeds import content_id, prefix_id
from mclabel.data.boundaries import find_newline_ends
from mclabel.data.lengths import split_steps
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.misconceptions import write_misread_solution
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.arith.program import Program
from mclabel.domains.arith.verify import StepTruth, verify_steps
from mclabel.engines.chat import PromptParts
from mclabel.engines.text import PolicyText
from mclabel.prm.config import TrainConfig
from mclabel.run.shards.labels import commit_block
from mclabel.run.shards.store import Store


def arith_text() -> PolicyText:
    """Load the tokenizer and chat template of the bundled models."""
    folder = str(bundled_model("strong"))
    return PolicyText.load(folder, PromptParts())


def arith_rows(count: int, *, per_problem: int = 2, seed: int = 0) -> list[LabeledSolution]:
    """Return solutions with misconceptions, labelled by exact truth as if by 8 rollouts."""
    text, rng = arith_text(), random.Random(seed)
    rows = []
    for problem in generate_problems(-(-count // per_problem), seed=seed, split="test"):
        program = Program.from_json(problem.meta["program"])
        for index in range(per_problem):
            solution, _ = write_misread_solution(program, problem.text, rng=rng, strength=2.0)
            ids = text.encode(solution)
            steps = split_steps(ids, solution, find_newline_ends(solution), text.decode)
            truths = verify_steps(program, [step.text for step in steps])
            error = next((i for i, t in enumerate(truths) if t is not StepTruth.RIGHT), None)
            outcome = Outcome.WRONG if error is not None else Outcome.RIGHT
            labels = []
            for number, step in enumerate(steps):
                sound = error is None or number < error
                good = rng.randint(1, 8) if sound else 0
                labels.append(
                    StepLabel(
                        prefix_id=prefix_id(problem.id, ids[: step.end]),
                        counts=Counts(num_right=good, num_wrong=8 - good),
                        source="fixed" if number < len(steps) - 1 else "outcome",
                        hard=sound,
                        value=good / 8 if number < len(steps) - 1 else float(sound),
                        low=None,
                        high=None,
                    )
                )
            rows.append(
                LabeledSolution(
                    problem=problem,
                    solution=Solution(
                        id=content_id("solution", problem.id, index),
                        problem_id=problem.id,
                        sample_index=index,
                        text=solution,
                        ids=ids,
                        steps=steps,
                        finish_reason="stop",
                        origin="sampled",
                        prediction=None,
                        outcome=outcome,
                    ),
                    prompt_ids=text.prompt_ids(problem.text),
                    steps=tuple(labels),
                    first_error=error,
                    root=Counts(),
                    siblings=Counts(),
                )
            )
    return rows[:count]


def write_run(folder: Path, rows: list[LabeledSolution]) -> str:
    """Write a run with these labels in one shard."""
    commit_block(Store(str(folder), create=True), "0" * 16, "test", rows, None, {})
    return str(folder)


def tiny_model(folder: Path, num_tokens: int = 1024) -> str:
    """Write a random Llama of two narrow layers with the bundled tokenizer.

    `num_tokens` is its context length.
    """
    tokenizer = AutoTokenizer.from_pretrained(bundled_model("strong"))
    tokenizer.model_max_length = num_tokens
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=-(-len(tokenizer) // 16) * 16,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=128,
        max_position_embeddings=num_tokens,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def train_tiny_prm(root: Path) -> str:
    """Train a PRM for one step and return its folder."""
    labels = write_run(root / "labels", arith_rows(12))
    content = {"out": f"{root}/prm", "labels": [labels], "base": tiny_model(root / "base")}
    config = check_config(TrainConfig, {**content, "max_steps": 1, "validation": 0})
    jobs.train(config, lambda step, total, loss: None)
    return f"{root}/prm"
