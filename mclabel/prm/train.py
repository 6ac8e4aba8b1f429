"""Train a step model on examples: Hugging Face `Trainer`, resumed after any kill.

OUT/train.json       what is trained on what; a folder belongs to one such run
OUT/checkpoints/     one counts only when it is marked complete
OUT/log.jsonl        loss and learning rates, and validation after every epoch
OUT/model/           the finished PRM, put there whole
"""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Sampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import sort_checkpoints

from mclabel.errors import TrainingError
from mclabel.prm.batch import StepBatch, make_batch
from mclabel.prm.examples import Example
from mclabel.prm.losses import step_loss
from mclabel.prm.model import StepModel

MEGABATCH = 50
"""Batches among whose solutions neighbours in length are put together."""
MAX_OBSERVED_BYTES = 2 * 2**30
"""What a frozen body says of the examples is kept if it is no more than this."""
COMPLETE = "complete"
"""Empty file, the last to be written into a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a step model is trained."""

    epochs: float = 3.0
    max_steps: int | None = None
    """Optimizer steps; overrides `epochs`."""
    batch_size: int = 16
    """Solutions an optimizer step."""
    backbone_lr: float = 1e-5
    """0 freezes the body."""
    head_lr: float = 1e-3
    warmup: float = 0.05
    """Share of the steps over which the rates rise; then they fall linearly to 0."""
    weight_decay: float = 0.0
    seed: int = 0
    save_steps: int = 200
    """Optimizer steps between two checkpoints."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Figures over held-out problems; None where there is nothing to measure."""

    num_solutions: int
    loss: float | None
    accuracy: float | None
    """Share of labelled steps on the right side of 0.5 (targets rounded)."""
    pair_accuracy: float | None
    """Of right and wrong solutions of one problem: how often the right one's last step scores
    higher, ties counting half."""


def train_step_model(
    model: StepModel,
    train: Sequence[Example],
    validation: Sequence[Example],
    out: Path,
    *,
    settings: TrainSettings,
    on_progress: Callable[[int, int, str], None] = lambda step, total, detail: None,
) -> Validation:
    """Train in place, resuming from the last whole checkpoint under `out`.

    Args:
        model: with a fresh head.
        train: examples to train on.
        validation: examples of other problems, may be none.
        out: folder for checkpoints and the log.
        settings: how.
        on_progress: called with steps done, steps in all, and the loss.

    Returns:
        Validation at the end.

    Raises:
        TrainingError: the loss is not finite.
    """
    checkpoints = out / "checkpoints"
    last = last_checkpoint(checkpoints)
    body, head = model.parts()
    for parameter in body:
        parameter.requires_grad_(settings.backbone_lr > 0)
    groups = [{"params": head, "lr": settings.head_lr}]
    if settings.backbone_lr > 0:
        groups.append({"params": body, "lr": settings.backbone_lr})
    per_epoch = math.ceil(len(train) / settings.batch_size)
    num_steps = settings.max_steps or max(1, math.ceil(settings.epochs * per_epoch))
    observed = None
    if settings.backbone_lr == 0 and model.body_ends_at_observe:
        observed = _observe(model, train, on_progress)
    trainer = _StepTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(checkpoints),
            max_steps=num_steps,
            per_device_train_batch_size=settings.batch_size,
            lr_scheduler_type="linear",
            warmup_steps=round(settings.warmup * num_steps),
            max_grad_norm=1.0,
            save_strategy="steps",
            save_steps=settings.save_steps,
            save_total_limit=2,
            logging_steps=10,
            logging_nan_inf_filter=False,
            seed=settings.seed,
            use_cpu=next(model.parameters()).device.type == "cpu",
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            disable_tqdm=True,
            report_to=[],
        ),
        train_dataset=_Dataset(train, observed),
        data_collator=_collate,
        optimizers=(
            torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=settings.weight_decay),
            None,
        ),
        callbacks=[_Report(out / "log.jsonl", validation, on_progress)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    if not all(parameter.isfinite().all() for parameter in model.parameters()):
        raise TrainingError("weights are no longer finite after the last step. " + _REMEDY)
    return validate(model, validation)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint; torn ones are removed."""
    if not folder.is_dir():
        return None
    whole = []
    for name in sort_checkpoints(str(folder)):
        if (Path(name) / COMPLETE).is_file():
            whole.append(Path(name))
        else:
            shutil.rmtree(name)
    return whole[-1] if whole else None


@torch.no_grad()
def validate(model: StepModel, examples: Sequence[Example], *, batch_size: int = 32) -> Validation:
    """Measure a step model on examples."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    total = labelled = right = 0.0
    last_scores: dict[str, dict[bool, list[float]]] = {}
    for start in range(0, len(examples), batch_size):
        group = examples[start : start + batch_size]
        logits = model(make_batch([e.encoded for e in group]).to(device)).cpu()
        targets = _targets(group)
        there = ~targets.isnan()
        count = int(there.sum())
        total += float(step_loss(logits, targets)) * count
        labelled += count
        right += float(((logits > 0) == (targets > 0.5))[there].sum())
        for example, row in zip(group, logits.tolist(), strict=True):
            score = row[len(example.targets) - 1]
            by_outcome = last_scores.setdefault(example.problem_id, {True: [], False: []})
            by_outcome[example.right].append(score)
    model.train(was_training)
    pairs = [
        (a > b) + 0.5 * (a == b)
        for scores in last_scores.values()
        for a in scores[True]
        for b in scores[False]
    ]
    return Validation(
        num_solutions=len(examples),
        loss=total / labelled if labelled else None,
        accuracy=right / labelled if labelled else None,
        pair_accuracy=sum(pairs) / len(pairs) if pairs else None,
    )


@torch.no_grad()
def _observe(
    model: StepModel,
    examples: Sequence[Example],
    on_progress: Callable[[int, int, str], None],
    *,
    batch_size: int = 32,
) -> list[Tensor] | None:
    """What a frozen body says of every step, computed once; None if that is too much to keep."""
    model.eval()
    device = next(model.parameters()).device
    order = sorted(range(len(examples)), key=lambda i: len(examples[i].encoded.ids))
    observed: dict[int, Tensor] = {}
    num_bytes = 0
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        batch = make_batch([examples[i].encoded for i in indices]).to(device)
        for index, rows in zip(indices, model.observe(batch).cpu(), strict=True):
            observed[index] = rows[: len(examples[index].targets)].clone()
            num_bytes += observed[index].nbytes
        if num_bytes > MAX_OBSERVED_BYTES:
            return None
        on_progress(0, 0, f"{len(observed)} of {len(examples)} solutions read")
    return [observed[i] for i in range(len(examples))]


class _Dataset(Dataset[tuple[Example, Tensor | None]]):
    def __init__(self, examples: Sequence[Example], observed: Sequence[Tensor] | None) -> None:
        self._examples, self._observed = examples, observed

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> tuple[Example, Tensor | None]:
        return self._examples[index], self._observed[index] if self._observed else None

    @property
    def lengths(self) -> list[int]:
        return [len(example.encoded.ids) for example in self._examples]


class LengthGroupedSampler(Sampler[int]):
    """Shuffled indices, those of a batch of similar length.

    The order is a function of seed and epoch alone, so that a run resumed in the middle of an
    epoch goes on with the batches that were left; that of transformers is not.
    """

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self._lengths, self._batch_size, self._seed = lengths, batch_size, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(f"{self._seed}:{self._epoch}")
        order = rng.sample(range(len(self._lengths)), len(self._lengths))
        span = self._batch_size * MEGABATCH
        groups = []
        for start in range(0, len(order), span):
            part = sorted(order[start : start + span], key=self._lengths.__getitem__)
            groups += [
                part[i : i + self._batch_size] for i in range(0, len(part), self._batch_size)
            ]
        # A short batch can only come last: the loader cuts the order every batch_size indices.
        whole = [group for group in groups if len(group) == self._batch_size]
        rng.shuffle(whole)
        rest = [group for group in groups if len(group) < self._batch_size]
        return (index for group in (*whole, *rest) for index in group)


def _collate(items: Sequence[tuple[Example, Tensor | None]]) -> dict[str, Tensor]:
    examples = [example for example, _ in items]
    observed = [rows for _, rows in items if rows is not None]
    if observed:
        inputs = {"observed": pad_sequence(observed, batch_first=True)}
    else:
        inputs = vars(make_batch([e.encoded for e in examples]))
    return {**inputs, "targets": _targets(examples)}


def _targets(examples: Sequence[Example]) -> Tensor:
    """[batch, steps], NaN where there is no label."""
    most = max(len(e.targets) for e in examples)
    nan = float("nan")
    return torch.tensor(
        [
            [*(nan if t is None else t for t in e.targets), *[nan] * (most - len(e.targets))]
            for e in examples
        ]
    )


_REMEDY = "Lower head_lr or backbone_lr, check the base model, and train into another out"


class _StepTrainer(Trainer):
    """`Trainer` with our loss and our format of checkpoints."""

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[int]:
        assert isinstance(self.train_dataset, _Dataset)
        lengths = self.train_dataset.lengths
        return LengthGroupedSampler(lengths, self._train_batch_size, self.args.seed)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        targets = inputs.pop("targets")
        observed = inputs.pop("observed", None)
        logits = model(StepBatch(**inputs) if observed is None else observed)  # type: ignore[arg-type]
        loss = step_loss(logits, targets)
        if not torch.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss.item()} at step {self.state.global_step}. {_REMEDY}"
            )
        return loss

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        assert output_dir is not None
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        self.accelerator.unwrap_model(self.model).save(Path(output_dir))

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self.args.output_dir or "") / f"checkpoint-{self.state.global_step}"
        (folder / COMPLETE).touch()

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        self.accelerator.unwrap_model(model or self.model).restore(Path(resume_from_checkpoint))


class _Report(TrainerCallback):
    """Progress for the caller, figures for the log."""

    def __init__(
        self,
        path: Path,
        validation: Sequence[Example],
        on_progress: Callable[[int, int, str], None],
    ) -> None:
        self._path, self._validation, self._on_progress = path, validation, on_progress
        self._loss = ""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self._on_progress(state.global_step, state.max_steps, self._loss)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        if logs and "loss" in logs:
            self._loss = f"loss {logs['loss']:.3f}"
            self._write({"step": state.global_step, **logs})

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **_: Any,
    ) -> None:
        if self._validation and isinstance(model, StepModel):
            figures = asdict(validate(model, self._validation))
            self._write({"step": state.global_step, "validation": figures})

    def _write(self, row: Mapping[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
