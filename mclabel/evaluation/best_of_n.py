"""Best-of-N: how good an answer is chosen from N sampled ones, by method and N.

From M samples of each problem, accuracy at N <= M is the mean over all subsets of size N. For
`random`, `pass` (Chen et al., arXiv 2107.03374) and choosing by the highest score it is computed
exactly from ranks; for votes it is the mean over random subsets, which all votes share. Ties are
broken evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from mclabel.evaluation.bootstrap import Estimate, mean_estimate, resample_weights

NUM_SUBSETS = 100
MAJORITY, RANDOM, PASS = "majority", "random", "pass"


@dataclass(frozen=True, kw_only=True)
class ProblemSamples:
    """The samples of one problem."""

    problem_id: str
    keys: tuple[str | None, ...]
    """Answers, equal where they mean the same; None gives no answer and no vote."""
    right: tuple[bool, ...]
    scores: Mapping[str, tuple[float, ...]]
    """By name of the scorer; the highest is chosen."""
    weights: Mapping[str, tuple[float, ...]]
    """By name of the scorer: >= 0, for weighted votes."""


@dataclass(frozen=True, kw_only=True)
class BestOfN:
    """Accuracy by method and N."""

    num_problems: int
    num_samples: int
    accuracy: dict[str, dict[int, Estimate]]
    minus_majority: dict[str, dict[int, Estimate]]
    """Accuracy less that of the majority vote, problem by problem."""
    pair_accuracy: dict[str, Estimate]
    """Within a problem, of all pairs of a right and a wrong sample: how often the right one
    scores higher; mean over problems that have both."""


def best_of_n(problems: Sequence[ProblemSamples], *, seed: int = 0) -> BestOfN:
    """Measure every method for N = 1, 2, 4, … up to the number of samples.

    Args:
        problems: all with the same number of samples and the same scorers.
        seed: of the subsets and of the bootstrap.

    Raises:
        ValueError: no problems, or numbers of samples differ.
    """
    if not problems or len({len(p.keys) for p in problems}) != 1:
        raise ValueError("need at least one problem, and as many samples of each")
    num_samples = len(problems[0].keys)
    sizes = [2**i for i in range(num_samples.bit_length()) if 2**i < num_samples] + [num_samples]
    table: dict[str, dict[int, NDArray[np.float64]]] = {}
    for size in sizes:
        rows = [method_accuracy(p, size, seed=seed + i) for i, p in enumerate(problems)]
        for method in rows[0]:
            table.setdefault(method, {})[size] = np.array([row[method] for row in rows])
    weights = resample_weights(len(problems), seed)
    return BestOfN(
        num_problems=len(problems),
        num_samples=num_samples,
        accuracy={
            method: {n: mean_estimate(values, weights) for n, values in by_size.items()}
            for method, by_size in table.items()
        },
        minus_majority={
            method: {
                n: mean_estimate(values - table[MAJORITY][n], weights) for n, values in by.items()
            }
            for method, by in table.items()
            if method not in (MAJORITY, PASS)
        },
        pair_accuracy={
            name: mean_estimate(
                np.array([pair_accuracy(p.scores[name], p.right) for p in problems]), weights
            )
            for name in problems[0].scores
        },
    )


def method_accuracy(problem: ProblemSamples, size: int, *, seed: int) -> dict[str, float]:
    """Chance of a right answer by each method, choosing from `size` of the samples."""
    num_right, num_samples = sum(problem.right), len(problem.right)
    result = {
        RANDOM: num_right / num_samples,
        **vote_accuracy(problem, size, seed=seed),
        PASS: pass_at(size, num_right, num_samples),
    }
    for name, scores in problem.scores.items():
        result[name] = argmax_accuracy(scores, problem.right, size)
    return result


def pass_at(size: int, num_right: int, num_samples: int) -> float:
    """Chance that at least one of `size` samples is right (arXiv 2107.03374, eq. 1)."""
    return 1 - comb(num_samples - num_right, size) / comb(num_samples, size)


def argmax_accuracy(scores: Sequence[float], right: Sequence[bool], size: int) -> float:
    """Chance that the sample with the highest score of a random subset is right.

    The sample of rank r (0 is best) is the best of a subset with probability
    C(M - 1 - r, N - 1) / C(M, N). Samples of equal score share their ranks.
    """
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    total = comb(len(scores), size)
    chance, start = 0.0, 0
    while start < len(order):
        end = start
        while end < len(order) and scores[order[end]] == scores[order[start]]:
            end += 1
        weight = sum(comb(len(scores) - 1 - r, size - 1) for r in range(start, end)) / total
        chance += weight * sum(right[i] for i in order[start:end]) / (end - start)
        start = end
    return chance


def vote_accuracy(problem: ProblemSamples, size: int, *, seed: int) -> dict[str, float]:
    """Chance that the answer with the most votes of a random subset is right.

    `majority` counts votes (self-consistency, arXiv 2203.11171), `vote:NAME` sums a scorer's
    weights.
    """
    answers = sorted({key for key in problem.keys if key is not None})
    if not answers:
        return {MAJORITY: 0.0, **{f"vote:{name}": 0.0 for name in problem.weights}}
    index = {key: i for i, key in enumerate(answers)}
    member = np.zeros((len(problem.keys), len(answers)))
    for i, key in enumerate(problem.keys):
        if key is not None:
            member[i, index[key]] = 1.0
    right = np.array(
        [
            any(r for k, r in zip(problem.keys, problem.right, strict=True) if k == a)
            for a in answers
        ]
    )
    chosen = _subsets(len(problem.keys), size, seed)
    votes = {MAJORITY: np.ones(len(problem.keys))}
    votes |= {f"vote:{name}": np.array(w) for name, w in problem.weights.items()}
    return {
        name: _share_right(chosen @ (member * weight[:, None]), chosen @ member, right)
        for name, weight in votes.items()
    }


def pair_accuracy(scores: Sequence[float], right: Sequence[bool]) -> float:
    """Of pairs of a right and a wrong sample, how often the right one scores higher.

    Ties count half; NaN if there is no such pair.
    """
    good = [s for s, r in zip(scores, right, strict=True) if r]
    bad = [s for s, r in zip(scores, right, strict=True) if not r]
    pairs = [(g > b) + 0.5 * (g == b) for g in good for b in bad]
    return sum(pairs) / len(pairs) if pairs else float("nan")


def _subsets(num_samples: int, size: int, seed: int) -> NDArray[np.float64]:
    """Random subsets as rows of zeros and ones [subsets, samples]; the only one at full size."""
    if size == num_samples:
        return np.ones((1, num_samples))
    order = np.random.default_rng(seed).random((NUM_SUBSETS, num_samples)).argsort(1)
    return (order < size).astype(np.float64)


def _share_right(
    votes: NDArray[np.float64], count: NDArray[np.float64], right: NDArray[np.bool_]
) -> float:
    """Mean over subsets of the share of right answers among those with the most votes."""
    votes = np.where(count > 0, votes, -1.0)  # an answer that is not in the subset has no chance
    top = votes >= votes.max(1, keepdims=True) - 1e-12
    top &= count > 0
    winners = top.sum(1)
    share = (top & right).sum(1) / np.maximum(winners, 1)
    return float(share.mean())
