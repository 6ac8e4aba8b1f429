"""Exact inference along solutions: a hidden Markov chain over (sound or not) x value.

Prefixes are indexed by their steps to go, r = T for the bare problem down to 0 for the whole
solution, so that chains of several solutions end together and one matrix serves them all. The
first error is told by e: the step from e steps to go is the first wrong one, e = 0: none. Under
each e a solution is a plain chain of values, so all e are inferred side by side: quadratic in the
number of steps, but in few operations on arrays. All arrays are over a batch of chains of one
answer class; a chain shorter than the longest has no prefixes beyond its own length.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mclabel.estimators.posterior.priors import GRID, NUM_TO_GO, ClassPriors

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
    """[R + 1, e, batch, grid]: chance of the first error and of the value at each prefix r. Zero at
    r = 0, at prefixes beyond a chain's length, and at errors beyond it."""
    first_error: Floats
    """[batch, R + 1]: chance of each e."""
    log_likelihood: Floats
    """[batch], up to a constant of the evidence."""

    @property
    def mean(self) -> Floats:
        """[batch, R + 1]: expected value of each prefix."""
        return np.asarray((self.joint.sum(1) @ GRID).T)


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Of forward-backward; all are [R + 1, e, batch, grid]."""

    forward: Floats
    """Of what was seen up to prefix r, its own rollouts included."""
    back: Floats
    """Of what was seen after prefix r."""
    seen: Floats
    """At r: likelihood of the agreement on the step from r, and of the rollouts after it."""


def infer(evidence: Evidence, priors: ClassPriors) -> Beliefs:
    """Forward-backward over a batch, one chain of values for each first error."""
    messages = pass_messages(evidence, priors)
    joint = messages.forward * messages.back
    # Every prefix of a chain gives the same marginal of e.
    total = joint[evidence.num_steps, :, np.arange(len(evidence.num_steps))].sum(-1)
    mass = total.sum(-1)
    joint /= mass[:, None]
    return Beliefs(joint=joint, first_error=total / mass[:, None], log_likelihood=np.log(mass))


def pass_messages(evidence: Evidence, priors: ClassPriors) -> Messages:
    """Messages along every chain, under every first error."""
    count, width = evidence.right.shape
    moves, moves_back = priors.moves(width)
    kinds, length = _kinds(width), np.arange(width)
    emission = _emissions(evidence)
    agree = priors.agree(evidence.same.T, evidence.others.T)  # [kind, R + 1, batch]
    agreed = agree[kinds, length[:, None]][..., None]
    seen = agreed[1:] * emission[:-1, None]
    seen = np.concatenate([np.zeros_like(seen[:1]), seen])
    forward = np.zeros((width, width, count, len(GRID)))
    back = np.zeros_like(forward)
    batch, steps = np.arange(count), evidence.num_steps
    start = emission[steps, batch] * priors.root[np.minimum(steps, NUM_TO_GO) - 1]
    forward[steps, :, batch] = start[:, None] * (length <= steps[:, None])[..., None]
    for r in range(width - 1, 1, -1):
        forward[r - 1] += (forward[r] @ moves[r]) * seen[r]
    back[1] = (priors.leaf[kinds[1]] @ evidence.outcome.T).transpose(0, 2, 1) * agreed[1]
    for r in range(2, width):
        back[r] = (back[r - 1] * seen[r]) @ moves_back[r]
    return Messages(forward=forward, back=back, seen=seen)


@lru_cache
def _kinds(width: int) -> Ints:
    """[R + 1, e]: 0 where the step from r is right under e, 1 where it is the first wrong one, 2
    where it follows an error.
    """
    r, e = np.arange(width)[:, None], np.arange(width)
    return np.where(e < r, 0, np.where(e == r, 1, 2))


def _emissions(evidence: Evidence) -> Floats:
    """[R + 1, batch, grid]: likelihood of a prefix's rollouts, scaled to at most 1."""
    right, wrong = evidence.right.T[..., None], evidence.wrong.T[..., None]
    log = right * _LOG_VALUES[0] + wrong * _LOG_VALUES[1]
    return np.asarray(np.exp(log - log.max(-1, keepdims=True)))
