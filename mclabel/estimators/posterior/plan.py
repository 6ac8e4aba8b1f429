"""Which prefix to roll out next: expected information for each expected token, for many problems.

A probe of a prefix is a macro: roll out until the first success, at most m times. Its worth to a
solution is the expected rise of the largest posterior, which is the accuracy of the label, plus a
little of the expected fall of entropy: accuracy alone sees no use in a first step towards an
answer, entropy alone never stops. Worth is summed over the solutions that share the prefix.

Questions of many problems are answered together, since a chain alone takes less time than calling
numpy about it. What a question's answer is does not depend on which others it is asked with, to
the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.estimators.posterior.arithmetic import combine, log, total
from mclabel.estimators.posterior.chain import Beliefs, Evidence, infer
from mclabel.estimators.posterior.priors import GRID, ClassPriors

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

DRAWS = (1, 4, 16)
ENTROPY_WEIGHT = 0.15
MIN_BATCH = 32
"""Chains of one length in a batch of their own; fewer are padded to those that are longer."""
MAX_BATCH = 96

_NONE = (1 - GRID[:, None]) ** np.array(DRAWS)
_DRAWS_AND_MEAN = np.concatenate([(1 - _NONE) / GRID[:, None], GRID[:, None]], axis=1)
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Prefixes of a problem that can be rolled out, those that say the same but once."""

    prefixes: tuple[int, ...]
    tokens: Floats
    """[candidate]: expected, of one rollout."""
    places: tuple[Ints, Ints]
    """[place] each: the candidates' chains, one candidate after another, and steps to go there."""
    copies: Floats
    """[place]: solutions that are that chain."""
    starts: Ints
    """[candidate]: its first place."""
    chains: tuple[frozenset[int], ...]
    """[candidate]: those that have it."""


@dataclass(frozen=True)
class Thought:
    """What to think of a problem's chains."""

    table: Floats
    """[chain, R + 1, ...] by steps to go: what each probe would teach, [len(DRAWS)], and the
    rollouts it would take, [len(DRAWS)]; expected value; chance that the next step is the first
    wrong one. At 0 steps to go only the last, the chance of no error."""

    @property
    def mean(self) -> Floats:
        """[chain, R + 1]"""
        return self.table[..., -2]

    @property
    def first_error(self) -> Floats:
        """[chain, R + 1]"""
        return self.table[..., -1]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is known of a problem."""

    num_steps: NDArray[np.int64]
    """[chain]"""
    counts: Floats
    """[4, chain, R + 1]: `right`, `wrong`, `same` and `others` of `Evidence`."""
    outcome: Floats
    """[chain, 2]"""
    priors: ClassPriors
    before: Thought | None
    """The answer to an earlier question about the problem."""
    changed: Sequence[int]
    """Chains of which more is known since then; all, if there was none."""


def answer(questions: Sequence[Question]) -> list[Thought]:
    """Answer each question as if it had been asked alone."""
    if not questions:
        return []
    width = max(question.counts.shape[2] for question in questions)
    size = sum(len(question.changed) for question in questions)
    table = np.zeros((size, width, 2 * len(DRAWS) + 2))
    for rows, evidence, priors in _batches(questions, size, width):
        beliefs = infer(evidence, priors)
        wide = evidence.right.shape[1]
        there = np.arange(1, wide) <= evidence.num_steps[:, None]
        told = np.concatenate([probe_gains(beliefs), combine(_DRAWS_AND_MEAN, beliefs.values)])
        table[rows, 1:wide, :-1] = np.where(there[..., None], told.T[: len(rows)], 0.0)
        table[rows, :wide, -1] = beliefs.first_error.T[: len(rows)]
    found, begin = [], 0
    for question in questions:
        wide, end = question.counts.shape[2], begin + len(question.changed)
        if question.before is None:
            whole = table[begin:end, :wide].copy()
        else:
            whole = question.before.table.copy()
            whole[question.changed] = table[begin:end, :wide]
        found.append(Thought(whole))
        begin = end
    return found


def rates(questions: Sequence[tuple[Candidates, Thought]]) -> list[Floats]:
    """Gain a token of the best probe of each problem's candidates."""
    if not questions:
        return []
    parts = [candidates for candidates, _ in questions]
    tables = [thought.table[candidates.places] for candidates, thought in questions]
    sizes = [len(p.copies) for p in parts]
    copies = np.concatenate([p.copies for p in parts])
    offsets = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(p.starts) for p in parts])
    starts = np.concatenate([p.starts for p in parts]) + offsets
    tokens = np.concatenate([p.tokens for p in parts])
    held = np.add.reduceat(np.concatenate(tables)[:, :-2] * copies[:, None], starts)
    worth, draws = held[:, : len(DRAWS)], held[:, len(DRAWS) :]
    # Expected draws are the mean over the solutions that hold the prefix.
    cost = draws * (tokens / np.add.reduceat(copies, starts))[:, None]
    # Rounding makes equal solutions equal, whatever the order of summation.
    best = np.round((worth / cost).max(1), 12)
    ends = np.cumsum([len(p.tokens) for p in parts]).tolist()
    return [best[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def probe_gains(beliefs: Beliefs) -> Floats:
    """What each probe of each prefix would teach, [len(DRAWS), R, batch].

    Index 0 of R is one step to go.
    """
    joint, marginal = beliefs.joint, beliefs.first_error
    num_errors, length, count = joint.shape[1:]
    # By outcome of the probe, failure or success: with each first error, and last with any.
    shape = (2, len(DRAWS), num_errors + 1, length, count)
    # Logarithms of all of them, and of the marginal, are taken in one go.
    everything = np.empty((math.prod(shape[:-1]) + num_errors, count))
    everything[-num_errors:] = marginal
    chances = everything[:-num_errors].reshape(shape)
    by_error = chances[:, :, :-1]
    combine(_NONE, joint, by_error[0])
    np.subtract(marginal[:, None], by_error[0], out=by_error[1])
    chances[:, :, -1] = total(by_error, axis=2)
    rise = total(by_error.max(2)) - marginal.max(0)
    # The sums of p log p, with each first error less with any, fall from before to after.
    content = _xlogx(everything)
    after = content[:-num_errors].reshape(shape)
    known = total(total(after[:, :, :-1], axis=2) - after[:, :, -1])
    fall = known - total(content[-num_errors:])
    return np.asarray(rise + ENTROPY_WEIGHT * fall)


def _batches(
    questions: Sequence[Question], size: int, width: int
) -> Iterator[tuple[Ints, Evidence, ClassPriors]]:
    """Chains that are inferred together, and which they are."""
    counts = np.zeros((4, size, width))
    classes: dict[int, tuple[ClassPriors, list[int]]] = {}
    begin = 0
    for question in questions:
        changed, end = question.changed, begin + len(question.changed)
        counts[:, begin:end, : question.counts.shape[2]] = question.counts[:, changed]
        classes.setdefault(id(question.priors), (question.priors, []))[1].extend(range(begin, end))
        begin = end
    num_steps = np.concatenate([question.num_steps[question.changed] for question in questions])
    outcome = np.concatenate([question.outcome[question.changed] for question in questions])
    for priors, members in classes.values():
        chains = np.array(members)
        for rows in _alike(chains, num_steps[chains]):
            longest = int(num_steps[rows].max()) + 1
            right, wrong, same, others = counts[:, rows, :longest]
            yield (
                rows,
                Evidence(
                    num_steps=num_steps[rows],
                    right=right,
                    wrong=wrong,
                    same=same,
                    others=others,
                    outcome=outcome[rows],
                ),
                priors,
            )


def _alike(chains: Ints, num_steps: NDArray[np.int64]) -> Iterator[Ints]:
    """Chains of about the same length, the longest first."""
    order = np.argsort(-num_steps, kind="stable")
    chains, num_steps = chains[order], num_steps[order]
    begin = 0
    cuts = np.flatnonzero(np.diff(num_steps)) + 1
    for end in [*cuts.tolist(), len(chains)]:
        if end - begin >= MIN_BATCH or end == len(chains):
            for at in range(begin, end, MAX_BATCH):
                yield chains[at : min(end, at + MAX_BATCH)]
            begin = end


def _xlogx(p: Floats) -> Floats:
    found = log(np.maximum(p, _TINY))
    found *= p
    return found
