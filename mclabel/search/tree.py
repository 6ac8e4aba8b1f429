"""The tree of one problem's search, its token budget and its journal.

`search_figures` computes the results and the cost of a search from its trees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any

import numpy as np

from mclabel.core.records import Completion, Step
from mclabel.core.seeds import content_id
from mclabel.core.stats.bootstrap import Estimate, mean_estimate, resample_weights
from mclabel.data.boundaries import may_end
from mclabel.data.steps import StepSplitter
from mclabel.run.shards.journal import JournalEntry, Line
from mclabel.run.shards.trees import StoredCost, StoredTree
from mclabel.search.base import ROOT, Node


@dataclass(kw_only=True)
class TreeNode:
    """Prefix of a solution, with its additions to its parent and the scorer's state."""

    node: Node
    ids: tuple[int, ...]
    """Token ids that it adds to its parent."""
    steps: tuple[Step, ...]
    """Steps that it adds to its parent; their ends count from the beginning of the solution."""
    count: int = 0
    """Number of times that it was sampled."""
    num_sampled: int = 0
    """Tokens that were sampled for it in all, including end tokens."""
    kept: Any = field(default=None, repr=False)
    """State that the scorer keeps of it."""

    @property
    def text(self) -> str:
        """Text that it adds to its parent."""
        return "".join(step.text for step in self.steps)


class SearchTree:
    """Nodes of one problem's search. The same tokens are the same node."""

    def __init__(self) -> None:
        """Start with the root node."""
        root = Node(id=ROOT, parent=None, depth=0, num_tokens=0)
        self.nodes: dict[str, TreeNode] = {ROOT: TreeNode(node=root, ids=(), steps=())}
        """Nodes by id, parents before children."""

    def path(self, name: str) -> list[TreeNode]:
        """Return the nodes from the first step to a node."""
        nodes = []
        while name != ROOT:
            nodes.append(self.nodes[name])
            parent = self.nodes[name].node.parent
            assert parent is not None
            name = parent
        return nodes[::-1]

    def ids(self, name: str) -> tuple[int, ...]:
        """Return all token ids of a prefix."""
        return tuple(token for part in self.path(name) for token in part.ids)

    def steps(self, name: str) -> tuple[Step, ...]:
        """Return all steps of a prefix."""
        return tuple(step for part in self.path(name) for step in part.steps)

    def add(self, parent: str, piece: Piece) -> tuple[TreeNode, bool]:
        """Add a continuation.

        Args:
            parent: id of the node that was continued.
            piece: the sampled steps.

        Returns:
            The node of the continuation, and whether it is new.
        """
        name = content_id("node", parent, piece.ids, piece.is_finished, piece.is_cut)
        before = self.nodes[parent].node
        if (entry := self.nodes.get(name)) is None:
            node = Node(
                id=name,
                parent=parent,
                depth=before.depth + len(piece.steps),
                num_tokens=before.num_tokens + len(piece.ids),
                is_finished=piece.is_finished,
                is_cut=piece.is_cut,
            )
            entry = TreeNode(node=node, ids=piece.ids, steps=piece.steps)
        is_new = entry.count == 0
        self.nodes[name] = entry
        entry.count += 1
        entry.num_sampled += piece.num_sampled
        return entry, is_new

    def scored(self, name: str, scores: tuple[float, ...], kept: Any = None) -> Node:
        """Set the scores of a node, and return it."""
        entry = self.nodes[name]
        entry.node, entry.kept = replace(entry.node, scores=scores), kept
        return entry.node

    def sampled(self) -> Iterator[TreeNode]:
        """Return all nodes except the root."""
        return (entry for name, entry in self.nodes.items() if name != ROOT)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Steps sampled after a prefix, which are complete unless the piece was cut."""

    ids: tuple[int, ...]
    steps: tuple[Step, ...]
    """Steps whose ends count from the beginning of the solution."""
    is_finished: bool
    is_cut: bool
    num_sampled: int
    """Number of sampled tokens, including end tokens."""


class Purse:
    """Budget of tokens, from which running requests reserve their maximum until they end.

    So the limit is never exceeded, but a request waits while all remaining tokens are reserved.
    """

    def __init__(self, limit: int | None) -> None:
        """Start with the whole budget.

        Args:
            limit: number of tokens; None for no limit.
        """
        self.left: float = inf if limit is None else limit
        """Tokens that are neither spent nor reserved."""
        self._num_out = 0
        self._changed = asyncio.Condition()

    async def take(self, most: int) -> int:
        """Reserve tokens for a request.

        Args:
            most: maximum tokens of the request, at least 1.

        Returns:
            Number of tokens that it may use: `most`, or fewer if no more will ever be available; 0
            for none.
        """
        if self.left == inf:
            return most
        async with self._changed:
            await self._changed.wait_for(lambda: self.left >= most or self._num_out == 0)
            reserved = int(min(most, self.left))
            self.left -= reserved
            self._num_out += reserved > 0
            return reserved

    async def give_back(self, reserved: int, spent: int) -> None:
        """Release the unspent part of a reservation.

        Args:
            reserved: number of tokens that `take` returned, more than 0.
            spent: number of these tokens that were sampled.
        """
        if self.left == inf:
            return
        async with self._changed:
            self.left += reserved - spent
            self._num_out -= 1
            self._changed.notify_all()


class GrowingPiece:
    """Steps that are sampled in successive completions."""

    def __init__(self, decode: Callable[[Sequence[int]], str], *, start: int) -> None:
        """Start an empty piece.

        Args:
            decode: converts token ids to text.
            start: number of tokens of the solution before the piece.
        """
        self._decode, self._start = decode, start
        self.ids: tuple[int, ...] = ()
        self._steps: list[Step] = []
        self._text = ""
        """Text of the open step."""
        self._closed = self.num_parts = self._num_sampled = 0

    def add(self, part: Completion, num_sampled: int) -> None:
        """Append a completion, for which `num_sampled` tokens were sampled."""
        self.ids += part.ids
        self._text = self._decode(self.ids[self._closed :])
        self.num_parts += 1
        self._num_sampled += num_sampled

    def close_step(self, *, least: int) -> bool:
        """Close the open step if it is complete, and return whether it was closed.

        Args:
            least: minimum tokens of a step. A step must also be more than a heading, and leave no
                formula or table open.
        """
        is_complete = len(self.ids) - self._closed >= least and may_end(self._text)
        if is_complete:
            self._close()
        return is_complete

    def split(self, splitter: StepSplitter) -> None:
        """Split all sampled text into steps."""
        steps = splitter.split(self.ids, self._text, self._decode)
        self._steps = [replace(step, end=self._start + step.end) for step in steps]
        self._text, self._closed = "", len(self.ids)

    def piece(self, *, is_finished: bool, is_cut: bool) -> Piece:
        """Return the piece, including the text of an open step."""
        if self._text:
            self._close()
        return Piece(
            ids=self.ids,
            steps=tuple(self._steps),
            is_finished=is_finished,
            is_cut=is_cut,
            num_sampled=self._num_sampled,
        )

    def _close(self) -> None:
        self._steps.append(Step(text=self._text, end=self._start + len(self.ids)))
        self._text, self._closed = "", len(self.ids)


Place = tuple[str, str, int, int]
"""Journal key: problem, continued node, index of the continuation, and index of its part."""


def completion_line(place: Place, completion: Completion) -> Line:
    """Return the line of a journal that holds a completion."""
    return {
        "place": list(place),
        "ids": list(completion.ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "at_stop": completion.at_stop,
    }


def read_entry(line: Line) -> JournalEntry:
    """Return the completion in a line of a journal."""
    problem, parent, number, part = line["place"]
    completion = Completion(
        ids=tuple(line["ids"]),
        text=line["text"],
        finish_reason=line["finish_reason"],
        at_stop=line["at_stop"],
    )
    return JournalEntry(
        key=(problem, parent, number, part), content=completion, num_tokens=len(completion.ids)
    )


@dataclass(frozen=True, kw_only=True)
class ModelSizes:
    """Numbers of parameters of the models of a search."""

    policy: int
    scorer: int

    def flops(self, cost: StoredCost) -> float:
        """Return the floating-point operations of one problem's search: two per parameter and
        token.

        The prompt counts once, since engines that cache prefixes compute it once. Attention is not
        counted.
        """
        return self.flops_of(cost.num_prompt + cost.num_sampled, cost.num_scored)

    def flops_of(self, by_policy: float, by_scorer: float) -> float:
        """Return the floating-point operations for numbers of tokens of each model."""
        return 2.0 * (self.policy * by_policy + self.scorer * by_scorer)


@dataclass(frozen=True, kw_only=True)
class SearchFigures:
    """Figures of one search, costs as means over the problems."""

    num_problems: int
    num_graded: int
    """Problems with a gold answer."""
    accuracy: Estimate
    """Share of problems whose chosen solution has the right answer, among those with a gold answer;
    a problem without a finished solution counts as wrong."""
    pass_rate: Estimate
    """Fraction of problems with a right answer among the finished solutions."""
    finished: float
    """Mean number of distinct finished solutions per problem."""
    unfinished: float
    """Share of problems without a finished solution."""
    spent: float
    """Share of problems whose search ended at the limit of tokens."""
    flops: float | None
    """Floating-point operations per problem; None if the size of a model is unknown."""
    cost: dict[str, float]
    """Mean tokens or requests per problem, by kind of cost (`StoredCost`)."""

    def lines(self) -> Iterator[str]:
        """Yield the lines to print."""
        accuracy, cost = self.accuracy, self.cost
        if accuracy.value is None or accuracy.low is None or accuracy.high is None:
            yield f"{self.num_problems:,} problems were searched; none has a gold answer."
        else:
            yield (
                f"Right: {accuracy.value:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}] of "
                f"{self.num_graded:,} problems; a right solution was among the finished ones for "
                f"{self.pass_rate.value:.3f}."
            )
        yield (
            f"Finished: {self.finished:.1f} different solutions per problem, none for "
            f"{self.unfinished:.1%} of the problems."
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
        trees: trees of the search, one per problem.
        sizes: sizes of its models; None if unknown.
        seed: random seed of the bootstrap over problems.
    """
    weights = resample_weights(len(trees), seed)
    graded = np.array([bool(tree.answer) for tree in trees])
    right = np.array([tree.is_right for tree in trees], dtype=np.float64)
    any_right = [any(node.outcome == "right" for node in tree.results) for tree in trees]

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values)) if values else 0.0

    return SearchFigures(
        num_problems=len(trees),
        num_graded=int(graded.sum()),
        accuracy=mean_estimate(np.where(graded, right, np.nan), weights),
        pass_rate=mean_estimate(np.where(graded, any_right, np.nan), weights),
        finished=mean([len(tree.results) for tree in trees]),
        unfinished=mean([tree.chosen is None for tree in trees]),
        spent=mean([tree.is_spent for tree in trees]),
        flops=None if sizes is None else mean([sizes.flops(tree.cost) for tree in trees]),
        cost={
            item.name: mean([getattr(tree.cost, item.name) for tree in trees])
            for item in fields(StoredCost)
        },
    )
