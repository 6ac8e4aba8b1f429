"""Which prefix to roll out next: expected information for each expected token, for many problems.

A probe of a prefix is a macro: roll out until the first success, at most m times. Its worth to a
solution is the expected rise of the largest posterior, which is the accuracy of the label, plus a
little of the expected fall of entropy: accuracy alone sees no use in a first step towards an
answer, entropy alone never stops. Worth is summed over the solutions that share the prefix.

Questions of many problems are answered together, since a chain alone takes less time than calling
numpy about it. What a question's answer is does not depend on which others it is asked with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.estimators.posterior.chain import Beliefs, Evidence, infer
from mclabel.estimators.posterior.priors import GRID, ClassPriors

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

DRAWS = (1, 2, 4, 8, 16, 32)
ENTROPY_WEIGHT = 0.15
MIN_BATCH = 24
"""Chains of one length in a batch of their own; fewer are padded to those that are longer."""
MAX_BATCH = 256

_NONE = (1 - GRID[:, None]) ** np.array(DRAWS)
_OUTCOMES = np.concatenate([_NONE, 1 - _NONE], axis=1)
_EXPECTED_DRAWS = (1 - _NONE) / GRID[:, None]
_TINY = 1e-12


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Prefixes of a problem that can be rolled out, those that say the same but once."""

    prefixes: tuple[int, ...]
    tokens: Floats
    """[candidate]: expected, of one rollout."""
    chains: Ints
    """[place]: each candidate's solutions, one candidate after the other."""
    to_go: Ints
    """[place]: steps to go from the candidate in that solution."""
    starts: Ints
    """[candidate]: its first place."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is known of a problem."""

    num_steps: NDArray[np.int64]
    """[solution]"""
    counts: Floats
    """[4, solution, R + 1]: `right`, `wrong`, `same` and `others` of `Evidence`."""
    outcome: Floats
    """[solution, 2]"""
    priors: ClassPriors
    candidates: Candidates


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What to think of a problem."""

    rates: Floats
    """[candidate]: gain a token of its best probe."""
    first_error: Floats
    """[solution, R + 1]: chance of each first error, by steps to go; 0: none."""
    mean: Floats
    """[solution, R]: expected values; index 0 is one step to go."""


def answer(questions: Sequence[Question]) -> list[Answer]:
    """Answer each question as if it had been asked alone."""
    if not questions:
        return []
    sizes = [len(question.num_steps) for question in questions]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    width = max(question.counts.shape[2] for question in questions)
    gains, draws = np.zeros((2, offsets[-1], width - 1, len(DRAWS)))
    first_error, mean = np.zeros((offsets[-1], width)), np.zeros((offsets[-1], width - 1))
    for rows, evidence, priors in _batches(questions, offsets, width):
        beliefs = infer(evidence, priors)
        longest = evidence.right.shape[1] - 1
        gains[rows, :longest], draws[rows, :longest] = probe_gains(beliefs)
        first_error[rows, : longest + 1] = beliefs.first_error
        mean[rows, :longest] = beliefs.mean
    rates = _rates(questions, offsets, gains, draws)
    return [
        Answer(
            rates=rate,
            first_error=first_error[begin : begin + size, : question.counts.shape[2]],
            mean=mean[begin : begin + size, : question.counts.shape[2] - 1],
        )
        for question, rate, begin, size in zip(questions, rates, offsets, sizes, strict=False)
    ]


def probe_gains(beliefs: Beliefs) -> tuple[Floats, Floats]:
    """What each probe of each prefix would teach, and how many rollouts it would take.

    Returns:
        Gain and expected rollouts, [batch, R, len(DRAWS)]; index 0 of R is one step to go.
    """
    joint = beliefs.joint
    chances = joint @ _OUTCOMES  # [e, batch, R, 2 macros]
    marginal = beliefs.first_error
    best = _both(chances.max(0))
    known = _both(_xlogx(chances).sum(0) - _xlogx(chances.sum(0)))
    rise = best - marginal.max(1)[:, None, None]
    fall = known - _xlogx(marginal).sum(1)[:, None, None]
    draws = joint.sum(0) @ _EXPECTED_DRAWS
    return rise + ENTROPY_WEIGHT * fall, draws


def _batches(
    questions: Sequence[Question], offsets: Ints, width: int
) -> Iterator[tuple[Ints, Evidence, ClassPriors]]:
    """Chains that are inferred together, and which they are."""
    counts = np.zeros((4, offsets[-1], width))
    classes: dict[int, tuple[ClassPriors, list[int]]] = {}
    for index, question in enumerate(questions):
        mine = question.counts
        counts[:, offsets[index] : offsets[index + 1], : mine.shape[2]] = mine
        classes.setdefault(id(question.priors), (question.priors, []))[1].append(index)
    num_steps = np.concatenate([question.num_steps for question in questions])
    outcome = np.concatenate([question.outcome for question in questions])
    for priors, members in classes.values():
        chains = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in members])
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


def _rates(
    questions: Sequence[Question], offsets: Ints, gains: Floats, draws: Floats
) -> list[Floats]:
    """Gain a token of each question's candidates."""
    longest = gains.shape[1]
    parts = [question.candidates for question in questions]
    chains = np.concatenate([p.chains + o for p, o in zip(parts, offsets, strict=False)])
    places = chains * longest + np.concatenate([p.to_go for p in parts]) - 1
    num_places = np.cumsum([0, *(len(p.chains) for p in parts)])
    starts = np.concatenate([p.starts + o for p, o in zip(parts, num_places, strict=False)])
    tokens = np.concatenate([p.tokens for p in parts])
    worth = np.add.reduceat(gains.reshape(-1, len(DRAWS))[places], starts)
    rolled = np.add.reduceat(draws.reshape(-1, len(DRAWS))[places], starts)
    # Expected draws are the mean over the solutions that hold the prefix.
    holders = np.diff(np.append(starts, len(places)))
    rates = (worth / (rolled * (tokens / holders)[:, None])).max(1)
    # Rounding makes equal solutions equal, whatever the order of summation.
    rates = np.round(rates, 12)
    return np.split(rates, np.cumsum([len(p.tokens) for p in parts])[:-1])


def _both(outcomes: Floats) -> Floats:
    """Summed over the two outcomes of each macro."""
    return np.asarray(outcomes[..., : len(DRAWS)] + outcomes[..., len(DRAWS) :])


def _xlogx(p: Floats) -> Floats:
    found = np.maximum(p, _TINY)
    np.log(found, out=found)
    found *= p
    return found
