"""Exact inference along solutions: a hidden Markov chain over (sound or not) x value.

Prefixes are indexed by their steps to go, r = T for the bare problem down to 0 for the whole
solution, so that chains of several solutions end together and one matrix serves them all. The
first error is numbered by e: the step from e steps to go is the first wrong one, e = 0: none. A
prefix is sound where e <= r.

What a probe would show of the first error needs the joint of e and of the value at each prefix:
before an error chains under all e share their way forward, after it their way back, so it takes one
vector for each pair of them, R^2 / 2 in each direction.

A chain's numbers do not depend on what else is in the batch, by construction. The batch is the last
axis of every array, padded to whole vectors, and each chain is a lane of its own: nothing is summed
along that axis, and the sums along the others (`mclabel.labeling.estimators.posterior.arithmetic`)
run from the first term to the last. A chain shorter than the longest has no prefixes beyond its own
length, which adds zeros at the end of its sums.

Fitting needs less: `pass_messages` goes forward and backward in linear time, all first errors
together. Unlike the numbers that decisions rest on, its own come from matrix products of a BLAS,
which is faster, and their last bits depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.labeling.estimators.posterior.arithmetic import LANES, combine, exp, log, total
from mclabel.labeling.estimators.posterior.priors import (
    GRID,
    NUM_TO_GO,
    TABLE,
    ClassPriors,
    agreement_likelihood,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOG_VALUES = log(np.stack([GRID, 1 - GRID]))
_SIZE = len(GRID)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence on a batch of solutions; R is the number of steps of the longest."""

    num_steps: Ints
    """[batch]: number of steps of each solution."""
    right: Floats
    """[batch, R + 1]: rollouts from the prefix with r steps to go that ended right."""
    wrong: Floats
    """[batch, R + 1]: the same of those that ended wrong."""
    same: Floats
    """[batch, R + 1]: other samples at r steps to go that took the same next step."""
    others: Floats
    """[batch, R + 1]: other samples at r steps to go."""
    outcome: Floats
    """[batch, 2]: likelihood of what was seen of the solution's own end, if it was wrong and if
    it was right: (1, 0), (0, 1), or (1, 1) for nothing."""
    elsewhere: Floats
    """[batch, R + 1]: likelihood of everything else that is known of each first error e, such as
    the rollouts of other completers; at most 1."""


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """Posterior of a batch of chains; each chain is a lane of the last axis."""

    joint: Floats
    """[grid, e, R, batch]: chance of the first error and of the value at each prefix; index 0 of R
    is one step to go. Zero at prefixes beyond a chain's length, and at errors beyond it."""
    first_error: Floats
    """[e, batch]: chance of each e."""
    mass: Floats
    """[batch]: likelihood of the evidence, as scaled in `seen`."""
    seen: Seen

    @property
    def values(self) -> Floats:
        """[grid, R, batch]: chance of each value of each prefix."""
        return total(self.joint, axis=1)

    @property
    def log_likelihood(self) -> Floats:
        """[batch], up to a constant of the evidence."""
        return np.asarray(log(self.mass) + log(self.seen.scale).sum(0))


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Likelihoods of the evidence, scaled to at most 1."""

    emission: Floats
    """[grid, R + 1, batch]: of the rollouts of prefix r."""
    agree: Floats
    """[kind, R + 1, batch]: of the agreement on the step from r, if it is right, the first wrong
    one, or after an error."""
    scale: Floats
    """[R + 1, batch]: what `agree` was divided by."""


def infer(evidence: Evidence, priors: ClassPriors) -> Beliefs:
    """Compute the posterior of each chain's first error and values.

    Returns:
        Beliefs of at least as many lanes as there are chains. Those beyond are of no chain.
    """
    evidence = _in_whole_vectors(evidence)
    seen = look(evidence, priors)
    count, width = evidence.right.shape
    sound, fallen = _forward(evidence.num_steps, priors, seen)
    lost, back = _backward(evidence.outcome, priors, seen)
    joint = np.empty((_SIZE, width, width - 1, count))
    np.multiply(sound[:, 0, None], back[0], out=joint[:, :2, 0])
    np.multiply(lost[:, 0, None], fallen[0], out=joint[:, 2:, 0])
    # Every prefix of a chain gives the same marginal of e, and every chain has one step to go.
    marginal = total(joint[:, :, 0])
    mass = total(marginal)
    joint[:, :, 0] /= mass
    sound /= mass
    lost /= mass
    for r in range(2, width):
        np.multiply(sound[:, r - 1, None], back[r - 1], out=joint[:, : r + 1, r - 1])
        np.multiply(lost[:, r - 1, None], fallen[r - 1], out=joint[:, r + 1 :, r - 1])
    return Beliefs(joint=joint, first_error=marginal / mass, mass=mass, seen=seen)


def first_errors(evidence: Evidence, priors: ClassPriors) -> Floats:
    """Compute the chance of each first error alone, [e, batch], to the last bit as `infer` does.

    It takes memory that is linear in the number of steps.
    """
    evidence = _in_whole_vectors(evidence)
    seen = look(evidence, priors)
    count, width = evidence.right.shape
    sound, fallen = _forward(evidence.num_steps, priors, seen, keeps=False)
    lost, back = _backward(evidence.outcome, priors, seen, most=1)
    ends = np.empty((_SIZE, width, count))  # at one step to go
    np.multiply(sound[:, 0, None], back[0], out=ends[:, :2])
    np.multiply(lost[:, 0, None], fallen[0], out=ends[:, 2:])
    marginal = total(ends)
    return np.asarray(marginal / total(marginal))


def _forward(
    num_steps: Ints, priors: ClassPriors, seen: Seen, *, keeps: bool = True
) -> tuple[Floats, list[Floats]]:
    """Messages of what was seen before prefix r.

    Chains under all e share those to sound prefixes.

    Args:
        num_steps: [batch]
        priors: priors of the chains' class.
        seen: what was.
        keeps: whether to keep the messages to all unsound prefixes, R^2 / 2 of them, or those to
            the one with one step to go alone.

    Returns:
        To sound prefixes, without their own rollouts, [grid, R, batch]; and by r to unsound ones,
        with them, [grid, e, batch] for e from r + 1.
    """
    size, width, count = seen.emission.shape
    # Of the step from r, and of the rollouts of the prefix it leads to.
    step = seen.agree[:, None, 1:] * seen.emission[:, :-1]  # [kind, grid, R, batch]
    start, sound = np.zeros((2, size, width - 1, count))
    start[:, num_steps - 1, np.arange(count)] = priors.root[np.minimum(num_steps, NUM_TO_GO) - 1].T
    np.multiply(start, seen.emission[:, 1:], out=sound)  # with their own rollouts
    starting = set(num_steps.tolist())
    moved = np.zeros((2, size, width - 1, count))  # sound and wrong
    flat = moved.reshape(2 * size, width - 1, count)
    for r in range(width - 1, 1, -1):
        combine(priors.from_sound[min(r, NUM_TO_GO) - 1], sound[:, r - 1], flat[:, r - 2])
        if r - 1 in starting:  # nothing has moved there where a chain starts
            sound[:, r - 2] += moved[0, :, r - 2] * step[0, :, r - 1]
        else:
            np.multiply(moved[0, :, r - 2], step[0, :, r - 1], out=sound[:, r - 2])
    before, first = moved
    before[:, :-1] *= seen.agree[0, 2:]
    before += start
    first[:, :-1] *= step[1, :, 1:]
    fallen = np.empty((size, 0, count))
    by_r = [fallen] * (width - 1 if keeps else 1)
    for r in range(width - 1, 1, -1):
        after = np.empty((size, width - r, count))
        after[:, 0] = first[:, r - 2]
        if r < width - 1:
            combine(priors.unsound[min(r, NUM_TO_GO) - 1], fallen, after[:, 1:])
            after[:, 1:] *= step[2, :, r - 1, None]
        by_r[r - 2 if keeps else 0] = fallen = after
    return before, by_r


def _backward(
    outcome: Floats, priors: ClassPriors, seen: Seen, *, most: int | None = None
) -> tuple[Floats, list[Floats]]:
    """Messages of what was seen after prefix r.

    Chains under all e share those to unsound prefixes.

    Args:
        outcome: [batch, 2]
        priors: priors of the chains' class.
        seen: what was.
        most: steps to go of the prefixes; None for R.

    Returns:
        To unsound prefixes, without their own rollouts, [grid, R, batch]; and by r to sound ones,
        with them, [grid, e, batch] for e up to r.
    """
    size, width, count = seen.emission.shape
    width = width if most is None else most + 1
    # Of the step from r, and of the rollouts of r.
    step = seen.agree[:, None, 1:width] * seen.emission[:, 1:width]  # [kind, grid, R, batch]
    wrong, right = priors.leaf.transpose(2, 0, 1)[..., None]
    ends = wrong * outcome[:, 0] + right * outcome[:, 1]  # [kind, grid, batch]
    lost = np.empty((size, width - 1, count))  # with their own rollouts
    moved = np.empty((2, size, width - 1, count))  # from wrong, and unsound
    flat = moved.reshape(2 * size, width - 1, count)
    moved[:, :, 0] = ends[1:]
    for r in range(1, width):
        if r > 1:
            combine(priors.to_unsound[min(r, NUM_TO_GO) - 1], lost[:, r - 2], flat[:, r - 1])
        np.multiply(moved[1, :, r - 1], step[2, :, r - 1], out=lost[:, r - 1])
    last, after = moved
    last *= step[1]
    after *= seen.agree[2, 1:width]
    by_r = []
    back = ends[0][:, None]
    for r in range(1, width):
        before = np.empty((size, r + 1, count))
        if r > 1:
            combine(priors.to_sound[min(r, NUM_TO_GO) - 1], back, before[:, :r])
            before[:, :r] *= step[0, :, r - 1, None]
        else:
            np.multiply(back, step[0, :, :1], out=before[:, :1])
        before[:, r] = last[:, r - 1]
        by_r.append(before)
        back = before
    return after, by_r


def _in_whole_vectors(evidence: Evidence) -> Evidence:
    """Repeat the last chain until their number is a multiple of `LANES`."""
    count = len(evidence.num_steps)
    if count % LANES == 0:
        return evidence
    lanes = np.minimum(np.arange(-(-count // LANES) * LANES), count - 1)
    return Evidence(**{f.name: getattr(evidence, f.name)[lanes] for f in fields(Evidence)})


def look(evidence: Evidence, priors: ClassPriors) -> Seen:
    """Compute the likelihoods of a batch's evidence."""
    counts = (evidence.right, evidence.wrong, evidence.same, evidence.others)
    right, wrong, same, others = (np.ascontiguousarray(count.T) for count in counts)
    if max(right.max(), wrong.max()) < TABLE:
        emission = np.take(_emissions(), (right * TABLE + wrong).astype(np.intp), axis=1)
    else:
        emission = rollouts_likelihood(right, wrong)
    if others.max() < TABLE:
        agree = np.take(priors.agreements, (others * TABLE + same).astype(np.intp), axis=1)
    else:
        agree = agreement_likelihood(same, others, priors.agreement)
    agree[1] *= evidence.elsewhere.T  # the step from r is the first wrong one: e = r
    if agree.shape[1] > 1:
        agree[0, 1] *= evidence.elsewhere[:, 0]  # the last step is right: there is no error
    return Seen(emission=emission, agree=agree[:3], scale=agree[3])


@lru_cache(maxsize=1)
def _emissions() -> Floats:
    """[grid, right * TABLE + wrong]: of all small counts."""
    right, wrong = np.divmod(np.arange(TABLE * TABLE), TABLE)
    return rollouts_likelihood(right, wrong)


def rollouts_likelihood(right: NDArray[Any], wrong: NDArray[Any]) -> Floats:
    """[grid, *shape]: of rollouts that ended right and wrong, the largest being 1."""
    succeed, fail = _LOG_VALUES.reshape(2, _SIZE, *[1] * right.ndim)
    likely = succeed * right + fail * wrong
    return exp(likely - likely.max(0))


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Messages of forward-backward, in pairs for sound and unsound prefixes.

    Each is [R + 1, batch, grid].
    """

    forward: tuple[Floats, Floats]
    """Likelihood of what was seen up to prefix r, its own rollouts included; else zero."""
    back: tuple[Floats, Floats]
    """Likelihood of what was seen after prefix r."""
    emission: Floats
    """[R + 1, batch, grid]: likelihood of the rollouts of prefix r."""
    agree: Floats
    """[R + 1, batch, kind]: of the agreement on the step from r."""

    @property
    def pairs(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Messages that meet at a prefix, of the sound ones and of the unsound."""
        (forward, fallen), (back, lost) = self.forward, self.back
        return (forward, back), (fallen, lost)


def pass_messages(evidence: Evidence, priors: ClassPriors) -> Messages:
    """Pass messages along every chain, all first errors together."""
    seen = look(evidence, priors)
    emission, kinds = (x.transpose(1, 2, 0).copy() for x in (seen.emission, seen.agree))
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
    return Messages(forward=(forward, fallen), back=(back, lost), emission=emission, agree=kinds)


def error_chances(evidence: Evidence, priors: ClassPriors) -> Floats:
    """Chance of each first error, [batch, R + 1], zero beyond a chain's length."""
    messages = pass_messages(evidence, priors)
    forward, lost = messages.forward[0], messages.back[1]
    count, width = evidence.right.shape
    chances = np.zeros((count, width))
    for e in (0, 1):
        ends = forward[1] * (evidence.outcome @ priors.leaf[e].T)
        chances[:, e] = ends.sum(-1) * messages.agree[1, :, e]
    for r in range(2, width):
        first = forward[r] @ priors.wrong[min(r, NUM_TO_GO) - 1]
        after = messages.emission[r - 1] * lost[r - 1]
        chances[:, r] = (first * after).sum(-1) * messages.agree[r, :, 1]
    return np.asarray(chances / chances.sum(-1, keepdims=True))
