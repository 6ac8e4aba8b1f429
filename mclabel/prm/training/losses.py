"""Losses over the labelled steps of a batch.

Losses are summed, not averaged. The trainer divides the sum by the total weight of an optimizer
step. Training therefore does not depend on how the step is split into micro-batches and workers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mclabel.core.boundary import Boundary, describe_value
from mclabel.core.components import find_component

NOT_FINITE = "Lower head_lr or backbone_lr, check the base model, and train into another out"
"""Remedy if the loss or the weights are not finite."""


def cross_entropy(log_odds: Tensor, targets: Tensor) -> Tensor:
    """Return - (t log p + (1 - t) log(1 - p)) for each step, with p = sigmoid(log-odds).

    With targets in {0, 1} this is the loss of Math-Shepherd (arXiv 2312.08935, eq. 1). Soft targets
    generalise it.
    """
    return functional.binary_cross_entropy_with_logits(log_odds, targets, reduction="none")


def squared_error(log_odds: Tensor, targets: Tensor) -> Tensor:
    """Return the Brier score (p - t)^2 of each step, with p = sigmoid(log-odds)."""
    return (log_odds.sigmoid() - targets) ** 2


def compute_step_loss(
    logits: Tensor,
    targets: Tensor,
    weights: Tensor,
    *,
    loss: str = "cross_entropy",
) -> Tensor:
    """Return the weighted sum of the losses of the labelled steps.

    With three classes (wrong, neutral, sound) the loss is the cross-entropy with class round(2 t).

    Args:
        logits: log-odds of shape (batch, steps), or logits of three classes (batch, steps, 3).
        targets: targets in [0, 1] of shape (batch, steps); NaN for steps without a label.
        weights: weights >= 0 of shape (batch, steps).
        loss: name of a loss of log-odds: built in, or from an entry point or `module:function`.

    Returns:
        A scalar. It is zero with zero gradients if no step is labelled.
    """
    labelled = ~targets.isnan()
    if not labelled.any():
        return logits.sum() * 0.0
    chosen, wanted = logits[labelled].float(), targets[labelled]
    if logits.dim() == targets.dim() + 1:
        losses = functional.cross_entropy(chosen, (2 * wanted).round().long(), reduction="none")
    else:
        losses = _compute_losses_by_name(loss, chosen, wanted)
    total: Tensor = (losses * weights[labelled]).sum()
    return total


def _compute_losses_by_name(name: str, log_odds: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of each labelled step, computed by the loss of a given name.

    Raises:
        ComponentError: a user's own loss function fails, or does not return one loss per step.
    """
    loss, boundary = find_component("losses", name), Boundary("losses", name)
    losses: Tensor = boundary.call(
        "loss", loss, log_odds, targets, rule=None if boundary.is_built_in else _find_losses_fault
    )
    return losses


def _find_losses_fault(losses: object, log_odds: Tensor, targets: Tensor) -> str | None:
    if not isinstance(losses, Tensor):
        return f"gave {describe_value(losses)}, but must give a tensor"
    if losses.shape != log_odds.shape:
        return (
            f"gave a tensor of shape {tuple(losses.shape)} for {len(log_odds)} steps, but must "
            "give one number per step, not their mean or sum"
        )
    if not losses.dtype.is_floating_point or (torch.is_grad_enabled() and not losses.requires_grad):
        return (
            f"gave a tensor of type {losses.dtype} without a gradient, but must compute the losses "
            "from the log-odds"
        )
    return None if bool(losses.isfinite().all()) else "gave numbers that are not finite"
