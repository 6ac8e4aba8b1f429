"""The driver of a labelling job: plans blocks, resumes, leases them out, reports.

Rerunning a job resumes it: blocks whose labels shard exists are done, the others are run, and
what was sampled of them before is taken from their journals. An output belongs to one semantic
configuration, which `run.json` holds, and to the problems of its plan (`blocks`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, field, replace

from mclabel.data.shards.catalog import read_catalog
from mclabel.data.shards.journal import delete_journal, journaled_blocks
from mclabel.data.shards.labels import check_not_cut_off, committed_blocks, delete_losers
from mclabel.data.shards.store import Store
from mclabel.data.sizes import Size
from mclabel.stop import deferred
from mclabel.work.blocks import InputChanges, JobBlocks
from mclabel.work.drivers import DriverSign
from mclabel.work.fleet import Fleet, FleetProgress
from mclabel.work.forecast import Remainder
from mclabel.work.leases import LeaseBook
from mclabel.work.worker import BlockReport, WorkerProgress

logger = logging.getLogger(__name__)

MANIFEST = "run.json"


@dataclass(frozen=True, kw_only=True)
class JobState:
    """What a job has done so far, for progress displays.

    Numbers of completions and tokens are of this run; those sampled by engines that died are
    among them.
    """

    num_blocks: int
    num_blocks_done: int
    """Committed, those of earlier runs included."""
    num_problems: int
    num_problems_done: int
    """Labelled, those of blocks that are not committed yet included."""
    num_problems_resumed: int
    """Of these, committed by earlier runs."""
    num_steps: int
    """Of the solutions labelled."""
    num_completions: int
    """Solutions and rollouts sampled."""
    num_truncated: int
    num_ungraded: int
    num_replayed: int
    """Completions taken from journals of earlier attempts."""
    num_tokens: int
    """Sampled."""
    num_prefill_tokens: int
    num_cached_tokens: int | None
    """Prompt tokens found in the prefix cache; None if the engines do not say."""
    num_preemptions: int
    num_live: int
    num_waiting: int
    kv_usage: float | None
    """Mean over the engines; None if they do not say."""
    loop_lag_s: float
    """The longest time that something held an engine's event loop, since the last state."""
    num_workers: int
    """Engines that are loaded."""
    num_starting: int
    """Engines that wait for room, or load."""
    num_failures: int
    """Engines lost."""
    gpu_hours: float
    num_tokens_left: float | None = None
    """To be sampled, as forecast from the blocks that are done; None before any is."""
    num_silent: int = 0
    """Engines that have given no sign of work for too long."""

    @property
    def cache_hits(self) -> float | None:
        """Share of prompt tokens found in the prefix cache."""
        if self.num_cached_tokens is None:
            return None
        looked_up = self.num_prefill_tokens + self.num_cached_tokens
        return self.num_cached_tokens / looked_up if looked_up else None


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """What one run of a job did."""

    num_blocks: int
    num_blocks_resumed: int
    """Found committed at the start."""
    num_problems: int
    num_solutions: int
    """Labelled by this run."""
    num_rollouts: int
    num_tokens: int
    changes: InputChanges = field(default_factory=InputChanges)
    """How the input differs from what the run was begun with."""
    num_blocks_left: int = 0
    """Not committed, where the run was stopped before all were."""
    num_tokens_left: float | None = None
    """To be sampled for these, as forecast from the blocks of this run; None without any."""
    stopped_by: str | None = None
    """The limit of the budget that was reached before all blocks were done."""
    num_rejected: int = 0
    """Rows and problems of the whole job without labels; `rejects.jsonl` says why."""


def run_label_job(
    blocks: JobBlocks,
    fleet: Fleet,
    store: Store,
    *,
    on_state: Callable[[JobState], None] = lambda state: None,
    enough: Callable[[JobState], bool] = lambda state: False,
    only: Collection[str] | None = None,
    size: Size | None = None,
) -> JobReport:
    """Label every problem whose block the store does not hold yet.

    Args:
        blocks: of the whole job.
        fleet: where they run.
        store: of the output, which was claimed for the job's configuration.
        on_state: called often with the state of the job.
        enough: whether to stop at a state: no more blocks are begun, those under way leave their
            journals.
        only: ids of the blocks to label; None labels all.
        size: of all problems, for the forecast; None makes none.

    Raises:
        ShardError: the store fails.
        EngineError: engines cannot be loaded or kept alive.
        Stopped: a signal asked for the end; what was whole is committed.
    """
    with DriverSign(store) as sign:
        sign.warn()
        committed = _committed(store)
        journaled = journaled_blocks(store)
        for block_id in journaled & committed:  # left by an attempt that came too late
            delete_journal(store, block_id)

        todo, num_problems_todo = set[str](), 0
        num_resumed = num_problems_resumed = 0
        for block_id, count in blocks.sizes():
            if block_id in committed:
                num_resumed, num_problems_resumed = num_resumed + 1, num_problems_resumed + count
            elif only is None or block_id in only:
                todo.add(block_id)
                num_problems_todo += count
        tally = _Tally(
            num_blocks=len(blocks),
            num_blocks_resumed=num_resumed,
            num_problems=num_problems_resumed + num_problems_todo,
            num_problems_resumed=num_problems_resumed,
            size=size if only is None else None,
        )

        def heard(progress: FleetProgress) -> None:
            state = tally.state(progress)
            on_state(state)
            if enough(state):
                book.close()

        stopped = False
        if todo:
            wanted = blocks.blocks(lambda block_id: block_id in todo)
            book = LeaseBook(wanted, num_blocks=len(todo), journaled=journaled)
            if not book.finished:
                with deferred(book.close):
                    for done in fleet.run(book, heard):
                        tally.finished(done)
            stopped = book.closed and not book.finished
        report = replace(tally.report(), changes=blocks.changes)
        if stopped or only is not None:  # journals of other blocks are still of use
            now = committed_blocks(store)  # a last commit may go unreported
            num_left = sum(block_id not in now for block_id, _ in blocks.sizes())
            return replace(report, num_blocks_left=num_left)
        if not sign.others():
            delete_losers(store)
            for block_id in journaled_blocks(store):
                delete_journal(store, block_id)
        return report


def _committed(store: Store) -> Set[str]:
    """Ids of the blocks that are done; what else lies among their shards is named in a warning."""
    catalog = read_catalog(store)
    check_not_cut_off(store, catalog)
    if catalog.foreign:
        shown = ", ".join(catalog.foreign[:3]) + (", …" if len(catalog.foreign) > 3 else "")
        logger.warning(
            "%s: %d files in labels/ belong to no block of this run and are not read (%s). Move "
            "them away",
            store.location,
            len(catalog.foreign),
            shown,
        )
    return catalog.blocks.keys()


class _Tally:
    """Adds up what workers and blocks report, over all incarnations of workers."""

    def __init__(
        self,
        *,
        num_blocks: int,
        num_blocks_resumed: int,
        num_problems: int,
        num_problems_resumed: int,
        size: Size | None,
    ) -> None:
        self._remainder = Remainder(num_problems=num_problems - num_problems_resumed, size=size)
        self._open: Sequence[WorkerProgress] = ()
        self._num_blocks, self._num_blocks_resumed = num_blocks, num_blocks_resumed
        self._num_problems, self._num_problems_resumed = num_problems, num_problems_resumed
        self._workers: dict[str, WorkerProgress] = {}
        self._num_reports = self._labeled = 0
        self._num_solutions = self._num_rollouts = self._num_tokens = 0

    def finished(self, report: BlockReport) -> None:
        self._num_reports += 1
        self._labeled += report.num_problems
        self._num_solutions += report.num_solutions
        self._num_rollouts += report.num_rollouts
        self._num_tokens += report.num_tokens
        self._remainder.commit(report.size, report.num_tokens)

    def report(self) -> JobReport:
        return JobReport(
            num_blocks=self._num_blocks,
            num_blocks_resumed=self._num_blocks_resumed,
            num_problems=self._labeled,
            num_solutions=self._num_solutions,
            num_rollouts=self._num_rollouts,
            num_tokens=self._num_tokens,
            num_tokens_left=self._tokens_left(),
            num_blocks_left=max(0, self._num_blocks - self._num_blocks_resumed - self._num_reports),
        )

    def state(self, fleet: FleetProgress) -> JobState:
        self._workers |= {worker.worker: worker for worker in fleet.workers}
        every, now = self._workers.values(), fleet.workers
        self._open = now
        usages = [w.engine.kv_usage for w in now if w.engine.kv_usage is not None]
        cached = [c for w in every if (c := w.engine.num_cached_tokens) is not None]
        labeled = max(self._labeled, sum(w.num_problems for w in now))
        done = min(self._num_problems, self._num_problems_resumed + labeled)
        return JobState(
            num_blocks=self._num_blocks,
            num_blocks_done=self._num_blocks_resumed + self._num_reports,
            num_problems=self._num_problems,
            num_problems_done=done,
            num_problems_resumed=self._num_problems_resumed,
            num_steps=sum(w.num_steps for w in every),
            num_completions=sum(w.num_completions for w in every),
            num_truncated=sum(w.num_truncated for w in every),
            num_ungraded=sum(w.num_ungraded for w in every),
            num_replayed=sum(w.num_replayed for w in every),
            num_tokens=sum(w.engine.num_sampled_tokens for w in every),
            num_prefill_tokens=sum(w.engine.num_prefill_tokens for w in every),
            num_cached_tokens=sum(cached) if cached else None,
            num_preemptions=sum(w.engine.num_preemptions for w in every),
            num_live=sum(w.engine.num_live for w in now),
            num_waiting=sum(w.engine.num_waiting for w in now),
            kv_usage=sum(usages) / len(usages) if usages else None,
            loop_lag_s=max((w.loop_lag_s for w in now), default=0.0),
            num_workers=len(now),
            num_starting=fleet.num_starting,
            num_failures=fleet.num_failures,
            num_silent=fleet.num_silent,
            gpu_hours=fleet.gpu_hours,
            num_tokens_left=self._tokens_left(),
        )

    def _tokens_left(self) -> float | None:
        """Forecast for the problems that are not committed, less what was had of them."""
        every = self._workers.values()
        return self._remainder.left(
            num_labeled=sum(worker.num_problems for worker in every),
            labeled_tokens=sum(worker.num_labeled_tokens for worker in every),
            open_tokens=sum(worker.num_open_tokens for worker in self._open),
        )
