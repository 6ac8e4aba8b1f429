"""Check that engines continue prefixes by their exact token ids, for the tests of every engine.

The ids that an engine receives are recorded and compared with the ids that it sampled earlier.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer

from mclabel.core.records import NO_ROOM
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate_problems
from mclabel.engines import Policy
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.problem import ProblemLabels, label_problem
from mclabel.labeling.sampling import SolutionSettings
from tests.support.one_engine import on_one_engine

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NUM_SOLUTIONS, PER_PROBLEM = 100, 4
TEMPERATURE = 2.0
"""Temperature so high that many texts are sampled as other tokens than the tokenizer's."""

Ids = tuple[int, ...]


@dataclass
class Calls:
    """Pairs of the ids that an engine received and the ids that it sampled after them."""

    made: list[tuple[Ids, Ids]] = field(default_factory=list)


def chat_model(folder: Path) -> str:
    """Save the bundled policy with a chat template that has special tokens."""
    tokenizer = AutoTokenizer.from_pretrained(bundled_model("policy"))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.chat_template = CHATML
    model = AutoModelForCausalLM.from_pretrained(bundled_model("policy"))
    if len(tokenizer) > model.config.vocab_size:
        model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


async def label_all(policy: Policy) -> list[ProblemLabels]:
    """Label the solutions of many problems with one rollout of every prefix."""
    settings = LabelSettings(
        solutions=SolutionSettings(per_problem=PER_PROBLEM),
        estimator=FixedEstimator.Settings(rollouts=1),
    )
    problems = generate_problems(NUM_SOLUTIONS // PER_PROBLEM, seed=11, split="test")
    await policy.start()
    try:
        shared = on_one_engine(policy, settings)
        return await asyncio.gather(*(label_problem(problem, shared) for problem in problems))
    finally:
        await policy.close()


def count_exact(results: Sequence[ProblemLabels], calls: Calls) -> int:
    """Count the prefixes that were continued by the exact ids of their solution.

    Prefixes that leave no room for a continuation are not expected.

    Raises:
        AssertionError: a solution differs from what the engine sampled. Or the engine received
            other ids than prompts and prompts with the first ids of solutions. Or an expected
            prefix was not continued.
    """
    sampled: dict[Ids, list[Ids]] = defaultdict(list)
    for context, ids in calls.made:
        sampled[context].append(ids)
    rows = [row for result in results for row in result.labeled]
    closed = {
        rollout.prefix_id for r in results for rollout in r.rollouts if rollout.reason == NO_ROOM
    }
    assert len(rows) == NUM_SOLUTIONS
    wanted = {row.prompt_ids for row in rows}
    for row in rows:
        ids = row.solution.ids
        assert any(
            ids in (sampled_ids, sampled_ids[:-1]) for sampled_ids in sampled[row.prompt_ids]
        )
        steps = zip(row.solution.steps[:-1], row.steps, strict=False)
        wanted |= {
            row.prompt_ids + ids[: s.end] for s, label in steps if label.prefix_id not in closed
        }
    contexts = {context for context, _ in calls.made}
    assert contexts <= wanted, f"{len(contexts - wanted)} contexts are not a prefix of any solution"
    assert wanted <= contexts, (
        f"{len(wanted - contexts)} prefixes were not continued by their own ids"
    )
    return len(wanted)


def num_other_tokens(policy: Policy, results: Sequence[ProblemLabels]) -> int:
    """Count the solutions whose text would be tokenised to other ids than the sampled ones."""
    return sum(
        policy.encode(row.solution.text) != row.solution.ids
        for result in results
        for row in result.labeled
    )
