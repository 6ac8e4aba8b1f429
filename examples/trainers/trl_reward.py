"""The grader as a reward function of TRL's trainers.

    python examples/trainers/trl_reward.py Qwen/Qwen2.5-0.5B-Instruct

To install the grader, run `pip install .` in a clone of mclabel, in the environment of TRL. This
changes no version of another package. The grader needs no server. docs/rl-trainers.md explains
rewards from a PRM.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from mclabel.answers import verdict_on
from mclabel.core.records import Verdict
from mclabel.rl.adapters.rewards import extract_text

REWARDS = {Verdict.RIGHT: 1.0, Verdict.WRONG: 0.0, Verdict.UNKNOWN: None}


def right_answer(
    completions: Sequence[Any], answer: Sequence[Any], **columns: Any
) -> list[float | None]:
    """Return the rewards of completions, which are texts or conversations.

    `answer` is the column of gold answers in the data set. If a reward is None, TRL leaves the
    completion out of means and advantages.
    """
    return [
        REWARDS[verdict_on(extract_text(completion), gold)]
        for completion, gold in zip(completions, answer, strict=True)
    ]


def main(model: str, steps: int = 200) -> None:
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    GRPOTrainer(
        model,
        reward_funcs=right_answer,
        train_dataset=Dataset.from_list([{"prompt": "What is 2 + 3?\n", "answer": "5"}] * 8),
        args=GRPOConfig(num_generations=8, max_steps=steps, report_to="none"),
    ).train()


if __name__ == "__main__":
    main(sys.argv[1])
