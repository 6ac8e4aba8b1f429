"""The driver of a labelling job: cuts blocks, resumes, leases them out, reports.

Rerunning a job resumes it: blocks whose labels shard exists are done, the others are run, and
what was sampled of them before is taken from their journals. An output belongs to one semantic
configuration, which `run.json` holds. Problems are read as they are leased: nothing is kept of
them, however many there are.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from mclabel.data.journal import delete_journal, journaled_blocks
from mclabel.data.manifest import claim
from mclabel.data.problems import Problems
from mclabel.data.shards import committed_blocks, delete_losers
from mclabel.data.sizes import Size
from mclabel.data.store import Store
from mclabel.labeling.drivers import DriverSign
from mclabel.labeling.fleet import Fleet, FleetProgress
from mclabel.labeling.forecast import CostModel
from mclabel.labeling.leases import LeaseBook
from mclabel.labeling.scheduler import GivenSolution
from mclabel.labeling.worker import Block, BlockReport, WorkerProgress
from mclabel.records import Problem
from mclabel.seeds import ID_LENGTH, canonical_json
from mclabel.stop import deferred

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
    num_blocks_left: int = 0
    """Not committed, where the run was stopped before all were."""
    num_tokens_left: float | None = None
    """To be sampled for these, as forecast from the blocks of this run; None without any."""
    stopped_by: str | None = None
    """The limit of the budget that was reached before all blocks were done."""
    num_rejected: int = 0
    """Rows and problems of the whole job without labels; `rejects.jsonl` says why."""


def make_blocks(
    problems: Iterable[Problem],
    *,
    size: int,
    semantic: Mapping[str, Any],
    given: Mapping[str, tuple[GivenSolution, ...]] | None = None,
) -> Iterator[Block]:
    """Cut problems into blocks whose ids are hashes of what they hold and how it is labelled."""
    given = given or {}
    stream = iter(problems)
    how = hashlib.sha256(canonical_json(["block", semantic]))
    number = 0
    while part := tuple(islice(stream, size)):
        solutions = {p.id: given[p.id] for p in part if p.id in given}
        contents = [[p.id, p.text, p.answer, dict(p.meta)] for p in part]
        texts = {key: [asdict(s) for s in value] for key, value in solutions.items()}
        whole = how.copy()
        whole.update(canonical_json([contents, texts]))
        yield Block(
            id=whole.hexdigest()[:ID_LENGTH], problems=part, given=solutions, priority=number
        )
        number += 1


def run_label_job(
    problems: Problems,
    fleet: Fleet,
    store: Store,
    *,
    block_problems: int,
    given: Mapping[str, tuple[GivenSolution, ...]] | None = None,
    semantic: Mapping[str, Any],
    provenance: Mapping[str, Any],
    on_state: Callable[[JobState], None] = lambda state: None,
    enough: Callable[[JobState], bool] = lambda state: False,
    only: Collection[int] | None = None,
    size: Size | None = None,
) -> JobReport:
    """Label every problem whose block the store does not hold yet.

    Args:
        problems: of the whole job.
        fleet: where they run.
        store: of the output.
        block_problems: problems in a block.
        given: solutions to label, by problem id; without any, the policy samples them.
        semantic: configuration that the output belongs to.
        provenance: versions and the like, written beside it.
        on_state: called often with the state of the job.
        enough: whether to stop at a state: no more blocks are begun, those under way leave their
            journals.
        only: numbers of the blocks to label, counted from the first; None is all.
        size: of all problems, for the forecast; None makes none.

    Raises:
        ShardError: the output belongs to another semantic configuration.
        EngineError: engines cannot be loaded or kept alive.
        Stopped: a signal asked for the end; what was whole is committed.
    """
    claim(store, MANIFEST, semantic, provenance)
    with DriverSign(store) as sign:
        sign.warn()
        committed = committed_blocks(store)
        journaled = journaled_blocks(store)
        for block_id in journaled & committed:  # left by an attempt that came too late
            delete_journal(store, block_id)

        num_blocks = math.ceil(len(problems) / block_problems)
        num_wanted = num_blocks if only is None else len(only)
        num_problems = min(len(problems), num_wanted * block_problems)
        tally = _Tally(
            num_blocks=num_blocks,
            num_blocks_resumed=len(committed),
            num_problems=num_problems,
            num_problems_resumed=min(num_problems, len(committed) * block_problems)
            * (only is None),
            size=size if only is None else None,
        )

        def heard(progress: FleetProgress) -> None:
            state = tally.state(progress)
            on_state(state)
            if enough(state):
                book.close()

        stopped = False
        if len(committed) < num_blocks:
            blocks = make_blocks(problems, size=block_problems, semantic=semantic, given=given)
            todo = (
                block
                for block in blocks
                if block.id not in committed and (only is None or block.priority in only)
            )
            book = LeaseBook(
                todo, num_blocks=min(num_wanted, num_blocks - len(committed)), journaled=journaled
            )
            if not book.finished:
                with deferred(book.close):
                    for report in fleet.run(book, heard):
                        tally.finished(report)
            stopped = book.closed and not book.finished
        if stopped or only is not None:  # journals of other blocks are still of use
            num_left = num_blocks - len(committed_blocks(store))  # a last commit may go unreported
            return replace(tally.report(), num_blocks_left=max(0, num_left))
        if not sign.others():
            delete_losers(store)
            for block_id in journaled_blocks(store):
                delete_journal(store, block_id)
        return tally.report()


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
        self._size, self._done, self._model = size, Size(), CostModel()
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
        self._done += report.size
        self._model.add(report.size, report.num_tokens)

    def report(self) -> JobReport:
        return JobReport(
            num_blocks=self._num_blocks,
            num_blocks_resumed=self._num_blocks_resumed,
            num_problems=self._labeled,
            num_solutions=self._num_solutions,
            num_rollouts=self._num_rollouts,
            num_tokens=self._num_tokens,
            num_tokens_left=self._tokens_left(
                sum(w.engine.num_sampled_tokens for w in self._workers.values())
            ),
            num_blocks_left=max(0, self._num_blocks - self._num_blocks_resumed - self._num_reports),
        )

    def state(self, fleet: FleetProgress) -> JobState:
        self._workers |= {worker.worker: worker for worker in fleet.workers}
        every, now = self._workers.values(), fleet.workers
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
            gpu_hours=fleet.gpu_hours,
            num_tokens_left=self._tokens_left(sum(w.engine.num_sampled_tokens for w in every)),
        )

    def _tokens_left(self, num_sampled: int) -> float | None:
        """Forecast for the problems that are not committed, less what was sampled of them."""
        if self._size is None:
            return None
        # What earlier runs did is taken for a share of all that is like the whole.
        fresh = 1 - self._num_problems_resumed / max(1, self._num_problems)
        whole, seen = self._model.predict(self._size), self._model.predict(self._done)
        if whole is None or seen is None:
            return None
        under_way = max(0, num_sampled - self._num_tokens)
        return max(0.0, fresh * whole - seen - under_way)
