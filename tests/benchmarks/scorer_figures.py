"""Quality of scorers' choices: means over problems and seeds, and differences between methods.

The bootstrap draws problems, with all of their samples, and seeds. Methods with equally many seeds
get the same draws of seeds, since a seed also determines the labelled solutions. With three seeds
the bootstrap underestimates the spread between trainings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.core.stats.bootstrap import (
    NUM_RESAMPLES,
    Estimate,
    compute_bootstrap_interval,
    draw_resample_weights,
)
from mclabel.evaluate.best_of_n.choosing import (
    ProblemSamples,
    compute_argmax_accuracy,
    compute_pair_accuracy,
    compute_pass_probability,
    compute_vote_accuracy,
)
from mclabel.evaluate.processbench.figures import compute_split_f1
from mclabel.prm.scoring.aggregate import AGGREGATIONS
from mclabel.prm.scoring.manifest import find_first_score_below
from tests.benchmarks.figures import Numbers, numbers
from tests.benchmarks.scorers import NO_ERROR, Floats, Pool, Training, read_scores

OF_PRM = ("last", "min", "product")
THRESHOLDS = np.round(np.arange(0.02, 0.99, 0.02), 2)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A figure of a method, with its bootstrap resamples."""

    value: float
    resampled: Floats
    """Resampled figures [resamples]."""
    num_problems: int

    @property
    def numbers(self) -> Numbers:
        """Return the value with its 95% interval."""
        low, high = compute_bootstrap_interval(self.resampled, self.num_problems)
        return numbers(Estimate(value=self.value, low=low, high=high))

    def less(self, other: Measured) -> Measured:
        """Return the paired difference from another method on the same problems."""
        return replace(
            self, value=self.value - other.value, resampled=self.resampled - other.resampled
        )


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Figures of one kind of scorer on validation problems."""

    aggregation: str
    right: Measured
    all_right: Measured
    pairs: float

    @property
    def shown(self) -> dict[str, Any]:
        """Return the figures for the last line of output."""
        return {
            "right": self.right.numbers,
            "all_right": self.all_right.numbers,
            "pairs": round(self.pairs, 4),
            "by": self.aggregation,
        }


class Comparison:
    """Comparison of methods on one pool of samples."""

    def __init__(self, pool: Pool, *, seed: int = 0) -> None:
        """Draw the resamples that all figures share.

        Args:
            pool: samples to choose among.
            seed: random seed of the bootstrap.
        """
        self.pool = pool
        self._weights = draw_resample_weights(pool.num_problems, seed)

    def right(self, scores: Sequence[Floats], size: int, *, all_right: bool = False) -> Measured:
        """Measure how often the highest score among `size` random samples is that of a right one.

        Args:
            scores: scores of every distinct sample, one array per seed.
            size: number of samples to choose among.
            all_right: require right steps, too.
        """
        truth = self.pool.all_right if all_right else self.pool.right
        return self._mean(
            [choose(seed_scores[self.pool.index], truth, size) for seed_scores in scores]
        )

    def pairs(self, scores: Sequence[Floats]) -> Measured:
        """Measure how often a right sample scores higher than a wrong one of the same problem."""
        accuracies = []
        for seed_scores in scores:
            rows = zip(seed_scores[self.pool.index], self.pool.right, strict=True)
            accuracies.append(
                np.array([compute_pair_accuracy(tuple(s), tuple(r)) for s, r in rows])
            )
        return self._mean(accuracies)

    def untrained(self, name: str, size: int, *, all_right: bool = False) -> Measured:
        """Measure a method without scores: `random`, `majority` or `pass` (any sample is right)."""
        truth = self.pool.all_right if all_right else self.pool.right
        if name == "random":
            return self._mean([truth.mean(1)])
        if name == "pass":
            chances = [
                compute_pass_probability(size, int(row.sum()), truth.shape[1]) for row in truth
            ]
            return self._mean([np.array(chances)])
        return self._mean([self._vote(None, size)])

    def vote(self, scores: Sequence[Floats], size: int) -> Measured:
        """Measure a majority vote that is weighted by a score in [0, 1]."""
        return self._mean(
            [self._vote(seed_scores[self.pool.index], size) for seed_scores in scores]
        )

    def location_f1(
        self, steps: Sequence[Sequence[Floats]], threshold: float, *, num_samples: int = 1
    ) -> Measured:
        """Measure the first-error F1 (`location_f1`) on the first samples of every problem.

        Args:
            steps: scores of the steps of every distinct sample, by seed.
            threshold: score below which a step is wrong.
            num_samples: number of samples of each problem.
        """
        tables = np.array(
            [
                self._count_located_errors(seed_steps, threshold, num_samples=num_samples)
                for seed_steps in steps
            ]
        )
        values = np.array([location_f1(table.sum(0)) for table in tables])
        resampled = np.array([location_f1(self._weights @ table) for table in tables])
        return self._over_seeds(values, resampled)

    def best_threshold(self, steps: Sequence[Sequence[Floats]], *, num_samples: int = 4) -> float:
        """Return the threshold with the highest first-error F1 on each problem's first samples."""

        def mean(threshold: float) -> float:
            tables = (
                self._count_located_errors(seed_steps, threshold, num_samples=num_samples).sum(0)
                for seed_steps in steps
            )
            return float(np.mean([location_f1(table) for table in tables]))

        return float(max(THRESHOLDS, key=mean))

    def _count_located_errors(
        self, steps: Sequence[Floats], threshold: float, *, num_samples: int
    ) -> Floats:
        """Return counts [problems, 4] of first errors.

        The columns are solutions with an error, those of them whose error is found, solutions
        without an error, and those of them that pass.
        """
        table = np.zeros((self.pool.num_problems, 4))
        for problem, place in self.pool.first_samples(num_samples):
            label = find_first_score_below(steps[place].tolist(), threshold)
            true = self.pool.first_errors[place]
            is_hit = (NO_ERROR if label is None else label) == true
            column = 2 if true == NO_ERROR else 0
            table[problem, column : column + 2] += 1, is_hit
        return table

    def _vote(self, weights: Floats | None, size: int) -> Floats:
        accuracies = []
        for index, keys in enumerate(self.pool.keys):
            vote_weights = {} if weights is None else {"it": tuple(weights[index])}
            problem = ProblemSamples(
                problem_id="",
                answer_keys=tuple(keys),
                is_right=tuple(self.pool.right[index]),
                scores={},
                vote_weights=vote_weights,
            )
            votes = compute_vote_accuracy(problem, size, seed=index)
            accuracies.append(votes["vote:it" if vote_weights else "majority"])
        return np.array(accuracies)

    def _mean(self, by_seed: Sequence[Floats]) -> Measured:
        """Return the mean over problems and over seeds; problems with NaN are left out."""
        is_defined = ~np.isnan(by_seed[0])
        table = np.array([np.where(is_defined, seed_values, 0.0) for seed_values in by_seed])
        return self._over_seeds(
            table.sum(1) / is_defined.sum(), table @ self._weights.T / (self._weights @ is_defined)
        )

    def _over_seeds(self, values: Floats, resampled: Floats) -> Measured:
        """Build a figure from values [seeds] and their resamples [seeds, resamples]."""
        weights = _seed_weights(len(values))
        return Measured(
            value=float(values.mean()),
            resampled=(weights * resampled).sum(0),
            num_problems=self.pool.num_problems,
        )


@lru_cache
def _seed_weights(count: int) -> Floats:
    """Return the share of each seed in each resample [seeds, resamples]."""
    even = [1 / count] * count
    return np.random.default_rng(1).multinomial(count, even, NUM_RESAMPLES).T / count


def step_scores(out: Path, trainings: Iterable[Training], pool: str) -> list[list[Floats]]:
    """Read the step scores of every distinct sample, by training."""
    return [read_scores(out, training.name, pool) for training in trainings]


def aggregated(steps: Sequence[Sequence[Floats]], how: str) -> list[Floats]:
    """Return one aggregated score of every distinct sample, by training."""
    of = AGGREGATIONS[how]
    return [
        np.array([of(sample_steps.tolist()) for sample_steps in seed_steps]) for seed_steps in steps
    ]


def likelihood_scores(out: Path, name: str, pool: str, part: int) -> list[Floats]:
    """Read the sum (0) or least (1) log-probability of each distinct sample by a bundled model."""
    return [
        np.array(
            [likelihoods[part] for likelihoods in read_scores(out, f"likelihood-{name}", pool)]
        )
    ]


def best_figure(
    comparison: Comparison, steps: Sequence[Sequence[Floats]], size: int, *, is_orm: bool
) -> Figure:
    """Return the figures with the aggregation that chooses best; an ORM uses the last step."""
    candidates = []
    for how in ("last",) if is_orm else OF_PRM:
        scores = aggregated(steps, how)
        candidates.append(
            Figure(
                aggregation=how,
                right=comparison.right(scores, size),
                all_right=comparison.right(scores, size, all_right=True),
                pairs=comparison.pairs(scores).value,
            )
        )
    return max(candidates, key=lambda figure: figure.right.value)


def location_f1(sums: Floats) -> Floats:
    """Return the F1 of first errors as in ProcessBench; 0 if one kind of solution is missing.

    Args:
        sums: counts [..., 4] with the columns of `compute_split_f1`.
    """
    f1: Floats = np.nan_to_num(compute_split_f1(sums))
    return f1


def choose(scores: Floats, truth: NDArray[np.bool_], size: int) -> Floats:
    """Return the chance [problems] that the highest score among random samples is a true one.

    Args:
        scores: array [problems, samples].
        truth: array [problems, samples].
        size: number of samples to choose among.
    """
    rows = zip(scores, truth, strict=True)
    return np.array([compute_argmax_accuracy(tuple(row), tuple(good), size) for row, good in rows])
