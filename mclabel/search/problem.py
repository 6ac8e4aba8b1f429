"""The search of one problem on one engine, concurrently with other problems.

The search of a problem is a coroutine. It samples and scores the expansions that its method
requests, and records the nodes in the method. Completions are written to the block's journal, so
that nothing is sampled twice after a kill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from mclabel.core.boundary import guarded, shown
from mclabel.core.errors import DataError
from mclabel.core.records import Completion, Problem
from mclabel.core.seeds import sampling_seed
from mclabel.engines import Policy
from mclabel.engines.base import never_fits
from mclabel.run.shards.journal import BlockJournal
from mclabel.run.shards.trees import StoredCost
from mclabel.search.base import ROOT, Expansion, Node, SearchMethod
from mclabel.search.config import STOPS, SearchSettings
from mclabel.search.scorers import Beginning, StepScorer
from mclabel.search.tree import GrowingPiece, Piece, Purse, SearchTree, completion_line

T = TypeVar("T")

WHOLE = -1
"""Part number of a continuation that is sampled to the end of the solution in one request."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Result of the search of one problem."""

    tree: SearchTree
    weights: Mapping[str, float]
    """Weight in a vote of each finished solution, by id."""
    cost: StoredCost
    is_spent: bool
    """True if the limit of tokens ended the search."""


@dataclass(frozen=True, kw_only=True)
class Searching:
    """State shared by all problems on one engine."""

    policy: Policy
    """The started instance."""
    scorer: StepScorer
    """The started instance."""
    settings: SearchSettings
    ends: tuple[str, ...] = ()
    """Texts with which the policy ends a solution, beside its end tokens."""
    max_tokens: int | None = None
    """Maximum number of tokens in a solution; None is what the policy allows."""


async def search_problem(
    problem: Problem,
    shared: Searching,
    *,
    priority: int = 0,
    journal: BlockJournal | None = None,
) -> Found:
    """Search for solutions to one problem.

    Args:
        problem: the problem; only a scorer that knows the truth reads its gold answer.
        shared: state shared by all problems on the engine.
        priority: priority of this problem's completions in the engine, lower first.
        journal: completions of earlier attempts; receives those of this attempt.

    Raises:
        EngineError: the engine died.
        DataError: the problem leaves no room for a solution, or cannot be scored.
    """
    return await ProblemSearch(problem, shared, priority=priority, journal=journal).run()


class ProblemSearch:
    """The search of one problem, as `search_problem` runs it."""

    def __init__(
        self,
        problem: Problem,
        shared: Searching,
        *,
        priority: int = 0,
        journal: BlockJournal | None = None,
    ) -> None:
        """Prepare to search; see `search_problem`."""
        settings, policy = shared.settings, shared.policy
        self._problem, self._shared, self._priority = problem, shared, priority
        self._journal = journal
        self._policy, self._settings = policy, settings
        if (size := never_fits(len(problem.text), policy)) is not None:
            raise DataError(f"problem {problem.id}: its text has {size}, which the policy takes")
        self._prompt = policy.prompt_ids(problem.text)
        self._most = self._room(0)
        if self._most < 1:
            raise DataError(
                f"problem {problem.id}: its prompt of {len(self._prompt):,} tokens leaves no room "
                "for a solution"
            )
        self.tree = SearchTree()
        self.method: SearchMethod = guarded(
            SearchMethod,
            settings.search,
            self.tree.nodes[ROOT].node,
            seed=sampling_seed(settings.seed, problem.id, "method", 0),
            rules={"wanted": self._unwanted, "result": self._unfinished},
            slow=False,
        )
        reserve = 0 if settings.tokens is None else min(self._most, settings.tokens)
        self._reserve = reserve
        self._purse = Purse(None if settings.tokens is None else settings.tokens - reserve)
        self._num_asked: dict[str, int] = {}
        self._scoring: dict[str, asyncio.Future[Node]] = {}
        self._cost = StoredCost(num_prompt=len(self._prompt))
        self._is_spent = False

    async def run(self) -> Found:
        """Serve the method until it requests nothing more."""
        running: set[asyncio.Task[tuple[str, Node] | None]] = set()
        try:
            while True:
                if not self._is_spent:
                    running |= {
                        _silent(
                            asyncio.create_task(self._continued(expansion.node, expansion.steps))
                        )
                        for expansion in self.method.wanted()
                        for _ in range(expansion.count)
                    }
                if not running:
                    break
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if (arrived := task.result()) is not None:
                        self.method.record(*arrived)
        finally:
            for task in running:
                task.cancel()
        weights = {name: float(weight) for name, weight in self.method.result().items()}
        if not weights:
            weights = await self._finish_one()
        return Found(
            tree=self.tree,
            weights=weights,
            cost=self._whole_cost(weights),
            is_spent=self._is_spent,
        )

    def _unwanted(self, expansions: Sequence[Expansion]) -> str | None:
        for expansion in expansions:
            if (
                expansion.node not in self.tree.nodes
                or not self.tree.nodes[expansion.node].node.is_open
            ):
                rule = "must name a node that was recorded and is open"
                return f"wants to continue {shown(expansion.node)}, {rule}"
        return None

    def _unfinished(self, weights: Mapping[str, float]) -> str | None:
        for name in weights:
            if name not in self.tree.nodes or not self.tree.nodes[name].node.is_finished:
                return f"gave {shown(name)}, must give ids of finished solutions alone"
        return None

    async def _continued(self, parent: str, steps: int | None) -> tuple[str, Node] | None:
        """Continue a prefix once; return None if the limit of tokens does not allow it."""
        number = self._num_asked.get(parent, 0)
        self._num_asked[parent] = number + 1
        if (piece := await self.sampled(parent, number, steps)) is None:
            return None
        entry, is_new = self.tree.add(parent, piece)
        if not is_new:
            repeated = self._cost.num_repeated + piece.num_sampled
            self._cost = replace(self._cost, num_repeated=repeated)
        name = entry.node.id
        if name not in self._scoring:
            self._scoring[name] = asyncio.ensure_future(self.scored(parent, name))
        return parent, await self._scoring[name]

    async def _finish_one(self) -> dict[str, float]:
        """Finish the best prefix of a search that has ended without a solution."""
        open_nodes = [entry.node for entry in self.tree.nodes.values() if entry.node.is_open]
        best = max(open_nodes, key=lambda node: (self.method.value(node), node.depth, node.id))
        if self._settings.tokens is not None:
            self._purse = Purse(self._reserve + int(self._purse.left))
        arrived = await self._continued(best.id, None)
        return {arrived[1].id: 1.0} if arrived is not None and arrived[1].is_finished else {}

    # Sampling

    async def sampled(self, parent: str, number: int, num_steps: int | None) -> Piece | None:
        """Sample some steps after a prefix; return None if the token limit is used up."""
        before = self.tree.ids(parent)
        splitter, steps = self._settings.split, 0
        fresh = GrowingPiece(self._policy.decode, start=len(before))
        stop = () if num_steps is None else STOPS[splitter.by]
        while True:
            room = self._room(len(before) + len(fresh.ids))
            if room < 1:
                return fresh.piece(is_finished=False, is_cut=True)
            place = WHOLE if num_steps is None else fresh.num_parts
            part = await self._part(parent, number, place, before + fresh.ids, room, stop)
            if part is None:
                self._is_spent = True
                return fresh.piece(is_finished=False, is_cut=True) if fresh.ids else None
            fresh.add(part, self._num_sampled(part))
            if part.finish_reason == "stop" and not part.at_stop:
                break
            if num_steps is None:
                break
            if not part.at_stop:  # the policy's room, or the limit of the problem's tokens
                return fresh.piece(is_finished=False, is_cut=True)
            steps += fresh.close_step(least=splitter.min_tokens)
            if steps == num_steps:
                return fresh.piece(is_finished=False, is_cut=False)
        if num_steps is None:
            fresh.split(splitter)
        is_finished = part.finish_reason == "stop" and not part.at_stop
        return fresh.piece(is_finished=is_finished, is_cut=not is_finished)

    def _room(self, num_prefix: int) -> int:
        room = int(self._policy.room(len(self._prompt), num_prefix))
        most = self._shared.max_tokens
        return room if most is None else max(0, min(room, most - num_prefix))

    async def _part(
        self,
        parent: str,
        number: int,
        part: int,
        prefix: tuple[int, ...],
        most: int,
        stop: tuple[str, ...],
    ) -> Completion | None:
        """Return a completion from the journal or the engine; None if the token limit is used
        up.
        """
        key = (self._problem.id, parent, number, part)
        recorded: Completion | None = None
        if self._journal is not None:
            recorded = self._journal.take(key)
        reserved = await self._purse.take(most if recorded is None else self._num_sampled(recorded))
        if reserved == 0:
            return None
        if recorded is not None:
            await self._purse.give_back(reserved, reserved)
            num_sampled = self._num_sampled(recorded)
            self._cost = replace(
                self._cost,
                num_sampled=self._cost.num_sampled + num_sampled,
                num_replayed=self._cost.num_replayed + num_sampled,
            )
            return recorded
        num_sampled = reserved
        try:
            completion = await self._policy.sample(
                self._prompt,
                prefix,
                seed=sampling_seed(
                    self._settings.seed, self._problem.id, f"search:{parent}:{part}", number
                ),
                priority=self._priority,
                max_tokens=len(prefix) + reserved,
                **({"stop": stop} if stop else {}),
            )
            num_sampled = self._num_sampled(completion)
        finally:
            await self._purse.give_back(reserved, num_sampled)
        self._cost = replace(
            self._cost,
            num_sampled=self._cost.num_sampled + num_sampled,
            num_requests=self._cost.num_requests + 1,
        )
        if self._journal is not None:
            self._journal.add(partial(completion_line, key, completion))
        return completion

    # Scoring

    async def scored(self, parent: str, name: str) -> Node:
        """Return the node with its scores; a dead end needs none."""
        entry, before = self.tree.nodes[name], self.tree.nodes[parent]
        if entry.node.is_cut:
            return entry.node
        if not entry.steps:
            return self.tree.scored(name, before.node.scores, before.kept)
        scored = await self._shared.scorer.score(
            Beginning(
                problem=self._problem,
                steps=self.tree.steps(name),
                ids=self.tree.ids(name),
                num_new=len(entry.steps),
                parent=before.kept,
            )
        )
        self._cost = replace(
            self._cost,
            num_scored=self._cost.num_scored + scored.num_computed,
            num_score_cached=self._cost.num_score_cached + scored.num_cached,
        )
        return self.tree.scored(name, scored.scores, scored.kept)

    def _whole_cost(self, weights: Mapping[str, float]) -> StoredCost:
        used = {part.node.id for name in weights for part in self.tree.path(name)}
        num_used = sum(self.tree.nodes[name].num_sampled for name in used)
        for entry in self.tree.sampled():
            entry.kept = None  # free the scorer's cache
        return replace(self._cost, num_pruned=self._cost.num_sampled - num_used)

    def _num_sampled(self, completion: Completion) -> int:
        """Return the number of sampled tokens, including an end token, which the ids lack."""
        by_text = completion.at_stop or any(text in completion.text for text in self._shared.ends)
        return len(completion.ids) + (completion.finish_reason == "stop" and not by_text)


def _silent(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Return a task whose error is not logged if another error has already ended the search."""
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task
