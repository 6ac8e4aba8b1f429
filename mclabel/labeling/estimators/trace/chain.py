"""Exact inference along traces: a hidden Markov chain of two states that may go back and forth.

A solution is sound or not after each step. A sound one goes wrong with a chance `errs`, and one
that is wrong recovers with a chance `recovers`: a policy that corrects itself does both, so that
what `mclabel.labeling.estimators.posterior` takes for granted, that nothing mends an error, does
not hold. What is seen depends on the state alone, and on how well the problem is within reach (its
`level`, the same for all its solutions, never seen):

- completions from a prefix, of each completer: right, right but by going back on a step of the
  prefix, or wrong. A share varies from prefix to prefix around its mean (Dirichlet-multinomial);
- answers that the solution commits to on its way, and its end.

Every source has shares of its own, by level, state, and number of steps still to go: how often an
answer at once is right by luck or wrong for want of the steps that are missing is learned, not
assumed. Time and memory are linear in the number of steps.

Arrays have chains as their last axis, and nothing is summed along it: see
`mclabel.labeling.estimators.posterior.arithmetic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.labeling.estimators.posterior.arithmetic import exp, log, total

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNSOUND, SOUND = 0, 1
RIGHT, REPAIRED, WRONG = 0, 1, 2
"""What may come of a completion: right; right, by going back on a step of its prefix; wrong."""
NUM_LEVELS = 4
NUM_TO_GO = 7
"""Bins of the number of steps still to go: 1, 2 to 3, 4 to 7, and so on."""
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassRates:
    """What is believed of the problems of an answer class before anything is seen of one."""

    level: Floats
    """[level]: chances that a problem is of it."""
    errs: Floats
    """[level]: chance that a step goes wrong where nothing was."""
    recovers: Floats
    """[level]: chance that a step repairs what was wrong."""
    end: Floats
    """[state, 2]: chances that a solution ends right and wrong."""
    commitment: Floats
    """[state, 2]: chances that an answer on the way is right and wrong."""
    shares: Mapping[str, Floats]
    """By completer, [level, state, to go, 3]: mean shares of what comes of a completion."""
    spread: Mapping[str, float]
    """By completer: how near the shares of prefixes are to their means, in completions."""


@dataclass(frozen=True, kw_only=True)
class TraceEvidence:
    """What is known of the solutions of a problem; T is the number of steps of the longest."""

    num_steps: Ints
    """[chain]"""
    counts: Mapping[str, Floats]
    """By completer, [T, 3, chain]: what came of completions after each step."""
    root: Mapping[str, Floats]
    """By completer, [3]: of completions of the bare problem."""
    commitments: Floats
    """[T, 2, chain]: answers on the way that are right and wrong."""
    end: Floats
    """[2, chain]: whether it may have ended right, and wrong; both where it is unknown."""


@dataclass(frozen=True, kw_only=True)
class TraceBeliefs:
    """Posterior of a problem's chains."""

    level: Floats
    """[level]"""
    states: Floats
    """[T, level, state, chain]: chances of the states after each step, given the level."""
    moves: Floats
    """[T, 4, chain]: chances that a step is carried, recovered, an error, sound."""
    first_error: Floats
    """[T + 1, chain]: chances of the first error, and last of none."""
    log_likelihood: float
    given_level: Floats
    """[T, level, 4, chain]: `moves` for each level."""


CARRIED, RECOVERED, ERROR, KEPT = range(4)
"""Moves: the state before, times two, and the state after."""


def to_go_bins(num_steps: Ints, width: int) -> Ints:
    """Bin of the number of steps that follow each step, [T, chain]."""
    left = np.maximum(num_steps - 1 - np.arange(width)[:, None], 1)
    found: Ints = np.zeros_like(left)
    for edge in range(1, NUM_TO_GO):
        found += left >= 1 << edge
    return found


def likelihoods(counts: Floats, shares: Floats, spread: float) -> Floats:
    """Likelihood of counts, up to a constant, under shares that vary from prefix to prefix.

    Args:
        counts: [..., 3]
        shares: [..., 3], means.
        spread: sum of the parameters of the Dirichlet distribution around them.
    """
    found = np.ones(np.broadcast_shapes(counts.shape, shares.shape)[:-1])
    for kind in range(3):
        mine, start = counts[..., kind], shares[..., kind] * spread
        for drawn in range(int(mine.max(initial=0))):
            found = found * np.where(drawn < mine, start + drawn, 1.0)
        # Each factor is of the order of the spread; all states have as many of them.
        found = found / spread**mine
    return found


def emissions(evidence: TraceEvidence, rates: ClassRates) -> Floats:
    """Likelihood of what was seen after each step, [T, level, state, chain], at most 1."""
    width, count = len(evidence.commitments), len(evidence.num_steps)
    found = np.ones((width, NUM_LEVELS, 2, count))
    bins = to_go_bins(evidence.num_steps, width)
    for name, counts in evidence.counts.items():
        steps, chains = np.nonzero(counts.sum(1))
        seen = counts[steps, :, chains][:, None, None]  # [place, 1, 1, 3]
        shares = np.moveaxis(rates.shares[name][:, :, bins[steps, chains]], 2, 0)
        found[steps, :, :, chains] *= likelihoods(seen, shares, rates.spread[name])
    right, wrong = rates.commitment.T[:, None, None, :, None]
    stated = evidence.commitments[:, :, None, None]
    found *= np.where(stated[:, 0] > 0, right, 1.0) * np.where(stated[:, 1] > 0, wrong, 1.0)
    last = (evidence.num_steps - 1, np.arange(count))
    ends = rates.end[:, 0, None] * evidence.end[0] + rates.end[:, 1, None] * evidence.end[1]
    found[last[0], :, :, last[1]] *= ends.T[:, None]
    return np.asarray(found / np.maximum(found.max((1, 2), keepdims=True), _TINY))


def infer(evidence: TraceEvidence, rates: ClassRates) -> TraceBeliefs:
    """Compute the posterior of a problem's chains, and of its level."""
    seen = emissions(evidence, rates)
    width, _, _, count = seen.shape
    moves = np.empty((NUM_LEVELS, 2, 2))
    moves[:, UNSOUND] = np.stack([1 - rates.recovers, rates.recovers], axis=1)
    moves[:, SOUND] = np.stack([rates.errs, 1 - rates.errs], axis=1)
    there = np.arange(width)[:, None] < evidence.num_steps  # [T, chain]
    before = np.zeros((width + 1, NUM_LEVELS, 2, count))
    before[0, :, SOUND] = 1.0
    unbroken = np.ones((width + 1, NUM_LEVELS, count))
    scale = np.ones((width, NUM_LEVELS, count))
    for t in range(width):
        moved = total(before[t][:, :, None] * moves[..., None], axis=1) * seen[t]
        size = np.maximum(total(moved, axis=1), _TINY)
        before[t + 1] = np.where(there[t], moved / size[:, None], before[t])
        scale[t] = np.where(there[t], size, 1.0)
        kept = unbroken[t] * moves[:, SOUND, SOUND, None] * seen[t, :, SOUND] / size
        unbroken[t + 1] = np.where(there[t], kept, unbroken[t])
    after = np.ones((width + 1, NUM_LEVELS, 2, count))
    for t in range(width - 1, -1, -1):
        behind = total(moves[..., None] * (seen[t] * after[t + 1])[:, None], axis=2)
        after[t] = np.where(there[t], behind / scale[t][:, None], after[t + 1])
    level = _levels(evidence, rates, scale)
    # By level: chances of each move, whose sum is 1.
    to = (seen * after[1:] / scale[:, :, None])[:, :, None]
    given = (before[:-1, :, :, None] * moves[..., None] * to).reshape(width, NUM_LEVELS, 4, count)
    given = np.where(there[:, None, None], given, 0.0)
    gone = unbroken[:-1] * moves[:, SOUND, UNSOUND, None] * seen[:, :, UNSOUND]
    gone = np.where(there[:, None], gone * after[1:, :, UNSOUND] / scale, 0.0)
    weight = level[:, None, None]
    errors = total(gone * level[:, None], axis=1)
    none = total(unbroken[-1] * level[:, None])
    return TraceBeliefs(
        level=level,
        states=given[:, :, [CARRIED, RECOVERED]] + given[:, :, [ERROR, KEPT]],
        moves=total(given * weight, axis=1),
        first_error=np.concatenate([errors, none[None]]),
        log_likelihood=float(log(np.maximum(scale, _TINY)).sum()),
        given_level=given,
    )


def _levels(evidence: TraceEvidence, rates: ClassRates, scale: Floats) -> Floats:
    """Chances of the problem's level, from all its solutions."""
    logs = log(np.maximum(rates.level, _TINY))
    for chain in range(scale.shape[2]):
        logs = logs + total(log(np.maximum(scale[:, :, chain], _TINY))[..., None])[:, 0]
    furthest = to_go_bins(evidence.num_steps.max(keepdims=True) + 1, 1)[0, 0]
    for name, counts in evidence.root.items():
        if counts.any():
            shares = rates.shares[name][:, SOUND, furthest]
            seen = likelihoods(counts[None], shares, rates.spread[name])
            logs = logs + log(np.maximum(seen, _TINY))
    chances = exp(logs - logs.max())
    return np.asarray(chances / total(chances[:, None])[0])
