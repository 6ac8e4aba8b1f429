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
        Gain and expected rollouts, [batch, R, len(DRAWS)]; index 0 of R is one step to go.
    """
    joint = beliefs.joint[:, 1:]
    chances = joint @ _OUTCOMES  # [batch, R, e, 2 macros]
    marginal = beliefs.first_error
    split = (*chances.shape[:3], 2, len(DRAWS))
    best = chances.max(2).reshape(*split[:2], 2, len(DRAWS)).sum(2)
    whole = chances.sum(2)
    spread = _xlogx(chances).sum(2) - _xlogx(whole)
    known = spread.reshape(*split[:2], 2, len(DRAWS)).sum(2)
    rise = best - marginal.max(1)[:, None, None]
    fall = known - _xlogx(marginal).sum(1)[:, None, None]
    draws = joint.sum(2) @ _EXPECTED_DRAWS
    return rise + ENTROPY_WEIGHT * fall, draws


def _xlogx(p: Floats) -> Floats:
    return np.asarray(p * np.log(np.maximum(p, _TINY)))
