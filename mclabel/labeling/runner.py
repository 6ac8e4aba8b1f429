"""Labelling on one engine: problems side by side, what is learned over them, and commits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from mclabel.boundary import Boundary
from mclabel.checkers import make_checker
from mclabel.data.shards.labels import commit_block
from mclabel.data.shards.priors import FOLDER as PRIORS
from mclabel.data.shards.priors import priors_name, read_priors
from mclabel.data.shards.store import Store
from mclabel.engines import EngineStats, Policy
from mclabel.engines.gate import GatedPolicy
from mclabel.estimators import Knowledge, RunLearner
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.grading import ungraded_reasons
from mclabel.labeling.items import ProblemItem
from mclabel.labeling.journal import LabelJournal
from mclabel.labeling.problem import ProblemLabels, Shared, label_problem, run_learner
from mclabel.labeling.settings import LabelSettings
from mclabel.records import Outcome
from mclabel.work.desk import Desk
from mclabel.work.task import Attempt, Commit, FinishedBlock, RunnerState
from mclabel.work.worker import repeat

ADJUST_S = 0.5
"""Between two looks at the engine's memory."""


class LabelRunner:
    """Labels problems on one policy. A `Runner` (`mclabel.work.task`)."""

    def __init__(
        self,
        *,
        policy: Callable[[], Policy],
        settings: LabelSettings,
        store: Store,
        provenance: Mapping[str, Any],
        keep_rollouts: bool,
    ) -> None:
        """Prepare to label; `start` loads the engine.

        Args:
            policy: makes the policy; called by `start`.
            settings: how problems are labelled.
            store: of the run.
            provenance: metadata of every shard.
            keep_rollouts: whether rollout texts are written.
        """
        self._make_policy, self._settings, self._store = policy, settings, store
        self._provenance, self._keep_rollouts = provenance, keep_rollouts
        self._policy: GatedPolicy | None = None
        self._shared: Shared | None = None
        self._learner = run_learner(settings)
        self._estimators = Boundary.around("estimators", settings.estimator.component)
        self._fitting = asyncio.Lock()
        self._desk = Desk()
        self._adopted: set[str] = set()
        self._adjusting: asyncio.Task[None] | None = None
        self._counts: Counter[str] = Counter()

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
            decisions=Decisions(self._desk),
            learner=self._learner,
        )
        adjusting = repeat(ADJUST_S, policy.adjust)
        self._adjusting = asyncio.get_running_loop().create_task(adjusting)

    async def begin(self, attempt: Attempt) -> None:
        """Take what was learned elsewhere in the run."""
        if self._learner is not None:
            await asyncio.to_thread(self._adopt, self._learner)

    async def run(self, item: ProblemItem, attempt: Attempt) -> ProblemLabels:
        """Label one problem, and learn from it."""
        assert self._shared is not None, "start() first"
        result = await label_problem(
            item.problem,
            self._shared,
            given=item.given,
            priority=attempt.block.priority,
            on_completion=self._count,
            journal=LabelJournal(attempt.journal),
            learns=not attempt.is_trial,
        )
        if not attempt.is_trial:
            self._counts["steps"] += sum(len(row.steps) for row in result.labeled)
            async with self._fitting:
                if self._learner is not None and self._learner.is_due:
                    await asyncio.to_thread(self._fit, self._learner)
        return result

    def commit(self, finished: FinishedBlock) -> Commit:
        """Write the block's shards, and what its labels rest on before them."""
        labels: list[ProblemLabels] = [result for _, result in finished.results]
        labeled = [row for one in labels for row in one.labeled]
        rollouts = [row for one in labels for row in one.rollouts]
        learned = {one.knowledge.id: one.knowledge for one in labels if one.knowledge is not None}
        for knowledge in learned.values():
            self._write(knowledge)
        won = commit_block(
            self._store,
            finished.block.id,
            finished.attempt,
            labeled,
            rollouts if self._keep_rollouts else None,
            self._provenance,
            dropped={
                item.id: result.dropped
                for item, result in finished.results
                if result.dropped is not None
            },
            set_aside={name: asdict(fault) for name, fault in finished.set_aside.items()},
            cost={"num_tokens": finished.num_tokens, "num_rollouts": len(rollouts)},
            ungraded=ungraded_reasons(rollouts),
        )
        return Commit(
            won=won, counts={"num_solutions": len(labeled), "num_rollouts": len(rollouts)}
        )

    def state(self) -> RunnerState:
        """The engine's state, and counts of what was labelled."""
        stats = self._policy.stats() if self._policy is not None else EngineStats()
        return RunnerState(
            num_live=stats.num_live,
            max_live=stats.max_live,
            num_waiting=stats.num_waiting,
            num_tokens=stats.num_sampled_tokens,
            counters={
                "num_steps": self._counts["steps"],
                "num_completions": self._counts["completions"],
                "num_truncated": self._counts[Outcome.TRUNCATED],
                "num_ungraded": self._counts[Outcome.UNGRADED],
                "num_prefill_tokens": stats.num_prefill_tokens,
                "num_cached_tokens": stats.num_cached_tokens,
                "num_preemptions": stats.num_preemptions,
            },
            gauges={"kv_usage": stats.kv_usage},
            is_steady=stats.counts_as_sampled,
        )

    async def close(self) -> None:
        """Free the engine."""
        if self._adjusting is not None:
            self._adjusting.cancel()
        self._desk.close()
        if self._policy is not None:
            await self._policy.close()

    def _fit(self, learner: RunLearner) -> None:
        """Learn from finished problems, and write the result for other engines and later runs."""
        with self._estimators.calling("the learner's fit"):
            learner.fit()
        self._write(learner.knowledge)

    def _write(self, knowledge: Knowledge) -> None:
        self._store.create(priors_name(knowledge.id), knowledge.to_json().encode())

    def _adopt(self, learner: RunLearner) -> None:
        """Take what was learned elsewhere in the run, each piece once."""
        for name in set(self._store.names(PRIORS)) - self._adopted:
            content = read_priors(
                self._store, name.removeprefix(f"{PRIORS}/").removesuffix(".json")
            )
            if content is not None:
                with self._estimators.calling("the learner's adopt"):
                    learner.adopt(content.decode())
            self._adopted.add(name)

    def _count(self, outcome: Outcome) -> None:
        self._counts["completions"] += 1
        self._counts[outcome] += 1
