"""Exact inference along traces with a hidden Markov chain that may return from errors.

After each step, the hidden state of a solution is a pair: it is sound or unsound (contains an
unrepaired error), and it has a `level`, which says how likely the rest is to succeed. A sound
solution may go wrong, and an unsound one may recover, because the policy corrects itself. So the
assumption of `mclabel.labeling.estimators.posterior`, that no step repairs an error, does not hold.
The observed evidence depends on the hidden states:

- Completions from a prefix by each completer are right, right after revoking a step of the prefix,
  or wrong. Their shares vary from prefix to prefix around a mean (Dirichlet-multinomial).
- Answers that the solution states before its end, and its outcome, are right or wrong.
- A step repeats earlier steps or departs from them, and some number of other solutions take it, too
  (`mclabel.labeling.estimators.trace.agreement`). This evidence depends on the move, which is the
  pair of states before and after the step.

Every completer (model that samples completions) has its own mean shares, by level, state, and
number of steps to go. All solutions of a problem begin at the same level. Time and memory are
linear in the number of steps.

Each distinct solution has one chain. The last axis of arrays is the chain, and nothing is summed
along it, so that results do not depend on which solutions are computed together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.labeling.estimators.posterior.arithmetic import exp, log, sum_in_order, weighted_sums

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNSOUND, SOUND = 0, 1
"""States of a solution after a step."""
RIGHT, REPAIRED, WRONG = 0, 1, 2
"""Results of a completion: right, right after revoking a step of its prefix, or wrong."""
NUM_LEVELS = 5
"""Number of levels; a higher level has a higher probability of success."""
NUM_STATES = 2 * NUM_LEVELS
"""Number of pairs of a level and a state. A pair has the index 2 * level + state."""
CARRIED, RECOVERED, ERROR, KEPT = range(4)
"""Moves, numbered 2 * (state before the step) + (state after the step): an error stays, an error is
repaired, an error is made, the solution stays sound."""
NUM_TO_GO = 7
"""Number of bins for the number of steps still to go: 1, 2 to 3, 4 to 7, and so on."""
_TINY = 1e-300


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassRates:
    """Rates (probabilities of the chain) for the problems of one answer class, the kind of gold
    answer.
    """

    level: Floats
    """[level]: probability of each level of the problem without steps."""
    moves: Floats
    """[NUM_STATES, NUM_STATES]: probability of each level and state after a step (second axis), by
    level and state before it (first axis)."""
    end: Floats
    """[state, 2]: probability that a solution in this state after its last step ends right, and
    that it ends wrong."""
    commitment: Floats
    """[state, 2]: probability that an answer stated in this state is right, and that it is
    wrong."""
    shares: Mapping[str, Floats]
    """For each completer's name, [level, state, bin of steps to go, 3]: mean shares of the results
    of completions."""
    spread: Mapping[str, float]
    """For each completer's name, the sum of the parameters of the Dirichlet distribution from which
    the shares of a prefix are drawn. The larger the sum, the nearer the shares are to their
    means."""
    steps: Mapping[str, Floats]
    """For each source of `TraceEvidence.step_counts`, [move, kind]: mean share of each kind of
    observation, by move."""
    step_spread: Mapping[str, float]
    """For each source of `TraceEvidence.step_counts`, the sum of the parameters of the Dirichlet
    distribution from which the shares of a step are drawn."""


@dataclass(frozen=True, kw_only=True)
class TraceEvidence:
    """Evidence on the solutions of a problem, with one chain per distinct solution.

    T is the number of steps of the longest solution.
    """

    num_steps: Ints
    """[chain]: number of steps."""
    completion_counts: Mapping[str, Floats]
    """For each completer's name, [T, 3, chain]: number of completions sampled after each step, by
    result (`RIGHT`, `REPAIRED`, `WRONG`)."""
    root_counts: Mapping[str, Floats]
    """For each completer's name, [3]: number of completions of the problem without steps, by
    result."""
    commitments: Floats
    """[T, 2, chain]: (1, 0) if the step is not the last one and states a right answer, (0, 1) if it
    states a wrong one, else (0, 0)."""
    step_counts: Mapping[str, Floats]
    """For each source of `SOURCES` in `mclabel.labeling.estimators.trace.agreement`, [T, kind,
    chain]: number of observations of each kind on each step."""
    outcome: Floats
    """[2, chain]: (1, 0) if the solution ended right, (0, 1) if it ended wrong, (1, 1) if its
    outcome is unknown."""


@dataclass(frozen=True, kw_only=True)
class TraceBeliefs:
    """Posterior of a problem's chains; zero beyond a chain's length.

    T is the number of steps of the longest solution.
    """

    root_level: Floats
    """[level]: probability of each level of the problem without steps."""
    states: Floats
    """[T, level, state, chain]: probability of each level and state after each step."""
    moves: Floats
    """[T, 4, chain]: probability of each move at each step, in the order `CARRIED`, `RECOVERED`,
    `ERROR`, `KEPT`."""
    first_error: Floats
    """[T + 1, chain]: probability that each step is the first wrong one, and last that no step is
    wrong."""
    forward: Floats
    """[T, NUM_STATES, chain]: forward messages, computed from the evidence before each step."""
    backward: Floats
    """[T, state before, NUM_STATES, chain]: backward messages, computed from the evidence on each
    step and after it. The product of `forward`, the prior probability of a move, and `backward` is
    the posterior probability of the move at a step."""


def bin_steps_to_go(num_steps: Ints, max_num_steps: int) -> Ints:
    """Return the bin (0 to NUM_TO_GO - 1) of the number of steps that follow each step, [T, chain].

    A chain is a distinct solution.

    Args:
        num_steps: [chain], number of steps of each chain.
        max_num_steps: T, the number of steps of the longest chain.
    """
    steps_to_go = np.maximum(num_steps - 1 - np.arange(max_num_steps)[:, None], 1)
    bins: Ints = np.zeros_like(steps_to_go)
    for edge in range(1, NUM_TO_GO):
        bins += steps_to_go >= 1 << edge
    return bins


def compute_dirichlet_multinomial_likelihoods(
    counts: Floats, shares: Floats, spread: float
) -> Floats:
    """Return the Dirichlet-multinomial likelihood of counts, divided by a factor.

    The factor depends only on counts and spread, not on the shares;
    `compute_log_likelihood_factors` returns its logarithm. The division keeps the likelihood of
    hundreds of completions within the range of floats.

    Args:
        counts: [..., kind], number of observations of each kind.
        shares: [..., kind], mean shares.
        spread: sum of the parameters of the Dirichlet distribution.
    """
    product = np.ones(np.broadcast_shapes(counts.shape, shares.shape)[:-1])
    for kind in range(counts.shape[-1]):
        mine, start = counts[..., kind], shares[..., kind] * spread
        for drawn in range(int(mine.max(initial=0))):
            product = product * np.where(drawn < mine, (start + drawn) / (spread + drawn), 1.0)
    return product


def compute_log_likelihood_factors(counts: Floats, spread: float) -> Floats:
    """Return logarithms of the factors by which `compute_dirichlet_multinomial_likelihoods`
    divides.

    Args:
        counts: [..., kind], as in `compute_dirichlet_multinomial_likelihoods`.
        spread: as in `compute_dirichlet_multinomial_likelihoods`.

    Returns:
        [...]
    """
    number = counts.sum(-1)
    rising = np.append(0.0, np.cumsum(log(spread + np.arange(number.max(initial=0)))))
    return np.asarray(rising[counts.astype(np.intp)].sum(-1) - rising[number.astype(np.intp)])


def compute_step_likelihoods(evidence: TraceEvidence, rates: ClassRates) -> Floats:
    """Return the likelihood of the evidence at each step, scaled to at most 1.

    The evidence at a step is: observations of the step itself, completions sampled after it, the
    answer that it states and, at the last step, the outcome of the solution.

    Returns:
        [T, state before, level, state, chain]; level and state are those after the step.
    """
    width, count = len(evidence.commitments), len(evidence.num_steps)
    likelihood = np.ones((width, NUM_LEVELS, 2, count))
    bins = bin_steps_to_go(evidence.num_steps, width)
    for name, counts in evidence.completion_counts.items():
        steps, chains = np.nonzero(counts.sum(1))
        seen = counts[steps, :, chains][:, None, None]  # [prefix, 1, 1, 3]
        shares = np.moveaxis(rates.shares[name][:, :, bins[steps, chains]], 2, 0)
        likely = compute_dirichlet_multinomial_likelihoods(seen, shares, rates.spread[name])
        likelihood[steps, :, :, chains] *= _divide_by_largest(likely, (1, 2))
    right, wrong = rates.commitment.T[:, None, None, :, None]
    stated = evidence.commitments[:, :, None, None]
    likelihood *= np.where(stated[:, 0] > 0, right, 1.0) * np.where(stated[:, 1] > 0, wrong, 1.0)
    last = (evidence.num_steps - 1, np.arange(count))
    ends = rates.end[:, 0, None] * evidence.outcome[0] + rates.end[:, 1, None] * evidence.outcome[1]
    likelihood[last[0], :, :, last[1]] *= ends.T[:, None]
    both = np.repeat(likelihood[:, None], 2, axis=1)
    for name, counts in evidence.step_counts.items():
        steps, chains = np.nonzero(counts.sum(1))
        # The likelihood of each distinct row of counts is computed once.
        seen, which = np.unique(counts[steps, :, chains], axis=0, return_inverse=True)
        likely = compute_dirichlet_multinomial_likelihoods(
            seen[:, None], rates.steps[name], rates.step_spread[name]
        )
        likely = _divide_by_largest(likely, 1)[which.reshape(-1)]  # [step, move]
        both[steps, :, :, :, chains] *= likely.reshape(-1, 2, 1, 2)
    return _divide_by_largest(both, (1, 2, 3))


def _divide_by_largest(likely: Floats, axis: int | tuple[int, ...]) -> Floats:
    """Divide likelihoods by their maximum over the given axes, since only their ratios matter."""
    return np.asarray(likely / np.maximum(likely.max(axis, keepdims=True), _TINY))


def infer_beliefs(evidence: TraceEvidence, rates: ClassRates) -> TraceBeliefs:
    """Compute the posterior of a problem's chains.

    All chains begin at the problem without steps and share its level. So the initial distribution
    of a chain is that of the level given the evidence on all other chains.
    """
    seen = compute_step_likelihoods(evidence, rates).reshape(
        -1, 2, NUM_STATES, len(evidence.num_steps)
    )
    width, _, _, count = seen.shape
    moves = rates.moves
    there = (np.arange(width)[:, None] < evidence.num_steps)[:, None]  # [T, 1, chain]
    scale = np.ones((width, 1, count))
    after = np.ones((width + 1, NUM_STATES, count))
    for t in range(width - 1, -1, -1):
        behind = np.empty((NUM_STATES, count))
        for state in (UNSOUND, SOUND):
            behind[state::2] = weighted_sums(moves[state::2].T, seen[t, state] * after[t + 1])
        size = np.maximum(behind.max(0), _TINY)
        scale[t] = np.where(there[t], size, 1.0)
        after[t] = np.where(there[t], behind / size, after[t + 1])
    shown = after[0, SOUND::2]  # [level, chain]
    root = _compute_level_probabilities(evidence, rates)
    start = np.zeros((NUM_STATES, count))
    # Logarithms are added, as a product over thousands of chains leaves the range of floats.
    each = log(np.maximum(shown, _TINY))
    whole = log(np.maximum(root, _TINY))[:, None] + np.cumsum(each, axis=1)[:, -1:]
    start[SOUND::2] = _exponentiate_and_normalise(whole - each)
    mass = np.maximum(sum_in_order(start[SOUND::2] * shown), _TINY)
    before = np.empty((width + 1, NUM_STATES, count))
    unbroken = np.empty((width + 1, NUM_STATES, count))
    before[0], unbroken[0] = start / mass, start / mass
    kept = moves[SOUND::2, SOUND::2]
    for t in range(width):
        moved = weighted_sums(moves[UNSOUND::2], before[t, UNSOUND::2]) * seen[t, UNSOUND]
        moved += weighted_sums(moves[SOUND::2], before[t, SOUND::2]) * seen[t, SOUND]
        moved /= scale[t]
        before[t + 1] = np.where(there[t], moved, before[t])
        sound = weighted_sums(kept, unbroken[t, SOUND::2]) * seen[t, SOUND, SOUND::2] / scale[t]
        unbroken[t + 1] = np.where(there[t], 0.0, unbroken[t])
        unbroken[t + 1, SOUND::2] = np.where(there[t], sound, unbroken[t, SOUND::2])
    to = np.where(there[:, None], seen * (after[1:] / scale)[:, None], 0.0)
    pairs = np.empty((width, 4, count))
    for a in (UNSOUND, SOUND):
        for b in (UNSOUND, SOUND):
            reached = _multiply_messages(moves[a::2, b::2], before[:-1, a::2])
            pairs[:, 2 * a + b] = sum_in_order(reached * to[:, a, b::2], axis=1)
    gone = _multiply_messages(moves[SOUND::2, UNSOUND::2], unbroken[:-1, SOUND::2])
    errors = sum_in_order(gone * to[:, SOUND, UNSOUND::2], axis=1)
    none = sum_in_order(unbroken[-1, SOUND::2])
    return TraceBeliefs(
        root_level=_exponentiate_and_normalise(whole)[:, 0],
        states=np.where(there, before[1:] * after[1:], 0.0).reshape(width, NUM_LEVELS, 2, count),
        moves=pairs,
        first_error=np.concatenate([errors, none[None]]),
        forward=before[:-1],
        backward=to,
    )


def _exponentiate_and_normalise(logs: Floats) -> Floats:
    """Return probabilities [level, chain] from their logarithms, which may lack a constant per
    chain.
    """
    weights = exp(logs - logs.max(0))
    return weights / sum_in_order(weights)


def _multiply_messages(matrix: Floats, messages: Floats) -> Floats:
    """Multiply messages [T, from, chain] by a matrix [from, to]; return [T, to, chain]."""
    return np.moveaxis(
        weighted_sums(matrix, np.ascontiguousarray(np.moveaxis(messages, 1, 0))), 0, 1
    )


def _compute_level_probabilities(evidence: TraceEvidence, rates: ClassRates) -> Floats:
    """Return the probabilities of the problem's level, [level], given the completions of the
    problem without steps.
    """
    level = rates.level
    furthest = bin_steps_to_go(evidence.num_steps.max(keepdims=True) + 1, 1)[0, 0]
    for name, counts in evidence.root_counts.items():
        if counts.any():
            shares = rates.shares[name][:, SOUND, furthest]
            seen = compute_dirichlet_multinomial_likelihoods(
                counts[None], shares, rates.spread[name]
            )
            level = level * (seen / seen.max())
    return np.asarray(level / np.maximum(level.sum(), _TINY))
