"""One engine at work: labels blocks and commits them. The same in an actor and in-process."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from mclabel.checkers import make_checker
from mclabel.data.readers.rows import Fault
from mclabel.data.shards.labels import commit_block
from mclabel.data.shards.priors import read_priors
from mclabel.data.shards.rejects import note_set_aside
from mclabel.data.shards.store import Store
from mclabel.data.sizes import Size
from mclabel.engines import EngineStats, Policy
from mclabel.engines.gate import GatedPolicy
from mclabel.errors import ShardError
from mclabel.estimators import Knowledge, RunLearner
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.problem import (
    ProblemLabels,
    Shared,
    label_problem,
    run_learner,
)
from mclabel.labeling.settings import LabelSettings
from mclabel.records import GivenSolution, Outcome, Problem
from mclabel.work.attempt import BlockJournal
from mclabel.work.desk import Desk, LoopLag

logger = logging.getLogger(__name__)

T = TypeVar("T")

JOURNAL_S = 60.0
"""Between two flushes of the journals: what a kill costs of an engine's work."""
ADJUST_S = 0.5
"""Between two looks at the engine's memory."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """The unit of work: problems that are leased, labelled and committed together."""

    id: str
    """Hash of the problems, their given solutions and the semantic configuration."""
    problems: tuple[Problem, ...]
    given: Mapping[str, tuple[GivenSolution, ...]]
    """Given solutions by problem id."""
    priority: int
    """Position in the job; engines sample earlier blocks first."""


@dataclass(frozen=True, kw_only=True)
class BlockReport:
    """What one attempt at a block did."""

    block_id: str
    committed: bool
    """False: another attempt had committed the block before."""
    num_problems: int
    num_set_aside: int = 0
    """Of these, left out."""
    num_solutions: int
    num_rollouts: int
    """Those taken from a journal included."""
    num_tokens: int
    """Of all solutions and rollouts."""
    size: Size
    """Of the problems."""


@dataclass(frozen=True, kw_only=True)
class WorkerProgress:
    """A snapshot of a worker. Numbers count from when it was made."""

    worker: str
    """Unique to this incarnation of the worker."""
    num_problems: int = 0
    """Labelled, committed or not."""
    num_labeled_tokens: int = 0
    """Of these problems' solutions and rollouts, those taken from journals included."""
    num_open_tokens: int = 0
    """The same of the blocks under way, of problems that are not labelled yet, too."""
    num_steps: int = 0
    """Of these problems' solutions."""
    num_completions: int = 0
    """Sampled and graded."""
    num_truncated: int = 0
    num_ungraded: int = 0
    """Completions on which the checker has no verdict."""
    num_replayed: int = 0
    """Completions taken from journals."""
    loop_lag_s: float = 0.0
    """The longest time since the last snapshot that something held the event loop."""
    draining: bool = False
    """The worker's node is about to go: give it no more blocks."""
    engine: EngineStats


class LabelWorker:
    """Labels blocks on one policy and commits them to one store."""

    def __init__(
        self,
        *,
        make_policy: Callable[[], Policy],
        out: str,
        settings: LabelSettings,
        provenance: Mapping[str, Any],
        keep_rollouts: bool,
        journal_s: float = JOURNAL_S,
    ) -> None:
        """Args:
        make_policy: called by `start`, where the engine is to live.
        out: location of the run's store.
        settings: how problems are labelled.
        provenance: metadata of every shard.
        keep_rollouts: whether rollout texts are written.
        journal_s: seconds between two flushes of the journals.
        """
        self._make_policy, self._settings = make_policy, settings
        self._store = Store(out)
        self._provenance, self._keep_rollouts = provenance, keep_rollouts
        self._journal_s = journal_s
        self._id = uuid.uuid4().hex[:12]
        self._policy: GatedPolicy | None = None
        self._shared: Shared | None = None
        self._learner = run_learner(settings)
        self._fitting = asyncio.Lock()
        self._desk, self._lag = Desk(), LoopLag()
        self._decisions = Decisions(self._desk)
        self._known_knowledge: set[str] = set()
        self._journals: dict[str, BlockJournal] = {}
        self._beside: list[asyncio.Task[None]] = []
        self._under_way: set[asyncio.Task[Any]] = set()
        self._num_problems = self._num_steps = self._num_completions = 0
        self._num_truncated = self._num_ungraded = self._num_replayed = 0
        self._num_labeled_tokens = self._num_ended_tokens = self._num_replayed_tokens = 0
        self.draining = False
        """Whether the node is about to go."""

    async def start(self) -> None:
        """Load the engine."""
        policy = GatedPolicy(self._make_policy())
        await policy.start()
        self._policy = policy
        self._shared = Shared(
            policy=policy,
            settings=self._settings,
            checker=make_checker(self._settings.checker),
            desk=self._desk,
            decisions=self._decisions,
            learner=self._learner,
        )
        create = asyncio.get_running_loop().create_task
        self._beside = [
            create(self._lag.watch()),
            create(_every(ADJUST_S, policy.adjust)),
            create(_every(self._journal_s, self.flush_beside)),
        ]

    async def run_block(
        self,
        block: Block,
        *,
        replay: bool = False,
        set_aside: Mapping[str, Fault] | None = None,
    ) -> BlockReport:
        """Label a block and commit its shards.

        Args:
            block: to label.
            replay: whether earlier attempts may have left journals.
            set_aside: problems to leave out, by id.
        """
        left_out = set_aside or {}
        problems = [problem for problem in block.problems if problem.id not in left_out]
        async with self._attempt(block, replay=replay) as journal:
            labels = [self._label(problem, block, journal) for problem in problems]
            results = await _gather(labels)
            commit = partial(self._commit, block, journal.attempt, problems, results, left_out)
            report = await _whole(asyncio.to_thread(commit))
            self._num_ended_tokens += report.num_tokens
            if replay or journal.num_files:
                await asyncio.to_thread(journal.delete)
        return report

    async def try_problem(self, block: Block, problem_id: str) -> None:
        """Label one problem of a block into its journal, to see whether the engine survives it."""
        (problem,) = [problem for problem in block.problems if problem.id == problem_id]
        async with self._attempt(block, replay=True) as journal:
            await self._sample(problem, block, journal, learns=False)
            await asyncio.to_thread(journal.flush)

    async def give_up(self) -> None:
        """End the blocks under way: those being committed in full, the others with a flush."""
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    @asynccontextmanager
    async def _attempt(self, block: Block, *, replay: bool) -> AsyncIterator[BlockJournal]:
        """An attempt at a block: its journal, which is flushed if the attempt fails."""
        journal = BlockJournal(self._store, block.id, uuid.uuid4().hex[:12])
        self._journals[journal.attempt] = journal
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            if replay:
                await asyncio.to_thread(journal.read)
            if self._learner is not None:
                await asyncio.to_thread(self._adopt_knowledge, self._learner)
            yield journal
        except BaseException:
            journal.flush()
            raise
        finally:
            self._under_way.discard(task)
            del self._journals[journal.attempt]
            self._num_replayed += journal.num_replayed
            self._num_replayed_tokens += journal.num_replayed_tokens

    def flush(self) -> None:
        """Write down what the blocks under way have sampled. From any thread."""
        for journal in list(self._journals.values()):
            journal.flush()

    async def progress(self) -> WorkerProgress:
        """What has been done so far."""
        stats = self._policy.stats() if self._policy else EngineStats()
        replayed = self._num_replayed_tokens + sum(
            journal.num_replayed_tokens for journal in self._journals.values()
        )
        return WorkerProgress(
            worker=self._id,
            num_problems=self._num_problems,
            num_labeled_tokens=self._num_labeled_tokens,
            num_open_tokens=max(0, stats.num_sampled_tokens + replayed - self._num_ended_tokens),
            num_steps=self._num_steps,
            num_completions=self._num_completions,
            num_truncated=self._num_truncated,
            num_ungraded=self._num_ungraded,
            num_replayed=self._num_replayed
            + sum(journal.num_replayed for journal in self._journals.values()),
            loop_lag_s=self._lag.take(),
            draining=self.draining,
            engine=stats,
        )

    async def close(self) -> None:
        """Free the engine. Blocks under way must have been given up before."""
        for task in self._beside:
            task.cancel()
        self._desk.close()
        if self._policy is not None:
            await self._policy.close()

    async def _label(self, problem: Problem, block: Block, journal: BlockJournal) -> ProblemLabels:
        result = await self._sample(problem, block, journal)
        self._num_problems += 1
        self._num_labeled_tokens += result.num_tokens
        self._num_steps += sum(len(row.steps) for row in result.labeled)
        async with self._fitting:
            if self._learner is not None and self._learner.is_due:
                await asyncio.to_thread(self._learn, self._learner)
        return result

    async def _sample(
        self, problem: Problem, block: Block, journal: BlockJournal, *, learns: bool = True
    ) -> ProblemLabels:
        assert self._shared is not None, "start() first"
        return await label_problem(
            problem,
            self._shared,
            given=block.given.get(problem.id, ()),
            priority=block.priority,
            on_completion=self._count,
            journal=journal,
            learns=learns,
        )

    def _commit(
        self,
        block: Block,
        attempt: str,
        problems: Sequence[Problem],
        results: Sequence[ProblemLabels],
        left_out: Mapping[str, Fault],
    ) -> BlockReport:
        labeled = [row for result in results for row in result.labeled]
        rollouts = [row for result in results for row in result.rollouts]
        learned = {r.knowledge.id: r.knowledge for r in results if r.knowledge is not None}
        for knowledge in learned.values():
            self._write_knowledge(knowledge)
        set_aside = dict(left_out) | {
            problem.id: result.set_aside
            for problem, result in zip(problems, results, strict=True)
            if result.set_aside is not None
        }
        num_tokens = sum(result.num_tokens for result in results)
        if set_aside:
            note_set_aside(self._store, block.id)
        committed = commit_block(
            self._store,
            block.id,
            attempt,
            labeled,
            rollouts if self._keep_rollouts else None,
            self._provenance,
            dropped={
                problem.id: result.dropped
                for problem, result in zip(problems, results, strict=True)
                if result.dropped is not None
            },
            set_aside={name: asdict(why) for name, why in set_aside.items()},
            cost={"num_tokens": num_tokens, "num_rollouts": len(rollouts)},
        )
        return BlockReport(
            block_id=block.id,
            committed=committed,
            num_problems=len(block.problems),
            num_set_aside=len(set_aside),
            num_solutions=len(labeled),
            num_rollouts=len(rollouts),
            num_tokens=num_tokens,
            size=Size.of(block.problems),
        )

    def _learn(self, learner: RunLearner) -> None:
        """Learn from finished problems, and write the result for other engines and later runs."""
        learner.fit()
        self._write_knowledge(learner.knowledge)

    def _write_knowledge(self, knowledge: Knowledge) -> None:
        self._store.create(f"priors/{knowledge.id}.json", knowledge.to_json().encode())

    def _adopt_knowledge(self, learner: RunLearner) -> None:
        """Read what was learned elsewhere in this run."""
        for name in set(self._store.names("priors")) - self._known_knowledge:
            content = read_priors(self._store, name.removeprefix("priors/").removesuffix(".json"))
            if content is not None:
                learner.adopt(content.decode())
            self._known_knowledge.add(name)

    def _count(self, outcome: Outcome) -> None:
        self._num_completions += 1
        self._num_truncated += outcome is Outcome.TRUNCATED
        self._num_ungraded += outcome is Outcome.UNGRADED

    async def flush_beside(self) -> None:
        """Flush, in a thread. A store that fails now is tried again at the next flush."""
        try:
            await asyncio.to_thread(self.flush)
        except ShardError as error:
            logger.warning("the journals could not be written; the blocks go on: %s", error)


async def _every(seconds: float, work: Callable[[], Awaitable[None] | None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        due = work()
        if due is not None:
            await due


async def _whole(work: Awaitable[T]) -> T:
    """What `work` gives: a cancellation meanwhile is dropped, as it has come too late."""
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise


async def _gather(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order; if one fails, the others are cancelled before it is raised."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]
