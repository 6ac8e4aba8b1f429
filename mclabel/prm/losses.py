"""Losses over the labelled steps of a batch."""

from __future__ import annotations

import torch
from torch import Tensor


def step_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy between targets and predicted probabilities, over labelled steps.

    - (t log p + (1 - t) log(1 - p)) with p = sigmoid(logit). With targets in {0, 1} this is
    Math-Shepherd's loss, with soft targets its generalisation (arXiv 2312.08935, eq. 1).

    Args:
        logits: [batch, steps].
        targets: [batch, steps], in [0, 1], NaN where there is no label.

    Returns:
        A scalar; zero, with zero gradients, where nothing is labelled.
    """
    labelled = ~targets.isnan()
    if not labelled.any():
        return logits.sum() * 0.0
    return torch.nn.functional.binary_cross_entropy_with_logits(logits[labelled], targets[labelled])
