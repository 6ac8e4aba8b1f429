"""Labelling as a task: problems are its items, and labels shards what its blocks leave.

`LabelTask` says what the blocks are. `LabelRunner` works on them with one engine: problems side by
side, what is learned over them, and commits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from mclabel.checkers import make_checker
from mclabel.core.boundary import Boundary
from mclabel.core.records import AUTHOR, Outcome
from mclabel.engines import EngineStats, Policy
from mclabel.labeling.completers import naming
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.decisions import DecisionBatcher, LearnerState, LearningQueue
from mclabel.labeling.estimators import Completer, Knowledge, RunLearner
from mclabel.labeling.grading import num_weak, ungraded_reasons
from mclabel.labeling.inputs import ProblemItem, SourceRun
from mclabel.labeling.journal import read_entry
from mclabel.labeling.problem import (
    EngineContext,
    ProblemLabels,
    RolloutModel,
    label_problem,
    run_learner,
)
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.journal import JournalEntry, Line
from mclabel.run.shards.labels import check_not_cut_off, commit_block, delete_losers, read_labels
from mclabel.run.shards.manifest import PRIORS, making_use_of, priors_name, read_priors
from mclabel.run.shards.rejects import Reject, set_aside
from mclabel.run.shards.store import Store
from mclabel.run.task import Attempt, Commit, CommittedBlocks, FinishedBlock, RunnerState, TaskWords


class LabelOutputs:
    """The labels shards of a run."""

    words = TaskWords(
        item="problem",
        items="problems",
        content="text, gold or given solution",
        done="labelled",
        block_setting="block_problems",
        same_text="its text is there under another id: its gold has changed, or its id",
        counters={
            "num_steps": 0,
            "num_completions": 0,
            "num_solutions": 0,
            "num_rollouts": 0,
            "num_truncated": 0,
            "num_ungraded": 0,
            "num_prefill_tokens": 0,
            "num_cached_tokens": None,
            "num_preemptions": 0,
        },
        gauges=("kv_usage",),
        rates={"num_completions": "rollouts"},
        shown_counters={
            "num_solutions": "solutions",
            "num_rollouts": "rollouts",
            "num_steps": "steps labelled",
            "num_preemptions": "preempted",
            "num_truncated": "truncated",
            "num_ungraded": "ungraded",
        },
        shown_shares={"kv_usage": "KV", "cache_hits": "cache"},
    )

    def committed(self, store: Store) -> CommittedBlocks:
        """The blocks whose labels are there, in shards of their own or in merged ones."""
        catalog = read_catalog(store, must_be_whole=False)
        check_not_cut_off(store, catalog)
        return CommittedBlocks(blocks=catalog.blocks.keys(), foreign=catalog.foreign)

    def sweep(self, store: Store) -> None:
        """Remove rollouts shards that no labels shard names."""
        delete_losers(store)

    def set_aside(self, store: Store) -> Iterator[Reject]:
        """The problems that committed blocks have no labels for."""
        return set_aside(store)

    def texts(self, store: Store, blocks: Collection[str]) -> Mapping[str, str]:
        """Texts of the problems of some blocks."""
        done = set(blocks) & read_catalog(store, must_be_whole=False).blocks.keys()
        return (
            {row.problem.id: row.problem.text for row in read_labels(store, done)} if done else {}
        )

    def derived(self, counters: Mapping[str, int | None]) -> Mapping[str, float | None]:
        """The share of prompt tokens that were found in the prefix cache."""
        cached = counters.get("num_cached_tokens")
        if cached is None:
            return {"cache_hits": None}
        looked_up = (counters.get("num_prefill_tokens") or 0) + cached
        return {"cache_hits": cached / looked_up if looked_up else None}


LABEL_OUTPUTS = LabelOutputs()


@dataclass(frozen=True, kw_only=True)
class LabelTask:
    """Labels the steps of solutions to problems."""

    make_policy: Callable[[], Policy]
    """Called on each worker, where the engine is to live."""
    completers: Sequence[Completer] = (Completer(),)
    """Models that roll out."""
    make_completers: Mapping[str, Callable[[], Policy]] = field(default_factory=dict)
    """For each name, the same as `make_policy` of each completer that is not the policy itself."""
    settings: LabelSettings
    provenance: Mapping[str, Any]
    """Metadata of every shard."""
    source: SourceRun | None = None
    """A run whose solutions are labelled, and whose rollouts are taken over."""
    keep_rollouts: bool = True
    """True if rollout texts are written."""

    @property
    def outputs(self) -> LabelOutputs:
        """The labels shards of a run."""
        return LABEL_OUTPUTS

    def runner(self, store: Store) -> LabelRunner:
        """The task on one engine."""
        return LabelRunner(
            policy=self.make_policy,
            completers=self.completers,
            make_completers=self.make_completers,
            source=self.source,
            settings=self.settings,
            store=store,
            provenance=self.provenance,
            keep_rollouts=self.keep_rollouts,
        )

    def read_entry(self, line: Line) -> JournalEntry:
        """The solution or rollout in a line of a journal."""
        return read_entry(line)


class LabelRunner:
    """Labels problems on one policy. A `Runner` (`mclabel.run.task`)."""

    def __init__(
        self,
        *,
        policy: Callable[[], Policy],
        completers: Sequence[Completer] = (Completer(),),
        make_completers: Mapping[str, Callable[[], Policy]] | None = None,
        source: SourceRun | None = None,
        settings: LabelSettings,
        store: Store,
        provenance: Mapping[str, Any],
        keep_rollouts: bool,
    ) -> None:
        """Prepare to label; `start` loads the engine.

        Args:
            policy: makes the policy; called by `start`.
            completers: what rolls out.
            make_completers: by name, make those that are not the policy itself.
            source: a run whose solutions are labelled.
            settings: how problems are labelled.
            store: store of the run.
            provenance: metadata of every shard.
            keep_rollouts: whether rollout texts are written.
        """
        self._makers = {AUTHOR: policy, **(make_completers or {})}
        self._completers, self._source = completers, source
        self._settings, self._store = settings, store
        self._provenance, self._keep_rollouts = provenance, keep_rollouts
        self._policies: dict[str, Policy] = {}
        """Started, by name."""
        self._context: EngineContext | None = None
        self._learner = run_learner(settings)
        self._estimators = Boundary("estimators", settings.estimator.component)
        self._executor = CpuExecutor()
        self._learning_queue: LearningQueue | None = None
        if (learner := self._learner) is not None:
            self._learning_queue = LearningQueue(
                learner, self._executor, fit=lambda: self._fit(learner)
            )
        self._adopted: set[str] = set()
        self._counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Load the engines, one after the other."""
        for name, make in self._makers.items():
            policy = make()
            with naming(name):
                await policy.start()
            self._policies[name] = policy
        self._context = EngineContext(
            policy=self._policies[AUTHOR],
            rolling=[
                RolloutModel(
                    completer=completer,
                    policy=self._policies.get(completer.name, self._policies[AUTHOR]),
                )
                for completer in self._completers
            ],
            settings=self._settings,
            checker=make_checker(self._settings.checker),
            executor=self._executor,
            decisions=DecisionBatcher(self._executor),
            beginning=None if self._learner is None else LearnerState.by(self._learner),
            source=self._source,
        )

    async def begin(self, attempt: Attempt) -> None:
        """Take what was learned elsewhere in the run."""
        if self._learner is not None:
            await asyncio.to_thread(self._adopt, self._learner)
            if self._learning_queue is not None:
                self._learning_queue.adopted()

    async def run(self, item: ProblemItem, attempt: Attempt) -> ProblemLabels:
        """Label one problem, and learn from it."""
        assert self._context is not None, "start() first"
        ticket = None
        if self._learning_queue is not None and not attempt.is_trial:
            ticket = self._learning_queue.begin()
        try:
            result = await label_problem(
                item.problem,
                self._context,
                given=item.given,
                priority=attempt.block.priority,
                on_solution=partial(self._count, "solutions"),
                on_rollout=partial(self._count, "rollouts"),
                journal=attempt.journal,
                ticket=ticket,
            )
        finally:
            if ticket is not None:
                await ticket.leave()
        if not attempt.is_trial:
            self._counts["steps"] += sum(len(row.steps) for row in result.labeled)
        return result

    def commit(self, finished: FinishedBlock) -> Commit:
        """Write the block's shards, and what its labels rest on before them."""
        labels: list[ProblemLabels] = [result for _, result in finished.results]
        labeled = [row for label in labels for row in label.labeled]
        rollouts = [row for label in labels for row in label.rollouts]
        num_sampled = len(rollouts) - sum(label.num_taken for label in labels)
        learned = {
            label.knowledge.id: label.knowledge for label in labels if label.knowledge is not None
        }
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
            weak=num_weak(rollouts),
        )
        return Commit(won=won, counts={"num_solutions": len(labeled), "num_rollouts": num_sampled})

    def state(self) -> RunnerState:
        """The state of the engines, and counts of what was labelled."""
        stats = _together([policy.stats() for policy in self._policies.values()])
        return RunnerState(
            num_live=stats.num_live,
            max_live=stats.max_live,
            num_waiting=stats.num_waiting,
            num_tokens=stats.num_sampled_tokens,
            num_signs=stats.num_signs,
            counters={
                "num_steps": self._counts["steps"],
                "num_completions": self._counts["solutions"] + self._counts["rollouts"],
                "num_solutions": self._counts["solutions"],
                "num_rollouts": self._counts["rollouts"],
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
        """Free the engines."""
        self._executor.close()
        for policy in self._policies.values():
            await policy.close()

    def _fit(self, learner: RunLearner) -> None:
        """Learn from finished problems, and write the result for other engines and later runs."""
        self._estimators.call("the learner's fit", learner.fit)
        self._write(learner.knowledge)

    def _write(self, knowledge: Knowledge) -> None:
        self._store.create(priors_name(knowledge.id), knowledge.to_json().encode())

    def _adopt(self, learner: RunLearner) -> None:
        """Take what was learned elsewhere in the run, each piece once."""
        for name in set(self._store.names(PRIORS)) - self._adopted:
            identity = name.removeprefix(f"{PRIORS}/").removesuffix(".json")
            content = read_priors(self._store, identity)
            if content is not None:
                with making_use_of(self._store, identity):
                    self._estimators.call("the learner's adopt", learner.adopt, content.decode())
            self._adopted.add(name)

    def _count(self, kind: str, outcome: Outcome) -> None:
        self._counts[kind] += 1
        self._counts[outcome] += 1


def _together(stats: Sequence[EngineStats]) -> EngineStats:
    """The state of the engines of one job on one worker, as if they were one.

    A worker is full when any of them is: the fullest gives the bound and the use of the KV cache.
    """
    if len(stats) == 1:
        return stats[0]
    if not stats:
        return EngineStats()
    usage = [engine_stats.kv_usage for engine_stats in stats if engine_stats.kv_usage is not None]
    cached = [engine_stats.num_cached_tokens for engine_stats in stats]
    return EngineStats(
        num_live=sum(engine_stats.num_live for engine_stats in stats),
        max_live=max(engine_stats.max_live for engine_stats in stats),
        num_waiting=sum(engine_stats.num_waiting for engine_stats in stats),
        num_sampled_tokens=sum(engine_stats.num_sampled_tokens for engine_stats in stats),
        num_prefill_tokens=sum(engine_stats.num_prefill_tokens for engine_stats in stats),
        num_cached_tokens=None if None in cached else sum(filter(None, cached)),
        num_preemptions=sum(engine_stats.num_preemptions for engine_stats in stats),
        num_signs=sum(engine_stats.num_signs for engine_stats in stats),
        kv_usage=max(usage, default=None),
        counts_as_sampled=all(engine_stats.counts_as_sampled for engine_stats in stats),
    )
