"""Prefixes of a problem that a completer can roll out, and what each is worth.

A candidate's rate is the worth of its best probe per expected token, at the completer's cost. The
prefixes with the highest rates are rolled out until no rate exceeds the run's minimum gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.labeling.estimators.paths import Completer
from mclabel.labeling.estimators.posterior.evidence import EvidenceTable
from mclabel.labeling.estimators.posterior.plan import DRAWS, Plan

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

UNKNOWN_STEP_TOKENS = 20
"""Number of tokens assumed for a step whose length is unknown."""


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """A problem's prefixes to choose from; of those with the same evidence there is only one.

    A place is where a candidate lies in a chain: the places of one candidate follow those of the
    one before.
    """

    prefixes: tuple[int, ...]
    """[candidate]"""
    tokens: Floats
    """[candidate]: expected tokens of one rollout."""
    places: tuple[Ints, Ints]
    """[place] each: the chain, and the steps to go there."""
    copies: Floats
    """[place]: number of solutions that are that chain."""
    starts: Ints
    """[candidate]: index of its first place."""
    chains: tuple[frozenset[int], ...]
    """[candidate]: the chains that it lies in."""
    cost: float
    """Of a token, relative to the cheapest completer's."""


def find_candidates(table: EvidenceTable, completer: Completer) -> Candidates:
    """List the prefixes of a problem that differ in evidence, and where each lies in the chains.

    Args:
        table: of one completer.
        completer: that rolls out.
    """
    prefixes: list[int] = []
    tokens: list[float] = []
    places: list[tuple[int, int]] = []
    starts: list[int] = []
    held: list[frozenset[int]] = []
    seen: set[tuple[tuple[int, int], ...]] = set()
    for prefix, holders in sorted(table.holders.items()):
        if tuple(holders) in seen:
            continue  # has the same evidence as one that is there already
        seen.add(tuple(holders))
        starts.append(len(places))
        held.append(frozenset(chain for chain, _ in holders))
        prefixes.append(prefix)
        left = 0.0
        for chain, depth in holders:
            to_go = table.paths[chain].num_steps - depth
            known = table.paths[chain].step_tokens
            left += sum(known[depth:]) if known else UNKNOWN_STEP_TOKENS * to_go
            places.append((chain, to_go))
        tokens.append(completer.forced_tokens or max(1.0, left / len(holders)))
    chains, to_go_ = np.array(places, dtype=np.intp).reshape(-1, 2).T
    return Candidates(
        prefixes=tuple(prefixes),
        tokens=np.array(tokens),
        places=(chains, to_go_),
        copies=table.copies[chains].astype(np.float64),
        starts=np.array(starts, dtype=np.intp),
        chains=tuple(held),
        cost=completer.cost,
    )


def gain_rates(problems: Sequence[tuple[Candidates, Plan]]) -> list[Floats]:
    """Gain per token, at its cost, of the best probe of each candidate, many problems at once."""
    if not problems:
        return []
    parts = [candidates for candidates, _ in problems]
    tables = [plan.table[candidates.places] for candidates, plan in problems]
    sizes = [len(p.copies) for p in parts]
    copies = np.concatenate([p.copies for p in parts])
    offsets = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(p.starts) for p in parts])
    starts = np.concatenate([p.starts for p in parts]) + offsets
    tokens = np.concatenate([p.tokens * p.cost for p in parts])
    held = np.add.reduceat(np.concatenate(tables)[:, :-2] * copies[:, None], starts)
    worth, draws = held[:, : len(DRAWS)], held[:, len(DRAWS) :]
    # Expected draws are the mean over the solutions that hold the prefix.
    cost = draws * (tokens / np.add.reduceat(copies, starts))[:, None]
    # Rounding makes equal solutions equal, whatever the order of summation.
    best = np.round((worth / cost).max(1), 12)
    ends = np.cumsum([len(p.tokens) for p in parts]).tolist()
    return [best[a:b] for a, b in zip([0, *ends], ends, strict=False)]
