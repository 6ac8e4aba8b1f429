"""The driver of a job, which resumes the job, leases blocks to workers, enforces the budget and
reports.

Blocks whose output exists are done. Other blocks are run, and reuse the work in their journals.
Every driver keeps a heartbeat file `drivers/ID.json`, so that a second driver on the same output
can warn. Each block is committed only once, so two drivers waste work but damage nothing.
"""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from types import TracebackType

from mclabel.core.boundary import clip_text
from mclabel.core.errors import DamagedFile, ShardError
from mclabel.core.stop import request_stop_on_signal
from mclabel.run.blocks import JobBlocks
from mclabel.run.budget import FILE as SPENT
from mclabel.run.budget import BudgetLimits, SpendingLedger
from mclabel.run.forecast import Size
from mclabel.run.leases import Fleet, FleetProgress, LeaseBook
from mclabel.run.progress_log import PROGRESS_FILE, ProgressLog
from mclabel.run.shards.digest import add_digest, parse_checked_object
from mclabel.run.shards.finished import write_completion_marker
from mclabel.run.shards.journal import delete_journal, list_journaled_blocks
from mclabel.run.shards.rejects import FILE as REJECTS
from mclabel.run.shards.rejects import Reject, write_rejects
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState, JobTally
from mclabel.run.task import CommittedBlocks, OutputReader

logger = logging.getLogger(__name__)

_MAX_NAMED = 3
"""Maximum number of files that a warning about foreign files lists."""


def run_job(
    blocks: JobBlocks,
    outputs: OutputReader,
    fleet: Fleet,
    store: Store,
    *,
    on_state: Callable[[JobState], None] = lambda state: None,
    limits: BudgetLimits | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    only_blocks: Collection[str] | None = None,
    size: Size | None = None,
    rejects: Callable[[], Iterable[Reject]] = tuple,
    prepare: Callable[[], None] = lambda: None,
) -> JobReport:
    """Run every block whose result the store does not hold yet.

    The job's spending, progress and rejects are written even if the job is stopped. Once a limit of
    the budget is reached, no further block is started, and running blocks write their finished work
    to journals.

    Args:
        blocks: all blocks of the job.
        outputs: outputs of the task that the fleet runs.
        fleet: workers that run the blocks.
        store: store of the output, which was claimed for the job's configuration.
        on_state: called every few seconds or more often with the state of the job.
        limits: limits of the budget, over all runs of the job; None for no limits.
        should_stop: function that is polled during the job. Once it returns True, no further block
            is started, and running blocks write their finished work to journals.
        only_blocks: ids of the blocks to run; None runs all blocks.
        size: size of all items, for the forecast; None makes no forecast.
        rejects: function that returns the rows of the input that cannot be used as items.
        prepare: function that is called before the fleet receives work, and only if work is left.

    Raises:
        ShardError: the store fails.
        EngineError: engines cannot be loaded or kept alive.
        Stopped: a signal ended the job; finished blocks are committed.
    """
    limits = limits or BudgetLimits()
    log, ledger = ProgressLog(store), SpendingLedger(store, started=time.monotonic())
    if limits.find_reached_limit(ledger.spent):
        only_blocks = ()

    def record_state(state: JobState) -> bool:
        """Record the job's state, and return whether the job must stop."""
        log(state)
        on_state(state)
        spent = ledger.update(state, time.monotonic())
        return should_stop() or limits.find_reached_limit(spent) is not None

    num_left = None
    try:
        try:
            report = _run_missing_blocks(
                blocks, outputs, fleet, store, record_state, prepare, only=only_blocks, size=size
            )
        finally:
            ledger.write(time.monotonic())
            num_rejected = write_rejects(
                store, chain(rejects(), outputs.iter_set_aside_items(store))
            )
        num_left = report.num_blocks_left
        if not num_left:
            single_files = (SPENT, REJECTS, PROGRESS_FILE)
            write_completion_marker(
                store,
                num_blocks=len(blocks),
                num_plan_parts=blocks.num_plan_parts,
                files=tuple(name for name in single_files if store.read(name) is not None),
            )
    finally:  # last, so that the log never reports the end before `finished.json` exists
        log.close(num_blocks_left=num_left)
    stopped_by = limits.find_reached_limit(ledger.spent) if report.num_blocks_left else None
    return replace(report, num_rejected=num_rejected, stopped_by=stopped_by)


def _run_missing_blocks(
    blocks: JobBlocks,
    outputs: OutputReader,
    fleet: Fleet,
    store: Store,
    should_end: Callable[[JobState], bool],
    prepare: Callable[[], None],
    *,
    only: Collection[str] | None,
    size: Size | None,
) -> JobReport:
    """Run the missing blocks until all are done, a signal arrives, or `should_end` returns True."""
    with DriverHeartbeat(store) as sign:
        sign.warn_of_other_drivers()
        committed = outputs.read_committed_blocks(store)
        _warn_of_foreign_files(store, committed)
        journaled = list_journaled_blocks(store)
        for block_id in journaled & committed.blocks:  # left by an attempt that lost the commit
            delete_journal(store, block_id)

        todo, num_items_todo = set[str](), 0
        num_resumed = num_items_resumed = 0
        for block_id, count in blocks.iter_item_counts():
            if block_id in committed.blocks:
                num_resumed, num_items_resumed = num_resumed + 1, num_items_resumed + count
            elif only is None or block_id in only:
                todo.add(block_id)
                num_items_todo += count
        tally = JobTally(
            outputs,
            num_blocks=len(blocks),
            num_blocks_resumed=num_resumed,
            num_items=num_items_resumed + num_items_todo,
            num_items_resumed=num_items_resumed,
            size=size if only is None else None,
        )

        def on_progress(progress: FleetProgress) -> None:
            if should_end(tally.state(progress)):
                book.close()

        stopped = False
        if todo:
            prepare()
            wanted = blocks.read_blocks(lambda block_id: block_id in todo)
            book = LeaseBook(wanted, num_blocks=len(todo), journaled=journaled, words=outputs.words)
            if not book.finished:
                with request_stop_on_signal(book.close), freeze_heap():
                    for report in fleet.run(book, on_progress):
                        tally.add(report)
            stopped = book.closed and not book.finished
        result = replace(tally.report(), changes=blocks.changes)
        if stopped or only is not None:  # journals of unfinished blocks are still needed
            now = outputs.read_committed_blocks(
                store
            ).blocks  # the last commits may not have been reported
            num_left = sum(block_id not in now for block_id, _ in blocks.iter_item_counts())
            return replace(result, num_blocks_left=num_left)
        if not sign.find_other_drivers():
            outputs.delete_uncommitted_files(store)
            for block_id in list_journaled_blocks(store):
                delete_journal(store, block_id)
        return result


def _warn_of_foreign_files(store: Store, committed: CommittedBlocks) -> None:
    """Log a warning if the output folder holds files that do not belong to the run."""
    foreign = committed.foreign_files
    if foreign:
        shown = ", ".join(foreign[:_MAX_NAMED]) + (", …" if len(foreign) > _MAX_NAMED else "")
        logger.warning(
            "%s: %d files in %s/ do not belong to any block of this run and are not read (%s). "
            "Move them away",
            store.location,
            len(foreign),
            foreign[0].partition("/")[0],
            shown,
        )


@contextmanager
def freeze_heap() -> Iterator[None]:
    """Exclude all existing objects from garbage collection inside the context.

    A job creates and drops millions of items. Each collection would also traverse the many objects
    of libraries, which takes a third of the time for leasing blocks. If the heap is frozen already,
    nothing is done. No collection is run first, because it takes longer than a small job. So
    existing garbage is kept until the end of the context.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


FOLDER = "drivers"
BEAT_S = 20.0
"""Seconds between two writes of a driver's heartbeat file."""
STALE_S = 70.0
"""Age in seconds above which a heartbeat file counts as left by a dead driver."""


class DriverHeartbeat:
    """Heartbeat file of this driver in the output, written while the context is open.

    The file holds the driver's process, node and start time, and is rewritten every `BEAT_S`
    seconds. A driver removes leftover files of attempts only if no other driver is alive; this and
    warnings are the only uses of heartbeats. A killed driver leaves its file behind. Drivers on the
    same node see at once that the process is gone. Drivers on other nodes treat the file as stale
    after `STALE_S` seconds by the store's clock.
    """

    def __init__(self, store: Store) -> None:
        """Prepare a heartbeat, which is written when the context begins.

        Args:
            store: store of the output.
        """
        self._store = store
        # Writes are retried only briefly, because the next heartbeat is another attempt.
        self._beats = Store(store.location, retry_s=BEAT_S / 2)
        self._name = f"{FOLDER}/{uuid.uuid4().hex}.json"
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        content = {"process": os.getpid(), "node": platform.node(), "since": since}
        self._content = json.dumps(add_digest(content)).encode()
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._write_heartbeats, name="driver-sign", daemon=True
        )

    def __enter__(self) -> DriverHeartbeat:
        self._store.create(self._name, self._content)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        # A write still in progress would create the file again, or be cut off by the exit.
        self._thread.join()
        fails = isinstance(error, ShardError) and not isinstance(error, DamagedFile)
        if not fails:  # a failing store would fail again
            self._store.delete(self._name)

    def find_other_drivers(self) -> list[str]:
        """Remove the heartbeats of dead drivers, and describe the other drivers that are alive."""
        self._store.replace(self._name, io.BytesIO(self._content))
        times = self._store.modified_times(FOLDER)
        now = times.get(self._name)
        signs = []
        for name in sorted(times.keys() - {self._name}):
            content = self._store.read(name)
            if content is None or now is None:
                continue
            if now - times[name] > timedelta(seconds=STALE_S) or _is_heartbeat_writer_dead(content):
                self._store.delete(name)
            else:
                signs.append(_describe_heartbeat_writer(content))
        return signs

    def warn_of_other_drivers(self) -> None:
        """Log a warning if another driver works on the output."""
        if others := self.find_other_drivers():
            logger.warning(
                "%s: another process runs a job on this output: %s. No result is lost or written "
                "twice, but both processes do the same work. Stop one of them",
                self._store.location,
                "; ".join(others),
            )

    def _write_heartbeats(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                self._beats.replace(self._name, io.BytesIO(self._content))
            except ShardError as error:
                logger.info("the heartbeat of this driver could not be written: %s", error)


def _is_heartbeat_writer_dead(heartbeat: bytes) -> bool:
    """Return whether a heartbeat belongs to a process of this node that has ended."""
    try:
        sign, check = parse_checked_object(heartbeat)
        if check != "sound" or sign["node"] != platform.node():
            return False  # the process cannot be checked from this node, so the file's age decides
        os.kill(int(sign["process"]), 0)
    except (ProcessLookupError, ValueError, KeyError, TypeError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def _describe_heartbeat_writer(heartbeat: bytes) -> str:
    """Describe the process that wrote a heartbeat."""
    try:
        sign, _ = parse_checked_object(heartbeat)
        words = f"process {sign['process']} on {sign['node']}, since {sign['since']}"
    except (ValueError, KeyError, TypeError):
        return "a process whose heartbeat file cannot be read"
    return clip_text(words)
