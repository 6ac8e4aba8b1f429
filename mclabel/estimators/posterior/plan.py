"""Which prefix to roll out next: expected information for each expected token.

A probe of a prefix is a macro: roll out until the first success, at most m times. Its worth to a
solution is the expected rise of the largest posterior, which is the accuracy of the label, plus a
little of the expected fall of entropy: accuracy alone sees no use in a first step towards an
answer, entropy alone never stops. Worth is summed over the solutions that share the prefix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mclabel.estimators.posterior.chain import Beliefs
from mclabel.estimators.posterior.priors import GRID

Floats = NDArray[np.float64]

DRAWS = (1, 2, 4, 8, 16, 32)
ENTROPY_WEIGHT = 0.15

_NONE = (1 - GRID[:, None]) ** np.array(DRAWS)
_OUTCOMES = np.concatenate([_NONE, 1 - _NONE], axis=1)
_EXPECTED_DRAWS = (1 - _NONE) / GRID[:, None]
_TINY = 1e-12


def probe_gains(beliefs: Beliefs) -> tuple[Floats, Floats]:
    """What each probe of each prefix would teach, and how many rollouts it would take.

    Returns:
        Gain and expected rollouts, [R, batch, len(DRAWS)]; index 0 of R is one step to go.
    """
    joint = beliefs.joint[1:]
    chances = joint @ _OUTCOMES  # [R, e, batch, 2 macros]
    marginal = beliefs.first_error
    best = _both(chances.max(1))
    known = _both(_xlogx(chances).sum(1) - _xlogx(chances.sum(1)))
    rise = best - marginal.max(1)[:, None]
    fall = known - _xlogx(marginal).sum(1)[:, None]
    draws = joint.sum(1) @ _EXPECTED_DRAWS
    return rise + ENTROPY_WEIGHT * fall, draws


def _both(outcomes: Floats) -> Floats:
    """Summed over the two outcomes of each macro."""
    return np.asarray(outcomes[..., : len(DRAWS)] + outcomes[..., len(DRAWS) :])


def _xlogx(p: Floats) -> Floats:
    return np.asarray(p * np.log(np.maximum(p, _TINY)))
