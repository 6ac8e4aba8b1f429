"""The arguments of Hugging Face's `Trainer` for a step model."""

from __future__ import annotations

import os
from pathlib import Path

from transformers import TrainingArguments

from mclabel.errors import TrainingError
from mclabel.prm.model.network import StepModel
from mclabel.prm.training.settings import TrainerSettings


def trainer_arguments(
    model: StepModel, checkpoints: Path, settings: TrainerSettings, num_steps: int
) -> TrainingArguments:
    """The arguments of `Trainer`, which has other names for most settings.

    Args:
        model: on the device that it is trained on.
        checkpoints: folder for them.
        settings: how it is trained.
        num_steps: optimizer steps.

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
        bf16=settings.mixes_precision(str(device)),
        use_cpu=device.type == "cpu",
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to=list(settings.report_to),
    )
    # `Trainer` would spread a worker's batch over all GPUs that it sees.
    assert arguments.device is not None  # chooses the GPU, and counts
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments
