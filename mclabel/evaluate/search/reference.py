"""Best-of-N as the reference of searches: accuracy and cost by N, from one search of the largest N.

A tree does not keep the order in which its solutions were sampled, only how often each was. So the
figures at N are means over subsets of N of the M draws of a problem, each draw counted, those that
were cut included: estimates of what N fresh draws give, better than the first N draws are.

- Accuracy, as in `choosing`: exact but for votes, which take the mean over random subsets. A draw
  that was cut, or has no answer, is chosen last and has no vote.
- Tokens sampled: N times the mean draw's, which is their exact mean over subsets.
- Tokens of the scorer: it reads each distinct solution once, so one that was drawn c times costs
  its tokens with the chance that a subset holds it, 1 - C(M - c, N) / C(M, N); the prompt is
  counted once if the scorer kept it. A tree holds the scorer's tokens as a sum: they are parted
  among the solutions by their lengths, exactly so where policy and scorer share their tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, inf, log

import numpy as np
from numpy.typing import NDArray

from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, ProblemSamples, method_accuracy
from mclabel.run.shards.trees import StoredNode, StoredTree
from mclabel.search.tree import ModelSizes

BEST, VOTE = "best", "weighted vote"
CHOICES = (BEST, VOTE, MAJORITY, PASS)
"""Ways in which best-of-N chooses; the last two need no scorer."""
SCORED = (BEST, VOTE)
_SCORER = "prm"


@dataclass(frozen=True, kw_only=True)
class ReferenceSize:
    """Best-of-N at one N."""

    size: int
    num_sampled: float
    """Tokens that the policy sampled, a problem."""
    num_scored: float
    """Tokens that the scorer computed, a problem."""
    cost: float
    """Floating-point operations a problem, or tokens of both models where a size is not known."""
    cost_unscored: float
    """Cost without the scorer."""
    accuracy: Mapping[str, NDArray[np.float64]]
    """Accuracy by problem, [problems], for each choice."""

    def cost_of(self, choice: str) -> float:
        """Return the mean cost of a problem with a choice."""
        return self.cost if choice in SCORED else self.cost_unscored


def reference_sizes(
    trees: Sequence[StoredTree], sizes: Sequence[int], models: ModelSizes | None, *, seed: int
) -> list[ReferenceSize]:
    """Measure best-of-N at several N, from one search of kind `best_of_n`.

    Args:
        trees: search trees, one for each problem.
        sizes: values of N, rising; not above the number of draws.
        models: sizes of the models, None if unknown.
        seed: seed of the subsets for votes.
    """
    drawn = [drawn_samples(tree) for tree in trees]
    results = []
    for size in sizes:
        sampled = [size * _mean_draw(tree) for tree in trees]
        scored = [scored_tokens(tree, size) for tree in trees]
        prompts = [tree.cost.num_prompt for tree in trees]
        rows = [method_accuracy(samples, size, seed=seed + i) for i, samples in enumerate(drawn)]
        by_policy = float(np.mean(np.add(prompts, sampled)))
        by_scorer = float(np.mean(scored))
        names = dict(zip(CHOICES, (_SCORER, f"vote:{_SCORER}", MAJORITY, PASS), strict=True))
        results.append(
            ReferenceSize(
                size=size,
                num_sampled=float(np.mean(sampled)),
                num_scored=by_scorer,
                cost=computation(models, by_policy, by_scorer),
                cost_unscored=computation(models, by_policy, 0.0),
                accuracy={
                    choice: np.array([row[name] for row in rows]) for choice, name in names.items()
                },
            )
        )
    return results


def computation(models: ModelSizes | None, by_policy: float, by_scorer: float) -> float:
    """Return the floating-point operations for tokens of both models; their number where no size is
    known.
    """
    return by_policy + by_scorer if models is None else models.flops_of(by_policy, by_scorer)


def at_cost(
    reference: Sequence[ReferenceSize], choice: str, cost: float
) -> tuple[NDArray[np.float64], str | None]:
    """Return the accuracy of best-of-N by problem at a cost, interpolated in the cost's logarithm.

    The two N and their shares follow from mean costs, so they are the same for all problems.

    Args:
        reference: measures of best-of-N, N rising.
        choice: the way to choose, one of `CHOICES`.
        cost: mean cost of a problem, > 0.

    Returns:
        Accuracy [problems], and whether the cost is `below` that of the smallest N or `above` that
        of the largest, whose accuracy then stands for it.
    """
    costs = [point.cost_of(choice) for point in reference]
    table = [point.accuracy[choice] for point in reference]
    above = next((i for i, own in enumerate(costs) if own >= cost * (1 - 1e-9)), None)
    if above is None:
        return table[-1], "above"
    if above == 0:
        return table[0], "below" if costs[0] > cost * (1 + 1e-9) else None
    low, high = costs[above - 1], costs[above]
    share = min(1.0, (log(cost) - log(low)) / (log(high) - log(low)))
    return (1 - share) * table[above - 1] + share * table[above], None


def draws(tree: StoredTree) -> list[StoredNode]:
    """Return the whole solutions of a search of kind `best_of_n`, each as often as it was drawn."""
    return [node for node in tree.nodes if not node.parent for _ in range(node.count)]


def drawn_samples(tree: StoredTree) -> ProblemSamples:
    """Return the draws of a problem as samples to choose from."""
    nodes = draws(tree)
    scores = tuple(
        -inf if node.score is None or node.group is None else node.score for node in nodes
    )
    return ProblemSamples(
        problem_id=tree.problem_id,
        keys=tuple(node.group for node in nodes),
        right=tuple(node.outcome == "right" for node in nodes),
        scores={_SCORER: scores},
        weights={_SCORER: tuple(0.0 if score == -inf else score for score in scores)},
    )


def scored_tokens(tree: StoredTree, size: int) -> float:
    """Return the expected tokens of the scorer for `size` of the draws of a problem; see above."""
    total = len(draws(tree))
    nodes = [node for node in tree.nodes if not node.parent and node.scores]
    if not nodes:
        return 0.0
    cost, others = tree.cost, len(nodes) - 1
    prompt = min(cost.num_score_cached / others, cost.num_scored) if others else 0.0
    lengths = [node.num_tokens + (0 if prompt else cost.num_prompt) for node in nodes]
    a_token = (cost.num_scored - prompt) / max(sum(lengths), 1)
    expected = prompt * _is_held(sum(node.count for node in nodes), size, total)
    for node, length in zip(nodes, lengths, strict=True):
        expected += a_token * length * _is_held(node.count, size, total)
    return expected


def _is_held(count: int, size: int, total: int) -> float:
    """Return the chance that `size` of `total` draws hold one of `count` at least."""
    return 1 - comb(total - count, size) / comb(total, size)


def _mean_draw(tree: StoredTree) -> float:
    nodes = [node for node in tree.nodes if not node.parent]
    return sum(node.num_sampled for node in nodes) / sum(node.count for node in nodes)
