"""Texts that deserve no reward, whatever they end with. Needs nothing but Python.

A policy in training finds what a reward does not look at: no text at all, or one step written again
and again, which a mean of step scores likes (2410.15115).
"""

from __future__ import annotations

from collections.abc import Sequence

FEWEST = 4
"""Steps below which nothing counts as repeated."""


def unfit(steps: Sequence[str]) -> str | None:
    """Why a solution has the reward 0: `empty`, or `repeated`; None if nothing is wrong.

    Repeated is a solution of at least 4 steps of which more than half, blank ones left out, are
    word for word among those before.

    Args:
        steps: their texts.
    """
    texts = [text for step in steps if (text := step.strip())]
    if not texts:
        return "empty"
    if len(texts) >= FEWEST and len(texts) - len(set(texts)) > len(texts) / 2:
        return "repeated"
    return None
