"""What a search has found and what it has cost, from its trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np

from mclabel.core.stats.bootstrap import Estimate, mean_estimate, resample_weights
from mclabel.run.shards.trees import StoredCost, StoredTree


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """Numbers of parameters of the models of a search."""

    policy: int
    scorer: int

    def flops(self, cost: StoredCost) -> float:
        """Floating-point operations of one problem's search: two a parameter and token.

        The prompt counts once, as it is computed once where the engine keeps prefixes. Attention is
        not counted.
        """
        return self.flops_of(cost.num_prompt + cost.num_sampled, cost.num_scored)

    def flops_of(self, by_policy: float, by_scorer: float) -> float:
        """The same of tokens that each model computes."""
        return 2.0 * (self.policy * by_policy + self.scorer * by_scorer)


@dataclass(frozen=True, kw_only=True)
class SearchFigures:
    """Figures of one search, costs as means over the problems."""

    num_problems: int
    accuracy: Estimate
    """Share of problems whose chosen solution has the right answer; a problem without a finished
    solution counts as wrong."""
    pass_rate: Estimate
    """Share of problems of which any finished solution has the right answer."""
    finished: float
    """Finished solutions a problem, each counted once."""
    unfinished: float
    """Share of problems without a finished solution."""
    spent: float
    """Share of problems whose search ended at the limit of tokens."""
    flops: float | None
    """Floating-point operations a problem; None where the size of a model is not known."""
    cost: dict[str, float]
    """Of each kind of cost (`StoredCost`), tokens or requests a problem."""

    def lines(self) -> Iterator[str]:
        """The figures in words."""
        accuracy, cost = self.accuracy, self.cost
        if accuracy.value is None or accuracy.low is None or accuracy.high is None:
            yield "No problem was searched."
            return
        yield (
            f"Right: {accuracy.value:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}] of "
            f"{self.num_problems:,} problems; a right solution was among the finished ones for "
            f"{self.pass_rate.value:.3f}. Finished: {self.finished:.1f} different solutions per "
            f"problem, none for {self.unfinished:.1%} of the problems."
        )
        sampled = max(cost["num_sampled"], 1.0)
        yield (
            f"Cost per problem: {cost['num_sampled']:,.0f} tokens sampled "
            f"({cost['num_pruned'] / sampled:.0%} in no finished solution, "
            f"{cost['num_repeated'] / sampled:.0%} repeated), {cost['num_scored']:,.0f} scored "
            f"and {cost['num_score_cached']:,.0f} reused from the scorer's cache"
            + ("" if self.flops is None else f"; {self.flops:.3g} floating-point operations")
            + "."
        )


def search_figures(
    trees: Sequence[StoredTree], sizes: ModelSizes | None, *, seed: int = 0
) -> SearchFigures:
    """Measure a search.

    Args:
        trees: one a problem.
        sizes: of its models, if they are known.
        seed: of the bootstrap over problems.
    """
    weights = resample_weights(len(trees), seed)
    right = np.array([tree.is_right for tree in trees], dtype=np.float64)
    any_right = [any(node.outcome == "right" for node in tree.results) for tree in trees]

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values)) if values else 0.0

    return SearchFigures(
        num_problems=len(trees),
        accuracy=mean_estimate(right, weights),
        pass_rate=mean_estimate(np.array(any_right, dtype=np.float64), weights),
        finished=mean([len(tree.results) for tree in trees]),
        unfinished=mean([tree.chosen is None for tree in trees]),
        spent=mean([tree.is_spent for tree in trees]),
        flops=None if sizes is None else mean([sizes.flops(tree.cost) for tree in trees]),
        cost={
            one.name: mean([getattr(tree.cost, one.name) for tree in trees])
            for one in fields(StoredCost)
        },
    )
