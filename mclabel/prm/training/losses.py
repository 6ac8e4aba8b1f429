"""Losses over the labelled steps of a batch.

Sums, not means: the trainer divides by the weight of a whole optimizer step, so that what is
learned does not depend on how the step is cut into pieces and workers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mclabel.core.boundary import Boundary, shown
from mclabel.core.components import find_component


def cross_entropy(log_odds: Tensor, targets: Tensor) -> Tensor:
    """- (t log p + (1 - t) log(1 - p)) of each step, with p = sigmoid(log-odds).

    With targets in {0, 1} this is Math-Shepherd's loss, with soft targets its generalisation
    (arXiv 2312.08935, eq. 1).
    """
    return functional.binary_cross_entropy_with_logits(log_odds, targets, reduction="none")


def squared_error(log_odds: Tensor, targets: Tensor) -> Tensor:
    """(p - t)^2 of each step, the Brier score, with p = sigmoid(log-odds)."""
    return (log_odds.sigmoid() - targets) ** 2


def step_loss(
    logits: Tensor,
    targets: Tensor,
    weights: Tensor,
    *,
    loss: str = "cross_entropy",
) -> Tensor:
    """Weighted sum of the losses of the labelled steps.

    Of three classes (wrong, neutral, sound) the loss is the cross-entropy of the class round(2 t).

    Args:
        logits: [batch, steps] log-odds, or [batch, steps, 3].
        targets: [batch, steps], in [0, 1], NaN where there is no label.
        weights: [batch, steps], >= 0.
        loss: name of the loss of log-odds, in `LOSSES`.

    Returns:
        A scalar; zero, with zero gradients, where nothing is labelled.
    """
    labelled = ~targets.isnan()
    if not labelled.any():
        return logits.sum() * 0.0
    chosen, wanted = logits[labelled].float(), targets[labelled]
    if logits.dim() == targets.dim() + 1:
        losses = functional.cross_entropy(chosen, (2 * wanted).round().long(), reduction="none")
    else:
        losses = _losses(loss, chosen, wanted)
    total: Tensor = (losses * weights[labelled]).sum()
    return total


def _losses(name: str, log_odds: Tensor, targets: Tensor) -> Tensor:
    """The loss of each labelled step.

    Raises:
        ComponentError: a loss of somebody's own fails, or gives something else.
    """
    loss, boundary = find_component("losses", name), Boundary("losses", name)
    rule = None if boundary.is_built_in else _fault
    losses: Tensor = boundary.call("loss", loss, log_odds, targets, rule=rule)
    return losses


def _fault(losses: object, log_odds: Tensor, targets: Tensor) -> str | None:
    if not isinstance(losses, Tensor):
        return f"gave {shown(losses)}, must give a tensor"
    if losses.shape != log_odds.shape:
        return (
            f"gave a tensor of shape {tuple(losses.shape)} for {len(log_odds)} steps, must give "
            "one number per step, not their mean or sum"
        )
    if not losses.dtype.is_floating_point or (torch.is_grad_enabled() and not losses.requires_grad):
        return f"gave {losses.dtype} without a gradient, must be computed from the log-odds"
    return None if bool(losses.isfinite().all()) else "gave numbers that are not finite"
