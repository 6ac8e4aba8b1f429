"""Invariants of search trees for every method, scorer and kill."""

from __future__ import annotations

from collections.abc import Iterable

from mclabel.run.shards.trees import StoredTree


def check_tree(tree: StoredTree, *, limit: int | None = None) -> None:
    """Check that a tree is connected and that its nodes add up to its cost."""
    nodes = {"": None} | {node.id: node for node in tree.nodes}
    assert len(nodes) == len(tree.nodes) + 1
    seen = {""}
    for node in tree.nodes:
        assert node.parent in seen  # parents come first
        seen.add(node.id)
        parent = nodes[node.parent]
        before = 0 if parent is None else parent.depth
        assert node.depth == before + len(node.steps)
        assert parent is None or not (parent.is_finished or parent.is_cut)
        assert not node.scores or len(node.scores) == node.depth
        assert node.count >= 1 and node.num_tokens >= (parent.num_tokens if parent else 0)
        assert (node.weight is None) or node.is_finished
        assert not (node.is_finished and node.is_cut)
    cost = tree.cost
    assert sum(node.num_sampled for node in tree.nodes) == cost.num_sampled
    assert 0 <= cost.num_pruned <= cost.num_sampled and cost.num_repeated <= cost.num_sampled
    assert limit is None or cost.num_sampled <= limit
    results = {node.id for node in tree.results}
    assert (tree.chosen in results) if results else tree.chosen is None


def check_trees(
    trees: Iterable[StoredTree], problems: Iterable[str], *, limit: int | None = None
) -> None:
    """Check all trees of a run, which must have each problem once."""
    trees = list(trees)
    assert sorted(tree.problem_id for tree in trees) == sorted(problems)
    for tree in trees:
        check_tree(tree, limit=limit)
