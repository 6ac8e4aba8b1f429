"""Exact inference along solutions with a hidden Markov chain.

The hidden state of a prefix is a pair: the prefix is sound (contains no error) or not, and it has a
value, which is the probability that a rollout from it ends right. Values lie on a grid.

A prefix is indexed by r, its number of steps to go: r = T for the problem without steps if the
solution has T steps, and r = 0 for the complete solution. So the chains of several solutions end at
the same index, and one matrix per r serves all of them. The first error is indexed by e: the first
wrong step is the one that starts at the prefix with e steps to go, and e = 0 means that no step is
wrong. The prefix with r steps to go is sound if e <= r. R is the number of steps of the longest
solution.

The evidence on a solution is everything from which its states are inferred: rollouts, the outcome,
and other samples that took the same steps. To predict what more rollouts would reveal about the
first error, the joint distribution of e and of the value at each prefix is needed. Chains with
different e share their forward messages up to the error, and their backward messages after it. So
one vector per pair of e and r is enough, which is R^2 / 2 vectors in each direction.

The results for a chain do not depend on the other chains in the batch. The batch is the last axis
of every array, padded to full vectors, and each chain is one element (lane) of it. Nothing is
summed along the batch. Sums along other axes run from the first term to the last
(`mclabel.labeling.estimators.posterior.arithmetic`). A chain that is shorter than the longest has
zeros for the prefixes that it lacks, and they come last in its sums.

Fitting the priors needs only marginals. `compute_messages` computes them in linear time, for all
first errors at once. It uses BLAS matrix products, which are faster, but whose last bits depend on
the batch and the CPU. No decision depends on its results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.labeling.estimators.posterior.arithmetic import (
    LANES,
    exp,
    log,
    sum_in_order,
    weighted_sums,
)
from mclabel.labeling.estimators.posterior.priors import (
    GRID,
    NUM_TO_GO,
    TABLE_SIZE,
    ClassPriors,
    LuckHypothesis,
    compute_agreement_likelihood,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOG_VALUES = log(np.stack([GRID, 1 - GRID]))
_SIZE = len(GRID)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Observations on a batch of solutions. R is the number of steps of the longest solution, and
    axes of length R + 1 are indexed by r, the number of steps to go.
    """

    num_steps: Ints
    """[batch]: number of steps of each solution."""
    right: Floats
    """[batch, R + 1]: number of right rollouts from the prefix with r steps to go."""
    wrong: Floats
    """[batch, R + 1]: number of wrong rollouts from the prefix with r steps to go."""
    num_taking_same_step: Floats
    """[batch, R + 1]: number of other samples (solutions or rollouts) that reached the prefix with
    r steps to go and took the solution's next step."""
    num_reaching_prefix: Floats
    """[batch, R + 1]: number of other samples that reached the prefix with r steps to go."""
    outcome: Floats
    """[batch, 2]: likelihood of the solution's observed outcome if it ended wrong, and if it ended
    right: (1, 0) for a wrong outcome, (0, 1) for a right one, (1, 1) for an unknown one."""
    external_likelihood: Floats
    """[batch, R + 1]: likelihood, under each first error e, of evidence that is not in the other
    fields, such as the rollouts of other models; at most 1. The second axis is e."""


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """Posterior of a batch of chains, one chain per element of the last axis.

    R is the number of steps of the longest chain, e the number of steps to go before the first
    wrong step (0 if no step is wrong), and the axis `grid` has the possible values of a prefix.
    """

    joint_probabilities: Floats
    """[grid, e, R, batch]: joint probability of the first error and of the value at each prefix.
    Index 0 of R is the prefix with one step to go. Zero for prefixes and errors beyond a chain's
    length."""
    first_error: Floats
    """[e, batch]: probability of each first error e."""
    scaled_likelihood: Floats
    """[batch]: likelihood of the evidence, with the scaling of `likelihoods`."""
    likelihoods: EvidenceLikelihoods
    """Likelihoods from which the posterior was computed."""

    @property
    def value_probabilities(self) -> Floats:
        """[grid, R, batch]: probability of each value at each prefix. Index 0 of R is the prefix
        with one step to go.
        """
        return sum_in_order(self.joint_probabilities, axis=1)

    @property
    def log_likelihood(self) -> Floats:
        """[batch]: log likelihood of the evidence, up to a term that does not depend on the
        priors.
        """
        return np.asarray(
            log(self.scaled_likelihood) + log(self.likelihoods.agreement_divisor).sum(0)
        )


@dataclass(frozen=True, kw_only=True)
class EvidenceLikelihoods:
    """Likelihoods of the evidence, scaled to at most 1.

    A step has one of three kinds: it is right, it is the first wrong step, or it follows an error.
    Prefix r is the prefix with r steps to go, and R is the number of steps of the longest solution.
    """

    rollouts: Floats
    """[grid, R + 1, batch]: likelihood of the rollouts from the prefix with r steps to go under
    each value."""
    agreement: Floats
    """[kind, R + 1, batch]: likelihood of how many other samples took the same step from prefix r,
    under each kind of step."""
    agreement_divisor: Floats
    """[R + 1, batch]: number by which the likelihoods in `agreement` were divided."""


def infer_beliefs(evidence: Evidence, priors: ClassPriors) -> Beliefs:
    """Compute the posterior of each chain's first error and values.

    Returns:
        Posterior with one element of the last axis per chain, in order, followed by padding.
    """
    evidence = _pad_to_whole_vectors(evidence)
    likelihoods = compute_likelihoods(evidence, priors)
    count, width = evidence.right.shape
    sound, fallen = _compute_forward_messages(evidence.num_steps, priors, likelihoods)
    lost, back = _compute_backward_messages(evidence.outcome, priors, likelihoods)
    joint = np.empty((_SIZE, width, width - 1, count))
    np.multiply(sound[:, 0, None], back[0], out=joint[:, :2, 0])
    np.multiply(lost[:, 0, None], fallen[0], out=joint[:, 2:, 0])
    # Every prefix of a chain gives the same marginal of e. Every chain has a prefix with one step
    # to go.
    marginal = sum_in_order(joint[:, :, 0])
    mass = sum_in_order(marginal)
    joint[:, :, 0] /= mass
    sound /= mass
    lost /= mass
    for r in range(2, width):
        np.multiply(sound[:, r - 1, None], back[r - 1], out=joint[:, : r + 1, r - 1])
        np.multiply(lost[:, r - 1, None], fallen[r - 1], out=joint[:, r + 1 :, r - 1])
    return Beliefs(
        joint_probabilities=joint,
        first_error=marginal / mass,
        scaled_likelihood=mass,
        likelihoods=likelihoods,
    )


def compute_first_error_posterior(evidence: Evidence, priors: ClassPriors) -> Floats:
    """Compute the probability of each first error, [e, batch], but no joint probabilities.

    The result is equal to `infer_beliefs(...).first_error` in every bit, but the memory used grows
    linearly with the number of steps.
    """
    evidence = _pad_to_whole_vectors(evidence)
    marginal = _compute_first_error_marginal(
        evidence, priors, compute_likelihoods(evidence, priors)
    )
    return np.asarray(marginal / sum_in_order(marginal))


def average_first_error_posterior(
    evidence: Evidence, luck_hypotheses: Sequence[LuckHypothesis]
) -> Floats:
    """Compute the probability of each first error, [batch, R + 1], averaged over hypotheses about
    luck.

    Luck is a right answer after an error. For each solution, the hypotheses are weighted by their
    posterior probability.

    Args:
        evidence: evidence on a batch of solutions.
        luck_hypotheses: hypotheses from `Priors.make_luck_hypotheses`.
    """
    whole = _pad_to_whole_vectors(evidence)
    chances, logs = [], []
    for probability, priors in luck_hypotheses:
        likelihoods = compute_likelihoods(whole, priors)
        marginal = _compute_first_error_marginal(whole, priors, likelihoods)
        mass = sum_in_order(marginal)
        chances.append(marginal / mass)
        logs.append(log(probability * mass) + sum_in_order(log(likelihoods.agreement_divisor)))
    shares = exp(np.stack(logs) - np.max(logs, axis=0))
    mixed = sum_in_order(np.stack(chances) * shares[:, None]) / sum_in_order(shares)
    return np.asarray(mixed.T[: len(evidence.num_steps)])


def _compute_first_error_marginal(
    evidence: Evidence, priors: ClassPriors, likelihoods: EvidenceLikelihoods
) -> Floats:
    """Compute the joint probability of each first error and the evidence, [e, batch].

    The probability of the evidence is scaled like the likelihoods in `likelihoods`.
    """
    count, width = evidence.right.shape
    sound, fallen = _compute_forward_messages(
        evidence.num_steps, priors, likelihoods, keep_all=False
    )
    lost, back = _compute_backward_messages(
        evidence.outcome, priors, likelihoods, max_steps_to_go=1
    )
    ends = np.empty((_SIZE, width, count))  # at one step to go
    np.multiply(sound[:, 0, None], back[0], out=ends[:, :2])
    np.multiply(lost[:, 0, None], fallen[0], out=ends[:, 2:])
    return sum_in_order(ends)


def _compute_forward_messages(
    num_steps: Ints, priors: ClassPriors, likelihoods: EvidenceLikelihoods, *, keep_all: bool = True
) -> tuple[Floats, list[Floats]]:
    """Compute forward messages: joint likelihood of a prefix's state and the evidence before it.

    Chains with different first errors e share their messages to sound prefixes.

    Args:
        num_steps: [batch], number of steps of each solution.
        priors: priors of the chains' answer class.
        likelihoods: likelihoods of the evidence.
        keep_all: True keeps the messages to all unsound prefixes, which are R^2 / 2 vectors. False
            keeps only the messages to the prefix with one step to go.

    Returns:
        A pair. First, messages to sound prefixes, [grid, R, batch], which exclude the rollouts from
        the prefix. Second, for each r from 1 to R, messages to the unsound prefix, [grid, e, batch]
        for e from r + 1 to R, which include the rollouts from the prefix.
    """
    size, width, count = likelihoods.rollouts.shape
    # Likelihood of the step from r, and of the rollouts from the prefix at its end.
    step = (
        likelihoods.agreement[:, None, 1:] * likelihoods.rollouts[:, :-1]
    )  # [kind, grid, R, batch]
    start, sound = np.zeros((2, size, width - 1, count))
    start[:, num_steps - 1, np.arange(count)] = priors.root[np.minimum(num_steps, NUM_TO_GO) - 1].T
    np.multiply(start, likelihoods.rollouts[:, 1:], out=sound)  # with their own rollouts
    starting = set(num_steps.tolist())
    moved = np.zeros((2, size, width - 1, count))  # sound and wrong
    flat = moved.reshape(2 * size, width - 1, count)
    for r in range(width - 1, 1, -1):
        weighted_sums(
            priors.transitions_from_sound[min(r, NUM_TO_GO) - 1], sound[:, r - 1], flat[:, r - 2]
        )
        if r - 1 in starting:  # chains that start at this prefix have no message from before it
            sound[:, r - 2] += moved[0, :, r - 2] * step[0, :, r - 1]
        else:
            np.multiply(moved[0, :, r - 2], step[0, :, r - 1], out=sound[:, r - 2])
    before, first = moved
    before[:, :-1] *= likelihoods.agreement[0, 2:]
    before += start
    first[:, :-1] *= step[1, :, 1:]
    fallen = np.empty((size, 0, count))
    by_r = [fallen] * (width - 1 if keep_all else 1)
    for r in range(width - 1, 1, -1):
        after = np.empty((size, width - r, count))
        after[:, 0] = first[:, r - 2]
        if r < width - 1:
            weighted_sums(priors.unsound[min(r, NUM_TO_GO) - 1], fallen, after[:, 1:])
            after[:, 1:] *= step[2, :, r - 1, None]
        by_r[r - 2 if keep_all else 0] = fallen = after
    return before, by_r


def _compute_backward_messages(
    outcome: Floats,
    priors: ClassPriors,
    likelihoods: EvidenceLikelihoods,
    *,
    max_steps_to_go: int | None = None,
) -> tuple[Floats, list[Floats]]:
    """Compute backward messages: likelihood of the evidence after a prefix, given its state.

    Chains with different first errors e share their messages to unsound prefixes.

    Args:
        outcome: [batch, 2], as in `Evidence.outcome`.
        priors: priors of the chains' answer class.
        likelihoods: likelihoods of the evidence.
        max_steps_to_go: largest number of steps to go for which messages are computed; None means
            R, the number of steps of the longest solution.

    Returns:
        A pair. First, messages to unsound prefixes, [grid, R, batch], which exclude the rollouts
        from the prefix. Second, for each r from 1, messages to the sound prefix, [grid, e, batch]
        for e from 0 to r, which include the rollouts from the prefix.
    """
    size, width, count = likelihoods.rollouts.shape
    width = width if max_steps_to_go is None else max_steps_to_go + 1
    # Likelihood of the step from r, and of the rollouts from prefix r.
    step = (
        likelihoods.agreement[:, None, 1:width] * likelihoods.rollouts[:, 1:width]
    )  # [kind, grid, R, batch]
    wrong, right = priors.leaf.transpose(2, 0, 1)[..., None]
    ends = wrong * outcome[:, 0] + right * outcome[:, 1]  # [kind, grid, batch]
    lost = np.empty((size, width - 1, count))  # with their own rollouts
    moved = np.empty((2, size, width - 1, count))  # from wrong, and unsound
    flat = moved.reshape(2 * size, width - 1, count)
    moved[:, :, 0] = ends[1:]
    for r in range(1, width):
        if r > 1:
            weighted_sums(
                priors.transitions_to_unsound[min(r, NUM_TO_GO) - 1], lost[:, r - 2], flat[:, r - 1]
            )
        np.multiply(moved[1, :, r - 1], step[2, :, r - 1], out=lost[:, r - 1])
    last, after = moved
    last *= step[1]
    after *= likelihoods.agreement[2, 1:width]
    by_r = []
    back = ends[0][:, None]
    for r in range(1, width):
        before = np.empty((size, r + 1, count))
        if r > 1:
            weighted_sums(priors.transitions_to_sound[min(r, NUM_TO_GO) - 1], back, before[:, :r])
            before[:, :r] *= step[0, :, r - 1, None]
        else:
            np.multiply(back, step[0, :, :1], out=before[:, :1])
        before[:, r] = last[:, r - 1]
        by_r.append(before)
        back = before
    return after, by_r


def _pad_to_whole_vectors(evidence: Evidence) -> Evidence:
    """Pad a batch to a multiple of `LANES` chains by repeating its last chain."""
    count = len(evidence.num_steps)
    if count % LANES == 0:
        return evidence
    lanes = np.minimum(np.arange(-(-count // LANES) * LANES), count - 1)
    return Evidence(**{f.name: getattr(evidence, f.name)[lanes] for f in fields(Evidence)})


def compute_likelihoods(evidence: Evidence, priors: ClassPriors) -> EvidenceLikelihoods:
    """Compute the likelihoods of a batch's evidence."""
    counts = (
        evidence.right,
        evidence.wrong,
        evidence.num_taking_same_step,
        evidence.num_reaching_prefix,
    )
    right, wrong, same, others = (np.ascontiguousarray(count.T) for count in counts)
    if max(right.max(), wrong.max()) < TABLE_SIZE:
        emission = np.take(
            _make_likelihood_table(), (right * TABLE_SIZE + wrong).astype(np.intp), axis=1
        )
    else:
        emission = compute_rollouts_likelihood(right, wrong)
    if others.max() < TABLE_SIZE:
        agree = np.take(
            priors.agreement_table, (others * TABLE_SIZE + same).astype(np.intp), axis=1
        )
    else:
        agree = compute_agreement_likelihood(same, others, priors.agreement)
    agree[1] *= evidence.external_likelihood.T  # if the step from r is the first wrong one, e = r
    if agree.shape[1] > 1:
        agree[0, 1] *= evidence.external_likelihood[:, 0]  # if the last step is right, e = 0
    return EvidenceLikelihoods(rollouts=emission, agreement=agree[:3], agreement_divisor=agree[3])


@lru_cache(maxsize=1)
def _make_likelihood_table() -> Floats:
    """Return `compute_rollouts_likelihood` of all counts below `TABLE_SIZE`.

    Its shape is [grid, TABLE_SIZE * TABLE_SIZE]; the last index is right * TABLE_SIZE + wrong.
    """
    right, wrong = np.divmod(np.arange(TABLE_SIZE * TABLE_SIZE), TABLE_SIZE)
    return compute_rollouts_likelihood(right, wrong)


def compute_rollouts_likelihood(right: NDArray[Any], wrong: NDArray[Any]) -> Floats:
    """Return the likelihood of counts of right and wrong rollouts under each value of the grid.

    Args:
        right: any shape, number of right rollouts.
        wrong: the same shape, number of wrong rollouts.

    Returns:
        [grid, *shape], scaled so that the largest likelihood over the grid is 1.
    """
    succeed, fail = _LOG_VALUES.reshape(2, _SIZE, *[1] * right.ndim)
    likely = succeed * right + fail * wrong
    return exp(likely - likely.max(0))


@dataclass(frozen=True, kw_only=True)
class ChainMessages:
    """Messages of the forward-backward algorithm, for all first errors at once.

    Each message is an array [R + 1, batch, grid], whose first axis is r, the number of steps to go.
    """

    forward_sound: Floats
    """Joint likelihood that prefix r is sound and of the evidence up to it, including the rollouts
    from it. Zero for prefixes that a chain does not have."""
    forward_unsound: Floats
    """The same as `forward_sound`, for an unsound prefix r."""
    backward_sound: Floats
    """Likelihood of the evidence after prefix r, given that prefix r is sound."""
    backward_unsound: Floats
    """Likelihood of the evidence after prefix r, given that prefix r is unsound."""
    rollouts: Floats
    """[R + 1, batch, grid]: likelihood of the rollouts from prefix r."""
    agreement: Floats
    """[R + 1, batch, kind]: likelihood of how many other samples took the same step from prefix r,
    under each kind of step."""


def compute_messages(evidence: Evidence, priors: ClassPriors) -> ChainMessages:
    """Compute forward and backward messages along every chain, for all first errors at once."""
    likelihoods = compute_likelihoods(evidence, priors)
    emission, kinds = (
        x.transpose(1, 2, 0).copy() for x in (likelihoods.rollouts, likelihoods.agreement)
    )
    agree = kinds[..., None]
    count, width = evidence.right.shape
    steps, chains = evidence.num_steps, np.arange(count)
    forward, fallen, back, lost = np.zeros((4, width, count, len(GRID)))
    start = priors.root[np.minimum(steps, NUM_TO_GO) - 1]
    forward[steps, chains] = start * emission[steps, chains]
    for r in range(width - 1, 1, -1):
        i, (right, first, later) = min(r, NUM_TO_GO) - 1, agree[r].transpose(1, 0, 2)
        forward[r - 1] += (forward[r] @ priors.sound[i]) * right * emission[r - 1]
        wrong = (forward[r] @ priors.wrong[i]) * first
        fallen[r - 1] = (wrong + (fallen[r] @ priors.unsound[i]) * later) * emission[r - 1]
    right, first, later = (evidence.outcome @ priors.leaf.transpose(0, 2, 1)) * agree[1].transpose(
        1, 0, 2
    )
    back[1], lost[1] = right + first, later
    for r in range(2, width):
        i, (right, first, later) = min(r, NUM_TO_GO) - 1, agree[r].transpose(1, 0, 2)
        behind, behind_lost = back[r - 1] * emission[r - 1], lost[r - 1] * emission[r - 1]
        back[r] = (behind @ priors.sound[i].T) * right + (behind_lost @ priors.wrong[i].T) * first
        lost[r] = (behind_lost @ priors.unsound[i].T) * later
    return ChainMessages(
        forward_sound=forward,
        forward_unsound=fallen,
        backward_sound=back,
        backward_unsound=lost,
        rollouts=emission,
        agreement=kinds,
    )


def compute_first_error_chances(evidence: Evidence, priors: ClassPriors) -> Floats:
    """Compute the probability of each first error, [batch, R + 1], by `compute_messages`.

    It is zero beyond a chain's length.
    """
    messages = compute_messages(evidence, priors)
    forward, lost = messages.forward_sound, messages.backward_unsound
    count, width = evidence.right.shape
    chances = np.zeros((count, width))
    for e in (0, 1):
        ends = forward[1] * (evidence.outcome @ priors.leaf[e].T)
        chances[:, e] = ends.sum(-1) * messages.agreement[1, :, e]
    for r in range(2, width):
        first = forward[r] @ priors.wrong[min(r, NUM_TO_GO) - 1]
        after = messages.rollouts[r - 1] * lost[r - 1]
        chances[:, r] = (first * after).sum(-1) * messages.agreement[r, :, 1]
    return np.asarray(chances / chances.sum(-1, keepdims=True))
