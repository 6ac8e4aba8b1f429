"""Train a step model on examples with the Hugging Face `Trainer`; a killed run can be resumed.

OUT/train.json       configuration and data of the run; a folder belongs to one run
OUT/checkpoints/     checkpoints; only those marked as complete are used
OUT/log.jsonl        loss, learning rates and validation figures
OUT/tensorboard/     the same figures for TensorBoard, if `report_to` names it
OUT/model/           the finished PRM, moved here when all files are written

Splitting an optimizer step into pieces and workers changes its result only by rounding: losses are
summed over all pieces and workers, then divided by the total weight of their steps. If a run is
resumed on the same kind of machine with the same number of workers, its final weights are the same
to the last bit.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Sampler
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from mclabel.core.errors import TrainingError
from mclabel.engines.pretrained import load_torch_state
from mclabel.prm.examples.batch import StepBatch
from mclabel.prm.examples.encode import Example, PackedExamples
from mclabel.prm.model.heads import LikelihoodHead
from mclabel.prm.model.network import StepModel
from mclabel.prm.training.callbacks import (
    ProgressReporter,
    Validation,
    ValidationCallback,
    validate,
)
from mclabel.prm.training.checkpoint import (
    OPTIMIZER,
    SCHEDULER,
    CheckpointMarkingMixin,
    check_checkpoint,
    explain_resume_errors,
    find_last_checkpoint,
    load_optimizer,
    load_weights,
    save_optimizer,
    save_weights,
)
from mclabel.prm.training.distributed import (
    broadcast_from_first,
    gather_tensor,
    get_local_shard,
    is_sharded,
)
from mclabel.prm.training.head_fit import fit_head
from mclabel.prm.training.items import (
    LengthGroupedSampler,
    TrainingItems,
    choose_num_pieces,
    collate,
    compute_wrong_and_sound_factors,
    cut_batch_into_pieces,
    precompute_head_inputs,
    sort_rows_longest_first,
)
from mclabel.prm.training.losses import NOT_FINITE, compute_step_loss
from mclabel.prm.training.settings import TrainerSettings
from mclabel.run.trainings import BEST, CHECKPOINTS

STATE = "trained.safetensors"
"""File of a checkpoint that holds the trained weights. Frozen weights are not stored, because they
are those of the base."""


def train_step_model(
    model: StepModel,
    train: Sequence[Example],
    validation: Sequence[Example],
    out: Path,
    *,
    settings: TrainerSettings,
    on_progress: Callable[[int, int, str], None] = lambda step, total, detail: None,
) -> Validation:
    """Train a model in place, resuming from the last complete checkpoint under `out`.

    In a process group, every rank must call this function with the same arguments.

    Args:
        model: model with a new head. `distributed.shard_model` may have sharded it.
        train: examples to train on.
        validation: examples of other problems for validation; may be empty.
        out: folder for checkpoints and the log.
        settings: settings of the trainer.
        on_progress: called with completed and total optimizer steps, and the loss as text.

    Returns:
        The validation figures after training.

    Raises:
        TrainingError: the last checkpoint is damaged, the loss is not finite, or the workers cannot
            share the batch evenly.
    """
    packed = train if isinstance(train, PackedExamples) else PackedExamples(train)
    checkpoints = out / CHECKPOINTS
    last = find_last_checkpoint(checkpoints)
    if last is not None:
        check_checkpoint(last)
    rate = settings.resolve_body_learning_rate(has_adapters=model.has_adapters)
    model.freeze(body=rate == 0)
    body, head = model.body_and_head_parameters()
    groups = [{"params": head, "lr": settings.head_lr}]
    if rate > 0:
        groups.append({"params": [p for p in body if p.requires_grad], "lr": rate})
    per_epoch = math.ceil(len(packed) / settings.batch_size)
    num_steps = settings.max_steps or max(1, math.ceil(settings.epochs * per_epoch))
    head_inputs = precompute_head_inputs(model, packed, on_progress) if rate == 0 else None
    factors = compute_wrong_and_sound_factors(packed) if settings.balance else None
    if last is None and isinstance(model, LikelihoodHead):
        fit_head(
            model,
            packed,
            head_inputs,
            loss=settings.loss,
            wrong_and_sound_factors=factors,
            on_progress=on_progress,
        )
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(out / "tensorboard")
    trainer = _StepTrainer(
        settings=settings,
        model=model,
        args=make_trainer_arguments(model, checkpoints, settings, num_steps),
        train_dataset=TrainingItems(packed, head_inputs, factors),
        data_collator=collate,
        optimizer=torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0),
        callbacks=[ProgressReporter(out / "log.jsonl", on_progress)],
    )
    trainer.remove_callback(PrinterCallback)
    if validation:
        trainer.add_callback(
            ValidationCallback(
                trainer,
                validation,
                checkpoints / BEST,
                every=settings.eval_steps,
                patience=settings.patience,
            )
        )
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    if settings.patience is not None and broadcast_from_first((checkpoints / BEST).is_file()):
        load_weights(model, checkpoints / BEST)
    finite = torch.tensor(
        all(bool(get_local_shard(p).isfinite().all()) for p in model.parameters())
    )
    if not trainer.accelerator.gather(finite[None].to(trainer.args.device)).all():
        raise TrainingError(
            "the weights contain NaN or infinite values after the last step. " + NOT_FINITE
        )
    return validate(model, validation)


class _StepTrainer(CheckpointMarkingMixin, Trainer):
    """The Hugging Face `Trainer` with mclabel's loss and checkpoint format."""

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        *,
        settings: TrainerSettings,
        model: StepModel,
        optimizer: torch.optim.Optimizer,
        **arguments: Any,
    ) -> None:
        self._settings, self._sharded = settings, is_sharded(model)
        self._plain_optimizer = optimizer
        super().__init__(model=model, optimizers=(optimizer, None), **arguments)

    def create_accelerator_and_postprocess(self) -> None:
        """Prepare the model for training.

        A sharded model gets no wrapper that averages gradients, since sharding already does this.
        """
        super().create_accelerator_and_postprocess()
        if self._sharded:
            self.accelerator.prepare_model = partial(
                self.accelerator.prepare_model, evaluation_mode=True
            )

    def _get_train_sampler(self, train_dataset: Dataset[Any] | None = None) -> Sampler[int]:
        assert isinstance(self.train_dataset, TrainingItems)
        examples = self.train_dataset.examples
        return LengthGroupedSampler(
            examples.lengths,
            self._settings.batch_size,
            self.args.seed,
            fill=self.args.world_size > 1,
        )

    def _get_num_items_in_batch(
        self, batch_samples: list[dict[str, Tensor]], device: torch.device
    ) -> Tensor:
        """Return the total weight of the labelled steps in an optimizer step, over all workers."""
        weight = sum(
            (b["weights"] * ~b["targets"].isnan()).sum(dtype=torch.float64) for b in batch_samples
        )
        return cast(
            Tensor, self.accelerator.gather(torch.as_tensor(weight, device=device)[None]).sum()
        )

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Return the loss of a piece of a batch, divided by the weight of the optimizer step."""
        targets, weights, _ = (inputs.pop(n) for n in ("targets", "weights", "num_steps"))
        head_inputs = inputs.pop("head_inputs", None)
        logits = model(StepBatch(**inputs) if head_inputs is None else head_inputs)  # type: ignore[arg-type]
        loss = compute_step_loss(logits, targets, weights, loss=self._settings.loss)
        assert isinstance(num_items_in_batch, Tensor)
        # Gradients are averaged over workers, but num_items_in_batch is the sum over workers.
        scale = self.accelerator.num_processes / num_items_in_batch.clamp(min=1e-9)
        loss = loss * scale.to(loss.dtype)
        if not torch.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss.item()} at step {self.state.global_step}. {NOT_FINITE}"
            )
        return cast(Tensor, loss)

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Compute a batch in pieces that fit into memory, and return its loss.

        The gradients of the pieces are summed.
        """
        pieces = self._cut_into_pieces(inputs)
        total = torch.zeros((), device=self.args.device)
        for number, piece in enumerate(pieces, start=1):
            # Sharded gradients are summed after every piece. Others are averaged over workers
            # only once, after the last piece.
            alone = number < len(pieces) and not self._sharded
            with self.accelerator.no_sync(model) if alone else nullcontext():
                total += super().training_step(model, piece, num_items_in_batch)
        return total

    def _cut_into_pieces(self, inputs: dict[str, Any]) -> list[dict[str, Any]]:
        """Cut a batch into pieces that fit into memory.

        All workers use the same number of pieces, because they must gather sharded layers together.
        """
        if "head_inputs" in inputs:
            return [inputs]
        rows = sort_rows_longest_first(inputs)
        number = choose_num_pieces(inputs, rows, self._settings.micro_tokens)
        if self.accelerator.num_processes > 1:
            number = int(
                self.accelerator.gather(torch.tensor([number], device=self.args.device)).max()
            )
        return cut_batch_into_pieces(inputs, rows, number)

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        norm: Tensor = super()._clip_grad_norm(model)  # type: ignore[no-untyped-call]
        return gather_tensor(norm)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the trained weights into a checkpoint. All workers contribute their shards."""
        assert output_dir is not None
        save_weights(self._get_step_model(), Path(output_dir) / STATE)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        save_optimizer(self._get_step_model(), self._plain_optimizer, Path(output_dir) / OPTIMIZER)
        if self.args.should_save:
            assert self.lr_scheduler is not None
            torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / SCHEDULER)

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: nn.Module | None = None
    ) -> None:
        folder = Path(resume_from_checkpoint)
        with explain_resume_errors(folder, STATE):
            load_weights(self._get_step_model(), folder / STATE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        folder = Path(checkpoint)
        with explain_resume_errors(folder, OPTIMIZER):
            load_optimizer(self._get_step_model(), self._plain_optimizer, folder / OPTIMIZER)
        assert self.lr_scheduler is not None
        with explain_resume_errors(folder, SCHEDULER):
            self.lr_scheduler.load_state_dict(load_torch_state(folder / SCHEDULER))

    def _get_step_model(self) -> StepModel:
        return cast(StepModel, self.accelerator.unwrap_model(self.model))


def make_trainer_arguments(
    model: StepModel, checkpoints: Path, settings: TrainerSettings, num_steps: int
) -> TrainingArguments:
    """Return the arguments of the Hugging Face `Trainer` that correspond to our settings.

    Args:
        model: the model to train, on its training device.
        checkpoints: folder for checkpoints.
        settings: settings of the trainer.
        num_steps: total number of optimizer steps.

    Raises:
        TrainingError: the workers of the process group cannot share a batch evenly.
    """
    device = next(model.parameters()).device
    workers = int(os.environ.get("WORLD_SIZE", 1))
    share, rest = divmod(settings.batch_size, workers)
    if rest:
        raise TrainingError(
            f"batch_size={settings.batch_size}: must be a multiple of workers={workers}. Change "
            "one of them"
        )
    arguments = TrainingArguments(
        output_dir=str(checkpoints),
        max_steps=num_steps,
        per_device_train_batch_size=share,
        lr_scheduler_type="linear",
        warmup_steps=round(settings.warmup * num_steps),
        max_grad_norm=1.0,
        save_strategy="steps",
        save_steps=settings.save_steps,
        save_total_limit=2,
        logging_steps=10,
        logging_nan_inf_filter=False,
        seed=settings.seed,
        bf16=settings.uses_mixed_precision(str(device)),
        use_cpu=device.type == "cpu",
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to=list(settings.report_to),
    )
    # By default, `Trainer` spreads a worker's batch over all GPUs that are visible to it.
    assert arguments.device is not None  # reading this property selects the GPU and counts GPUs
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments
