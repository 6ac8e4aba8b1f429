"""Trainer callbacks for progress reports, the log file, validation and early stopping."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution, Example
from mclabel.prm.model.network import StepModel
from mclabel.prm.training.checkpoint import explain_write_errors, save_weights
from mclabel.prm.training.distributed import broadcast_from_first, is_sharded

VALIDATION_LOSS = "validation_loss"
"""Key of the validation loss in the trainer's log history."""


class ProgressReporter(TrainerCallback):
    """Reports progress to the caller and writes figures to the log file."""

    def __init__(self, path: Path, on_progress: Callable[[int, int, str], None]) -> None:
        """Create the reporter of one training run.

        Args:
            path: path of the log file, to which JSON lines are appended.
            on_progress: called with completed and total optimizer steps, and the loss as text.
        """
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
        """Append figures to the log file, in the first worker only."""
        if not logs or not state.is_world_process_zero:
            return
        if "loss" in logs:
            self._loss = f"loss {logs['loss']:.3f}"
        if "loss" in logs or VALIDATION_LOSS in logs:
            with explain_write_errors(self._path), self._path.open("a") as file:
                file.write(json.dumps({"step": state.global_step, **logs}) + "\n")


class ValidationCallback(TrainerCallback):
    """Validates the model during training, and stops training early.

    Earlier validation losses are read from the trainer's log history. Checkpoints store that
    history, so a resumed run stops at the same step as an uninterrupted one. Every worker validates
    but uses the figures of the first worker, because floats may differ in the last bit.
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
        """Create the callback for a trainer.

        Args:
            trainer: the trainer that calls this callback.
            validation: examples to validate on.
            best: path of the file for the best weights. It is written only if `patience` is given.
            every: optimizer steps between two validations; None validates after every epoch.
            patience: number of validations without a lower loss after which training stops; None
                never stops early.
        """
        self._trainer, self._validation, self._best = trainer, validation, best
        self._every, self._patience = every, patience

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Validate if the step is a multiple of `every`."""
        if self._every is not None and state.global_step % self._every == 0:
            self._validate_and_maybe_stop(state, control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Validate after the epoch if `every` is None."""
        if self._every is None:
            self._validate_and_maybe_stop(state, control)

    def _validate_and_maybe_stop(self, state: TrainerState, control: TrainerControl) -> None:
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        figures: Mapping[str, float | None] = broadcast_from_first(
            asdict(validate(model, self._validation))
        )
        self._trainer.log({f"validation_{k}": v for k, v in figures.items() if v is not None})
        if self._patience is None or figures["loss"] is None:
            return
        losses = [row[VALIDATION_LOSS] for row in state.log_history if VALIDATION_LOSS in row]
        best = losses.index(min(losses))
        if best == len(losses) - 1:
            save_weights(model, self._best)
        if len(losses) - 1 - best >= self._patience:
            control.should_training_stop = True


NUM_BINS = 10
"""Number of bins of the calibration error."""


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Figures over held-out problems. A figure is None if it is undefined for them."""

    num_solutions: int
    """Number of validation solutions."""
    num_steps: int
    """Number of labelled steps."""
    loss: float | None
    """Mean cross-entropy of the labelled steps."""
    accuracy: float | None
    """Share of labelled steps whose score and target lie on the same side of 0.5."""
    f1_wrong: float | None
    """F1 of predicting wrong steps: a step is predicted wrong if its score is at most 0.5."""
    auc: float | None
    """Area under the ROC curve: probability that a random sound step scores higher than a random
    wrong step. The two steps may belong to different problems."""
    calibration_error: float | None
    """Expected calibration error (ECE): mean absolute difference between mean score and mean
    target, over ten bins with equal numbers of steps."""
    pair_accuracy: float | None
    """Share of pairs of a right and a wrong solution in which the right one's last step scores
    higher. Both solutions belong to the same problem, and ties count half. This figure measures how
    well solutions can be selected, which a pooled AUC hides.
    """


def validate(model: StepModel, examples: Sequence[Example]) -> Validation:
    """Score examples with a step model, and return the validation figures."""
    was_training = model.training
    model.eval()
    chosen = list(examples)

    def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[Tensor]:
        rows = model(batch).float().cpu()
        return [row[: len(solution.positions)] for solution, row in zip(group, rows, strict=True)]

    outputs = map_solutions(
        [e.encoded for e in chosen],
        compute,
        network=model.network,
        threads=1 if is_sharded(model) else torch.get_num_threads(),
        on_progress=lambda done, total: None,
    )
    model.train(was_training)
    scores = [tuple(model.log_odds(row[None])[0].tolist()) for row in outputs]
    logits = np.array([logit for row in scores for logit in row])
    targets = np.array([nan if t is None else t for e in chosen for t in e.targets])
    labelled = ~np.isnan(targets)
    figures = compute_step_figures(logits[labelled], targets[labelled])
    return Validation(
        num_solutions=len(chosen),
        num_steps=int(labelled.sum()),
        **figures,
        pair_accuracy=_compute_pair_accuracy(chosen, scores),
    )


def compute_step_figures(
    logits: NDArray[np.float64], targets: NDArray[np.float64]
) -> dict[str, float | None]:
    """Compute the figures of `Validation` that depend on single steps.

    Args:
        logits: log-odds that each step is sound; shape (steps,).
        targets: target of each step, in [0, 1]; shape (steps,).

    Returns:
        Loss, accuracy, F1 of wrong steps, AUC and calibration error, by field of `Validation`.
    """
    if not len(targets):
        return dict.fromkeys(("loss", "accuracy", "f1_wrong", "auc", "calibration_error"))
    from scipy.special import expit

    scores, sound, scored_sound = expit(logits), targets > 0.5, logits > 0
    losses = np.logaddexp(0, logits) - targets * logits
    hits = int((~scored_sound & ~sound).sum())
    called = int((~scored_sound).sum()) + int((~sound).sum())
    # scipy.stats also computes ranks, but importing it takes longer than most validations
    _, place, ties = np.unique(logits, return_inverse=True, return_counts=True)
    ranks, num_sound = (np.cumsum(ties) - (ties - 1) / 2)[place], int(sound.sum())
    num_pairs = num_sound * (len(sound) - num_sound)
    above = float(ranks[sound].sum()) - num_sound * (num_sound + 1) / 2
    order = np.argsort(scores, kind="stable")
    gaps = [
        len(part) * abs(float(scores[part].mean() - targets[part].mean()))
        for part in np.array_split(order, min(NUM_BINS, len(order)))
    ]
    return {
        "loss": float(losses.mean()),
        "accuracy": float((scored_sound == sound).mean()),
        "f1_wrong": 2 * hits / called if called else None,
        "auc": above / num_pairs if num_pairs else None,
        "calibration_error": sum(gaps) / len(order),
    }


def _compute_pair_accuracy(
    examples: Sequence[Example], scores: Sequence[tuple[float, ...]]
) -> float | None:
    by_problem: dict[str, dict[bool, list[float]]] = {}
    for example, row in zip(examples, scores, strict=True):
        if example.is_right is None:
            continue
        sides = by_problem.setdefault(example.problem_id, {True: [], False: []})
        sides[example.is_right].append(row[-1])
    pairs = [
        (a > b) + 0.5 * (a == b)
        for sides in by_problem.values()
        for a in sides[True]
        for b in sides[False]
    ]
    return sum(pairs) / len(pairs) if pairs else None
