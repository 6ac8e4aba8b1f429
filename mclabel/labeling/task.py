"""Labelling as a task of `mclabel.run`: its items are problems, its outputs are labels shards
(Parquet).

`LabelTask` describes the job. `LabelRunner` processes blocks with one engine: it labels problems
concurrently, passes results to the run's learner, which fits the estimator's parameters, and
commits finished blocks.
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
from mclabel.labeling.completers import add_completer_name_to_errors
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.decisions import DecisionBatcher, LearnerState, LearningQueue
from mclabel.labeling.estimators import Completer, Knowledge, RunLearner
from mclabel.labeling.grading import count_ungraded_reasons, count_weak_verdicts
from mclabel.labeling.inputs import ProblemItem, SourceRun
from mclabel.labeling.journal import parse_entry
from mclabel.labeling.problem import (
    EngineContext,
    ProblemLabels,
    RolloutModel,
    label_problem,
    make_run_learner,
)
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.journal import JournalEntry, Line
from mclabel.run.shards.labels import (
    check_not_cut_off,
    commit_block,
    delete_uncommitted_shards,
    read_labels,
)
from mclabel.run.shards.manifest import (
    PRIORS,
    make_priors_file_name,
    read_priors,
    report_value_errors_as_damaged_priors,
)
from mclabel.run.shards.rejects import Reject, read_set_aside
from mclabel.run.shards.store import Store
from mclabel.run.task import (
    Attempt,
    CommittedBlocks,
    FinishedBlock,
    RunnerState,
    TaskWords,
)


class LabelOutputReader:
    """Reads and cleans up the labels shards of a run, and names their figures for display."""

    words = TaskWords(
        item="problem",
        items="problems",
        content="text, gold or given solution",
        done="labelled",
        block_setting="block_problems",
        same_text="the same text is recorded under another id, so its gold or its id has changed",
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

    def read_committed_blocks(self, store: Store) -> CommittedBlocks:
        """Return the blocks whose labels are committed."""
        catalog = read_catalog(store, require_complete=False)
        check_not_cut_off(store, catalog)
        return CommittedBlocks(blocks=catalog.blocks, foreign_files=catalog.foreign_files)

    def delete_uncommitted_files(self, store: Store) -> None:
        """Remove rollouts shards to which no labels shard refers."""
        delete_uncommitted_shards(store)

    def iter_set_aside_items(self, store: Store) -> Iterator[Reject]:
        """Yield the problems of committed blocks that have no labels."""
        return read_set_aside(store)

    def read_item_texts(self, store: Store, blocks: Collection[str]) -> Mapping[str, str]:
        """Return the texts of the labelled problems of blocks, by problem id."""
        done = set(blocks) & read_catalog(store, require_complete=False).blocks
        return (
            {row.problem.id: row.problem.text for row in read_labels(store, done)} if done else {}
        )

    def derived_figures(self, counters: Mapping[str, int | None]) -> Mapping[str, float | None]:
        """Return `cache_hits`, the share in [0, 1] of prompt tokens found in the engine's prefix
        cache; None if the engine does not report them.
        """
        cached = counters.get("num_cached_tokens")
        if cached is None:
            return {"cache_hits": None}
        looked_up = (counters.get("num_prefill_tokens") or 0) + cached
        return {"cache_hits": cached / looked_up if looked_up else None}


LABEL_OUTPUTS = LabelOutputReader()


@dataclass(frozen=True, kw_only=True)
class LabelTask:
    """Task that labels the steps of solutions to problems."""

    make_policy: Callable[[], Policy]
    """Function that creates the policy with its engine; called on each worker."""
    completers: Sequence[Completer] = (Completer(),)
    """Models that sample rollouts."""
    make_completers: Mapping[str, Callable[[], Policy]] = field(default_factory=dict)
    """Functions that create the completers' policies, by completer name. A completer that is the
    policy itself has no entry."""
    settings: LabelSettings
    provenance: Mapping[str, Any]
    """Metadata of every shard."""
    source: SourceRun | None = None
    """Source run whose solutions are labelled and whose rollouts are reused; None if not used."""
    keep_rollouts: bool = True
    """True if rollouts are written."""

    @property
    def outputs(self) -> LabelOutputReader:
        """Reader of the labels shards of a run."""
        return LABEL_OUTPUTS

    def runner(self, store: Store) -> LabelRunner:
        """Return a runner that works on the task's blocks with one engine."""
        return LabelRunner(self, store)

    def read_entry(self, line: Line) -> JournalEntry:
        """Parse the solution or rollout in a journal line."""
        return parse_entry(line)


class LabelRunner:
    """Labels blocks of problems on one worker; implements the protocol
    `mclabel.run.task.Runner`.
    """

    def __init__(self, task: LabelTask, store: Store) -> None:
        """Prepare to label; `start` loads the engine.

        Args:
            task: the job.
            store: store of the run.
        """
        self._task, self._store = task, store
        self._policies: dict[str, Policy] = {}
        """Started policies by completer name."""
        self._context: EngineContext | None = None
        self._learner = make_run_learner(task.settings)
        self._estimators = Boundary("estimators", task.settings.estimator.component)
        self._executor = CpuExecutor()
        self._learning_queue: LearningQueue | None = None
        if (learner := self._learner) is not None:
            self._learning_queue = LearningQueue(
                learner, self._executor, fit=lambda: self._fit_and_write_priors(learner)
            )
        self._merged_priors: set[str] = set()
        self._counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Load the engines, one after the other."""
        for name, make in {AUTHOR: self._task.make_policy, **self._task.make_completers}.items():
            policy = make()
            with add_completer_name_to_errors(name):
                await policy.start()
            self._policies[name] = policy
        self._context = EngineContext(
            policy=self._policies[AUTHOR],
            completers=[
                RolloutModel(
                    completer=completer,
                    policy=self._policies.get(completer.name, self._policies[AUTHOR]),
                )
                for completer in self._task.completers
            ],
            settings=self._task.settings,
            checker=make_checker(self._task.settings.checker),
            executor=self._executor,
            decisions=DecisionBatcher(self._executor),
            first_state=None if self._learner is None else LearnerState.from_learner(self._learner),
            source=self._task.source,
        )

    async def begin(self, attempt: Attempt) -> None:
        """Merge the parameters that other engines of the run have fitted into this engine's
        learner.
        """
        if self._learner is not None:
            await asyncio.to_thread(self._merge_new_priors, self._learner)
            if self._learning_queue is not None:
                self._learning_queue.refresh_first_state()

    async def run(self, item: ProblemItem, attempt: Attempt) -> ProblemLabels:
        """Label one problem, and update the run's learner with the results."""
        assert self._context is not None, "start() first"
        ticket = None
        if self._learning_queue is not None and not attempt.is_trial:
            ticket = self._learning_queue.open_ticket()
        try:
            result = await label_problem(
                item.problem,
                self._context,
                given=item.given,
                priority=attempt.block.priority,
                on_solution=partial(self._count_outcome, "solutions"),
                on_rollout=partial(self._count_outcome, "rollouts"),
                journal=attempt.journal,
                ticket=ticket,
            )
        finally:
            if ticket is not None:
                await ticket.close()
        if not attempt.is_trial:
            self._counts["steps"] += sum(len(row.steps) for row in result.labeled)
        return result

    def commit(self, finished: FinishedBlock) -> dict[str, int]:
        """Write the priors that a block's labels use, and then the block's shards."""
        labels: list[ProblemLabels] = [result for _, result in finished.results]
        labeled = [row for label in labels for row in label.labeled]
        rollouts = [row for label in labels for row in label.rollouts]
        num_sampled = len(rollouts) - sum(label.num_reused_rollouts for label in labels)
        learned = {
            label.knowledge.id: label.knowledge for label in labels if label.knowledge is not None
        }
        for knowledge in learned.values():
            self._write_priors(knowledge)
        commit_block(
            self._store,
            finished.block.id,
            finished.attempt,
            labeled,
            rollouts if self._task.keep_rollouts else None,
            self._task.provenance,
            dropped={
                item.id: result.dropped_counts
                for item, result in finished.results
                if result.dropped_counts is not None
            },
            set_aside={name: asdict(fault) for name, fault in finished.set_aside.items()},
            cost={"num_tokens": finished.num_tokens, "num_rollouts": len(rollouts)},
            ungraded=count_ungraded_reasons(rollouts),
            num_weak_verdicts=count_weak_verdicts(rollouts),
        )
        return {"num_solutions": len(labeled), "num_rollouts": num_sampled}

    def state(self) -> RunnerState:
        """Return the state of the engines, and counts of labelled steps and sampled completions."""
        stats = _combine_engine_stats([policy.stats() for policy in self._policies.values()])
        return RunnerState(
            num_live=stats.num_live,
            max_live=stats.max_live,
            num_waiting=stats.num_waiting,
            num_tokens=stats.num_sampled_tokens,
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

    def _fit_and_write_priors(self, learner: RunLearner) -> None:
        """Fit the learner to finished problems, and write the fitted parameters to the run's store
        for other engines and for a resumed run.
        """
        self._estimators.call("the learner's fit", learner.fit)
        self._write_priors(learner.knowledge)

    def _write_priors(self, knowledge: Knowledge) -> None:
        self._store.create(make_priors_file_name(knowledge.id), knowledge.to_json().encode())

    def _merge_new_priors(self, learner: RunLearner) -> None:
        """Merge each priors file of the run that this runner has not read yet into the learner."""
        for name in set(self._store.names(PRIORS)) - self._merged_priors:
            identity = name.removeprefix(f"{PRIORS}/").removesuffix(".json")
            content = read_priors(self._store, identity)
            if content is not None:
                with report_value_errors_as_damaged_priors(self._store, identity):
                    self._estimators.call("the learner's adopt", learner.adopt, content.decode())
            self._merged_priors.add(name)

    def _count_outcome(self, kind: str, outcome: Outcome) -> None:
        self._counts[kind] += 1
        self._counts[outcome] += 1


def _combine_engine_stats(stats: Sequence[EngineStats]) -> EngineStats:
    """Combine the statistics of a worker's engines into those of a single engine.

    The highest limit of running requests and the highest KV-cache use of the engines are reported,
    because a worker is full when any of its engines is full.
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
        kv_usage=max(usage, default=None),
        counts_as_sampled=all(engine_stats.counts_as_sampled for engine_stats in stats),
    )
