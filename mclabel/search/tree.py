"""The tree of one problem's search: beginnings that were sampled, their cost, what a kill leaves.

`search_figures` says what a search has found and what it has cost, from its trees.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from math import inf
from typing import Any

import numpy as np

from mclabel.core.records import Completion, Step
from mclabel.core.seeds import content_id
from mclabel.core.stats.bootstrap import Estimate, mean_estimate, resample_weights
from mclabel.data.boundaries import may_end
from mclabel.data.steps import StepSplitter
from mclabel.run.shards.journal import BlockJournal, JournalEntry, Line
from mclabel.run.shards.trees import StoredCost, StoredTree
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
        """Begin with the problem alone."""
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
        """All nodes but the problem alone."""
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


class Purse:
    """Tokens that may still be sampled. What is under way is set aside until it has ended.

    So the limit holds whatever is sampled; the price is that a request waits where all that is left
    is set aside for others.
    """

    def __init__(self, limit: int | None) -> None:
        """Hold all that may be spent.

        Args:
            limit: tokens; None for any number.
        """
        self.left: float = inf if limit is None else limit
        """Tokens that are neither spent nor set aside."""
        self._num_out = 0
        self._changed = asyncio.Condition()

    async def take(self, most: int) -> int:
        """Set tokens aside for a request.

        Args:
            most: that it can need, at least 1.

        Returns:
            How many it may use: `most`, or fewer where no more will ever be left; 0 for none.
        """
        if self.left == inf:
            return most
        async with self._changed:
            await self._changed.wait_for(lambda: self.left >= most or self._num_out == 0)
            given = int(min(most, self.left))
            self.left -= given
            self._num_out += given > 0
            return given

    async def give_back(self, given: int, spent: int) -> None:
        """Say what came of what was taken.

        Args:
            given: as `take` gave it, more than 0.
            spent: of it.
        """
        if self.left == inf:
            return
        async with self._changed:
            self.left += given - spent
            self._num_out -= 1
            self._changed.notify_all()


PART_OF_CHARACTER = "\ufffd"
"""How a text ends that was cut within a character."""
MAX_REST = 4
"""Tokens by which a step may be longer than it should, so that its last character is whole."""


class GrowingPiece:
    """Steps that are sampled one completion after the other."""

    def __init__(self, decode: Callable[[Sequence[int]], str], *, start: int) -> None:
        """Begin with nothing.

        Args:
            decode: token ids to text.
            start: tokens of the solution before the piece.
        """
        self._decode, self._start = decode, start
        self.ids: tuple[int, ...] = ()
        self._steps: list[Step] = []
        self._text = ""
        """Of the step that is not closed."""
        self._closed = self.num_parts = self._num_sampled = self._num_rest = 0

    @property
    def num_in_step(self) -> int:
        """Tokens of the step that is not closed."""
        return len(self.ids) - self._closed

    def add(self, part: Completion, num_sampled: int) -> None:
        """Take a completion in, for which so many tokens were sampled."""
        self.ids += part.ids
        self._text = self._decode(self.ids[self._closed :])
        self.num_parts += 1
        self._num_sampled += num_sampled

    def close_step(self, *, least: int, by_force: bool) -> bool:
        """End a step here, if what was sampled is one.

        Args:
            least: tokens of a step, which is also more than a heading, and leaves no display or
                table open.
            by_force: whether it ends here though no text says so; then it has no least length, but
                its last character is to be whole.
        """
        if by_force and self._text.endswith(PART_OF_CHARACTER) and self._num_rest < MAX_REST:
            self._num_rest += 1
            return False
        is_one = self.num_in_step >= least and may_end(self._text)
        if not (is_one or (by_force and self._text)):
            return False
        self._close()
        return True

    def split(self, splitter: StepSplitter) -> None:
        """Find the steps of all that was sampled."""
        found = splitter.split(self.ids, self._text, self._decode)
        self._steps = [replace(step, end=self._start + step.end) for step in found]
        self._text, self._closed = "", len(self.ids)

    def piece(self, *, is_finished: bool, is_cut: bool) -> Piece:
        """What was sampled; the text of a step that is cut belongs to it."""
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
        self._text, self._closed, self._num_rest = "", len(self.ids), 0


Place = tuple[str, str, int, int]
"""Problem, node that was continued, which of its continuations, and which part of that one."""


class SearchJournal:
    """The journal of a block of problems."""

    def __init__(self, journal: BlockJournal) -> None:
        """Read and write completions in a journal.

        Args:
            journal: of an attempt at the block.
        """
        self._journal = journal

    def take(self, place: Place) -> Completion | None:
        """A completion that an earlier attempt has sampled."""
        return self._journal.take(place)

    def add(self, place: Place, completion: Completion) -> None:
        """Record a completion that this attempt has sampled."""
        self._journal.add(partial(_line, place, completion))


def _line(place: Place, completion: Completion) -> Line:
    return {
        "place": list(place),
        "ids": list(completion.ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "at_stop": completion.at_stop,
    }


def read_entry(line: Line) -> JournalEntry:
    """The completion that a line holds."""
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
    num_graded: int
    """Problems with a gold answer."""
    accuracy: Estimate
    """Share of problems whose chosen solution has the right answer, among those with a gold answer;
    a problem without a finished solution counts as wrong."""
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
        trees: one a problem.
        sizes: of its models, if they are known.
        seed: of the bootstrap over problems.
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
            one.name: mean([getattr(tree.cost, one.name) for tree in trees])
            for one in fields(StoredCost)
        },
    )
