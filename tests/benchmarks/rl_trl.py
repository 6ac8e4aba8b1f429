"""Our rollouts and our trainer beside TRL's own."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from mclabel.core.config.load import load_config
from mclabel.domains.arith import bundled_model
from mclabel.domains.arith.problems import generate
from mclabel.engines import make_engine
from mclabel.rl.config import RLConfig
from mclabel.rl.training.rollouts import LiveEngine
from mclabel.rl.training.trl import GRPOConfig, GRPOTrainer, StepGRPOTrainer
from tests.benchmarks.sizes import BenchmarkSize

MAX_TOKENS = 200


def rollout_speed(size: BenchmarkSize) -> float:
    """Tokens a second of our engine, relative to TRL's `generate`, for the same groups in turn.

    Each with the threads that are fastest for it on two cores, in float32. The median of all.
    """
    num_problems, group, repeats = size.pick(smoke=(2, 2, 1), quick=(16, 8, 3), full=(32, 8, 5))
    problems = generate(num_problems, seed=31, split="train")
    keys = [f"policy.max_tokens={MAX_TOKENS}", f"group_size={group}", "out=unused"]
    keys += ["policy.engine.max_live=1024", "policy.engine.threads=1"]
    config = load_config(RLConfig, None, [*keys, "problems.limit=1"])
    ratios = []
    with TemporaryDirectory() as folder, LiveEngine(make_engine(config.policy), config) as live:
        trainer = _trainer(GRPOTrainer, Path(folder), group=group, num=num_problems * group)
        prompts = [one.text for one in problems for _ in range(group)]
        for seed in range(repeats):
            torch.set_num_threads(2)
            began = time.monotonic()
            groups = live.groups(problems, seed=seed)
            num = sum(len(s.ids) for g in groups for s in g.solutions)
            ours = num / (time.monotonic() - began)
            began = time.monotonic()
            with torch.no_grad():
                output = trainer._generate(prompts)
            theirs = sum(len(ids) for ids in output[1]) / (time.monotonic() - began)
            ratios.append(ours / theirs)
            print(f"rollouts: ours {ours:,.0f}, TRL {theirs:,.0f} tokens/s", flush=True)
    return round(sorted(ratios)[len(ratios) // 2], 2)


def gradient_difference() -> float:
    """Largest difference of a gradient from TRL's, where all steps have TRL's own advantage.

    Relative to the largest gradient. Both trainers get the same solutions and rewards.
    """
    gradients = []
    for kind in (GRPOTrainer, StepGRPOTrainer):
        with TemporaryDirectory() as folder:
            trainer = _trainer(kind, Path(folder), group=4, num=8)
            seen: list[torch.Tensor] = []
            step = trainer.accelerator.backward

            def backward(loss: Any, step: Any = step, **more: Any) -> None:
                step(loss, **more)

            trainer.accelerator.backward = backward
            clip = trainer.accelerator.clip_grad_norm_

            def keep(parameters: Any, norm: float, seen: Any = seen, clip: Any = clip) -> Any:
                parameters = list(parameters)
                seen += [p.grad.detach().clone() for p in parameters if p.grad is not None]
                return clip(parameters, norm)

            trainer.accelerator.clip_grad_norm_ = keep
            trainer.train()
            gradients.append(seen)
    most = max(float(one.abs().max()) for one in gradients[0])
    apart = max(float((a - b).abs().max()) for a, b in zip(*gradients, strict=True))
    return apart / most


def _trainer(kind: Any, folder: Path, *, group: int, num: int) -> Any:
    """A trainer for one step on the bundled policy, with rewards by length."""
    source = str(bundled_model("policy"))
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    problems = generate(max(2, num // group), seed=31, split="train")
    rows = [{"prompt": [{"role": "user", "content": one.text}]} for one in problems]
    is_ours = kind is StepGRPOTrainer

    def reward(completion_ids: Any, **_: Any) -> list[float]:
        return [len(ids) / MAX_TOKENS for ids in completion_ids]

    def credit(completion_ids: Any, **_: Any) -> list[list[float]]:
        rewards = torch.tensor(reward(completion_ids)).view(-1, group)
        centred = (rewards - rewards.mean(1, keepdim=True)).flatten().tolist()
        return [[a] * len(ids) for a, ids in zip(centred, completion_ids, strict=True)]

    torch.manual_seed(0)
    return kind(
        model,
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        args=GRPOConfig(
            output_dir=str(folder),
            max_steps=1,
            per_device_train_batch_size=num,
            num_generations=group,
            max_completion_length=MAX_TOKENS,
            temperature=0.8,
            loss_type="dr_grpo",
            scale_rewards="none",
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            seed=0,
            disable_tqdm=True,
        ),
        **({"step_credit": credit} if is_ours else {}),
    )
