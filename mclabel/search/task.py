"""Task of a search job, which workers run block by block. An item of a block is a problem; its
results are a search tree and finished solutions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mclabel.checkers import Checker, GradeItem, make_checker
from mclabel.core.errors import DataError, RejectReason, UnusableResponse
from mclabel.core.records import Counts, LabeledSolution, Outcome, Problem, Solution
from mclabel.core.seeds import content_id
from mclabel.engines import Policy
from mclabel.labeling.grading import to_grade_record
from mclabel.labeling.inputs import ProblemItem
from mclabel.labeling.labeled import SamplingFacts, label_by_outcome
from mclabel.labeling.task import LabelOutputReader
from mclabel.prm.scoring.aggregate import aggregate
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.journal import JournalEntry, Line
from mclabel.run.shards.labels import commit_block
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import (
    StoredNode,
    StoredTree,
    delete_trees,
    delete_uncommitted_trees,
    write_trees,
)
from mclabel.run.task import Attempt, FinishedBlock, RunnerState, TaskWords
from mclabel.search.config import Choice, SearchSettings
from mclabel.search.problem import SearchContext, SearchResult, search_problem
from mclabel.search.scorers import make_scorer
from mclabel.search.tree import read_entry


@dataclass(frozen=True)
class SearchOutputReader(LabelOutputReader):
    """Reader of the outputs of a search job: search trees, and solutions in labels shards."""

    words = TaskWords(
        item="problem",
        items="problems",
        content="text or gold",
        done="searched",
        block_setting="block_problems",
        same_text=LabelOutputReader.words.same_text,
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

    def delete_uncommitted_files(self, store: Store) -> None:
        """Remove the trees of attempts whose block was committed by another attempt."""
        super().delete_uncommitted_files(store)
        delete_uncommitted_trees(store)


SEARCH_OUTPUTS = SearchOutputReader()


@dataclass(frozen=True, kw_only=True)
class ProblemResult:
    """Result of one problem's search, in the form that a block stores."""

    tree: StoredTree | None = None
    """Tree of the search; None if the problem could not be searched."""
    labeled: tuple[LabeledSolution, ...] = ()
    """Finished solutions, the chosen one first."""
    num_tokens: int = 0
    """Number of sampled tokens."""
    set_aside: RejectReason | None = None
    """Reason why the problem is set aside without a search; None if it was searched."""


@dataclass(frozen=True, kw_only=True)
class SearchTask:
    """Task that searches for solutions to problems; see `mclabel.run.task` for its interface."""

    make_policy: Callable[[], Policy]
    """Function that makes the policy; it is called on each worker."""
    settings: SearchSettings
    end_texts: tuple[str, ...]
    """Texts that end a solution (`policy.stop`)."""
    provenance: Mapping[str, Any]
    """Metadata of every shard."""
    strict: bool = False
    """True if a problem that cannot be searched is an error; False to list it among the rejects."""

    @property
    def outputs(self) -> SearchOutputReader:
        """Reader of the outputs of a search job."""
        return SEARCH_OUTPUTS

    def runner(self, store: Store) -> SearchRunner:
        """Return a runner with its own engine and scorer."""
        return SearchRunner(self, store)

    def read_entry(self, line: Line) -> JournalEntry:
        """Return the completion in a journal line."""
        return read_entry(line)


class SearchRunner:
    """Runs searches on a worker, with one policy and one scorer; implements `Runner`."""

    def __init__(self, task: SearchTask, store: Store) -> None:
        """Make policy and scorer without loading anything.

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
        self._shared = SearchContext(
            policy=self._policy,
            scorer=self._scorer,
            settings=self._task.settings,
            end_texts=self._task.end_texts,
        )

    async def begin(self, attempt: Attempt) -> None:
        """Do nothing, because blocks are independent."""

    async def run(self, item: ProblemItem, attempt: Attempt) -> ProblemResult:
        """Search one problem, and grade its solutions."""
        problem = item.problem
        try:
            search_result = await search_problem(
                problem,
                self._shared,
                priority=attempt.block.priority,
                journal=attempt.journal,
            )
        except (DataError, UnusableResponse) as error:
            if self._task.strict:
                raise
            return ProblemResult(set_aside=RejectReason("not_searched", str(error)))
        prompt = self._policy.prompt_ids(problem.text)
        searched = await grade_search_result(
            problem, prompt, search_result, self._task.settings, self._checker, self._executor
        )
        if not attempt.is_trial:
            self._counts["requests"] += search_result.cost.num_requests
            self._counts["scored"] += search_result.cost.num_scored
            self._counts["solutions"] += len(searched.labeled)
        return searched

    def commit(self, finished: FinishedBlock) -> dict[str, int]:
        """Write the block's trees, then its solutions. Writing the solutions commits the block."""
        results: list[ProblemResult] = [result for _, result in finished.results]
        block, attempt = finished.block.id, finished.attempt
        trees = [result.tree for result in results if result.tree is not None]
        write_trees(self._store, block, attempt, trees, self._task.provenance)
        labeled = [row for result in results for row in result.labeled]
        is_stored = commit_block(
            self._store,
            block,
            attempt,
            labeled,
            None,
            self._task.provenance,
            set_aside={name: asdict(why) for name, why in finished.set_aside.items()},
            cost={"num_tokens": finished.num_tokens, "num_rollouts": 0},
        )
        if not is_stored:
            delete_trees(self._store, block, attempt)
        return {"num_solutions": len(labeled)}

    def state(self) -> RunnerState:
        """Return the state of the engine, and the counts of solutions and requests."""
        stats = self._policy.stats()
        return RunnerState(
            num_live=stats.num_live,
            max_live=stats.max_live,
            num_waiting=stats.num_waiting,
            num_tokens=stats.num_sampled_tokens,
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


async def grade_search_result(
    problem: Problem,
    prompt: tuple[int, ...],
    search_result: SearchResult,
    settings: SearchSettings,
    checker: Checker,
    executor: CpuExecutor,
) -> ProblemResult:
    """Grade the finished solutions of a search, and choose the result.

    The solutions become labelled rows: first the chosen solution, then the others by decreasing
    score. The rows are marked as chosen, because a search selects solutions. Their outcomes are
    therefore no estimate of the policy's success rate.

    Args:
        problem: the problem.
        prompt: token ids of the problem's prompt.
        search_result: result of the search.
        settings: settings of the search.
        checker: checker that grades the solutions.
        executor: executor that runs the checker.
    """
    tree = search_result.tree
    names = sorted(search_result.weights)  # so that ties do not depend on the order of arrival
    texts = {name: "".join(step.text for step in tree.steps(name)) for name in names}
    items = [GradeItem(problem=problem, completion=texts[name]) for name in names]
    grades = [
        to_grade_record(grade)
        for grade in (await checker.grade(items, executor.run) if items else ())
    ]
    scores_by_node = [tree.nodes[name].node.scores for name in names]
    scores = [aggregate(s, settings.search.aggregate) if s else 0.0 for s in scores_by_node]
    groups = (
        (await executor.run(checker.group, [[grade.prediction for grade in grades]]))[0]
        if names
        else []
    )
    results = [
        FinishedSolution(score=score, weight=search_result.weights[name], group=group)
        for name, score, group in zip(names, scores, groups, strict=True)
    ]
    chosen = choose_solution(results, settings.choose) if results else None
    chosen_name = None if chosen is None else names[chosen]
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
    sampling = SamplingFacts(
        first_batch_counts=Counts(),
        num_sampled=len(names),
        num_sampled_right=sum(grade.outcome is Outcome.RIGHT for grade in grades),
        chosen_by_outcome=True,
    )
    return ProblemResult(
        tree=_build_stored_tree(problem, search_result, stored, chosen_name),
        labeled=tuple(label_by_outcome(problem, prompt, solutions, sampling)),
        num_tokens=search_result.cost.num_sampled,
    )


def _build_stored_tree(
    problem: Problem,
    search_result: SearchResult,
    results: Mapping[str, dict[str, Any]],
    chosen: str | None,
) -> StoredTree:
    nodes = []
    for entry in sorted(
        search_result.tree.sampled_nodes(), key=lambda entry: (entry.node.depth, entry.node.id)
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
class FinishedSolution:
    """Finished solution that is a candidate for the result."""

    score: float
    """Aggregated score of the solution's steps."""
    weight: float
    """Weight of the solution in a vote."""
    group: int | None
    """Number that identifies the solution's answer; equivalent answers have the same number. None
    if the solution has no answer."""


def choose_solution(finished: Sequence[FinishedSolution], rule: Choice) -> int:
    """Return the 0-based index of the chosen solution.

    A solution without an answer is chosen only if no solution has an answer. Ties go to the larger
    weight, then to the lower index.

    Args:
        finished: finished solutions, at least one.
        rule: rule of the choice (`Choice`). A weighted vote sums the scores, so the aggregated
            scores must be in [0, 1].
    """
    numbers = [i for i, solution in enumerate(finished) if solution.group is not None]
    numbers = numbers or list(range(len(finished)))
    if rule != "best":
        votes: dict[int | None, float] = defaultdict(float)
        for i in numbers:
            solution = finished[i]
            votes[solution.group] += solution.weight * (
                solution.score if rule == "weighted_vote" else 1.0
            )
        won = max(votes, key=lambda group: (votes[group], -(group or 0)))
        numbers = [i for i in numbers if finished[i].group == won]
    return max(numbers, key=lambda i: (finished[i].score, finished[i].weight, -i))
