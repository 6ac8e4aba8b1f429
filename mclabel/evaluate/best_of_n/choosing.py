"""Computes the probability that an answer chosen among N samples of a problem is right, by method.

The methods are `random` (one sample at random), `pass` (counts as right if any sample is right),
the sample with the highest score of a scorer, and votes over answers. With M samples, the accuracy
at N <= M is the mean over all subsets of size N, an unbiased estimate of the accuracy with N new
samples. It is exact (for `pass`, arXiv 2107.03374), except that votes use a fixed set of random
subsets. Ties are broken at random with equal probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

NUM_SUBSETS = 100
"""Number of random subsets over which the accuracy of votes is averaged."""
MAJORITY, RANDOM, PASS = "majority", "random", "pass"


def parse_scorer_name(method: str) -> str:
    """Return the name of the scorer that a method uses.

    It is `likelihood:NAME` for `likelihood:NAME:sum`, and `NAME` for `NAME:min` and `vote:NAME`.
    """
    if method.startswith("likelihood:"):
        return method.rpartition(":")[0]
    return method.removeprefix("vote:").split(":")[0]


@dataclass(frozen=True, kw_only=True)
class ProblemSamples:
    """The samples of one problem: their answers, scores and vote weights, in the same order."""

    problem_id: str
    answer_keys: tuple[int | str | None, ...]
    """Keys of the samples' answers. Equivalent answers have equal keys. A sample without an answer
    has the key None and no vote."""
    is_right: tuple[bool, ...]
    """Flags of the samples: True if the sample is right."""
    scores: Mapping[str, tuple[float, ...]]
    """Scores of the samples by method, such as `NAME:min`. The method chooses the highest score."""
    vote_weights: Mapping[str, tuple[float, ...]]
    """Weights of the samples for weighted votes, >= 0, by name of the scorer."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Group of the problem by metadata field, such as `level` or `family`."""


def compute_method_accuracy(
    problem: ProblemSamples, subset_size: int, *, seed: int
) -> dict[str, float]:
    """Return the probability that the chosen answer is right, by method.

    Args:
        problem: samples of the problem.
        subset_size: number N of samples among which a method chooses, at most the number of the
            problem's samples.
        seed: seed of the random subsets for votes.
    """
    num_right, num_samples = sum(problem.is_right), len(problem.is_right)
    result = {
        RANDOM: num_right / num_samples,
        **compute_vote_accuracy(problem, subset_size, seed=seed),
        PASS: compute_pass_probability(subset_size, num_right, num_samples),
    }
    for name, scores in problem.scores.items():
        result[name] = compute_argmax_accuracy(scores, problem.is_right, subset_size)
    return result


def compute_pass_probability(subset_size: int, num_right: int, num_samples: int) -> float:
    """Return the probability that a random subset has a right sample (arXiv 2107.03374, eq. 1).

    Args:
        subset_size: number of samples in the subset.
        num_right: number of right samples.
        num_samples: number of all samples.
    """
    return 1 - comb(num_samples - num_right, subset_size) / comb(num_samples, subset_size)


def compute_argmax_accuracy(
    scores: Sequence[float], is_right: Sequence[bool], subset_size: int
) -> float:
    """Return the probability that the highest-scored sample of a random subset is right.

    With M samples and a subset of N, the sample of rank r (0 has the highest score) is the best of
    the subset with probability C(M - 1 - r, N - 1) / C(M, N). Samples of equal score each get the
    mean probability of their ranks.

    Args:
        scores: scores of the samples.
        is_right: True for each sample that is right.
        subset_size: number of samples in the subset.
    """
    _, place, count = np.unique(
        -np.asarray(scores, dtype=np.float64), return_inverse=True, return_counts=True
    )
    ends = np.cumsum(count)
    mass = np.append(
        0.0, np.cumsum(_compute_best_of_subset_probabilities(len(scores), subset_size))
    )
    chance = mass[ends] - mass[ends - count]
    num_right = np.bincount(place, weights=np.asarray(is_right, dtype=np.float64))
    return float((chance * num_right / count).sum())


@lru_cache
def _compute_best_of_subset_probabilities(
    num_samples: int, subset_size: int
) -> NDArray[np.float64]:
    """Return the probability that the sample of each rank is the best of a subset, [samples]."""
    total = comb(num_samples, subset_size)
    return np.array(
        [comb(num_samples - 1 - r, subset_size - 1) / total for r in range(num_samples)]
    )


def compute_vote_accuracy(
    problem: ProblemSamples, subset_size: int, *, seed: int
) -> dict[str, float]:
    """Return the probability that the winner of a vote in a random subset is right, by method.

    `majority` gives each sample one vote for its answer (self-consistency, arXiv 2203.11171).
    `vote:NAME` gives it the weight that the scorer NAME assigns to it.

    Args:
        problem: samples of the problem.
        subset_size: number of samples in the subset.
        seed: seed of the random subsets.
    """
    answers = list(dict.fromkeys(key for key in problem.answer_keys if key is not None))
    if not answers:
        return {MAJORITY: 0.0, **{f"vote:{name}": 0.0 for name in problem.vote_weights}}
    index: dict[int | str | None, int] = {key: i for i, key in enumerate(answers)}
    voted = np.array([index.get(key, -1) for key in problem.answer_keys])
    right = np.zeros(len(answers), dtype=bool)
    right[voted[np.array(problem.is_right) & (voted >= 0)]] = True
    subset, sample = np.nonzero(
        _draw_subset_masks(len(problem.answer_keys), subset_size, seed) & (voted >= 0)
    )
    shape = (1 if subset_size == len(problem.answer_keys) else NUM_SUBSETS, len(answers))

    def sum_votes(weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the total weight of each answer in each subset, [subsets, answers]."""
        totals = np.zeros(shape)
        np.add.at(totals, (subset, voted[sample]), weight[sample])
        return totals

    votes = {MAJORITY: np.ones(len(problem.answer_keys))}
    votes |= {f"vote:{name}": np.array(w) for name, w in problem.vote_weights.items()}
    count = sum_votes(votes[MAJORITY])
    return {
        name: _compute_right_share(sum_votes(weight), count, right)
        for name, weight in votes.items()
    }


def compute_pair_accuracy(scores: Sequence[float], right: Sequence[bool]) -> float:
    """Return the share of pairs of a right and a wrong sample in which the right one scores higher.

    A pair with equal scores counts half. The result is NaN without right or without wrong samples.

    Args:
        scores: scores of the samples.
        right: True for each sample that is right.
    """
    good = [s for s, r in zip(scores, right, strict=True) if r]
    bad = [s for s, r in zip(scores, right, strict=True) if not r]
    pairs = [(g > b) + 0.5 * (g == b) for g in good for b in bad]
    return sum(pairs) / len(pairs) if pairs else float("nan")


def _draw_subset_masks(num_samples: int, subset_size: int, seed: int) -> NDArray[np.bool_]:
    """Return masks [subsets, samples] that are True for the samples in each random subset.

    If a subset has all samples, there is only one mask.
    """
    if subset_size == num_samples:
        return np.ones((1, num_samples), dtype=bool)
    return _draw_random_ranks(num_samples, seed) < subset_size


@lru_cache(maxsize=1)
def _draw_random_ranks(num_samples: int, seed: int) -> NDArray[np.int64]:
    """Return random ranks from 0, [subsets, samples]. A subset has the samples of lowest rank."""
    return np.random.default_rng(seed).random((NUM_SUBSETS, num_samples)).argsort(1)


def _compute_right_share(
    vote_weights: NDArray[np.float64],
    sample_counts: NDArray[np.float64],
    is_right: NDArray[np.bool_],
) -> float:
    """Return the mean over subsets of the share of right answers among the answers with most votes.

    Args:
        vote_weights: total weight of each answer in each subset, [subsets, answers].
        sample_counts: number of samples with each answer in each subset, [subsets, answers].
        is_right: whether each answer is right, [answers].
    """
    vote_weights = np.where(
        sample_counts > 0, vote_weights, -1.0
    )  # an answer that is not in the subset has no chance
    top = vote_weights >= vote_weights.max(1, keepdims=True) - 1e-12
    top &= sample_counts > 0
    return float(((top & is_right).sum(1) / np.maximum(top.sum(1), 1)).mean())
