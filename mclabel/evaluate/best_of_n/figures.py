"""Computes the accuracy of choosing one of N sampled answers, by method, N and kind of problem.

`choosing` computes the accuracies on single problems. This module computes their means with
intervals, the differences between methods, and whether more samples make the choice worse. The
bootstrap draws problems with all their samples. So its intervals include the randomness of both
problems and samples.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mclabel.core.stats.bootstrap import (
    Estimate,
    compute_bootstrap_interval,
    draw_resample_weights,
    estimate_mean,
)
from mclabel.evaluate.best_of_n.choosing import (
    PASS,
    RANDOM,
    ProblemSamples,
    compute_method_accuracy,
    compute_pair_accuracy,
    parse_scorer_name,
)
from mclabel.evaluate.grouping import group_by_dividing_fields

PASS_RATE = "pass rate"
QUINTILES = ("hardest fifth", "second", "third", "fourth", "easiest fifth")
Accuracy = dict[str, dict[int, Estimate]]
"""Accuracy by method and N."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Mean accuracy of one method minus that of another, paired by problem."""

    value: float
    low: float
    """Lower end of the 95% interval."""
    high: float
    """Upper end of the 95% interval."""
    p_value: float
    """Two-sided p-value for no difference, from the bootstrap that gives the interval. It is at
    least 1 / (number of resamples + 1)."""


@dataclass(frozen=True, kw_only=True)
class OverOptimisation:
    """Accuracy of a scorer at its best N and at the largest N.

    A scorer is over-optimised if choosing among more samples lowers its accuracy.
    """

    best_size: int
    """N with the highest accuracy. It is chosen on the same problems, so the fall from it is a
    little larger than on other problems."""
    best: float
    """Accuracy at the best N."""
    last: float
    """Accuracy at the largest N."""
    fall: Difference
    """Accuracy at the largest N minus that at the best N; 0 if both are the same N."""


@dataclass(frozen=True, kw_only=True)
class GroupAccuracy:
    """Accuracy by method and N on one group of problems, such as one level."""

    num_problems: int
    accuracy: Accuracy


@dataclass(frozen=True, kw_only=True)
class BestOfN:
    """Results of all methods on all problems, and on groups of problems."""

    num_problems: int
    num_samples: int
    accuracy: Accuracy
    differences: dict[int, dict[str, dict[str, Difference]]]
    """Accuracy of the first method minus that of the second, by N, first and second method."""
    pair_accuracy: dict[str, Estimate]
    """Share of the pairs of a right and a wrong sample of a problem in which the right sample
    scores higher, by scorer. It is the mean over problems that have both kinds of samples."""
    over_optimisation: dict[str, OverOptimisation]
    """Fall of the accuracy from the best N to the largest N, by method of a scorer."""
    groups: dict[str, dict[str, GroupAccuracy]]
    """Accuracies by kind of group, then by group. A kind is a field of the problems' metadata, or
    the division into fifths by pass rate, which is measured on the same samples."""
    references: tuple[str, ...] = ()
    """Names of scorers that serve only for comparison. Their results are shown separately."""

    def difference(self, method: str, other: str, size: int) -> Difference | None:
        """Return the accuracy of a method minus that of another.

        It is None if there is no such difference, as for a method and itself.

        Args:
            method: name of the first method.
            other: name of the method whose accuracy is subtracted.
            size: number of samples N among which the methods choose.
        """
        return self.differences[size][method].get(other)


def is_reference(method: str, references: Collection[str]) -> bool:
    """Return whether the scorer of a method is one of `references`."""
    return parse_scorer_name(method).removeprefix("likelihood:") in references


def measure_best_of_n(
    problems: Sequence[ProblemSamples],
    *,
    seed: int = 0,
    references: Sequence[str] = (),
) -> BestOfN:
    """Measure every method for N = 1, 2, 4, ... up to the number of samples.

    Args:
        problems: problems with the same number of samples and the same scorers.
        seed: seed of the subsets and of the bootstrap.
        references: names of scorers that serve only for comparison.

    Raises:
        ValueError: there are no problems, or their numbers of samples differ.
    """
    if not problems or len({len(p.answer_keys) for p in problems}) != 1:
        raise ValueError(
            f"{len(problems)} problems with "
            f"{sorted({len(p.answer_keys) for p in problems})} samples: there must be at least "
            "one problem, and the same number of samples of each"
        )
    problems = add_pass_rate_groups(problems)
    num_samples = len(problems[0].answer_keys)
    sizes = [2**i for i in range(num_samples.bit_length()) if 2**i < num_samples] + [num_samples]
    by_problem = [
        {size: compute_method_accuracy(p, size, seed=seed + i) for size in sizes}
        for i, p in enumerate(problems)
    ]
    accuracies = {
        method: {size: np.array([rows[size][method] for rows in by_problem]) for size in sizes}
        for method in by_problem[0][1]
    }
    weights = draw_resample_weights(len(problems), seed)
    return BestOfN(
        num_problems=len(problems),
        num_samples=num_samples,
        accuracy=_estimate_accuracy(accuracies, weights),
        differences={size: _estimate_differences(accuracies, size, weights) for size in sizes},
        pair_accuracy={
            name: estimate_mean(
                np.array([compute_pair_accuracy(p.scores[name], p.is_right) for p in problems]),
                weights,
            )
            for name in problems[0].scores
        },
        over_optimisation={
            name: measure_over_optimisation(accuracies[name], weights)
            for name in problems[0].scores
        },
        groups={
            kind: {
                name: _estimate_group_accuracy(
                    accuracies, [p.groups.get(kind) == name for p in problems], seed
                )
                for name in names
            }
            for kind, names in list_groups_by_kind(problems).items()
        },
        references=tuple(references),
    )


def add_pass_rate_groups(problems: Sequence[ProblemSamples]) -> list[ProblemSamples]:
    """Return the problems with a further group: the fifth to which their pass rate belongs.

    The pass rate is the share of right samples. Problems with equal rates are in the same fifth.
    """
    rates = np.array([sum(p.is_right) / len(p.is_right) for p in problems])
    fifths = np.searchsorted(np.quantile(rates, [0.2, 0.4, 0.6, 0.8]), rates, side="left")
    return [
        replace(problem, groups={**problem.groups, PASS_RATE: QUINTILES[fifth]})
        for problem, fifth in zip(problems, fifths, strict=True)
    ]


def list_groups_by_kind(problems: Sequence[ProblemSamples]) -> dict[str, list[str]]:
    """Return the names of the groups of each kind, such as level. Kinds with only one group are
    left out.
    """
    by_kind = group_by_dividing_fields(
        problems,
        lambda problem: problem.groups,
        keys=dict.fromkeys(kind for problem in problems for kind in problem.groups),
        max_groups=None,
    )
    kinds = {kind: list(groups) for kind, groups in by_kind.items()}
    if PASS_RATE in kinds:
        kinds[PASS_RATE].sort(key=QUINTILES.index)
    return kinds


def _estimate_group_accuracy(
    accuracies: Mapping[str, Mapping[int, NDArray[np.float64]]],
    is_in_group: Sequence[bool],
    seed: int,
) -> GroupAccuracy:
    chosen = np.array(is_in_group)
    part = {
        method: {size: values[chosen] for size, values in by_size.items()}
        for method, by_size in accuracies.items()
    }
    count = int(chosen.sum())
    return GroupAccuracy(
        num_problems=count, accuracy=_estimate_accuracy(part, draw_resample_weights(count, seed))
    )


def _estimate_accuracy(
    accuracies: Mapping[str, Mapping[int, NDArray[np.float64]]], weights: NDArray[np.float64]
) -> Accuracy:
    return {
        method: {size: estimate_mean(values, weights) for size, values in by_size.items()}
        for method, by_size in accuracies.items()
    }


def _estimate_differences(
    accuracies: Mapping[str, Mapping[int, NDArray[np.float64]]],
    size: int,
    weights: NDArray[np.float64],
) -> dict[str, dict[str, Difference]]:
    methods = [method for method in accuracies if method not in (RANDOM, PASS)]
    return {
        method_name: {
            other: estimate_paired_difference(
                accuracies[method_name][size] - accuracies[other][size], weights
            )
            for other in methods
            if other != method_name
        }
        for method_name in accuracies
    }


def estimate_paired_difference(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> Difference:
    """Return the mean accuracy of one method minus that of another, with a bootstrap interval.

    Args:
        values: accuracy of one method minus that of another on each problem, [problems].
        weights: number of times each problem was drawn in each resample, [resamples, problems].
    """
    means = weights @ values / len(values)
    low, high = compute_bootstrap_interval(means, len(values))
    tail = min((means <= 0).sum(), (means >= 0).sum()) + 1
    return Difference(
        value=float(values.mean()),
        low=low,
        high=high,
        p_value=float(min(1.0, 2 * tail / (len(means) + 1))),
    )


def measure_over_optimisation(
    by_size: Mapping[int, NDArray[np.float64]], weights: NDArray[np.float64]
) -> OverOptimisation:
    """Return the accuracy at the best N, compared with that at the largest N.

    Args:
        by_size: accuracy on each problem, [problems], by N.
        weights: number of times each problem was drawn in each resample, [resamples, problems].
    """
    best = max(by_size, key=lambda size: by_size[size].mean())
    last = max(by_size)
    return OverOptimisation(
        best_size=best,
        best=float(by_size[best].mean()),
        last=float(by_size[last].mean()),
        fall=estimate_paired_difference(by_size[last] - by_size[best], weights),
    )
