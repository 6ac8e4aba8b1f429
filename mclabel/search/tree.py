"""The tree of one problem's search: every beginning that was sampled, once, with what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from mclabel.core.records import Step
from mclabel.core.seeds import content_id
from mclabel.search.base import ROOT, Node


@dataclass(kw_only=True)
class TreeNode:
    """A beginning, what it adds to the one that it continues, and what is known of it."""

    node: Node
    ids: tuple[int, ...]
    """Token ids that it adds."""
    steps: tuple[Step, ...]
    """Steps that it adds; their ends count from the beginning of the solution."""
    count: int = 0
    """How often it was sampled."""
    num_sampled: int = 0
    """Tokens sampled for it, each time, end tokens included."""
    kept: Any = field(default=None, repr=False)
    """What the scorer keeps of it."""

    @property
    def text(self) -> str:
        """The text that it adds."""
        return "".join(step.text for step in self.steps)


class SearchTree:
    """The nodes of one problem's search. The same tokens are the same node."""

    def __init__(self) -> None:
        """Begin with the bare problem."""
        root = Node(id=ROOT, parent=None, depth=0, num_tokens=0)
        self.nodes: dict[str, TreeNode] = {ROOT: TreeNode(node=root, ids=(), steps=())}
        """By id, parents before children."""

    def path(self, name: str) -> list[TreeNode]:
        """The nodes from the first step to the named one."""
        found = []
        while name != ROOT:
            found.append(self.nodes[name])
            parent = self.nodes[name].node.parent
            assert parent is not None
            name = parent
        return found[::-1]

    def ids(self, name: str) -> tuple[int, ...]:
        """All token ids of a beginning."""
        return tuple(one for part in self.path(name) for one in part.ids)

    def steps(self, name: str) -> tuple[Step, ...]:
        """All steps of a beginning."""
        return tuple(step for part in self.path(name) for step in part.steps)

    def add(self, parent: str, piece: Piece) -> tuple[TreeNode, bool]:
        """Take a continuation in.

        Args:
            parent: id of the node that was continued.
            piece: what was sampled.

        Returns:
            Its node, and whether it is new.
        """
        name = content_id("node", parent, piece.ids, piece.is_finished, piece.is_cut)
        before = self.nodes[parent].node
        if (found := self.nodes.get(name)) is None:
            node = Node(
                id=name,
                parent=parent,
                depth=before.depth + len(piece.steps),
                num_tokens=before.num_tokens + len(piece.ids),
                is_finished=piece.is_finished,
                is_cut=piece.is_cut,
            )
            found = TreeNode(node=node, ids=piece.ids, steps=piece.steps)
        is_new = found.count == 0
        self.nodes[name] = found
        found.count += 1
        found.num_sampled += piece.num_sampled
        return found, is_new

    def scored(self, name: str, scores: tuple[float, ...], kept: Any = None) -> Node:
        """Give a node its scores."""
        entry = self.nodes[name]
        entry.node, entry.kept = replace(entry.node, scores=scores), kept
        return entry.node

    def sampled(self) -> Iterator[TreeNode]:
        """All nodes but the bare problem."""
        return (entry for name, entry in self.nodes.items() if name != ROOT)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What was sampled after a beginning: some steps, whole ones but where it was cut."""

    ids: tuple[int, ...]
    steps: tuple[Step, ...]
    """Their ends count from the beginning of the solution."""
    is_finished: bool
    is_cut: bool
    num_sampled: int
    """Tokens that were sampled, end tokens included."""
