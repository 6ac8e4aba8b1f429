"""Fits the rates of a run to its evidence by expectation maximisation, without true labels.

Evidence is what is observed on solutions: outcomes, stated answers, repeated steps and rollouts.
Rates are the probabilities of the hidden Markov chain in
`mclabel.labeling.estimators.trace.chain`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mclabel.labeling.estimators.paths import Completer
from mclabel.labeling.estimators.posterior.arithmetic import log
from mclabel.labeling.estimators.posterior.priors import POOLED
from mclabel.labeling.estimators.trace.chain import (
    NUM_LEVELS,
    NUM_STATES,
    SOUND,
    UNSOUND,
    ClassRates,
    Floats,
    TraceEvidence,
    bin_steps_to_go,
    compute_dirichlet_multinomial_likelihoods,
    compute_log_likelihood_factors,
    infer_beliefs,
)
from mclabel.labeling.estimators.trace.rates import TraceRates, make_uninformed_rates

ROUNDS = 12
"""Number of rounds of expectation maximisation."""
MIN_SOLUTIONS = 40
"""Minimum number of solutions for which an answer class (kind of gold answer) gets its own rates.
"""
TO_WIDE, TO_POOLED = 4.0, 12.0
"""Weights with which a fit is shrunk towards the wide rates (those before any fit), and towards the
pooled rates of all answer classes, in observations per array element."""
NEIGHBOUR_WEIGHT = 0.3
"""Weight with which observations also count in the neighbouring bins of steps to go."""
MOVES_STRENGTH = STEPS_STRENGTH = 100
"""Factors by which `TO_WIDE` and `TO_POOLED` are multiplied for two kinds of rates: how often steps
err and repair, and the shares of evidence on steps. With smaller factors, the fitted hidden states
can stand for something else that explains the evidence as well, such as whether a step is a
repetition."""
ENDS_STRENGTH = 1000
"""Factor of the same kind for the rates of outcomes and stated answers. It is large because these
rates define what sound and unsound mean."""
SPREADS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Candidate values of `ClassRates.spread` and `ClassRates.step_spread`, among which a fit
chooses."""


@dataclass(frozen=True, kw_only=True)
class ObservedProblem:
    """The evidence on a finished problem, and the completers (models that sample rollouts)."""

    evidence: TraceEvidence
    completers: tuple[Completer, ...]

    @property
    def num_solutions(self) -> int:
        """Number of distinct solutions of the problem."""
        return len(self.evidence.num_steps)


def fit_rates(problems: Mapping[str, Sequence[ObservedProblem]]) -> TraceRates:
    """Fit rates by maximising the likelihood of the evidence, with shrinkage.

    Args:
        problems: finished problems, by answer class (kind of gold answer). The choice of rollouts
            does not bias the fit, since it depended only on earlier evidence.
    """
    everyone = {
        problem.name: problem
        for seen in problems.values()
        for part in seen
        for problem in part.completers
    }
    sizes = {
        name: sum(problem.num_solutions for problem in seen) for name, seen in problems.items()
    }
    wide = make_uninformed_rates(everyone.values()).classes[POOLED]
    own = [name for name in sorted(problems) if sizes[name] >= MIN_SOLUTIONS]
    current = {POOLED: wide, **dict.fromkeys(own, wide)}
    for _ in range(ROUNDS):
        expected = {
            name: _compute_expected_counts(seen, current.get(name, current[POOLED]), list(everyone))
            for name, seen in sorted(problems.items())
        }
        pooled = _estimate_rates_from_counts(
            _sum_expected_counts(list(expected.values())), wide, TO_WIDE
        )
        mine = {
            name: _estimate_rates_from_counts(expected[name], pooled, TO_POOLED) for name in own
        }
        current = {POOLED: pooled, **mine}
    return TraceRates(classes=current, num_solutions=sum(sizes.values()))


class _WeightedCounts(NamedTuple):
    """Observed counts, and the probabilities of the hidden variable on which each row depends."""

    counts: Floats
    """Counts of observations by kind, [row, kind]."""
    bins: Floats
    """Bin of each row, whose shares are fitted separately, [row]."""
    weights: Floats
    """Probability of each value of the hidden variable, [row, ...]."""


@dataclass(kw_only=True)
class _ExpectedCounts:
    """Expected counts, from which `ClassRates` are computed.

    `level`, `moves`, `end` and `commitment` are shaped like the fields of `ClassRates` with the
    same names.
    """

    level: Floats = field(default_factory=lambda: np.zeros(NUM_LEVELS))
    moves: Floats = field(default_factory=lambda: np.zeros((NUM_STATES, NUM_STATES)))
    end: Floats = field(default_factory=lambda: np.zeros((2, 2)))
    commitment: Floats = field(default_factory=lambda: np.zeros((2, 2)))
    completions: dict[str, list[_WeightedCounts]] = field(default_factory=dict)
    """Maps the name of each completer to its completions. The counts are the numbers of completions
    by result [prefix, 3], the bins are those of the number of steps to go [prefix], and the weights
    are the probabilities of each level and state [prefix, level, state].
    """
    steps: dict[str, list[_WeightedCounts]] = field(default_factory=dict)
    """Maps each source to its observations of steps. The counts are [step, kind], all bins are 0,
    and the weights are the probabilities of each move [step, 1, move].
    """


def _sum_expected_counts(parts: Sequence[_ExpectedCounts]) -> _ExpectedCounts:
    totals = _ExpectedCounts()
    for part in parts:
        for name in ("level", "moves", "end", "commitment"):
            setattr(totals, name, getattr(totals, name) + getattr(part, name))
        for completer, completions in part.completions.items():
            totals.completions.setdefault(completer, []).extend(completions)
        for source, steps in part.steps.items():
            totals.steps.setdefault(source, []).extend(steps)
    return totals


def _compute_expected_counts(
    problems: Sequence[ObservedProblem], rates: ClassRates, names: Sequence[str]
) -> _ExpectedCounts:
    expected = _ExpectedCounts(completions={name: [] for name in names})
    for problem in problems:
        _add_problem_counts(expected, problem.evidence, rates)
    return expected


def _add_problem_counts(
    expected: _ExpectedCounts, evidence: TraceEvidence, rates: ClassRates
) -> None:
    beliefs = infer_beliefs(evidence, rates)
    expected.level += beliefs.root_level
    for state in (UNSOUND, SOUND):
        own = np.einsum("tic,tjc->ij", beliefs.forward[:, state::2], beliefs.backward[:, state])
        expected.moves[state::2] += rates.moves[state::2] * own
    states = beliefs.states
    count = len(evidence.num_steps)
    ends = states.sum(1)[evidence.num_steps - 1, :, np.arange(count)]  # [chain, state]
    is_known = evidence.outcome.sum(0) == 1
    expected.end += ends[is_known].T @ evidence.outcome[:, is_known].T
    expected.commitment += np.einsum("tlsc,tkc->sk", states, evidence.commitments)
    for source, counts in evidence.step_counts.items():
        steps, chains = np.nonzero(counts.sum(1))
        expected.steps.setdefault(source, []).append(
            _WeightedCounts(
                counts=counts[steps, :, chains],
                bins=np.zeros(len(steps)),
                weights=beliefs.moves[steps, :, chains][:, None],
            )
        )
    bins = bin_steps_to_go(evidence.num_steps, len(states))
    for name, counts in evidence.completion_counts.items():
        steps, chains = np.nonzero(counts.sum(1))
        expected.completions[name].append(
            _WeightedCounts(
                counts=counts[steps, :, chains],
                bins=bins[steps, chains].astype(np.float64),
                weights=states[steps, :, :, chains],
            )
        )
        root = evidence.root_counts[name]
        if root.any():
            at = np.zeros((1, NUM_LEVELS, 2))
            at[0, :, SOUND] = beliefs.root_level
            furthest = bin_steps_to_go(evidence.num_steps.max(keepdims=True) + 1, 1)[0]
            expected.completions[name].append(
                _WeightedCounts(counts=root[None], bins=furthest.astype(np.float64), weights=at)
            )


def _estimate_rates_from_counts(
    expected: _ExpectedCounts, towards: ClassRates, strength: float
) -> ClassRates:
    def shrink_to_shares(counts: Floats, target: Floats) -> Floats:
        mixed = counts + strength * target
        return np.asarray(mixed / mixed.sum(-1, keepdims=True))

    shares, spread = {}, {}
    for name, target in towards.shares.items():
        shares[name], spread[name] = _fit_mean_shares_and_spread(
            expected.completions.get(name, []), target, towards.spread[name], strength
        )
    steps, step_spread = {}, {}
    for source, target in towards.steps.items():
        fitted, step_spread[source] = _fit_mean_shares_and_spread(
            expected.steps.get(source, []),
            target[None, :, None],
            towards.step_spread[source],
            STEPS_STRENGTH * strength,
        )
        steps[source] = fitted[0, :, 0]
    certain = ENDS_STRENGTH * strength
    end = expected.end + certain * towards.end
    commitment = expected.commitment + certain * towards.commitment
    return ClassRates(
        level=shrink_to_shares(expected.level, towards.level),
        moves=_estimate_move_probabilities(expected.moves, towards.moves, strength),
        end=end / end.sum(-1, keepdims=True),
        commitment=commitment / commitment.sum(-1, keepdims=True),
        shares=shares,
        spread=spread,
        steps=steps,
        step_spread=step_spread,
    )


def _estimate_move_probabilities(expected: Floats, towards: Floats, strength: float) -> Floats:
    """Return fitted probabilities of moves, `ClassRates.moves`, [NUM_STATES, NUM_STATES].

    Each is a product of two factors: the probability that a step errs or repairs, which does not
    depend on the level, and the probability of the level after the step. The first step of an
    unsolvable problem is not more likely to be wrong, since the policy may always fail at a later
    step. If the first factor could depend on the level, the fit would label solutions of problems
    that always fail as wrong from the first step.

    Args:
        expected: expected counts of moves, of the same shape.
        towards: probabilities of the same shape, towards which the result is shrunk.
        strength: weight of `towards`, in observations.
    """
    shape = (NUM_LEVELS, 2, NUM_LEVELS, 2)
    counts, target = expected.reshape(shape), towards.reshape(shape)
    moves = np.zeros(shape)
    for before in (UNSOUND, SOUND):
        seen, prior = counts[:, before].sum((0, 1)), target[:, before].sum((0, 1)) / NUM_LEVELS
        often = (seen + MOVES_STRENGTH * strength * prior) / (
            seen.sum() + MOVES_STRENGTH * strength
        )
        for after in (UNSOUND, SOUND):
            wanted = target[:, before, :, after]
            wanted = wanted / wanted.sum(1, keepdims=True)
            mixed = counts[:, before, :, after] + strength * wanted
            moves[:, before, :, after] = often[after] * mixed / mixed.sum(1, keepdims=True)
    return moves.reshape(NUM_STATES, NUM_STATES)


def _fit_mean_shares_and_spread(
    weighted_counts: Sequence[_WeightedCounts],
    target_shares: Floats,
    previous_spread: float,
    target_weight: float,
) -> tuple[Floats, float]:
    """Return mean shares, shaped like `target_shares`, and their spread, fitted to weighted counts.

    Completions of one prefix are correlated, so all of them together have a weight of less than
    spread + 1 observations.

    Args:
        weighted_counts: weighted counts of one completer (`_ExpectedCounts.completions`) or of one
            source (`_ExpectedCounts.steps`).
        target_shares: mean shares towards which the result is shrunk.
        previous_spread: spread before this fit.
        target_weight: weight of `target_shares`, in observations per array element.
    """
    if not weighted_counts:
        return target_shares, previous_spread
    counts, bins, weights = (np.concatenate(part) for part in zip(*weighted_counts, strict=True))
    if not len(counts):
        return target_shares, previous_spread
    weighing = (previous_spread + 1) / (previous_spread + counts.sum(1))
    cells = np.zeros((target_shares.shape[2], *target_shares.shape[:2], target_shares.shape[3]))
    worth = weights[..., None] * (counts * weighing[:, None])[:, None, None]
    np.add.at(cells, bins.astype(np.intp), worth)
    near = cells.copy()
    near[1:] += NEIGHBOUR_WEIGHT * cells[:-1]
    near[:-1] += NEIGHBOUR_WEIGHT * cells[1:]
    mixed = np.moveaxis(near, 0, 2) + target_weight * target_shares
    shares = mixed / mixed.sum(-1, keepdims=True)
    # Rows with equal bins and counts are merged, and their weights added.
    alike, which = np.unique(np.column_stack([bins, counts]), axis=0, return_inverse=True)
    together = np.zeros((len(alike), *weights.shape[1:]))
    np.add.at(together, which.reshape(-1), weights)
    bins, counts = alike[:, 0], alike[:, 1:]
    there = np.moveaxis(shares[:, :, bins.astype(np.intp)], 2, 0)  # [row, level, state, 3]
    fits = []
    for candidate in SPREADS:
        likely = log(
            np.maximum(
                compute_dirichlet_multinomial_likelihoods(counts[:, None, None], there, candidate),
                1e-300,
            )
        )
        logs = likely + compute_log_likelihood_factors(counts, candidate)[:, None, None]
        fits.append(float((together * logs).sum()))
    return shares, SPREADS[int(np.argmax(fits))]
