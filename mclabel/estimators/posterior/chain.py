"""Exact inference along solutions: a hidden Markov chain over (sound or not) x value.

Prefixes are indexed by their steps to go, r = T for the bare problem down to 0 for the whole
solution, so that chains of several solutions end together and one matrix serves them all. The
first error is told by e: the step from e steps to go is the first wrong one, e = 0: none. All
arrays are over a batch of chains of one answer class; a chain shorter than the batch's longest has
no prefixes beyond its own length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.estimators.posterior.priors import (
    GRID,
    NUM_TO_GO,
    ClassPriors,
    agreement_likelihood,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LOG_VALUES = np.stack([np.log(GRID), np.log1p(-GRID)])


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
    """[batch, R + 1, R + 1, grid]: chance of (first error e, value) at each prefix r. Index 0 of r
    and prefixes beyond a chain's length hold zeros."""
    first_error: Floats
    """[batch, R + 1]: chance of each e."""
    log_likelihood: Floats
    """[batch], up to a constant of the evidence."""

    @property
    def mean(self) -> Floats:
        """[batch, R + 1]: expected value of each prefix."""
        return np.asarray(self.joint.sum(2) @ GRID)


def infer(evidence: Evidence, priors: ClassPriors) -> Beliefs:
    """Forward-backward over a batch."""
    forward_sound, forward_unsound, back_sound, back_unsound = _messages(evidence, priors)
    longest = evidence.right.shape[1] - 1
    errors = np.arange(longest + 1)
    joint = np.where(
        errors[None, :, None] <= errors[:, None, None],
        forward_sound[:, :, None, :] * back_sound,
        forward_unsound * back_unsound[:, :, None, :],
    )
    # Any prefix of a chain gives the same marginal of e; that of the bare problem is exact even
    # where a chain has one step only.
    rows = np.arange(len(joint))
    total = joint[rows, evidence.num_steps].sum(-1)
    mass = total.sum(-1)
    joint /= mass[:, None, None, None]
    return Beliefs(joint=joint, first_error=total / mass[:, None], log_likelihood=np.log(mass))


def _messages(evidence: Evidence, priors: ClassPriors) -> tuple[Floats, Floats, Floats, Floats]:
    """Forward messages hold a prefix's own emission, backward ones what comes after it."""
    count, width = evidence.right.shape
    longest, size = width - 1, len(GRID)
    emission = _emissions(evidence)
    agree = agreement_likelihood(evidence.same, evidence.others, priors.agreement)[..., None]
    forward_sound = np.zeros((count, width, size))
    forward_unsound = np.zeros((count, width, width, size))
    back_sound = np.zeros((count, width, width, size))
    back_unsound = np.zeros((count, width, size))
    starts = [evidence.num_steps == r for r in range(width)]
    for r in range(longest, 0, -1):
        i = min(r, NUM_TO_GO) - 1
        if starts[r].any():
            forward_sound[starts[r], r] = emission[starts[r], r] * priors.root[i]
        if r == 1:
            break
        below = emission[:, r - 1]
        here = forward_sound[:, r]
        forward_sound[:, r - 1] = (here @ priors.sound[i]) * (below * agree[0, :, r])
        forward_unsound[:, r - 1, r] = (here @ priors.wrong[i]) * (below * agree[1, :, r])
        if r < longest:
            moved = forward_unsound[:, r, r + 1 :] @ priors.unsound[i]
            forward_unsound[:, r - 1, r + 1 :] = moved * (below * agree[2, :, r])[:, None]
    ends = np.einsum("sgo,bo->sbg", priors.leaf, evidence.outcome) * agree[:, :, 1]
    back_sound[:, 1, 0], back_sound[:, 1, 1], back_unsound[:, 1] = ends
    for r in range(2, width):
        i = min(r, NUM_TO_GO) - 1
        below = emission[:, r - 1]
        lost = below * back_unsound[:, r - 1]
        back_sound[:, r, r] = (lost * agree[1, :, r]) @ priors.wrong[i].T
        back_unsound[:, r] = (lost * agree[2, :, r]) @ priors.unsound[i].T
        kept = (below * agree[0, :, r])[:, None] * back_sound[:, r - 1, :r]
        back_sound[:, r, :r] = kept @ priors.sound[i].T
    return forward_sound, forward_unsound, back_sound, back_unsound


def _emissions(evidence: Evidence) -> Floats:
    """[batch, R + 1, grid]: likelihood of a prefix's rollouts, scaled to at most 1."""
    log = evidence.right[..., None] * _LOG_VALUES[0] + evidence.wrong[..., None] * _LOG_VALUES[1]
    return np.asarray(np.exp(log - log.max(-1, keepdims=True)))
