"""One engine at work: labels blocks and commits them. The same in an actor and in-process."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mclabel.data.shards import commit_block
from mclabel.data.store import Store
from mclabel.estimators import PriorLearner, Priors
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.scheduler import GivenSolution, LabelSettings, ProblemLabels, label_problem
from mclabel.policy import EngineStats, Policy
from mclabel.records import Problem


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
    num_solutions: int
    num_rollouts: int
    num_tokens: int
    """Sampled, solutions included."""


@dataclass(frozen=True, kw_only=True)
class WorkerProgress:
    """A snapshot of a worker."""

    num_problems: int
    """Labelled since the worker started, committed or not."""
    num_completions: int
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
    ) -> None:
        """Args:
        make_policy: called by `start`, where the engine is to live.
        out: location of the run's store.
        settings: how problems are labelled.
        provenance: metadata of every shard.
        keep_rollouts: whether rollout texts are written.
        """
        self._make_policy, self._settings = make_policy, settings
        self._store = Store(out)
        self._provenance, self._keep_rollouts = provenance, keep_rollouts
        self._policy: Policy | None = None
        self._learner = settings.make_learner()
        self._fitting = asyncio.Lock()
        self._decisions = Decisions()
        self._known_priors: set[str] = set()
        self._num_problems = self._num_completions = 0

    async def start(self) -> None:
        """Load the engine."""
        self._policy = self._make_policy()
        await self._policy.start()

    async def run_block(self, block: Block) -> BlockReport:
        """Label a block and commit its shards."""
        if self._learner is not None:
            await asyncio.to_thread(self._adopt_priors, self._learner)
        results = await _gather([self._label(problem, block) for problem in block.problems])
        labeled = [row for result in results for row in result.labeled]
        rollouts = [row for result in results for row in result.rollouts]
        for priors in {r.priors.id: r.priors for r in results if r.priors is not None}.values():
            content = priors.to_json().encode()
            await asyncio.to_thread(self._store.create, f"priors/{priors.id}.json", content)
        committed = await asyncio.to_thread(
            commit_block,
            self._store,
            block.id,
            uuid.uuid4().hex[:12],
            labeled,
            rollouts if self._keep_rollouts else None,
            self._provenance,
        )
        sampled = sum(len(r.solution.ids) for r in labeled if r.solution.origin == "sampled")
        return BlockReport(
            block_id=block.id,
            committed=committed,
            num_problems=len(block.problems),
            num_solutions=len(labeled),
            num_rollouts=len(rollouts),
            num_tokens=sampled + sum(r.num_tokens for r in rollouts),
        )

    async def progress(self) -> WorkerProgress:
        """What has been done so far."""
        return WorkerProgress(
            num_problems=self._num_problems,
            num_completions=self._num_completions,
            engine=self._policy.stats() if self._policy else EngineStats(),
        )

    async def close(self) -> None:
        """Free the engine."""
        if self._policy is not None:
            await self._policy.close()

    async def _label(self, problem: Problem, block: Block) -> ProblemLabels:
        assert self._policy is not None, "start() first"
        result = await label_problem(
            problem,
            self._policy,
            self._settings,
            given=block.given.get(problem.id, ()),
            learner=self._learner,
            decisions=self._decisions,
            priority=block.priority,
            on_rollout=self._count,
        )
        self._num_problems += 1
        async with self._fitting:
            if self._learner is not None and self._learner.due:
                await asyncio.to_thread(self._learner.fit)
        return result

    def _adopt_priors(self, learner: PriorLearner) -> None:
        """Hear of priors that were fitted elsewhere in this run."""
        for name in set(self._store.names("priors")) - self._known_priors:
            content = self._store.read(name)
            if content is not None:
                learner.adopt(Priors.from_json(content.decode()))
            self._known_priors.add(name)

    def _count(self) -> None:
        self._num_completions += 1


async def _gather(work: Sequence[Any]) -> list[Any]:
    """Results in order; if one fails, the others are cancelled before it is raised."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
    return [task.result() for task in tasks]
