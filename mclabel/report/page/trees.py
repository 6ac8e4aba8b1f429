"""The report's part on searches: the trees of a few problems, to be opened node by node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from mclabel.report.page.html import Html, join, tag
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
    return join(*shown, tag("p", note, class_="quiet"))


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
    return tag(
        "article",
        tag("h3", f"{tree.problem_id[:80]}: {kind}"),
        tag("p", tree.problem, class_="prose problem"),
        tag("p", f"Gold: {_cut(tree.answer)}. {facts}", class_="quiet"),
        *(_node(node, tree, children, used, opened) for node in children[""]),
        class_="tree",
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
    state = "node" if node.id in used else "node pruned"
    parts = [
        tag("span", _cut(step_body("".join(node.steps))[0] or "(nothing)"), class_="prose"),
        tag("span", _measures(node), class_="quiet"),
        *_chips(node, tree),
    ]
    below = children.get(node.id, ())
    if not below:
        return tag("div", *parts, class_=f"{state} leaf")
    return tag(
        "details",
        tag("summary", *parts),
        *(_node(one, tree, children, used, opened) for one in below),
        class_=state,
        **({"open": ""} if node.id in opened else {}),
    )


def _measures(node: StoredNode) -> str:
    score = f"score {node.scores[-1]:.2f}" if node.scores else "not scored"
    return f" {score}" + (f", sampled {node.count:,} times" if node.count > 1 else "")


def _chips(node: StoredNode, tree: StoredTree) -> list[Html]:
    found = []
    if node.weight is not None:
        outcome = node.outcome if node.outcome in _OUTCOMES else ""
        words = f"{node.outcome}: {_cut(node.prediction or 'no answer')}, weight {node.weight:.3g}"
        found.append(tag("span", words, class_=f"chip {outcome}"))
    elif node.is_finished:
        found.append(tag("span", "finished, does not count", class_="chip"))
    if node.is_cut:
        found.append(tag("span", "cut: no room left", class_="chip"))
    if node.id == tree.chosen:
        found.append(tag("span", "chosen", class_="chip differs"))
    return found


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
