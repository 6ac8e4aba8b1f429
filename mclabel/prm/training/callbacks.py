"""What happens beside training: progress, the log, validation and early stopping by it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mclabel.prm.examples.packed import Example
from mclabel.prm.training.checkpoint import save_weights, writing
from mclabel.prm.training.distributed import from_first
from mclabel.prm.training.validation import validate

VALIDATION_LOSS = "validation_loss"


class Report(TrainerCallback):
    """Progress for the caller, figures for the log."""

    def __init__(self, path: Path, on_progress: Callable[[int, int, str], None]) -> None:
        self._path, self._on_progress = path, on_progress
        self._loss = ""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report progress after an optimizer step."""
        self._on_progress(state.global_step, state.max_steps, self._loss)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Append figures to the log; the first worker does."""
        if not logs or not state.is_world_process_zero:
            return
        if "loss" in logs:
            self._loss = f"loss {logs['loss']:.3f}"
        if "loss" in logs or VALIDATION_LOSS in logs:
            with writing(self._path), self._path.open("a") as file:
                file.write(json.dumps({"step": state.global_step, **logs}) + "\n")


class Validate(TrainerCallback):
    """Validation, and early stopping by it.

    Past figures lie in the trainer's own log history, which checkpoints keep: a resumed run stops
    where the whole one would have stopped. Every worker validates, and uses the figures of the
    first: their floats may differ in the last bit.
    """

    def __init__(
        self,
        trainer: Trainer,
        validation: Sequence[Example],
        best: Path,
        *,
        every: int | None,
        patience: int | None,
    ) -> None:
        """Validate a trainer's model as it goes.

        Args:
            trainer: that calls this.
            validation: examples to validate on.
            best: file for the best weights, written if there is a patience.
            every: optimizer steps between two validations; None validates after every epoch.
            patience: validations without a lower loss after which training stops.
        """
        self._trainer, self._validation, self._best = trainer, validation, best
        self._every, self._patience = every, patience

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Validate every so many optimizer steps, if asked for."""
        if self._every is not None and state.global_step % self._every == 0:
            self._run(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Validate after every epoch, unless steps between validations are given."""
        if self._every is None:
            self._run(state, control)

    def _run(self, state: TrainerState, control: TrainerControl) -> None:
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        figures: Mapping[str, float | None] = from_first(asdict(validate(model, self._validation)))
        self._trainer.log({f"validation_{k}": v for k, v in figures.items() if v is not None})
        if self._patience is None or figures["loss"] is None:
            return
        losses = [row[VALIDATION_LOSS] for row in state.log_history if VALIDATION_LOSS in row]
        best = losses.index(min(losses))
        if best == len(losses) - 1:
            save_weights(model, self._best)
        if len(losses) - 1 - best >= self._patience:
            control.should_training_stop = True
