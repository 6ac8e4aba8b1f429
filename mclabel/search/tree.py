"""The tree of one problem's search, with its token budget and its journal lines.

`compute_search_figures` computes the results and the cost of a search job from its trees.
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
from mclabel.core.stats.bootstrap import Estimate, draw_resample_weights, estimate_mean
from mclabel.data.boundaries import may_step_end
from mclabel.data.steps import StepSplitter
from mclabel.run.shards.journal import JournalEntry, Line
from mclabel.run.shards.trees import StoredCost, StoredTree
from mclabel.search.base import ROOT, Node


@dataclass(kw_only=True)
class TreeNode:
    """Node of the search tree, with the tokens and steps that it adds to its parent."""

    node: Node
    ids: tuple[int, ...]
    """Token ids that the node adds to its parent."""
    steps: tuple[Step, ...]
    """Steps that the node adds to its parent. Their ends are token counts from the beginning of the
    solution."""
    count: int = 0
    """Number of times that the node was sampled."""
    num_sampled: int = 0
    """Number of tokens sampled for the node in all samples, including end tokens."""
    scorer_state: Any = field(default=None, repr=False)
    """State that the scorer keeps for the node (`Scored.kept`)."""

    @property
    def text(self) -> str:
        """Text that this node adds to its parent."""
        return "".join(step.text for step in self.steps)


class SearchTree:
    """Nodes of one problem's search. Equal continuations of a node are one node."""

    def __init__(self) -> None:
        """Start with the root node."""
        self.nodes: dict[str, TreeNode] = {
            ROOT: TreeNode(node=Node(id=ROOT, parent=None, depth=0, num_tokens=0), ids=(), steps=())
        }
        """Maps ids to nodes. Parents come before their children."""

    def path(self, node_id: str) -> list[TreeNode]:
        """Return the nodes on the path from the root to a node, without the root.

        Args:
            node_id: id of the last node.
        """
        nodes = []
        while node_id != ROOT:
            nodes.append(self.nodes[node_id])
            parent = self.nodes[node_id].node.parent
            assert parent is not None
            node_id = parent
        return nodes[::-1]

    def ids(self, node_id: str) -> tuple[int, ...]:
        """Return all token ids from the beginning of the solution to a node."""
        return tuple(token for part in self.path(node_id) for token in part.ids)

    def steps(self, node_id: str) -> tuple[Step, ...]:
        """Return all steps from the beginning of the solution to a node."""
        return tuple(step for part in self.path(node_id) for step in part.steps)

    def add(self, parent: str, continuation: Continuation) -> tuple[TreeNode, bool]:
        """Add a continuation.

        Args:
            parent: id of the node that was continued.
            continuation: the sampled steps.

        Returns:
            The node of the continuation, and True if the node is new.
        """
        name = content_id(
            "node", parent, continuation.ids, continuation.is_finished, continuation.is_cut
        )
        before = self.nodes[parent].node
        if (entry := self.nodes.get(name)) is None:
            node = Node(
                id=name,
                parent=parent,
                depth=before.depth + len(continuation.steps),
                num_tokens=before.num_tokens + len(continuation.ids),
                is_finished=continuation.is_finished,
                is_cut=continuation.is_cut,
            )
            entry = TreeNode(node=node, ids=continuation.ids, steps=continuation.steps)
        is_new = entry.count == 0
        self.nodes[name] = entry
        entry.count += 1
        entry.num_sampled += continuation.num_sampled
        return entry, is_new

    def set_scores(self, node_id: str, scores: tuple[float, ...], scorer_state: Any = None) -> Node:
        """Set the scores of a node, and return it."""
        entry = self.nodes[node_id]
        entry.node, entry.scorer_state = replace(entry.node, scores=scores), scorer_state
        return entry.node

    def sampled_nodes(self) -> Iterator[TreeNode]:
        """Return all nodes except the root."""
        return (entry for name, entry in self.nodes.items() if name != ROOT)


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """Sampled continuation of a prefix. Its last step is incomplete if a token limit cut it."""

    ids: tuple[int, ...]
    """Token ids that were sampled after the prefix."""
    steps: tuple[Step, ...]
    """Steps that were sampled after the prefix. Their ends are token counts from the beginning of
    the solution."""
    is_finished: bool
    """True if the policy ended the solution."""
    is_cut: bool
    """True if a token limit ended the solution."""
    num_sampled: int
    """Number of sampled tokens, including end tokens."""


class TokenBudget:
    """Token budget of a problem.

    A request reserves its maximum number of tokens and returns the unspent ones when it ends. The
    limit is therefore never exceeded, but a request may wait until other requests end.
    """

    def __init__(self, limit: int | None) -> None:
        """Start with an unspent budget.

        Args:
            limit: maximum number of tokens; None for no limit.
        """
        self.left: float = inf if limit is None else limit
        """Number of tokens that are neither spent nor reserved."""
        self._num_out = 0
        self._changed = asyncio.Condition()

    async def reserve(self, max_tokens: int) -> int:
        """Reserve tokens for a request.

        Args:
            max_tokens: maximum number of tokens of the request, at least 1.

        Returns:
            Number of tokens that the request may use: `max_tokens`, or fewer if the budget will
            never have `max_tokens` tokens again; 0 if the budget is spent.
        """
        if self.left == inf:
            return max_tokens
        async with self._changed:
            await self._changed.wait_for(lambda: self.left >= max_tokens or self._num_out == 0)
            reserved = int(min(max_tokens, self.left))
            self.left -= reserved
            self._num_out += reserved > 0
            return reserved

    async def release(self, reserved: int, num_spent: int) -> None:
        """Release the unspent part of a reservation.

        Args:
            reserved: number of tokens that `reserve` returned, at least 1.
            num_spent: number of tokens that were sampled.
        """
        if self.left == inf:
            return
        async with self._changed:
            self.left += reserved - num_spent
            self._num_out -= 1
            self._changed.notify_all()


class ContinuationBuilder:
    """Builds a continuation of a prefix from several successive completions."""

    def __init__(self, decode: Callable[[Sequence[int]], str], *, start: int) -> None:
        """Start an empty continuation.

        Args:
            decode: function that turns token ids into text.
            start: number of tokens of the solution before the continuation.
        """
        self._decode, self._start = decode, start
        self.ids: tuple[int, ...] = ()
        self._steps: list[Step] = []
        self._text = ""
        """Text of the open step, which is the text after the last closed step."""
        self._closed = self.num_parts = self._num_sampled = 0

    def add(self, part: Completion, num_sampled: int) -> None:
        """Append a completion.

        Args:
            part: the completion.
            num_sampled: number of sampled tokens, including an end token.
        """
        self.ids += part.ids
        self._text = self._decode(self.ids[self._closed :])
        self.num_parts += 1
        self._num_sampled += num_sampled

    def close_step(self, *, min_tokens: int) -> bool:
        """Close the open step if it is complete. Return True if the step was closed.

        A complete step is more than a heading, and has no unfinished formula or table.

        Args:
            min_tokens: minimum number of tokens of a complete step.
        """
        is_complete = len(self.ids) - self._closed >= min_tokens and may_step_end(self._text)
        if is_complete:
            self._close_current_step()
        return is_complete

    def split_into_steps(self, splitter: StepSplitter) -> None:
        """Split the whole text into steps. No step may have been closed before."""
        steps = splitter.split(self.ids, self._text, self._decode)
        self._steps = [replace(step, end=self._start + step.end) for step in steps]
        self._text, self._closed = "", len(self.ids)

    def build(self, *, is_finished: bool, is_cut: bool) -> Continuation:
        """Return the continuation. The text of an open step becomes its last step."""
        if self._text:
            self._close_current_step()
        return Continuation(
            ids=self.ids,
            steps=tuple(self._steps),
            is_finished=is_finished,
            is_cut=is_cut,
            num_sampled=self._num_sampled,
        )

    def _close_current_step(self) -> None:
        self._steps.append(Step(text=self._text, end=self._start + len(self.ids)))
        self._text, self._closed = "", len(self.ids)


CompletionKey = tuple[str, str, int, int]
"""Key of a completion in the journal: id of the problem, id of the continued node, 0-based index of
the continuation, and 0-based index of the completion in the continuation."""


def make_completion_line(key: CompletionKey, completion: Completion) -> Line:
    """Return the journal line of a completion."""
    return {
        "place": list(key),
        "ids": list(completion.ids),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "at_stop": completion.at_stop,
    }


def read_entry(line: Line) -> JournalEntry:
    """Return the completion in a journal line."""
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
    """Numbers of parameters of a search's models."""

    policy: int
    """Number of parameters of the policy."""
    scorer: int
    """Number of parameters of the scorer's model; 0 without a model."""

    def flops(self, cost: StoredCost) -> float:
        """Return the number of floating-point operations of one problem's search.

        The estimate is two operations per parameter and token. The prompt counts once, because
        engines with a prefix cache compute it once. Attention is not counted.
        """
        return 2.0 * (
            self.policy * (cost.num_prompt + cost.num_sampled) + self.scorer * cost.num_scored
        )


@dataclass(frozen=True, kw_only=True)
class SearchFigures:
    """Results and cost of one search job."""

    num_problems: int
    """Number of searched problems."""
    num_graded: int
    """Number of problems with a gold answer."""
    accuracy: Estimate
    """Fraction of the problems with a gold answer whose chosen solution is right. A problem without
    a finished solution counts as wrong."""
    pass_rate: Estimate
    """Fraction of the problems with a gold answer that have a right finished solution."""
    finished: float
    """Mean number of distinct finished solutions per problem."""
    unfinished: float
    """Fraction of problems without a finished solution."""
    spent: float
    """Fraction of problems whose search ended at the token limit."""
    flops: float | None
    """Mean floating-point operations per problem; None if the size of a model is unknown."""
    cost: dict[str, float]
    """Mean number of tokens or requests per problem, by the fields of `StoredCost`."""

    def lines(self) -> Iterator[str]:
        """Yield the lines to print."""
        accuracy, cost = self.accuracy, self.cost
        if accuracy.value is None or accuracy.low is None or accuracy.high is None:
            yield f"{self.num_problems:,} problems were searched. No problem has a gold answer."
        else:
            yield (
                f"Accuracy: {accuracy.value:.3f} [{accuracy.low:.3f}, {accuracy.high:.3f}] on "
                f"{self.num_graded:,} problems with a gold answer. {self.pass_rate.value:.1%} of "
                "these problems have a finished solution that is right."
            )
        yield (
            f"Finished: {self.finished:.1f} distinct solutions per problem. {self.unfinished:.1%} "
            "of the problems have no finished solution."
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


def compute_search_figures(
    trees: Sequence[StoredTree], sizes: ModelSizes | None, *, seed: int = 0
) -> SearchFigures:
    """Compute the results and the cost of a search job.

    Args:
        trees: trees of the job, one per problem.
        sizes: sizes of the job's models; None if unknown.
        seed: random seed of the bootstrap over problems.
    """
    weights = draw_resample_weights(len(trees), seed)
    graded = np.array([bool(tree.answer) for tree in trees])
    right = np.array([tree.is_chosen_right for tree in trees], dtype=np.float64)
    any_right = [any(node.outcome == "right" for node in tree.results) for tree in trees]

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values)) if values else 0.0

    return SearchFigures(
        num_problems=len(trees),
        num_graded=int(graded.sum()),
        accuracy=estimate_mean(np.where(graded, right, np.nan), weights),
        pass_rate=estimate_mean(np.where(graded, any_right, np.nan), weights),
        finished=mean([len(tree.results) for tree in trees]),
        unfinished=mean([tree.chosen is None for tree in trees]),
        spent=mean([tree.is_spent for tree in trees]),
        flops=None if sizes is None else mean([sizes.flops(tree.cost) for tree in trees]),
        cost={
            item.name: mean([getattr(tree.cost, item.name) for tree in trees])
            for item in fields(StoredCost)
        },
    )
