"""Exact inference along traces: a hidden Markov chain of two states that may go back and forth.

After each step a solution is sound or not, and the rest of it more or less within reach: its
`level`. A sound one may go wrong, and one that is wrong may recover: a policy that corrects itself
does both, so that what `mclabel.labeling.estimators.posterior` takes for granted, that nothing
mends an error, does not hold. What is seen depends on both, which are never seen themselves:

- completions from a prefix, of each completer: right, right but by going back on a step of the
  prefix, or wrong. A share varies from prefix to prefix around its mean (Dirichlet-multinomial);
- answers that the solution commits to on its way, and its end;
- of each step itself, whether it repeats the solution or leaves its earlier way, and how many other
  solutions take it, too (`mclabel.labeling.estimators.trace.agreement`). This depends on the move:
  on the states before and after the step.

Every completer has shares of its own, by level, state, and number of steps still to go. The
solutions of a problem begin at one level. Time and memory are linear in the number of steps.

Arrays have chains as their last axis, and nothing is summed along it: see
`mclabel.labeling.estimators.posterior.arithmetic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.labeling.estimators.posterior.arithmetic import combine, exp, log, total

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNSOUND, SOUND = 0, 1
RIGHT, REPAIRED, WRONG = 0, 1, 2
"""Results of a completion: right; right by going back on a step of its prefix; wrong."""
NUM_LEVELS = 5
NUM_STATES = 2 * NUM_LEVELS
"""Levels and states together."""
CARRIED, RECOVERED, ERROR, KEPT = range(4)
"""Moves: the state before, times two, and the state after."""
NUM_TO_GO = 7
"""Bins of the number of steps still to go: 1, 2 to 3, 4 to 7, and so on."""
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassRates:
    """Prior rates for the problems of an answer class."""

    level: Floats
    """[level]: chances of the bare problem's."""
    moves: Floats
    """[level and state, level and state]: chances of what a step leads to; level and state are
    numbered together, the state last."""
    end: Floats
    """[state, 2]: chances that a solution ends right and wrong."""
    commitment: Floats
    """[state, 2]: chances that an answer on the way is right and wrong."""
    shares: Mapping[str, Floats]
    """For each completer, [level, state, to go, 3]: mean shares of what comes of a completion."""
    spread: Mapping[str, float]
    """For each completer, how near the shares of prefixes are to their means, in completions."""
    steps: Mapping[str, Floats]
    """For each source of `TraceEvidence.steps`, mean shares [move, kind] of its kinds."""
    step_spread: Mapping[str, float]
    """For each source, how near the shares of steps are to their means."""


@dataclass(frozen=True, kw_only=True)
class TraceEvidence:
    """Evidence on the solutions of a problem; T is the number of steps of the longest."""

    num_steps: Ints
    """[chain]"""
    counts: Mapping[str, Floats]
    """For each completer, [T, 3, chain]: what came of completions after each step."""
    root: Mapping[str, Floats]
    """For each completer, [3]: of completions of the bare problem."""
    commitments: Floats
    """[T, 2, chain]: answers on the way that are right and wrong."""
    steps: Mapping[str, Floats]
    """For each source, [T, kind, chain]: what is seen of each step itself."""
    end: Floats
    """[2, chain]: whether it may have ended right, and wrong; both where it is unknown."""


@dataclass(frozen=True, kw_only=True)
class TraceBeliefs:
    """Posterior of a problem's chains; zero beyond a chain's length."""

    root: Floats
    """[level]: chances of the bare problem's level."""
    states: Floats
    """[T, level, state, chain]: chances of level and state after each step."""
    moves: Floats
    """[T, 4, chain]: chances that a step is carried, recovered, an error, sound."""
    first_error: Floats
    """[T + 1, chain]: chances of the first error, and last of none."""
    before: Floats
    """[T, level and state, chain]: of what was seen before each step."""
    to: Floats
    """[T, state before, level and state, chain]: of what was seen of it and after it. `before`
    times the chance of a move times `to` is the chance of that move at that step."""


def to_go_bins(num_steps: Ints, width: int) -> Ints:
    """Bin of the number of steps that follow each step, [T, chain]."""
    steps_to_go = np.maximum(num_steps - 1 - np.arange(width)[:, None], 1)
    bins: Ints = np.zeros_like(steps_to_go)
    for edge in range(1, NUM_TO_GO):
        bins += steps_to_go >= 1 << edge
    return bins


def likelihoods(counts: Floats, shares: Floats, spread: float) -> Floats:
    """Likelihood of counts under shares that vary from prefix to prefix, up to a factor.

    The factor depends on counts and spread alone. It keeps the likelihood of hundreds of
    completions, or of other solutions, within the range of floats: see `log_factors`.

    Args:
        counts: [..., kind]
        shares: [..., kind], means.
        spread: sum of the parameters of the Dirichlet distribution around them.
    """
    product = np.ones(np.broadcast_shapes(counts.shape, shares.shape)[:-1])
    for kind in range(counts.shape[-1]):
        mine, start = counts[..., kind], shares[..., kind] * spread
        for drawn in range(int(mine.max(initial=0))):
            product = product * np.where(drawn < mine, (start + drawn) / (spread + drawn), 1.0)
    return product


def log_factors(counts: Floats, spread: float) -> Floats:
    """Logarithms of the factors by which `likelihoods` is too low, [...], of counts [..., kind]."""
    number = counts.sum(-1)
    drawn = np.arange(number.max(initial=0))
    rising = np.append(0.0, np.cumsum(log(spread + drawn)))
    logs = rising[counts.astype(np.intp)].sum(-1) - rising[number.astype(np.intp)]
    return np.asarray(logs)


def emissions(evidence: TraceEvidence, rates: ClassRates) -> Floats:
    """Likelihood of what was seen of each step and after it, at most 1.

    Returns:
        [T, state before, level, state, chain]
    """
    width, count = len(evidence.commitments), len(evidence.num_steps)
    likelihood = np.ones((width, NUM_LEVELS, 2, count))
    bins = to_go_bins(evidence.num_steps, width)
    for name, counts in evidence.counts.items():
        steps, chains = np.nonzero(counts.sum(1))
        seen = counts[steps, :, chains][:, None, None]  # [place, 1, 1, 3]
        shares = np.moveaxis(rates.shares[name][:, :, bins[steps, chains]], 2, 0)
        likely = likelihoods(seen, shares, rates.spread[name])
        likelihood[steps, :, :, chains] *= _at_most_1(likely, (1, 2))
    right, wrong = rates.commitment.T[:, None, None, :, None]
    stated = evidence.commitments[:, :, None, None]
    likelihood *= np.where(stated[:, 0] > 0, right, 1.0) * np.where(stated[:, 1] > 0, wrong, 1.0)
    last = (evidence.num_steps - 1, np.arange(count))
    ends = rates.end[:, 0, None] * evidence.end[0] + rates.end[:, 1, None] * evidence.end[1]
    likelihood[last[0], :, :, last[1]] *= ends.T[:, None]
    both = np.repeat(likelihood[:, None], 2, axis=1)
    for name, counts in evidence.steps.items():
        steps, chains = np.nonzero(counts.sum(1))
        # Each way of counts once: they are as large as the number of solutions.
        seen, which = np.unique(counts[steps, :, chains], axis=0, return_inverse=True)
        likely = likelihoods(seen[:, None], rates.steps[name], rates.step_spread[name])
        likely = _at_most_1(likely, 1)[which.reshape(-1)]  # [place, move]
        both[steps, :, :, :, chains] *= likely.reshape(-1, 2, 1, 2)
    return _at_most_1(both, (1, 2, 3))


def _at_most_1(likely: Floats, axis: int | tuple[int, ...]) -> Floats:
    """Likelihoods over the greatest along these axes: only their ratios count."""
    return np.asarray(likely / np.maximum(likely.max(axis, keepdims=True), _TINY))


def infer(evidence: TraceEvidence, rates: ClassRates) -> TraceBeliefs:
    """Compute the posterior of a problem's chains.

    They begin at the bare problem, whose level they share: what the others say of it is where each
    chain begins.
    """
    seen = emissions(evidence, rates).reshape(-1, 2, NUM_STATES, len(evidence.num_steps))
    width, _, _, count = seen.shape
    moves = rates.moves
    there = (np.arange(width)[:, None] < evidence.num_steps)[:, None]  # [T, 1, chain]
    scale = np.ones((width, 1, count))
    after = np.ones((width + 1, NUM_STATES, count))
    for t in range(width - 1, -1, -1):
        behind = np.empty((NUM_STATES, count))
        for state in (UNSOUND, SOUND):
            behind[state::2] = combine(moves[state::2].T, seen[t, state] * after[t + 1])
        size = np.maximum(behind.max(0), _TINY)
        scale[t] = np.where(there[t], size, 1.0)
        after[t] = np.where(there[t], behind / size, after[t + 1])
    shown = after[0, SOUND::2]  # [level, chain]
    root = _root(evidence, rates)
    start = np.zeros((NUM_STATES, count))
    # Logarithms, as the product over thousands of chains leaves the range of floats.
    each = log(np.maximum(shown, _TINY))
    whole = log(np.maximum(root, _TINY))[:, None] + np.cumsum(each, axis=1)[:, -1:]
    start[SOUND::2] = _chances(whole - each)
    mass = np.maximum(total(start[SOUND::2] * shown), _TINY)
    before = np.empty((width + 1, NUM_STATES, count))
    unbroken = np.empty((width + 1, NUM_STATES, count))
    before[0], unbroken[0] = start / mass, start / mass
    kept = moves[SOUND::2, SOUND::2]
    for t in range(width):
        moved = combine(moves[UNSOUND::2], before[t, UNSOUND::2]) * seen[t, UNSOUND]
        moved += combine(moves[SOUND::2], before[t, SOUND::2]) * seen[t, SOUND]
        moved /= scale[t]
        before[t + 1] = np.where(there[t], moved, before[t])
        sound = combine(kept, unbroken[t, SOUND::2]) * seen[t, SOUND, SOUND::2] / scale[t]
        unbroken[t + 1] = np.where(there[t], 0.0, unbroken[t])
        unbroken[t + 1, SOUND::2] = np.where(there[t], sound, unbroken[t, SOUND::2])
    to = np.where(there[:, None], seen * (after[1:] / scale)[:, None], 0.0)
    pairs = np.empty((width, 4, count))
    for a in (UNSOUND, SOUND):
        for b in (UNSOUND, SOUND):
            reached = _moved(moves[a::2, b::2], before[:-1, a::2])
            pairs[:, 2 * a + b] = total(reached * to[:, a, b::2], axis=1)
    gone = _moved(moves[SOUND::2, UNSOUND::2], unbroken[:-1, SOUND::2])
    errors = total(gone * to[:, SOUND, UNSOUND::2], axis=1)
    none = total(unbroken[-1, SOUND::2])
    return TraceBeliefs(
        root=_chances(whole)[:, 0],
        states=np.where(there, before[1:] * after[1:], 0.0).reshape(width, NUM_LEVELS, 2, count),
        moves=pairs,
        first_error=np.concatenate([errors, none[None]]),
        before=before[:-1],
        to=to,
    )


def _chances(logs: Floats) -> Floats:
    """Chances of levels, [level, chain], from their logarithms up to a constant."""
    weights = exp(logs - logs.max(0))
    return weights / total(weights)


def _moved(matrix: Floats, states: Floats) -> Floats:
    """States [T, from, chain] after one step, [T, to, chain]."""
    return np.moveaxis(combine(matrix, np.ascontiguousarray(np.moveaxis(states, 1, 0))), 0, 1)


def _root(evidence: TraceEvidence, rates: ClassRates) -> Floats:
    """Chances of the bare problem's level, by what was completed from it, [level]."""
    level = rates.level
    furthest = to_go_bins(evidence.num_steps.max(keepdims=True) + 1, 1)[0, 0]
    for name, counts in evidence.root.items():
        if counts.any():
            shares = rates.shares[name][:, SOUND, furthest]
            seen = likelihoods(counts[None], shares, rates.spread[name])
            level = level * (seen / seen.max())
    return np.asarray(level / np.maximum(level.sum(), _TINY))
