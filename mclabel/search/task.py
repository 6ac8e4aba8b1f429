"""The task of a search: its items are problems, and its blocks write trees and solutions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mclabel.checkers import Checker, GradeItem, make_checker
from mclabel.core.errors import BadAnswer, DataError, RejectReason
from mclabel.core.records import Counts, LabeledSolution, Outcome, Problem, Solution
from mclabel.core.seeds import content_id
from mclabel.engines import Policy
from mclabel.labeling.grading import graded
from mclabel.labeling.inputs import ProblemItem
from mclabel.labeling.labeled import Sampling, unrolled_solutions
from mclabel.labeling.task import LabelOutputs
from mclabel.prm.scoring.aggregate import aggregate
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.journal import JournalEntry, Line
from mclabel.run.shards.labels import commit_block
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import (
    StoredNode,
    StoredTree,
    delete_trees,
    sweep_trees,
    write_trees,
)
from mclabel.run.task import Attempt, Commit, FinishedBlock, RunnerState, TaskWords
from mclabel.search.config import Choice, SearchSettings
from mclabel.search.problem import Found, Searching, search_problem
from mclabel.search.scorers import make_scorer
from mclabel.search.tree import read_entry


@dataclass(frozen=True)
class SearchOutputs(LabelOutputs):
    """Outputs of a search: trees, and solutions in labels shards."""

    words = TaskWords(
        item="problem",
        items="problems",
        content="text or gold",
        done="searched",
        block_setting="block_problems",
        same_text=LabelOutputs.words.same_text,
        counters={
            "num_solutions": 0,
            "num_requests": 0,
            "num_prefill_tokens": 0,
            "num_cached_tokens": None,
            "num_preemptions": 0,
            "num_scored_tokens": 0,
        },
        gauges=("kv_usage",),
        rates={"num_requests": "steps"},
        shown_counters={"num_solutions": "solutions", "num_preemptions": "preempted"},
        shown_shares={"kv_usage": "KV", "cache_hits": "cache"},
    )

    def sweep(self, store: Store) -> None:
        """Remove the trees of attempts that did not commit first."""
        super().sweep(store)
        sweep_trees(store)


SEARCH_OUTPUTS = SearchOutputs()


@dataclass(frozen=True, kw_only=True)
class Searched:
    """Result of the search of one problem, as the block stores it."""

    tree: StoredTree | None = None
    labeled: tuple[LabeledSolution, ...] = ()
    num_tokens: int = 0
    set_aside: RejectReason | None = None
    """Reason why the problem has no solution; None if it has one."""


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """Task that searches for solutions to problems."""

    make_policy: Callable[[], Policy]
    """Makes the policy; called on each worker."""
    settings: SearchSettings
    ends: tuple[str, ...]
    """Texts with which the policy ends a solution."""
    provenance: Mapping[str, Any]
    """Metadata of every shard."""
    strict: bool = False
    """True if a problem that cannot be searched is an error."""

    @property
    def outputs(self) -> SearchOutputs:
        """Outputs of a search."""
        return SEARCH_OUTPUTS

    def runner(self, store: Store) -> SearchRunner:
        """Return the runner of the task on one engine and one scorer."""
        return SearchRunner(self, store)

    def read_entry(self, line: Line) -> JournalEntry:
        """Return the completion in a line of a journal."""
        return read_entry(line)


class SearchRunner:
    """Runner of searches with one policy and one scorer (`mclabel.run.task`)."""

    def __init__(self, task: SearchTask, store: Store) -> None:
        """Prepare to search; `start` loads policy and scorer.

        Args:
            task: the task to run.
            store: store of the run.
        """
        self._task, self._store = task, store
        self._policy = task.make_policy()
        self._scorer = make_scorer(task.settings.scorer)
        self._checker = make_checker(task.settings.checker)
        self._executor = CpuExecutor()
        self._counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Load the policy, then the scorer."""
        await self._policy.start()
        await self._scorer.start()
        self._shared = Searching(
            policy=self._policy,
            scorer=self._scorer,
            settings=self._task.settings,
            ends=self._task.ends,
        )

    async def begin(self, attempt: Attempt) -> None:
        """Do nothing, since blocks are independent."""

    async def run(self, item: ProblemItem, attempt: Attempt) -> Searched:
        """Search one problem, and grade its solutions."""
        problem = item.problem
        try:
            search_result = await search_problem(
                problem,
                self._shared,
                priority=attempt.block.priority,
                journal=attempt.journal,
            )
        except (DataError, BadAnswer) as error:
            if self._task.strict:
                raise
            return Searched(set_aside=RejectReason("not_searched", str(error)))
        prompt = self._policy.prompt_ids(problem.text)
        searched = await graded_search(
            problem, prompt, search_result, self._task.settings, self._checker, self._executor
        )
        if not attempt.is_trial:
            self._counts["requests"] += search_result.cost.num_requests
            self._counts["scored"] += search_result.cost.num_scored
            self._counts["solutions"] += len(searched.labeled)
        return searched

    def commit(self, finished: FinishedBlock) -> Commit:
        """Write the block's trees, then its solutions, which commit the block."""
        results: list[Searched] = [result for _, result in finished.results]
        block, attempt = finished.block.id, finished.attempt
        trees = [result.tree for result in results if result.tree is not None]
        write_trees(self._store, block, attempt, trees, self._task.provenance)
        labeled = [row for result in results for row in result.labeled]
        won = commit_block(
            self._store,
            block,
            attempt,
            labeled,
            None,
            self._task.provenance,
            set_aside={name: asdict(why) for name, why in finished.set_aside.items()},
            cost={"num_tokens": finished.num_tokens, "num_rollouts": 0},
        )
        if not won:
            delete_trees(self._store, block, attempt)
        return Commit(won=won, counts={"num_solutions": len(labeled)})

    def state(self) -> RunnerState:
        """Return the state of the engine, and the counts of solutions and requests."""
        stats = self._policy.stats()
        return RunnerState(
            num_live=stats.num_live,
            max_live=stats.max_live,
            num_waiting=stats.num_waiting,
            num_tokens=stats.num_sampled_tokens,
            num_signs=stats.num_signs,
            counters={
                "num_solutions": self._counts["solutions"],
                "num_requests": self._counts["requests"],
                "num_prefill_tokens": stats.num_prefill_tokens,
                "num_cached_tokens": stats.num_cached_tokens,
                "num_preemptions": stats.num_preemptions,
                "num_scored_tokens": self._counts["scored"],
            },
            gauges={"kv_usage": stats.kv_usage},
            is_steady=stats.counts_as_sampled,
        )

    async def close(self) -> None:
        """Free policy and scorer."""
        self._executor.close()
        await self._scorer.close()
        await self._policy.close()


async def graded_search(
    problem: Problem,
    prompt: tuple[int, ...],
    search_result: Found,
    settings: SearchSettings,
    checker: Checker,
    executor: CpuExecutor,
) -> Searched:
    """Grade the results of a search, and choose the best.

    The solutions become rows, the chosen one first, then by score. They are marked as chosen, since
    their outcomes are no evidence of the policy's chance.
    """
    tree, names = (
        search_result.tree,
        sorted(search_result.weights),
    )  # sorted, so that the order of arrival cannot break ties
    texts = {name: "".join(step.text for step in tree.steps(name)) for name in names}
    items = [GradeItem(problem=problem, completion=texts[name]) for name in names]
    grades = [
        graded(grade) for grade in (await checker.grade(items, executor.run) if items else ())
    ]
    scores = [_score(search_result, name, settings) for name in names]
    predictions = [grade.prediction for grade in grades]
    groups = (await executor.run(checker.group, [predictions]))[0] if names else []
    results = [
        Finished(score=score, weight=search_result.weights[name], group=group)
        for name, score, group in zip(names, scores, groups, strict=True)
    ]
    chosen = choose(results, settings.choose) if results else None
    stored = {
        name: {
            "weight": search_result.weights[name],
            "score": result.score,
            "outcome": grade.outcome.value,
            "prediction": grade.prediction,
            "group": result.group,
        }
        for name, result, grade in zip(names, results, grades, strict=True)
    }
    order = sorted(range(len(names)), key=lambda i: (i != chosen, -scores[i], names[i]))
    solutions = [
        Solution(
            id=content_id("solution", problem.id, rank),
            problem_id=problem.id,
            sample_index=rank,
            text=texts[names[i]],
            ids=tree.ids(names[i]),
            steps=tree.steps(names[i]),
            finish_reason="stop",
            origin="searched",
            prediction=grades[i].prediction,
            outcome=grades[i].outcome,
        )
        for rank, i in enumerate(order)
    ]
    num_right = sum(grade.outcome is Outcome.RIGHT for grade in grades)
    sampling = Sampling(
        siblings=Counts(),
        num_sampled=len(names),
        num_sampled_right=num_right,
        chosen_by_outcome=True,
    )
    return Searched(
        tree=_stored(problem, search_result, stored, None if chosen is None else names[chosen]),
        labeled=tuple(unrolled_solutions(problem, prompt, solutions, sampling)),
        num_tokens=search_result.cost.num_sampled,
    )


def _score(search_result: Found, name: str, settings: SearchSettings) -> float:
    scores = search_result.tree.nodes[name].node.scores
    return aggregate(scores, settings.search.aggregate) if scores else 0.0


def _stored(
    problem: Problem,
    search_result: Found,
    results: Mapping[str, dict[str, Any]],
    chosen: str | None,
) -> StoredTree:
    nodes = []
    for entry in sorted(
        search_result.tree.sampled(), key=lambda entry: (entry.node.depth, entry.node.id)
    ):
        node = entry.node
        assert node.parent is not None
        nodes.append(
            StoredNode(
                id=node.id,
                parent=node.parent,
                depth=node.depth,
                num_tokens=node.num_tokens,
                steps=tuple(step.text for step in entry.steps),
                scores=node.scores,
                count=entry.count,
                num_sampled=entry.num_sampled,
                is_finished=node.is_finished,
                is_cut=node.is_cut,
                **results.get(node.id, {}),
            )
        )
    return StoredTree(
        problem_id=problem.id,
        problem=problem.text,
        answer=problem.answer,
        meta=problem.meta,
        nodes=tuple(nodes),
        chosen=chosen,
        is_spent=search_result.is_spent,
        cost=search_result.cost,
    )


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Finished solution, as a candidate for the result."""

    score: float
    """Aggregate of the scores of its steps."""
    weight: float
    """Weight of the solution in a vote."""
    group: int | None
    """Number shared by equivalent answers; None without an answer."""


def choose(finished: Sequence[Finished], how: Choice) -> int:
    """Return the index of the chosen solution.

    Solutions without an answer are chosen only if none has one. Ties go to the larger weight, then
    to the first.

    Args:
        finished: finished solutions, at least one.
        how: rule of the choice (`Choice`). A weighted vote sums the scores, so it needs an
            aggregation within [0, 1].
    """
    numbers = [i for i, solution in enumerate(finished) if solution.group is not None]
    numbers = numbers or list(range(len(finished)))
    if how != "best":
        votes: dict[int | None, float] = defaultdict(float)
        for i in numbers:
            solution = finished[i]
            votes[solution.group] += solution.weight * (
                solution.score if how == "weighted_vote" else 1.0
            )
        won = max(votes, key=lambda group: (votes[group], -(group or 0)))
        numbers = [i for i in numbers if finished[i].group == won]
    return max(numbers, key=lambda i: (finished[i].score, finished[i].weight, -i))
