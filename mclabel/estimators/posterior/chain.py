"""Exact inference along solutions: a hidden Markov chain over (sound or not) x value.

Prefixes are indexed by their steps to go, r = T for the bare problem down to 0 for the whole
solution, so that chains of several solutions end together and one matrix serves them all. The
first error is told by e: the step from e steps to go is the first wrong one, e = 0: none. A prefix
is sound where e <= r.

`pass_messages` runs forward-backward in linear time, which is all that fitting needs. What a probe
teaches about the first error needs the joint of e and of the value at each prefix: before an error
chains under all e share their way forward, after it their way back, so it takes one vector for
each pair of them, R^2 / 2 in each direction. All arrays are over a batch of chains of one answer
class; a chain shorter than the longest has no prefixes beyond its own length. A chain's numbers
do not depend on what else is in the batch: each is multiplied on its own, and sums over e, which
padding with longer chains makes longer, run from the first to the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.estimators.posterior.priors import GRID, NUM_TO_GO, ClassPriors

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOG_VALUES = np.stack([np.log(GRID), np.log1p(-GRID)])
_SIZE = len(GRID)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was seen of a batch of solutions; R is the number of steps of the longest."""

    num_steps: Ints
    """[batch]"""
    right: Floats
    """[batch, R + 1]: rollouts from the prefix with r steps to go that ended right."""
    wrong: Floats
    """[batch, R + 1]"""
    same: Floats
    """[batch, R + 1]: other samples at r steps to go that took the same next step."""
    others: Floats
    """[batch, R + 1]: other samples at r steps to go."""
    outcome: Floats
    """[batch, 2]: likelihood of what was seen of the solution's own end, if it was wrong and if
    it was right: (1, 0), (0, 1), or (1, 1) for nothing."""


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """Posterior of a batch of chains."""

    joint: Floats
    """[e, batch, R, grid]: chance of the first error and of the value at each prefix; index 0 of R
    is one step to go. Zero at prefixes beyond a chain's length, and at errors beyond it."""
    first_error: Floats
    """[batch, e]: chance of each e."""
    log_likelihood: Floats
    """[batch], up to a constant of the evidence."""

    @property
    def values(self) -> Floats:
        """[batch, R, grid]: chance of each value of each prefix."""
        return np.asarray(self.joint.sum(0))


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Likelihoods of what was seen, scaled to at most 1."""

    emission: Floats
    """[R + 1, batch, grid]: of the rollouts of prefix r."""
    agree: Floats
    """[R + 1, batch, kind]: of the agreement on the step from r, if it is right, the first wrong
    one, or after an error."""
    log_scale: Floats
    """[batch]: what `agree` was scaled by."""


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Of forward-backward, a pair for sound and for unsound prefixes; each [R + 1, batch, grid]."""

    forward: tuple[Floats, Floats]
    """Of what was seen up to prefix r, its own rollouts included; zero where there is none."""
    back: tuple[Floats, Floats]
    """Of what was seen after prefix r."""
    seen: Seen


def infer(evidence: Evidence, priors: ClassPriors) -> Beliefs:
    """The posterior of each chain's first error and values."""
    seen = look(evidence, priors)
    count, width = evidence.right.shape
    forward = _forward(evidence.num_steps, priors, seen)
    back = _backward(evidence.outcome, priors, seen)
    joint = np.zeros((width, count, width - 1, _SIZE))
    for r in range(1, width):
        here = joint[:, :, r - 1].transpose(1, 0, 2)
        np.multiply(forward[r][:, :1], back[r][:, : r + 1], out=here[:, : r + 1])
        np.multiply(forward[r][:, 1:], back[r][:, r + 1 :], out=here[:, r + 1 :])
    # Every prefix of a chain gives the same marginal of e.
    total = joint[:, np.arange(count), evidence.num_steps - 1].sum(-1)
    mass = np.add.accumulate(total)[-1]  # in order, also for a single chain
    joint /= mass[:, None, None]
    return Beliefs(
        joint=joint,
        first_error=(total / mass).T,
        log_likelihood=np.log(mass) + seen.log_scale,
    )


def _forward(num_steps: Ints, priors: ClassPriors, seen: Seen) -> list[Floats]:
    """By r: [batch, 1 + R - r, grid], the prefix sound, then unsound by each e > r."""
    width, count, _ = seen.emission.shape
    factors = seen.agree[1:, :, :, None] * seen.emission[:-1, :, None]  # of the step to r - 1
    start = (
        priors.root[np.minimum(num_steps, NUM_TO_GO) - 1]
        * seen.emission[num_steps, np.arange(count)]
    )
    here = np.zeros((count, 1, _SIZE))
    by_r = [here] * width
    for r in range(width - 1, 0, -1):
        begins = num_steps == r
        here[begins, 0] = start[begins]
        by_r[r] = here
        if r > 1:
            i, factor = min(r, NUM_TO_GO) - 1, factors[r - 1]
            after = np.empty((count, here.shape[1] + 1, _SIZE))
            stays = (here[:, :1] @ priors.from_sound[i]).reshape(count, 2, _SIZE)
            np.multiply(stays, factor[:, :2], out=after[:, :2])
            # With the first row, which is not used: a product of one row rounds differently.
            np.multiply((here @ priors.unsound[i])[:, 1:], factor[:, 2:], out=after[:, 2:])
            here = after
    return by_r


def _backward(outcome: Floats, priors: ClassPriors, seen: Seen) -> list[Floats]:
    """By r: [batch, r + 2, grid], the prefix sound by each e <= r, then unsound."""
    width, count, _ = seen.emission.shape
    here = np.empty((count, 3, _SIZE))
    ends = outcome @ priors.leaf.transpose(0, 2, 1)  # [kind, batch, grid]
    np.multiply(ends.transpose(1, 0, 2), seen.agree[1, :, :, None], out=here)
    by_r = [here, here]
    for r in range(2, width):
        i, agree = min(r, NUM_TO_GO) - 1, seen.agree[r, :, :, None]
        behind = here * seen.emission[r - 1, :, None]
        here = np.empty((count, r + 2, _SIZE))
        np.multiply(behind[:, :r] @ priors.to_sound[i], agree[:, :1], out=here[:, :r])
        lost = (behind[:, r:] @ priors.to_unsound[i]).reshape(count, 2, _SIZE)
        np.multiply(lost, agree[:, 1:], out=here[:, r:])
        by_r.append(here)
    return by_r


def pass_messages(evidence: Evidence, priors: ClassPriors) -> Messages:
    """Messages along every chain, all first errors together."""
    seen = look(evidence, priors)
    emission, agree = seen.emission, seen.agree[..., None]
    count, width = evidence.right.shape
    steps, chains = evidence.num_steps, np.arange(count)
    forward, fallen, back, lost = np.zeros((4, width, count, _SIZE))
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
    return Messages(forward=(forward, fallen), back=(back, lost), seen=seen)


def look(evidence: Evidence, priors: ClassPriors) -> Seen:
    """Likelihoods of a batch's evidence."""
    right, wrong = evidence.right.T[..., None], evidence.wrong.T[..., None]
    log = right * _LOG_VALUES[0] + wrong * _LOG_VALUES[1]
    agree = priors.agree(evidence.same.T, evidence.others.T)  # [kind, R + 1, batch]
    best = agree.max(0)
    return Seen(
        emission=np.exp(log - log.max(-1, keepdims=True)),
        agree=np.ascontiguousarray((agree / best).transpose(1, 2, 0)),
        log_scale=np.log(best).sum(0),
    )
