"""How likely a language model finds each step: the features of the likelihood head.

A step that its own author would not write is suspect. Of the log-probabilities of a step's
tokens the least and the sum are taken, over the step and over the solution up to it; the least
finds the one token that does not belong, the sum ranks solutions by how probable they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mclabel.prm.examples.batch import PADDING, StepBatch

NUM_FEATURES = 4
MIN_LOGPROB = -10.0
"""Of one token; less is clamped, so that one token of another vocabulary does not drown all."""
MIN_SUM = -40.0
ROWS = 4096  # positions whose logits are held at a time


def token_logprobs(hidden: Tensor, head: nn.Module, batch: StepBatch) -> Tensor:
    """Log-probability of every token of the solutions at temperature 1.

    Args:
        hidden: the network's last hidden states [batch, seq, width].
        head: from hidden states to logits.
        batch: what the hidden states are of.

    Returns:
        [batch, seq], zero at prompts and padding.
    """
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None]
    wanted = (place >= batch.num_prompt[:, None]) & (batch.mask == 1)
    before = torch.roll(wanted, -1, dims=1)
    before[:, -1] = False
    result = hidden.new_zeros(batch.ids.shape, dtype=torch.float32)
    result[wanted] = chosen_logprobs(hidden[before], batch.ids[wanted], head)
    return result


def chosen_logprobs(states: Tensor, targets: Tensor, head: nn.Module) -> Tensor:
    """Log-probability [tokens] of each token, from the state before it.

    Args:
        states: last hidden states [tokens, width], each of the token before.
        targets: ids [tokens].
        head: from hidden states to logits.
    """
    parts = []
    for start in range(0, len(states), ROWS):
        logits = head(states[start : start + ROWS]).float()
        chosen = logits.gather(1, targets[start : start + ROWS, None])[:, 0]
        parts.append(chosen - logits.logsumexp(-1))
    return torch.cat(parts)


def likelihood_features(logprobs: Tensor, batch: StepBatch) -> Tensor:
    """Step minimum, step sum, prefix minimum, prefix sum; in nats, clamped.

    Args:
        logprobs: [batch, seq], zero outside the solutions.
        batch: what they are of.

    Returns:
        [batch, steps, 4], zero for steps that are not there.
    """
    return features_at(logprobs, batch.positions)


def features_at(logprobs: Tensor, positions: Tensor) -> Tensor:
    """As `likelihood_features`, of steps that end at `positions` [batch, steps]."""
    logprobs = logprobs.clamp(min=MIN_LOGPROB)
    there = positions != PADDING
    ends = torch.where(there, positions, logprobs.shape[1] - 1)
    prefix_sum = logprobs.cumsum(1).gather(1, ends)
    step_sum = torch.diff(prefix_sum, dim=1, prepend=torch.zeros_like(prefix_sum[:, :1]))
    place = torch.arange(logprobs.shape[1], device=ends.device).expand_as(logprobs).contiguous()
    # Tokens after the last step, which are padding with log-probability 0, count to it.
    owner = torch.searchsorted(ends.contiguous(), place).clamp(max=ends.shape[1] - 1)
    step_min = torch.zeros_like(prefix_sum).scatter_reduce(1, owner, logprobs, "amin")
    prefix_min = step_min.cummin(1).values
    features = torch.stack(
        [
            step_min,
            step_sum.clamp(min=MIN_SUM),
            prefix_min,
            prefix_sum.clamp(min=MIN_SUM),
        ],
        dim=-1,
    )
    return features * there[..., None]
