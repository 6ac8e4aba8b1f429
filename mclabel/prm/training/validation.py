"""How well a step model scores the steps of problems that it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution
from mclabel.prm.examples.packed import Example
from mclabel.prm.model.network import StepModel
from mclabel.prm.training.distributed import is_sharded
from mclabel.prm.training.losses import step_loss

NUM_BINS = 10


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Figures over held-out problems; None where there is nothing to measure."""

    num_solutions: int
    num_steps: int
    """With a label."""
    loss: float | None
    """Mean cross-entropy of the labelled steps; of a model with concentrations the mean of the
    Beta-Binomial loss that it is trained with."""
    accuracy: float | None
    """Share of labelled steps on the right side of 0.5 (targets rounded)."""
    f1_wrong: float | None
    """Harmonic mean of precision and recall of wrong steps at 0.5."""
    auc: float | None
    """Chance that a sound step scores higher than a wrong one, of any problem."""
    calibration_error: float | None
    """Mean distance between scores and targets over ten bins of equal count (ECE)."""
    pair_accuracy: float | None
    """Of right and wrong solutions of one problem: how often the right one's last step scores
    higher, ties counting half. What choosing among solutions needs; a pooled AUC hides it."""


def validate(model: StepModel, examples: Sequence[Example]) -> Validation:
    """Measure a step model on examples."""
    was_training = model.training
    model.eval()
    chosen = list(examples)

    def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[Tensor]:
        rows = model(batch).float().cpu()
        return [row[: len(one.positions)] for one, row in zip(group, rows, strict=True)]

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
    figures = step_figures(logits[labelled], targets[labelled])
    if model.concentration is not None and labelled.any():
        figures["loss"] = _counts_loss(torch.cat(outputs), chosen)
    return Validation(
        num_solutions=len(chosen),
        num_steps=int(labelled.sum()),
        **figures,
        pair_accuracy=_pair_accuracy(chosen, scores),
    )


def _counts_loss(outputs: Tensor, examples: Sequence[Example]) -> float:
    """Mean Beta-Binomial loss of the labelled steps.

    Args:
        outputs: [steps, 2], of all steps of all examples.
        examples: with trials.
    """
    targets = torch.tensor([nan if t is None else t for e in examples for t in e.targets])
    trials = torch.tensor([num for e in examples for num in e.trials])
    total = step_loss(outputs, targets, torch.ones_like(targets), trials=trials)
    return float(total) / int((~targets.isnan()).sum())


def step_figures(
    logits: NDArray[np.float64], targets: NDArray[np.float64]
) -> dict[str, float | None]:
    """Loss, accuracy, F1 of wrong steps, AUC and calibration error.

    Args:
        logits: [steps] log-odds that a step is sound.
        targets: [steps] in [0, 1].
    """
    if not len(targets):
        return dict.fromkeys(("loss", "accuracy", "f1_wrong", "auc", "calibration_error"))
    from scipy.special import expit

    scores, sound, scored_sound = expit(logits), targets > 0.5, logits > 0
    losses = np.logaddexp(0, logits) - targets * logits
    hits = int((~scored_sound & ~sound).sum())
    called = int((~scored_sound).sum()) + int((~sound).sum())
    # scipy.stats has a function for ranks, but takes longer to import than most validations take
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


def _pair_accuracy(
    examples: Sequence[Example], scores: Sequence[tuple[float, ...]]
) -> float | None:
    by_problem: dict[str, dict[bool, list[float]]] = {}
    for example, row in zip(examples, scores, strict=True):
        if example.right is None:
            continue
        sides = by_problem.setdefault(example.problem_id, {True: [], False: []})
        sides[example.right].append(row[-1])
    pairs = [
        (a > b) + 0.5 * (a == b)
        for sides in by_problem.values()
        for a in sides[True]
        for b in sides[False]
    ]
    return sum(pairs) / len(pairs) if pairs else None
