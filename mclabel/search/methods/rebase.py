"""REBASE, reward balanced search: better beginnings go on more often (arXiv 2408.00724).

Of every level, the solutions that are still missing are split among the open nodes in proportion
to exp(value / temperature). A node that was sampled several times counts as often, as in the
paper, where each sample is a leaf of its own.

Departs from the paper's code in rounding: that goes down from the best leaf and rounds every share
of what is left up, which favours good leaves; here the largest remainders are rounded up. Either
way the shares add up to what is missing. A dead end is no solution and takes no place, which in
the paper's code it does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import Field

from mclabel.search.base import MethodSettings
from mclabel.search.methods.levels import LevelSearch, open_nodes
from mclabel.settings import MAX_AMOUNT


class RebaseSearch(LevelSearch):
    """At most `n` samples a level, and never more than solutions are missing."""

    class Settings(MethodSettings):
        """Continues every beginning as often as its value deserves."""

        temperature: float = Field(0.2, gt=0, le=MAX_AMOUNT)
        """Temperature of the softmax over scores that distributes the continuations: a prefix whose
        score is higher by this much gets e = 2.7 times as many. 0.2 as in arXiv 2408.00724."""

    def choose(self, level: Counter[str]) -> Mapping[str, int]:
        """Split what is missing among all open nodes."""
        nodes = open_nodes(self.ranked(level))
        if not nodes:
            return {}
        values = [self.value(node) for node in nodes]
        shares = [
            level[node.id] * math.exp((value - values[0]) / self.settings.temperature)
            for node, value in zip(nodes, values, strict=True)
        ]
        counts = split(self.num_missing, shares)
        return {node.id: count for node, count in zip(nodes, counts, strict=True)}


def split(total: int, shares: Sequence[float]) -> list[int]:
    """Split a number into whole parts by the method of the largest remainder.

    Args:
        total: to be split, at least 0.
        shares: to which the parts are proportional before rounding; at least 0, and not all 0.

    Returns:
        A part for each share, `total` in all. Equal remainders are rounded up from the left.
    """
    whole = math.fsum(shares)
    exact = [total * (share / whole) for share in shares]
    parts = [math.floor(part) for part in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts
