"""How far a trained policy has moved from the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mclabel.rl.groups import Group


@torch.no_grad()
def kl_divergence(model: Any, first: Any, groups: Sequence[Group], *, temperature: float) -> float:
    """KL divergence of a token from the first policy, in nats, over the policy's own solutions.

    At every token both distributions are compared whole, so that only the solutions are a sample.

    Args:
        model: the policy, of transformers; in whatever mode, and left in it.
        first: the first policy, on the same device.
        groups: that the policy has sampled.
        temperature: at which it was sampled.

    Returns:
        The mean over tokens; 0 where there are none.
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
                own, other = (
                    _logprobs(one, ids, len(solution.ids), temperature) for one in (model, first)
                )
                total += float((own.exp() * (own - other)).sum())
                count += len(solution.ids)
    finally:
        model.train(was_training)
    return total / count if count else 0.0


def _logprobs(model: Any, ids: Tensor, num_last: int, temperature: float) -> Tensor:
    """Log-probabilities at each of the last tokens [tokens, vocabulary]."""
    logits = model(input_ids=ids, logits_to_keep=num_last + 1).logits[0, :-1]
    return torch.log_softmax(logits.float() / temperature, dim=-1)
