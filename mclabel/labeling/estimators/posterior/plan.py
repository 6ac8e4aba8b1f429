"""Computes the value of information of each possible probe, for many problems at once.

A probe of a prefix samples rollouts until the first right one, at most m of them. Its gain for a
solution has two terms. The first is the expected rise of the largest posterior probability of a
first error, which is the expected accuracy of the label. The second is the expected fall of the
posterior's entropy, with a small weight. By the first term alone, a probe that changes the label
only together with another one would have no gain; with the second term alone, rollouts would never
stop. `mclabel.labeling.estimators.posterior.views` chooses probes by their gain.

Many problems are planned in one batch, because the numpy calls take longer than the arithmetic of
one solution's hidden Markov chain. A problem's plan has the same bits whatever other problems are
in its batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.labeling.estimators.posterior.arithmetic import LANES, log, sum_in_order, weighted_sums
from mclabel.labeling.estimators.posterior.chain import (
    Beliefs,
    Evidence,
    compute_first_error_posterior,
    infer_beliefs,
)
from mclabel.labeling.estimators.posterior.priors import GRID, ClassPriors

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

DRAWS = (1, 4, 16)
"""Maximum number m of rollouts of each kind of probe."""
ENTROPY_WEIGHT = 0.15
"""Weight of the fall of entropy relative to the rise of the largest posterior probability."""
MIN_BATCH = 32
"""Minimum number of chains in a batch. If there are fewer chains of one length, shorter chains are
added and padded."""
MAX_BATCH = 96
"""Maximum number of chains in a batch."""
MAX_CELLS = 1_000_000
"""Maximum number of pairs of a first error and a prefix in a batch, which bounds its memory. A
batch of long chains therefore holds fewer than `MAX_BATCH` chains, but at least `LANES`."""

_NONE = (1 - GRID[:, None]) ** np.array(DRAWS)
_DRAWS_AND_MEAN = np.concatenate([(1 - _NONE) / GRID[:, None], GRID[:, None]], axis=1)
_TINY = 1e-12


@dataclass(frozen=True)
class ProbePlan:
    """Gain of each probe of a problem's chains, and posterior of the chains. A chain is a distinct
    solution; R is the number of steps of the longest chain. The steps to go of a prefix are the
    steps of the chain that follow it.
    """

    table: Floats
    """[chain, R + 1, 2 * len(DRAWS) + 2]; the second axis is the number of steps to go. The last
    axis holds the gain of each kind of probe, the expected number of rollouts of each kind of
    probe, the expected value of the prefix, and the probability that the next step is the first
    wrong one. At 0 steps to go only the last entry is set, to the probability that no step is
    wrong."""

    @property
    def mean(self) -> Floats:
        """Expected value of each prefix [chain, R + 1], indexed by the number of steps to go."""
        return self.table[..., -2]

    @property
    def first_error(self) -> Floats:
        """Probability that the step after a prefix is the first wrong one [chain, R + 1], indexed
        by the prefix's number of steps to go; at index 0, that no step is wrong.
        """
        return self.table[..., -1]


@dataclass(frozen=True, kw_only=True)
class ChainEvidence:
    """Evidence on a problem's solutions, from which the problem's plan is computed.

    There is one chain per distinct solution, and R is the number of steps of the longest chain. The
    axis of length R + 1 is the number of steps to go.
    """

    num_steps: NDArray[np.int64]
    """[chain]: number of steps."""
    counts: Floats
    """[4, chain, R + 1]: `right`, `wrong`, `num_taking_same_step` and `num_reaching_prefix` of
    `Evidence`."""
    outcome: Floats
    """[chain, 2], as in `Evidence.outcome`."""
    external_likelihood: Floats
    """[chain, R + 1], as in `Evidence.external_likelihood`."""
    priors: ClassPriors
    previous_plan: ProbePlan | None
    """The problem's previous plan, from which the rows of unchanged chains are copied; None if
    there is none."""
    changed_chains: Sequence[int]
    """Indices of the chains with new evidence since `previous_plan`; all chains if that is None."""


def make_plans(requests: Sequence[ChainEvidence]) -> list[ProbePlan]:
    """Return a plan for each of many problems, in order. Each equals the plan that is made for the
    problem alone.
    """
    if not requests:
        return []
    width = max(request.counts.shape[2] for request in requests)
    size = sum(len(request.changed_chains) for request in requests)
    table = np.zeros((size, width, 2 * len(DRAWS) + 2))
    for rows, evidence, priors in _iter_batches(requests, size, width):
        beliefs = infer_beliefs(evidence, priors)
        num_columns = evidence.right.shape[1]
        is_valid = np.arange(1, num_columns) <= evidence.num_steps[:, None]
        probes = np.concatenate(
            [
                compute_probe_gains(beliefs),
                weighted_sums(_DRAWS_AND_MEAN, beliefs.value_probabilities),
            ]
        )
        table[rows, 1:num_columns, :-1] = np.where(is_valid[..., None], probes.T[: len(rows)], 0.0)
        table[rows, :num_columns, -1] = beliefs.first_error.T[: len(rows)]
    plans, begin = [], 0
    for request in requests:
        num_columns, end = request.counts.shape[2], begin + len(request.changed_chains)
        if request.previous_plan is None:
            whole = table[begin:end, :num_columns].copy()
        else:
            whole = request.previous_plan.table.copy()
            whole[request.changed_chains] = table[begin:end, :num_columns]
        plans.append(ProbePlan(whole))
        begin = end
    return plans


def infer_first_errors(requests: Sequence[ChainEvidence]) -> list[Floats]:
    """Return, for each request, the probability of each first error of its changed chains.

    Each array has the shape [changed, R + 1].
    """
    if not requests:
        return []
    width = max(request.counts.shape[2] for request in requests)
    sizes = [len(request.changed_chains) for request in requests]
    beliefs = np.zeros((sum(sizes), width))
    for rows, evidence, priors in _iter_batches(requests, len(beliefs), width):
        beliefs[rows, : evidence.right.shape[1]] = compute_first_error_posterior(
            evidence, priors
        ).T[: len(rows)]
    ends = np.cumsum(sizes).tolist()
    return [
        beliefs[begin:end, : request.counts.shape[2]]
        for request, begin, end in zip(requests, [0, *ends], ends, strict=False)
    ]


def compute_probe_gains(beliefs: Beliefs) -> Floats:
    """Return the expected gain of each kind of probe at each prefix, [len(DRAWS), R, batch].

    A kind of probe samples at most m rollouts, with m from `DRAWS`; the module defines its gain. R
    is the number of steps of the longest chain in the batch. Index 0 of this axis is the prefix
    with one step to go, index 1 the prefix with two steps to go.
    """
    num_errors, length, count = beliefs.joint_probabilities.shape[1:]
    gains = np.empty((len(DRAWS), length, count))
    part = max(1, MAX_CELLS // (4 * num_errors * count))  # number of prefixes processed together
    for at in range(0, length, part):
        joint = np.ascontiguousarray(beliefs.joint_probabilities[:, :, at : at + part])
        gains[:, at : at + part] = _compute_gains(joint, beliefs.first_error)
    return gains


def _compute_gains(joint: Floats, marginal: Floats) -> Floats:
    """Return the gains of `compute_probe_gains`, for the prefixes in `joint`.

    Args:
        joint: [grid, e, R, batch], as in `Beliefs.joint_probabilities`, or a part of it along R.
        marginal: [e, batch], probability of each first error.
    """
    num_errors, length, count = joint.shape[1:]
    # Axis 0 is the result of the probe: failure or success. Axis 2 is the first error, and its
    # last entry the sum over first errors.
    shape = (2, len(DRAWS), num_errors + 1, length, count)
    # One call takes the logarithms of all these probabilities and of the marginal.
    everything = np.empty((math.prod(shape[:-1]) + num_errors, count))
    everything[-num_errors:] = marginal
    chances = everything[:-num_errors].reshape(shape)
    by_error = chances[:, :, :-1]
    weighted_sums(_NONE, joint, by_error[0])
    np.subtract(marginal[:, None], by_error[0], out=by_error[1])
    chances[:, :, -1] = sum_in_order(by_error, axis=2)
    rise = sum_in_order(by_error.max(2)) - marginal.max(0)
    # Entropies are differences of sums of p log p: over first errors, less that of their sum.
    content = _compute_p_log_p(everything)
    after = content[:-num_errors].reshape(shape)
    likelihood = sum_in_order(sum_in_order(after[:, :, :-1], axis=2) - after[:, :, -1])
    fall = likelihood - sum_in_order(content[-num_errors:])
    return np.asarray(rise + ENTROPY_WEIGHT * fall)


def _iter_batches(
    requests: Sequence[ChainEvidence], size: int, width: int
) -> Iterator[tuple[Ints, Evidence, ClassPriors]]:
    """Divide the changed chains of all requests into batches for one computation each.

    Yields:
        Indices of the chains, counted over the changed chains of all requests from 0, their
        evidence, and their priors.
    """
    counts = np.zeros((5, size, width))
    classes: dict[int, tuple[ClassPriors, list[int]]] = {}
    begin = 0
    for request in requests:
        changed, end = request.changed_chains, begin + len(request.changed_chains)
        num_columns = request.counts.shape[2]
        counts[:4, begin:end, :num_columns] = request.counts[:, changed]
        counts[4, begin:end, :num_columns] = request.external_likelihood[changed]
        classes.setdefault(id(request.priors), (request.priors, []))[1].extend(range(begin, end))
        begin = end
    num_steps = np.concatenate([request.num_steps[request.changed_chains] for request in requests])
    outcome = np.concatenate([request.outcome[request.changed_chains] for request in requests])
    for priors, members in classes.values():
        chains = np.array(members)
        for rows in _iter_batches_by_length(chains, num_steps[chains]):
            longest = int(num_steps[rows].max()) + 1
            right, wrong, same, others, external_likelihood = counts[:, rows, :longest]
            yield (
                rows,
                Evidence(
                    num_steps=num_steps[rows],
                    right=right,
                    wrong=wrong,
                    num_taking_same_step=same,
                    num_reaching_prefix=others,
                    outcome=outcome[rows],
                    external_likelihood=external_likelihood,
                ),
                priors,
            )


def _iter_batches_by_length(chains: Ints, num_steps: NDArray[np.int64]) -> Iterator[Ints]:
    """Divide chains into batches of chains of about equal length, the longest first."""
    order = np.argsort(-num_steps, kind="stable")
    chains, num_steps = chains[order], num_steps[order]
    begin = 0
    cuts = np.flatnonzero(np.diff(num_steps)) + 1
    for end in [*cuts.tolist(), len(chains)]:
        if end - begin >= MIN_BATCH or end == len(chains):
            cells = (int(num_steps[begin]) + 1) ** 2
            most = min(MAX_BATCH, max(LANES, MAX_CELLS // cells // LANES * LANES))
            for at in range(begin, end, most):
                yield chains[at : min(end, at + most)]
            begin = end


def _compute_p_log_p(p: Floats) -> Floats:
    product = log(np.maximum(p, _TINY))
    product *= p
    return product
