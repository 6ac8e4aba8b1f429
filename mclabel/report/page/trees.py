"""The report's part on searches: the trees of a few problems, to be opened node by node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from mclabel.report.page.html import Html, draw, join, paragraph
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import StoredNode, StoredTree, has_trees, read_trees
from mclabel.show.texts import step_body

MAX_NODES = 150
"""Nodes shown of a tree."""
MAX_LEVELS = 60
"""Nodes one below the other: a page cannot nest without end."""
MAX_SHOWN = 300
"""Characters shown of a node, and of an answer."""

RIGHT, MISSED, NONE = "the result is right", "a right one was not chosen", "none is right"
_OUTCOMES = ("right", "wrong")


def trees_part(store: Store) -> Html | None:
    """The first tree of each kind: with a right result, with one missed, with none.

    Raises:
        DamagedFile: a file of trees is missing or damaged.

    Returns:
        None of a run that is no search.
    """
    if not has_trees(store):
        return None
    found: dict[str, StoredTree] = {}
    for tree in read_trees(store):
        found.setdefault(_kind(tree), tree)
        if len(found) == len((RIGHT, MISSED, NONE)):
            break
    shown = [_tree(kind, found[kind]) for kind in (RIGHT, MISSED, NONE) if kind in found]
    note = (
        "The first problem of each kind. Below each beginning stand its continuations, with the "
        "score of the last step and how often it was sampled. Grey: given up, or never finished. "
        "Weight: how much a finished solution counts in a vote."
    )
    return join(*shown, paragraph(note, "quiet"))


def _kind(tree: StoredTree) -> str:
    if tree.is_right:
        return RIGHT
    return MISSED if any(node.outcome == "right" for node in tree.results) else NONE


def _tree(kind: str, tree: StoredTree) -> Html:
    nodes = {node.id: node for node in tree.nodes}
    used = {name for node in tree.results for name in _path(node.id, nodes)}
    kept = _kept(tree, nodes)
    children: dict[str, list[StoredNode]] = defaultdict(list)
    for node in tree.nodes:
        if node.id in kept:
            children[node.parent].append(node)
    opened = set(_path(tree.chosen, nodes)) if tree.chosen is not None else set()
    left_out = len(nodes) - len(kept)
    facts = (
        f"{len(nodes):,} nodes, {len(tree.results):,} different finished solutions, "
        f"{tree.cost.num_sampled:,} tokens sampled, {tree.cost.num_scored:,} scored."
        + (f" {left_out:,} nodes are left out." if left_out else "")
    )
    return draw(
        "tree",
        title=f"{tree.problem_id[:80]}: {kind}",
        problem=tree.problem,
        facts=f"Gold: {_cut(tree.answer)}. {facts}",
        nodes=[_node(node, tree, children, used, opened) for node in children[""]],
    )


def _path(name: str, nodes: Mapping[str, StoredNode]) -> list[str]:
    """Ids from the first node to the named one."""
    found = []
    while name:
        found.append(name)
        name = nodes[name].parent
    return found[::-1]


def _kept(tree: StoredTree, nodes: Mapping[str, StoredNode]) -> set[str]:
    """Ids of the nodes that are shown: the result's, those of the best solutions, then the rest."""
    results = sorted(tree.results, key=lambda node: (node.id != tree.chosen, -(node.score or 0.0)))
    kept: set[str] = set()
    for node in (*results, *tree.nodes):
        fresh = [name for name in _path(node.id, nodes)[:MAX_LEVELS] if name not in kept]
        if len(kept) + len(fresh) <= MAX_NODES:
            kept.update(fresh)
    return kept


def _node(
    node: StoredNode,
    tree: StoredTree,
    children: Mapping[str, Sequence[StoredNode]],
    used: Iterable[str],
    opened: Iterable[str],
) -> Html:
    return draw(
        "node",
        words=_cut(step_body("".join(node.steps))[0] or "(nothing)"),
        measures=_measures(node),
        marks=_marks(node, tree),
        below=[_node(one, tree, children, used, opened) for one in children.get(node.id, ())],
        is_used=node.id in used,
        is_open=node.id in opened,
    )


def _measures(node: StoredNode) -> str:
    score = f"score {node.scores[-1]:.2f}" if node.scores else "not scored"
    return score + (f", sampled {node.count:,} times" if node.count > 1 else "")


def _marks(node: StoredNode, tree: StoredTree) -> list[tuple[str, str]]:
    """What is said of a node: colours and words."""
    found: list[tuple[str, str]] = []
    if node.weight is not None:
        outcome = node.outcome if node.outcome in _OUTCOMES else ""
        words = f"{node.outcome}: {_cut(node.prediction or 'no answer')}, weight {node.weight:.3g}"
        found.append((outcome, words))
    elif node.is_finished:
        found.append(("", "finished, does not count"))
    if node.is_cut:
        found.append(("", "cut: no room left"))
    if node.id == tree.chosen:
        found.append(("differs", "chosen"))
    return found


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
