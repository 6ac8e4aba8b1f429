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

from mclabel.core.boundary import describe_value, make_guarded
from mclabel.core.errors import DataError
from mclabel.core.records import Completion, Problem
from mclabel.core.seeds import derive_sampling_seed
from mclabel.engines import Policy
from mclabel.engines.base import describe_oversized_text
from mclabel.run.shards.journal import BlockJournal
from mclabel.run.shards.trees import StoredCost
from mclabel.search.base import ROOT, Expansion, Node, SearchMethod
from mclabel.search.config import STOPS, SearchSettings
from mclabel.search.scorers import Beginning, StepScorer
from mclabel.search.tree import (
    Continuation,
    ContinuationBuilder,
    SearchTree,
    TokenBudget,
    make_completion_line,
)

T = TypeVar("T")

WHOLE = -1
"""Index, in place of a number from 0, of the only completion of a continuation that is sampled to
the end of the solution."""


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """Result of the search of one problem."""

    tree: SearchTree
    """All sampled nodes."""
    weights: Mapping[str, float]
    """Maps the id of a finished solution to its weight in a vote."""
    cost: StoredCost
    is_spent: bool
    """True if the token limit ended the search."""


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """State shared by all problems on one engine."""

    policy: Policy
    """The policy, already started."""
    scorer: StepScorer
    """The scorer, already started."""
    settings: SearchSettings
    end_texts: tuple[str, ...] = ()
    """Texts that end a solution, in addition to end tokens (`policy.stop`)."""
    max_tokens: int | None = None
    """Maximum number of tokens in a solution; None uses the limits of the policy."""


async def search_problem(
    problem: Problem,
    context: SearchContext,
    *,
    priority: int = 0,
    journal: BlockJournal | None = None,
) -> SearchResult:
    """Search for solutions to one problem.

    Args:
        problem: the problem. Its gold answer is used only by the scorer `exact`.
        context: state shared by all problems on the engine.
        priority: priority of this problem's completions in the engine; lower numbers go first.
        journal: journal with the completions of earlier attempts, to which new completions are
            added; None uses no journal.

    Raises:
        EngineError: the engine has died.
        DataError: the problem leaves no room for a solution, or cannot be scored.
    """
    return await ProblemSearch(problem, context, priority=priority, journal=journal).run()


class ProblemSearch:
    """State of the search of one problem. `search_problem` makes and runs it."""

    def __init__(
        self,
        problem: Problem,
        context: SearchContext,
        *,
        priority: int = 0,
        journal: BlockJournal | None = None,
    ) -> None:
        """Prepare to search. The arguments are those of `search_problem`."""
        settings, policy = context.settings, context.policy
        self._problem, self._context, self._priority = problem, context, priority
        self._journal = journal
        self._policy, self._settings = policy, settings
        if (size := describe_oversized_text(len(problem.text), policy)) is not None:
            raise DataError(
                f"problem {problem.id}: its text has {size}, which is the policy's limit"
            )
        self._prompt = policy.prompt_ids(problem.text)
        self._most = self._count_remaining_tokens(0)
        if self._most < 1:
            raise DataError(
                f"problem {problem.id}: its prompt of {len(self._prompt):,} tokens leaves no room "
                "for a solution"
            )
        self.tree = SearchTree()
        self.method: SearchMethod = make_guarded(
            SearchMethod,
            settings.search,
            self.tree.nodes[ROOT].node,
            seed=derive_sampling_seed(settings.seed, problem.id, "method", 0),
            rules={"wanted": self._describe_expansion_fault, "result": self._find_result_fault},
            slow=False,
        )
        reserve = 0 if settings.tokens is None else min(self._most, settings.tokens)
        self._reserve = reserve
        self._token_budget = TokenBudget(
            None if settings.tokens is None else settings.tokens - reserve
        )
        self._num_asked: dict[str, int] = {}
        self._scoring: dict[str, asyncio.Future[Node]] = {}
        self._cost = StoredCost(num_prompt=len(self._prompt))
        self._is_spent = False

    async def run(self) -> SearchResult:
        """Sample the expansions that the method requests, until it requests no more."""
        running: set[asyncio.Task[tuple[str, Node] | None]] = set()
        try:
            while True:
                if not self._is_spent:
                    running |= {
                        _mark_task_error_as_read(
                            asyncio.create_task(
                                self._sample_and_score_node(expansion.node, expansion.steps)
                            )
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
            weights = await self._sample_best_prefix_to_end()
        return SearchResult(
            tree=self.tree,
            weights=weights,
            cost=self._compute_final_cost(weights),
            is_spent=self._is_spent,
        )

    def _describe_expansion_fault(self, expansions: Sequence[Expansion]) -> str | None:
        for expansion in expansions:
            if (
                expansion.node not in self.tree.nodes
                or not self.tree.nodes[expansion.node].node.is_open
            ):
                rule = "must name a node that was recorded and is open"
                return f"requested to continue {describe_value(expansion.node)}, {rule}"
        return None

    def _find_result_fault(self, weights: Mapping[str, float]) -> str | None:
        for name in weights:
            if name not in self.tree.nodes or not self.tree.nodes[name].node.is_finished:
                return f"gave {describe_value(name)}, must give only ids of finished solutions"
        return None

    async def _sample_and_score_node(
        self, parent: str, max_steps: int | None
    ) -> tuple[str, Node] | None:
        """Sample and score one continuation of a prefix.

        Args:
            parent: id of the node to continue.
            max_steps: maximum number of steps; None samples to the end of the solution.

        Returns:
            The parent's id and the scored node; None if the token limit allows no continuation.
        """
        number = self._num_asked.get(parent, 0)
        self._num_asked[parent] = number + 1
        if (continuation := await self.sample_continuation(parent, number, max_steps)) is None:
            return None
        entry, is_new = self.tree.add(parent, continuation)
        if not is_new:
            self._cost = replace(
                self._cost, num_repeated=self._cost.num_repeated + continuation.num_sampled
            )
        name = entry.node.id
        if name not in self._scoring:
            self._scoring[name] = asyncio.ensure_future(self.score_node(parent, name))
        return parent, await self._scoring[name]

    async def _sample_best_prefix_to_end(self) -> dict[str, float]:
        """Sample the best prefix to its end, for a search that has no finished solution.

        Return the weight of the solution by its id, or no weight if the solution was cut.
        """
        open_nodes = [entry.node for entry in self.tree.nodes.values() if entry.node.is_open]
        best = max(open_nodes, key=lambda node: (self.method.value(node), node.depth, node.id))
        if self._settings.tokens is not None:
            self._token_budget = TokenBudget(self._reserve + int(self._token_budget.left))
        arrived = await self._sample_and_score_node(best.id, None)
        return {arrived[1].id: 1.0} if arrived is not None and arrived[1].is_finished else {}

    # Sampling

    async def sample_continuation(
        self, parent: str, continuation_index: int, max_steps: int | None
    ) -> Continuation | None:
        """Sample one continuation of a prefix.

        Args:
            parent: id of the node to continue.
            continuation_index: 0-based index of the continuation among those of the node.
            max_steps: maximum number of steps; None samples to the end of the solution.

        Returns:
            The continuation; None if the token limit is used up.
        """
        before = self.tree.ids(parent)
        splitter, steps = self._settings.split, 0
        fresh = ContinuationBuilder(self._policy.decode, start=len(before))
        stop = () if max_steps is None else STOPS[splitter.by]
        while True:
            room = self._count_remaining_tokens(len(before) + len(fresh.ids))
            if room < 1:
                return fresh.build(is_finished=False, is_cut=True)
            place = WHOLE if max_steps is None else fresh.num_parts
            part = await self._fetch_completion(
                parent, continuation_index, place, before + fresh.ids, room, stop
            )
            if part is None:
                self._is_spent = True
                return fresh.build(is_finished=False, is_cut=True) if fresh.ids else None
            fresh.add(part, self._count_sampled_tokens(part))
            if part.finish_reason == "stop" and not part.at_stop:
                break
            if max_steps is None:
                break
            if not part.at_stop:  # a limit of the policy or of the problem's tokens is reached
                return fresh.build(is_finished=False, is_cut=True)
            steps += fresh.close_step(min_tokens=splitter.min_tokens)
            if steps == max_steps:
                return fresh.build(is_finished=False, is_cut=False)
        if max_steps is None:
            fresh.split_into_steps(splitter)
        is_finished = part.finish_reason == "stop" and not part.at_stop
        return fresh.build(is_finished=is_finished, is_cut=not is_finished)

    def _count_remaining_tokens(self, num_prefix: int) -> int:
        room = int(self._policy.room(len(self._prompt), num_prefix))
        most = self._context.max_tokens
        return room if most is None else max(0, min(room, most - num_prefix))

    async def _fetch_completion(
        self,
        parent: str,
        continuation_index: int,
        part_index: int,
        prefix: tuple[int, ...],
        max_new_tokens: int,
        stop: tuple[str, ...],
    ) -> Completion | None:
        """Return one completion of a continuation, from the journal or from the engine.

        Args:
            parent: id of the continued node.
            continuation_index: 0-based index of the continuation among those of the node.
            part_index: 0-based index of the completion in the continuation, or `WHOLE`.
            prefix: token ids of the solution before the completion.
            max_new_tokens: maximum number of new tokens.
            stop: texts that end a step.

        Returns:
            The completion; None if the problem's token limit is used up.
        """
        key = (self._problem.id, parent, continuation_index, part_index)
        recorded: Completion | None = None
        if self._journal is not None:
            recorded = self._journal.take(key)
        reserved = await self._token_budget.reserve(
            max_new_tokens if recorded is None else self._count_sampled_tokens(recorded)
        )
        if reserved == 0:
            return None
        if recorded is not None:
            await self._token_budget.release(reserved, reserved)
            num_sampled = self._count_sampled_tokens(recorded)
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
                seed=derive_sampling_seed(
                    self._settings.seed,
                    self._problem.id,
                    f"search:{parent}:{part_index}",
                    continuation_index,
                ),
                priority=self._priority,
                max_tokens=len(prefix) + reserved,
                **({"stop": stop} if stop else {}),
            )
            num_sampled = self._count_sampled_tokens(completion)
        finally:
            await self._token_budget.release(reserved, num_sampled)
        self._cost = replace(
            self._cost,
            num_sampled=self._cost.num_sampled + num_sampled,
            num_requests=self._cost.num_requests + 1,
        )
        if self._journal is not None:
            self._journal.add(partial(make_completion_line, key, completion))
        return completion

    # Scoring

    async def score_node(self, parent: str, node_id: str) -> Node:
        """Score a node, unless a token limit cut it, and return it with its scores.

        Args:
            parent: id of the node's parent.
            node_id: id of the node.
        """
        entry, before = self.tree.nodes[node_id], self.tree.nodes[parent]
        if entry.node.is_cut:
            return entry.node
        if not entry.steps:
            return self.tree.set_scores(node_id, before.node.scores, before.scorer_state)
        scored = await self._context.scorer.score(
            Beginning(
                problem=self._problem,
                steps=self.tree.steps(node_id),
                ids=self.tree.ids(node_id),
                num_new=len(entry.steps),
                parent=before.scorer_state,
            )
        )
        self._cost = replace(
            self._cost,
            num_scored=self._cost.num_scored + scored.num_computed,
            num_score_cached=self._cost.num_score_cached + scored.num_cached,
        )
        return self.tree.set_scores(node_id, scored.scores, scored.kept)

    def _compute_final_cost(self, weights: Mapping[str, float]) -> StoredCost:
        used = {part.node.id for name in weights for part in self.tree.path(name)}
        num_used = sum(self.tree.nodes[name].num_sampled for name in used)
        for entry in self.tree.sampled_nodes():
            entry.scorer_state = None  # free the scorer's cache
        return replace(self._cost, num_pruned=self._cost.num_sampled - num_used)

    def _count_sampled_tokens(self, completion: Completion) -> int:
        """Return the number of sampled tokens, including an end token that the ids lack."""
        by_text = completion.at_stop or any(
            text in completion.text for text in self._context.end_texts
        )
        return len(completion.ids) + (completion.finish_reason == "stop" and not by_text)


def _mark_task_error_as_read(task: asyncio.Task[T]) -> asyncio.Task[T]:
    """Mark a task's error as read, so that asyncio does not log it. Return the task.

    The error of another task may already have ended the search.
    """
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task
