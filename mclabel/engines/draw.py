"""Draws the next token of many rollouts from logits that rollouts of one lane share.

The number that a rollout draws with is a function of its seed and its position, so that the same
seed gives the same completion whatever else is sampled beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mclabel.core.errors import EngineError
from mclabel.engines.cascade import Row


def draw(
    logits: Tensor,
    lanes: Sequence[Sequence[Row]],
    *,
    temperature: float,
    top_p: float,
    top_k: int,
) -> list[list[int]]:
    """A token for every rollout of every lane.

    Args:
        logits: [lanes, vocabulary].
        lanes: rollouts of each, at least one.
        temperature: >= 0; 0 is greedy.
        top_p: in (0, 1].
        top_k: 0 for all tokens.

    Raises:
        EngineError: a logit is no number, and so no token has a chance.
    """
    if temperature == 0:
        highest, best = logits.max(-1)
        _check_numbers(highest)
        return [[token] * len(rows) for rows, token in zip(lanes, best.tolist(), strict=True)]
    probabilities = torch.softmax(_warped(logits, temperature, top_k, top_p), -1)
    cumulative = probabilities.double().cumsum(-1)
    _check_numbers(cumulative[:, -1])
    counts = np.array([len(rows) for rows in lanes])
    there = np.arange(counts.max()) < counts[:, None]
    draws = np.zeros(there.shape)
    draws[there] = uniform([row for rows in lanes for row in rows])
    places = torch.from_numpy(draws).to(logits.device) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, places, right=True).clamp(max=logits.shape[1] - 1)
    drawn = zip(tokens.tolist(), counts.tolist(), strict=True)
    return [chosen[:count] for chosen, count in drawn]


def _check_numbers(of_lanes: Tensor) -> None:
    """Refuse what NaN among a lane's logits amounts to: every sum and every maximum is NaN."""
    if of_lanes.isnan().any():
        raise EngineError(
            "the model's logits are NaN, because it overflows on this text. Set "
            "policy.engine.dtype=bfloat16 or float32"
        )


def _warped(logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    from transformers import LogitsProcessorList, TopKLogitsWarper, TopPLogitsWarper

    warpers: Any = LogitsProcessorList()
    if top_k:
        warpers.append(TopKLogitsWarper(top_k=min(top_k, logits.shape[1])))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p=top_p))
    warped: Tensor = warpers(None, logits / temperature)
    return warped


def uniform(rows: Sequence[Row]) -> NDArray[np.float64]:
    """One number in [0, 1) a rollout, a function of its seed and position alone (SplitMix64)."""
    seeds = np.array([row.seed for row in rows], dtype=np.uint64)
    positions = np.array([len(row.sampled) - row.num_given + 1 for row in rows], dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = seeds + positions * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.asarray((x >> np.uint64(11)) * 2.0**-53, dtype=np.float64)
