"""Train a policy with TRL's GRPO trainer, solutions from mclabel's engine, and credit per token.

OUT/rl.json          configuration of the run; a folder belongs to one run
OUT/checkpoints/     checkpoints; only those marked as complete are used
OUT/log.jsonl        figures of every optimizer step
OUT/measured/        measurements of the policy on held-out problems, by optimizer step
OUT/model/           trained policy, written atomically

The loss is that of Dr. GRPO (2503.20783): it sums over tokens and does not divide by the standard
deviation of a group's rewards, which has no meaning for step advantages. Training is on policy:
each solution is used once, with the weights that sampled it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback

from mclabel.core.errors import TrainingError
from mclabel.core.plain_files import write_atomically
from mclabel.core.records import Problem
from mclabel.engines.settings import PolicySettings
from mclabel.prm.training.checkpoint import (
    CheckpointMarking,
    check_checkpoint,
    explain_write_errors,
    find_last_checkpoint,
)
from mclabel.rl.config import MeasureSettings, RLSettings
from mclabel.rl.groups import Group
from mclabel.rl.training.record import (
    LOG,
    MEASURED,
    NUM_KEPT,
    remove_records_after,
    write_samples,
)
from mclabel.rl.training.rollouts import LiveEngine, StepRollouts, get_model_weights
from mclabel.rl.training.trl import GRPOConfig, StepGRPOTrainer
from mclabel.run.trainings import CHECKPOINTS, mark_finished, step_of

MAX_GRAD_NORM = 1.0
"""Maximum norm of the gradient. A gradient with a larger norm is scaled down to this norm."""
KEPT_FIGURES = ("loss", "grad_norm", "kl", "entropy")
"""Names of the TRL figures that are copied to the log."""

OnProgress = Callable[[int, int, str], None]


@dataclass(frozen=True, kw_only=True)
class TrainingInputs:
    """Inputs of a training run."""

    model: Any
    """Transformers model to train, on its device."""
    tokenizer: Any
    """Tokenizer of the model."""
    policy: PolicySettings
    """Settings of the policy, including its sampling."""
    engine: LiveEngine
    """Engine with the weights of the initial policy. Its context must already be entered."""
    rollouts: StepRollouts
    """Sampler of the groups of each optimizer step."""
    problems: Sequence[Problem]
    """Problems to train on."""
    others: Sequence[Problem]
    """Held-out problems to measure on. If it is empty, nothing is measured."""
    settings: RLSettings
    """Settings of the training run."""
    measuring: MeasureSettings
    """Settings of the measurements."""
    out: Path
    """Output folder."""
    load_first: Callable[[], Any]
    """Function that loads the initial policy again, to measure the KL divergence from it."""
    bf16: bool = False
    """True to compute in bfloat16 mixed precision."""
    on_cpu: bool = True
    """True if the model is trained on a CPU."""


def train_policy(training: TrainingInputs, on_progress: OnProgress) -> None:
    """Train the model in place, resuming from the last complete checkpoint.

    Args:
        training: inputs of the training run.
        on_progress: function that is called with the completed and the total number of optimizer
            steps, and a line of figures.

    Raises:
        TrainingError: the last checkpoint is damaged, or the loss is not finite.
        EngineError: the engine died.
    """
    last = find_last_checkpoint(training.out / CHECKPOINTS)
    if last is not None:
        check_checkpoint(last)
    with explain_write_errors(training.out / LOG):
        remove_records_after(training.out, 0 if last is None else step_of(last) or 0)
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(training.out / "tensorboard")
    recorder = _Recorder(training, on_progress)
    rollouts = training.rollouts
    trainer = _PolicyTrainer(
        model=training.model,
        reward_funcs=_logged_outcome_rewards,
        args=make_grpo_arguments(training),
        train_dataset=Dataset.from_dict(
            {"prompt": [problem.text for problem in training.problems]}
        ),
        processing_class=training.tokenizer,
        rollout_func=rollouts.sample,
        step_credit=lambda completion_ids, **_: rollouts.advantages(completion_ids),
        callbacks=[recorder],
    )
    trainer.remove_callback(PrinterCallback)
    recorder.trainer = trainer
    trainer.train(resume_from_checkpoint=None if last is None else str(last))
    recorder.measure(training.settings.steps)


def make_grpo_arguments(training: TrainingInputs) -> GRPOConfig:
    """Return the arguments of TRL's trainer for our settings."""
    settings, policy = training.settings, training.policy
    solutions = settings.problems_per_step * settings.group_size
    return GRPOConfig(
        output_dir=str(training.out / CHECKPOINTS),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.micro_batch,
        gradient_accumulation_steps=solutions // settings.micro_batch,
        num_generations=settings.group_size,
        max_completion_length=policy.max_tokens,
        temperature=policy.temperature,
        top_p=policy.top_p,
        top_k=policy.top_k,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        max_grad_norm=MAX_GRAD_NORM,
        beta=settings.beta,
        loss_type="dr_grpo",
        scale_rewards="none",
        save_strategy="steps",
        save_steps=settings.save_steps,
        save_total_limit=2,
        logging_steps=1,
        seed=settings.seed,
        data_seed=settings.seed,
        bf16=training.bf16,
        gradient_checkpointing=not training.on_cpu,
        use_cpu=training.on_cpu,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to=list(settings.report_to),
    )


def _logged_outcome_rewards(outcome_reward: Sequence[float], **_: Any) -> list[float]:
    """Return the outcome rewards as TRL's reward function. TRL only logs them."""
    return list(outcome_reward)


class _PolicyTrainer(CheckpointMarking, StepGRPOTrainer):
    """TRL's trainer with checkpoints that are marked as complete and checked before resuming."""


class _Recorder(TrainerCallback):
    """A callback that writes the log and the measurements."""

    def __init__(self, training: TrainingInputs, on_progress: OnProgress) -> None:
        self._training, self._on_progress = training, on_progress
        self.trainer: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure the policy before the step, if a measurement is due."""
        if state.global_step % self._training.measuring.every == 0:
            self.measure(state.global_step)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        """Append a step's figures to the log."""
        if not logs or "loss" not in logs:
            return
        kept = {name: logs[name] for name in KEPT_FIGURES if name in logs}
        for name, value in kept.items():
            if not math.isfinite(value):
                raise TrainingError(
                    f"step {state.global_step}: {name} is {value}. Lower learning_rate, "
                    "and start again from an earlier checkpoint"
                )
        figures = {"step": state.global_step, **kept, **self._training.rollouts.figures}
        path = self._training.out / LOG
        with explain_write_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures) + "\n")
        line = f"right {figures['pass_at_1']:.3f}, {figures['length']:.0f} tokens"
        self._on_progress(state.global_step, state.max_steps, line)

    def measure(self, step: int) -> None:
        """Measure the current weights on other problems, once per step."""
        training = self._training
        path = training.out / MEASURED / f"{step}.json"
        if path.is_file() or not training.others:
            return
        training.engine.update(get_model_weights(self.trainer))
        measuring = training.measuring
        measurement, groups = training.rollouts.measure(
            training.others, samples=measuring.samples, seed=training.settings.seed + 1
        )
        measurement = replace(measurement, kl=self._kl(groups[:NUM_KEPT]))
        with explain_write_errors(path):
            write_samples(training.out / MEASURED / f"{step}.samples.jsonl", groups)
            write_atomically(path, json.dumps(measurement.to_json()).encode())
        self._on_progress(
            step, training.settings.steps, f"on other problems right {measurement.pass_at(1):.3f}"
        )

    def _kl(self, groups: Sequence[Group]) -> float:
        """Return the KL divergence from the first policy; see `estimate_kl_divergence`."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        first = self._training.load_first().to(model.device)
        temperature = self._training.policy.temperature
        return estimate_kl_divergence(model, first, groups, temperature=temperature)


def save_policy(model: Any, source: Path, out: Path) -> None:
    """Save the trained policy to a folder atomically.

    The folder gets the trained weights, and copies of all other files of the initial policy.

    Args:
        model: trained model.
        source: folder of the initial policy.
        out: folder to create; it must not exist.
    """
    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with explain_write_errors(partial):
        model.save_pretrained(partial)
        for path in source.iterdir():
            is_weights = ".safetensors" in path.name
            if path.is_file() and not is_weights and not (partial / path.name).exists():
                shutil.copy2(path, partial / path.name)
        mark_finished(out.parent, partial)
        partial.replace(out)


# KL divergence of the trained policy from the initial policy.


@torch.no_grad()
def estimate_kl_divergence(
    model: Any, first: Any, groups: Sequence[Group], *, temperature: float
) -> float:
    """Return the mean KL divergence per token of a policy from the initial policy, in nats.

    The divergence is exact at each token, because it compares the full distributions. Only the
    tokens are sampled: they are those of the policy's own solutions.

    Args:
        model: transformers model of the policy. Its training mode is restored at the end.
        first: transformers model of the initial policy, on the same device.
        groups: groups sampled from the policy.
        temperature: sampling temperature of the groups.

    Returns:
        The mean over all tokens; 0 if there are no tokens.
    """
    was_training = model.training
    model.eval()
    first.eval()
    total, count = 0.0, 0
    try:
        for group in groups:
            for solution in group.solutions:
                if not solution.ids:
                    continue
                ids = torch.tensor([[*group.prompt, *solution.ids]], device=model.device)
                policy_logprobs, first_logprobs = (
                    _logprobs(compared_model, ids, len(solution.ids), temperature)
                    for compared_model in (model, first)
                )
                total += float((policy_logprobs.exp() * (policy_logprobs - first_logprobs)).sum())
                count += len(solution.ids)
    finally:
        model.train(was_training)
    return total / count if count else 0.0


def _logprobs(model: Any, ids: Tensor, num_last: int, temperature: float) -> Tensor:
    """Return the log-probabilities that predict the last tokens [num_last, vocabulary]."""
    logits = model(input_ids=ids, logits_to_keep=num_last + 1).logits[0, :-1]
    return torch.log_softmax(logits.float() / temperature, dim=-1)
