"""Forward-backward in linear time, all first errors together: all that fitting needs.

Unlike the numbers that decisions rest on (`mclabel.labeling.estimators.posterior.chain`) these come
from matrix products of a BLAS, which is faster, and their last bits depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.labeling.estimators.posterior.chain import Evidence, look
from mclabel.labeling.estimators.posterior.priors import GRID, NUM_TO_GO, ClassPriors

Floats = NDArray[np.float64]


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
    found = np.zeros((count, width))
    for e in (0, 1):
        ends = forward[1] * (evidence.outcome @ priors.leaf[e].T)
        found[:, e] = ends.sum(-1) * messages.agree[1, :, e]
    for r in range(2, width):
        first = forward[r] @ priors.wrong[min(r, NUM_TO_GO) - 1]
        after = messages.emission[r - 1] * lost[r - 1]
        found[:, r] = (first * after).sum(-1) * messages.agree[r, :, 1]
    return np.asarray(found / found.sum(-1, keepdims=True))
