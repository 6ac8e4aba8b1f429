"""One posterior over all who rolled out: what one completer's chain shows the others' of an error.

Given the first error, what one model's rollouts show does not depend on what another's do, as far
as the chains know: each model has its own values at the prefixes. So each has a chain of its own,
and what they have in common is the first error e: the posterior is the product of what every chain
says of e. The author's chain alone has a say before there is any evidence, since it is the author
that errs: from the others' the chance of e that they began with is divided out.

Nor do the others say whether the last step is wrong or none is: nothing is rolled out after it, so
all that they have on it is that who is often right is taken to be seldom wrong, and the solution is
not theirs. Of the two they give the chance of both together.

To each chain all the others are one more likelihood of e, `Evidence.elsewhere`. Where the author
rolls out alone there is nothing elsewhere, and the posterior is that of its chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mclabel.labeling.estimators.posterior.chain import Evidence, infer
from mclabel.labeling.estimators.posterior.priors import ClassPriors

Floats = NDArray[np.float64]

LEAST = 1e-9
"""Least likelihood, of the largest, that others give a first error: none is ruled out by them."""


def elsewhere(own: Sequence[Floats], bare: Sequence[Floats]) -> list[Floats]:
    """What is known of each first error outside each chain.

    Args:
        own: of each completer, the author first, [chain, R + 1]: chances of each first error, from
            what its own chain has seen.
        bare: of each but the author, [chain, R + 1]: the same where it has seen nothing.

    Returns:
        Of each completer, [chain, R + 1], the largest of a chain being 1.
    """
    shown = [own[0], *(_shown(a, b) for a, b in zip(own[1:], bare, strict=True))]
    found = []
    for number in range(len(own)):
        likely = np.ones_like(own[0])
        for other, chances in enumerate(shown):
            if other != number:
                likely = _scaled(likely * chances)
        if number > 0:
            begun = bare[number - 1].copy()
            begun[:, :2] = _ratio(own[number][:, :2], shown[number][:, :2])
            likely = _ratio(likely, begun)
        found.append(_scaled(likely))
    return found


def likelihoods(own: Floats, bare: Floats) -> Floats:
    """What evidence shows of each first error, [chain, R + 1], the largest of a chain being 1.

    Args:
        own: chances of each first error.
        bare: the same before there was any evidence.
    """
    return _scaled(_ratio(own, bare))


def _shown(own: Floats, bare: Floats) -> Floats:
    """What the chains of who is not the author say of each first error."""
    found = _ratio(own, bare)
    found[:, :2] = ((own[:, 0] + own[:, 1]) / (bare[:, 0] + bare[:, 1]))[:, None]
    return found


def _ratio(above: Floats, below: Floats) -> Floats:
    """Zero where the lower is: beyond a chain's length, and where a chance has become too small."""
    return np.asarray(np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0))


def _scaled(likely: Floats) -> Floats:
    return np.asarray(np.maximum(likely / likely.max(-1, keepdims=True), LEAST))


def bare_errors(num_steps: NDArray[np.int64], priors: ClassPriors, width: int) -> Floats:
    """Chances of each first error before anything was seen.

    Args:
        num_steps: [chain]
        priors: of the chains.
        width: R + 1.

    Returns:
        [chain, R + 1], zero beyond a chain's length.
    """
    found = np.zeros((len(num_steps), width))
    for steps in np.unique(num_steps).tolist():
        found[num_steps == steps, : steps + 1] = _bare(steps, priors)
    return found


@lru_cache(maxsize=4096)
def _bare(steps: int, priors: ClassPriors) -> Floats:
    return infer(nothing_seen(np.array([steps])), priors).first_error[:, 0].copy()


def nothing_seen(num_steps: NDArray[np.int64]) -> Evidence:
    """The evidence on solutions of which nothing is known but their lengths, [batch]."""
    shape = (len(num_steps), int(num_steps.max()) + 1)
    right, wrong, same, others = np.zeros((4, *shape))
    return Evidence(
        num_steps=num_steps,
        right=right,
        wrong=wrong,
        same=same,
        others=others,
        outcome=np.ones((len(num_steps), 2)),
        elsewhere=np.ones(shape),
    )
