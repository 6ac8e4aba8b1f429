"""Search methods beside each other, and beside best-of-N at equal cost.

A method samples until it is done, so its cost is what it happens to be. Best-of-N is interpolated
to that cost, problem by problem, so that the difference is paired: its interval by bootstrap over
problems holds what problems do to both. The better of best-of-N's two choices by the scorer is
taken at each cost, by its mean over all problems; taking it on these problems favours the
reference a little. Costs themselves are taken as known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mclabel.core.stats.bootstrap import Estimate, mean_estimate, resample_weights
from mclabel.evaluate.best_of_n.choosing import MAJORITY
from mclabel.evaluate.best_of_n.figures import (
    Difference,
    OverOptimisation,
    kinds_of,
    over_optimisation_of,
    paired_difference,
    with_pass_rate,
)
from mclabel.evaluate.search.reference import (
    BEST,
    SCORED,
    VOTE,
    ReferenceSize,
    at_cost,
    computation,
    drawn_samples,
    reference_sizes,
)
from mclabel.run.shards.trees import StoredTree
from mclabel.search.tree import ModelSizes

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SearchRun:
    """A search that is compared."""

    name: str
    """Name of the search in the configuration."""
    method: str
    """The method and its settings but `n`, for display."""
    n: int
    trees: Sequence[StoredTree]
    models: ModelSizes | None
    """Sizes of its models; None where they are not known."""
    is_oracle: bool = False
    """True if the truth was its scorer."""


@dataclass(frozen=True, kw_only=True)
class EqualCost:
    """Best-of-N at the cost of a method."""

    choice: str
    """`best` or `weighted vote`: the better one at this cost."""
    accuracy: Estimate
    less: Difference
    """The method's accuracy less this one, problem by problem."""
    beyond: str | None
    """`below` where even the smallest N costs more, `above` where even the largest costs less: its
    accuracy stands for what is not known. None in between."""


@dataclass(frozen=True, kw_only=True)
class MethodFigures:
    """One search."""

    name: str
    method: str
    n: int
    is_oracle: bool
    accuracy: Estimate
    """Share of problems whose chosen solution is right."""
    pass_rate: Estimate
    """Share of problems of which any finished solution is right."""
    gap: Estimate
    """The second less the first: what the choice among finished solutions loses."""
    num_sampled: float
    """Tokens sampled, a problem."""
    num_scored: float
    """Tokens that the scorer computed, a problem."""
    cost: float
    """A problem, in the unit of the evaluation."""
    reference: EqualCost | None
    """None where the truth was the scorer, which costs nothing."""
    less_than_oracle: Difference | None
    """Accuracy with the truth as the scorer less this one: what the scorer's errors cost; None
    where that was not run."""


@dataclass(frozen=True, kw_only=True)
class ReferenceFigures:
    """Best-of-N at one N."""

    size: int
    num_sampled: float
    num_scored: float
    cost: dict[str, float]
    """Mean cost of a problem by choice; `majority` and `pass` need no scorer."""
    accuracy: dict[str, Estimate]
    """Accuracy by choice: `best`, `weighted vote`, `majority`, and `pass`, which is right where any
    is."""


@dataclass(frozen=True, kw_only=True)
class GroupFigures:
    """Searches on problems of one kind."""

    num_problems: int
    accuracy: dict[str, Estimate]
    """Accuracy by name of the search."""
    reference: dict[str, Estimate]
    """Best-of-N at the cost that each search has on all problems, by the choice that is the better
    one there."""
    less: dict[str, Difference]


@dataclass(frozen=True, kw_only=True)
class SearchComparison:
    """Results of a comparison of searches."""

    num_problems: int
    cost_unit: str
    """`flops`: floating-point operations, two a parameter and token. `tokens`: those of policy and
    scorer added up, where the size of a model is not known."""
    methods: tuple[MethodFigures, ...]
    """Figures of the searches; those with the truth as scorer come last."""
    reference: tuple[ReferenceFigures, ...]
    """Figures of best-of-N, N rising."""
    over_optimisation: dict[str, OverOptimisation]
    """Over-optimisation of best-of-N by its choice, and of methods by name that were run at several
    `n` and nothing else different: whether the largest is worse than the best."""
    groups: dict[str, dict[str, GroupFigures]]
    """For each kind and group, the problems' metadata, and fifths by the policy's pass rate.
    That is measured on the draws of the reference, which thus looks worse on the hardest
    problems, and better on the easiest ones, than new draws would.
    """


def compare_searches(
    runs: Sequence[SearchRun],
    reference: SearchRun,
    sizes: Sequence[int],
    *,
    group_by: Sequence[str] = (),
    seed: int = 0,
) -> SearchComparison:
    """Compare searches on the same problems.

    Args:
        runs: searches of the same problems in the same order.
        reference: a search of kind `best_of_n` on them.
        sizes: values of N, rising; the largest is the reference's.
        group_by: metadata fields of the problems.
        seed: seed of subsets and bootstrap.

    Raises:
        ValueError: there is no problem, or they differ.
    """
    problems = [tree.problem_id for tree in reference.trees]
    if not problems or any([t.problem_id for t in run.trees] != problems for run in runs):
        raise ValueError("need at least one problem, and the same ones of each search")
    is_known = all(run.models is not None and run.models.policy for run in (*runs, reference))
    if not is_known:
        runs = [replace(run, models=None) for run in runs]
    weights = resample_weights(len(problems), seed)
    points = reference_sizes(
        reference.trees, sizes, reference.models if is_known else None, seed=seed
    )
    right = {_key(run): _right(run) for run in runs}
    others = {_key(run): _reference_of(run, points) for run in runs if not run.is_oracle}
    return SearchComparison(
        num_problems=len(problems),
        cost_unit="flops" if is_known else "tokens",
        methods=tuple(
            _method(run, right, others.get(_key(run)), weights)
            for run in sorted(runs, key=lambda run: run.is_oracle)
        ),
        reference=tuple(_reference(point, weights) for point in points),
        over_optimisation=_over_optimisation(runs, right, points, weights),
        groups=_groups(reference.trees, right, others, group_by, seed),
    )


def row_name(name: str, *, is_oracle: bool) -> str:
    """Return the name that tables show for a search."""
    return f"{name}, exact" if is_oracle else name


def _key(run: SearchRun) -> str:
    return row_name(run.name, is_oracle=run.is_oracle)


def _right(run: SearchRun) -> Array:
    return np.array([tree.is_right for tree in run.trees], dtype=np.float64)


def _cost(run: SearchRun) -> float:
    """Return the mean cost per problem."""
    return float(
        np.mean(
            [
                computation(run.models, t.cost.num_prompt + t.cost.num_sampled, t.cost.num_scored)
                for t in run.trees
            ]
        )
    )


@dataclass(frozen=True, kw_only=True)
class _AtCost:
    choice: str
    accuracy: Array
    beyond: str | None


def _reference_of(run: SearchRun, points: Sequence[ReferenceSize]) -> _AtCost:
    """Return the better choice of best-of-N at the cost of a search."""
    cost, candidates = _cost(run), []
    for choice in SCORED:
        accuracy, beyond = at_cost(points, choice, cost)
        candidates.append(_AtCost(choice=choice, accuracy=accuracy, beyond=beyond))
    return max(candidates, key=lambda candidate: candidate.accuracy.mean())


def _method(
    run: SearchRun, right: Mapping[str, Array], other: _AtCost | None, weights: Array
) -> MethodFigures:
    own, oracle = right[_key(run)], right.get(row_name(run.name, is_oracle=True))
    any_right = np.array(
        [any(node.outcome == "right" for node in tree.results) for tree in run.trees],
        dtype=np.float64,
    )
    return MethodFigures(
        name=run.name,
        method=run.method,
        n=run.n,
        is_oracle=run.is_oracle,
        accuracy=mean_estimate(own, weights),
        pass_rate=mean_estimate(any_right, weights),
        gap=mean_estimate(any_right - own, weights),
        num_sampled=float(np.mean([tree.cost.num_sampled for tree in run.trees])),
        num_scored=float(np.mean([tree.cost.num_scored for tree in run.trees])),
        cost=_cost(run),
        reference=None
        if other is None
        else EqualCost(
            choice=other.choice,
            accuracy=mean_estimate(other.accuracy, weights),
            less=paired_difference(own - other.accuracy, weights),
            beyond=other.beyond,
        ),
        less_than_oracle=None
        if oracle is None or run.is_oracle
        else paired_difference(oracle - own, weights),
    )


def _reference(point: ReferenceSize, weights: Array) -> ReferenceFigures:
    return ReferenceFigures(
        size=point.size,
        num_sampled=point.num_sampled,
        num_scored=point.num_scored,
        cost={choice: point.cost_of(choice) for choice in point.accuracy},
        accuracy={
            choice: mean_estimate(values, weights) for choice, values in point.accuracy.items()
        },
    )


def _over_optimisation(
    runs: Sequence[SearchRun],
    right: Mapping[str, Array],
    points: Sequence[ReferenceSize],
    weights: Array,
) -> dict[str, OverOptimisation]:
    alike: dict[tuple[str, bool], dict[int, SearchRun]] = defaultdict(dict)
    for run in runs:
        alike[run.method, run.is_oracle].setdefault(run.n, run)
    tables = {
        ", ".join(map(_key, by_n.values())): {n: right[_key(run)] for n, run in by_n.items()}
        for by_n in alike.values()
    }
    for choice in (BEST, VOTE, MAJORITY):
        tables[f"best of N: {choice}"] = {point.size: point.accuracy[choice] for point in points}
    return {
        name: over_optimisation_of(by_n, weights) for name, by_n in tables.items() if len(by_n) > 1
    }


def _groups(
    trees: Sequence[StoredTree],
    right: Mapping[str, Array],
    others: Mapping[str, _AtCost],
    group_by: Sequence[str],
    seed: int,
) -> dict[str, dict[str, GroupFigures]]:
    problems = with_pass_rate(
        [
            replace(
                drawn_samples(tree),
                groups={key: tree.meta[key] for key in group_by if key in tree.meta},
            )
            for tree in trees
        ]
    )
    return {
        kind: {
            name: _group(
                np.array([problem.groups.get(kind) == name for problem in problems]),
                right,
                others,
                seed,
            )
            for name in names
        }
        for kind, names in kinds_of(problems).items()
    }


def _group(
    inside: NDArray[np.bool_],
    right: Mapping[str, Array],
    others: Mapping[str, _AtCost],
    seed: int,
) -> GroupFigures:
    count = int(inside.sum())
    weights = resample_weights(count, seed)
    return GroupFigures(
        num_problems=count,
        accuracy={name: mean_estimate(own[inside], weights) for name, own in right.items()},
        reference={
            name: mean_estimate(baseline.accuracy[inside], weights)
            for name, baseline in others.items()
        },
        less={
            name: paired_difference((right[name] - baseline.accuracy)[inside], weights)
            for name, baseline in others.items()
        },
    )
