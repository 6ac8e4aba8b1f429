"""Handles the blocks that run on one worker, in an actor or in this process.

`RunningBlocks` runs blocks concurrently and reports the ones that have ended. `SuspectBlock` finds
the item that kills engines. `EngineSilenceMonitor` measures the silence of an engine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mclabel.core.errors import EngineDied, EngineError, MclabelError, RejectReason, shorten_detail
from mclabel.run.task import Block, TaskWords
from mclabel.run.worker import BlockReport, Worker, WorkerProgress

GATHER_S = 0.05
"""Seconds to wait after a lease ends, so that leases that end in this time are reported
together."""
RAMP_S = 0.1
"""Maximum seconds from new leases to the next report. The report comes early because the engine may
have room for more blocks."""

FinishedLease = tuple[str, BlockReport | None]
"""A finished lease: the block's id, and its report. The report is None if the lease was for one
item only.
"""


class RunningBlocks:
    """Runs the leases of a worker on the worker's event loop.

    A lease lets the worker run one block, or one item of it. After a lease has ended,
    `wait_for_finished_leases` waits a moment for further ones. So many blocks of a few milliseconds
    share one message to the driver.
    """

    def __init__(self, worker: Worker) -> None:
        """Create an empty set of running blocks for a worker.

        Args:
            worker: started worker.
        """
        self._worker = worker
        self._tasks: dict[asyncio.Task[BlockReport | None], str] = {}
        self._has_new = False

    @property
    def unreported_block_ids(self) -> list[str]:
        """Ids of blocks whose leases still run, or have ended and were not returned yet."""
        return list(self._tasks.values())

    @property
    def failure(self) -> BaseException | None:
        """Error of a failed lease; None if no lease failed. If several failed, `EngineDied` is
        returned only if there is no other error.
        """
        errors = [error for task in self._tasks if (error := _get_task_error(task)) is not None]
        return next((e for e in errors if not isinstance(e, EngineDied)), next(iter(errors), None))

    def start_leases(self, leases: Iterable[Lease]) -> None:
        """Start the leased blocks."""
        for lease in leases:
            self._has_new = True
            self._tasks[asyncio.create_task(self._run_lease(lease))] = lease.block.id

    async def wait_for_finished_leases(self, wait_s: float) -> list[FinishedLease]:
        """Wait until a lease ends or `wait_s` has passed; return the leases that ended without
        error.

        Each finished lease is returned only once. The leases are in the order in which they were
        started. A lease that ended with an error is not returned; `failure` is its error.

        Args:
            wait_s: maximum seconds to wait for the first lease to end. The first call after new
                leases waits at most `RAMP_S` seconds instead, because the engine may have room for
                more.
        """
        if self._has_new:
            wait_s, self._has_new = RAMP_S, False
        if not self._tasks:
            await asyncio.sleep(wait_s)
            return []
        first = asyncio.FIRST_COMPLETED
        done, running = await asyncio.wait(self._tasks, timeout=wait_s, return_when=first)
        if done and running and self.failure is None:
            await asyncio.sleep(GATHER_S)
        return self.take_finished_leases()

    def take_finished_leases(self) -> list[FinishedLease]:
        """Return leases that ended without error and were not returned yet, without waiting."""
        ended = [
            task
            for task in self._tasks
            if task.done() and not task.cancelled() and task.exception() is None
        ]
        return [(self._tasks.pop(task), task.result()) for task in ended]

    async def stop(self) -> None:
        """Cancel the running leases. Each writes its journal; a commit in progress is finished."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run_lease(self, lease: Lease) -> BlockReport | None:
        if lease.only_item_id is not None:
            await self._worker.try_item(lease.block, lease.only_item_id)
            return None
        return await self._worker.run_block(
            lease.block, may_have_journals=lease.may_have_journals, set_aside=lease.set_aside
        )


def _get_task_error(task: asyncio.Task[BlockReport | None]) -> BaseException | None:
    error = task.exception() if task.done() and not task.cancelled() else None
    return find_user_error(error) or error


def find_user_error(error: BaseException | None) -> MclabelError | None:
    """Return the `MclabelError` that an error of Ray or of a task group contains; None if there is
    none.
    """
    while error is not None:
        # Ray's error is also an instance of the cause's class, but its text is a whole traceback.
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        inner = inner or getattr(error, "cause", None)
        if inner is None and isinstance(error, MclabelError):
            return error
        error = inner
    return None


MAX_SHARED_LOSSES = 2
"""Number of engine deaths while a block shares the engine with other blocks, after which the block
is leased alone."""
MAX_DEATHS = 2
"""Number of engine deaths after which an item is set aside, that is, left out of its block.
Deaths while the item ran alone count, and one death while its block ran alone."""
MAX_WHOLE_LOSSES = 5
"""Number of engine deaths while a block runs alone, after which the job fails. So many deaths occur
only if the items of the block succeed when they run one by one."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A block that is leased to a worker."""

    block: Block
    may_have_journals: bool
    """True if earlier attempts may have left journals."""
    only_item_id: str | None = None
    """Id of the only item to try. Its work is written to the journal and not committed. None runs
    and commits the whole block."""
    set_aside: Mapping[str, RejectReason] = field(default_factory=dict)
    """Reasons of the items that are set aside and not run, by item id."""


class SuspectBlock:
    """A block that is suspected of killing engines, because engines died too often while it ran.

    All running blocks are lost when an engine dies, and usually none of them is the cause. So a
    first death has no consequences for a block. After a second death the block is leased alone. If
    the engine dies again, the block's items are tried one by one, each alone, and reuse the work in
    the journals. An item that has killed two engines is set aside, and the block is committed
    without it. The death of the engine that ran the block alone counts for the first item that
    kills an engine by itself. So a block with one such item costs four engines. Trials write
    journals, so no work is repeated.

    The counts are kept in the driver's memory, and start from zero after a restart. The metadata of
    the block's shard records the items that were set aside (`mclabel.run.shards.rejects`).
    """

    def __init__(self, block: Block, words: TaskWords) -> None:
        """Start to examine a block.

        Args:
            block: suspected block, which is leased alone from now on.
            words: words for the task's items in messages.
        """
        self._block, self._words = block, words
        self._set_aside: dict[str, RejectReason] = {}
        self._untried: deque[str] = deque()
        self._deaths = self._whole_losses = 0
        self._unexplained = 0
        """1 if an engine died while the whole block ran alone, and this death was not counted
        against an item yet; else 0."""

    def make_next_lease(self) -> Lease:
        """Return the next lease of the block: all of it, or one item. It must run alone on its
        engine.
        """
        only = self._untried[0] if self._untried else None
        return Lease(
            block=self._block,
            may_have_journals=True,
            only_item_id=only,
            set_aside=dict(self._set_aside),
        )

    def record_survival(self) -> bool:
        """Record that the engine survived the last lease.

        Returns:
            True if the block is done.
        """
        if not self._untried:
            return True
        self._untried.popleft()
        self._deaths = 0
        return False

    def record_death(self, reason: str) -> bool:
        """Record that the engine died during the last lease.

        Returns:
            True if an item was set aside because of this death.

        Raises:
            EngineError: engines die while the block runs, but not while its items run one by one.
        """
        if not self._untried:
            self._whole_losses += 1
            if self._whole_losses >= MAX_WHOLE_LOSSES:
                raise EngineError(
                    f"block {self._block.id} made its engine die {self._whole_losses} times while "
                    f"it ran alone, although its {self._words.items} succeed one by one. The last "
                    f"error: {reason}. Make blocks smaller ({self._words.block_setting}), or give "
                    "engines more memory"
                )
            self._untried.extend(
                item.id for item in self._block.items if item.id not in self._set_aside
            )
            self._deaths, self._unexplained = 0, 1
            return False
        self._deaths += 1
        if self._deaths + self._unexplained < MAX_DEATHS:
            return False
        self._set_aside[self._untried.popleft()] = RejectReason(
            "kills_engine", shorten_detail(reason)
        )
        self._deaths = self._unexplained = 0
        return True


STALL_S = 120.0
"""Default minimum seconds without activity before an engine is reported as silent."""
PACE = 5.0
"""A silence is reported only if it is at least this many times the engine's longest recent
pause."""
FIRST = 5.0
"""Factor by which the minimum silence is multiplied before the engine's first activity, when its
pace is unknown."""
PATIENCE = 2.0
"""An engine is replaced after this many times the silence after which it is reported."""
WINDOW_S = 600.0
"""Seconds for which a pause counts as recent, measured by the sum of ticks."""
MAX_TICK_S = 2.0
"""Maximum seconds by which one tick advances the clock. If the driver itself was delayed for
longer, it could not receive reports of activity, so the rest does not count as silence."""


class EngineSilenceMonitor:
    """Measures the silence of one engine since it was loaded.

    An engine may stop without an error, for example if its process is stopped, a GPU kernel hangs,
    or a file system does not respond. Only its silence shows this. The tolerable silence depends on
    the engine, since a large model on a CPU needs seconds per token. So a silence is compared with
    the engine's own longest pause within the last minutes. An engine without requests is not
    silent. Activity is any increase of the counts in `RunnerState`.
    """

    def __init__(self, *, stall_s: float = STALL_S) -> None:
        """Start to watch an engine that has just been loaded.

        Args:
            stall_s: minimum seconds of silence before the engine is reported as silent.
        """
        self._stall_s = stall_s
        self._clock_s = 0.0
        self._ticked: float | None = None
        self._signs: tuple[int | None, ...] | None = None
        self._has_begun = False
        self._is_steady = True
        self._pauses: deque[tuple[float, float]] = deque()
        """End time and length of recent pauses in seconds. Only pauses that no later pause exceeds
        are kept, so the first one is the longest."""
        self.silent_s = 0.0
        """Seconds since the last activity."""

    def advance_clock(self, now: float) -> None:
        """Advance the watch's clock to a time; add at most `MAX_TICK_S` seconds to the silence.

        Args:
            now: clock reading in seconds.
        """
        passed = 0.0 if self._ticked is None else min(now - self._ticked, MAX_TICK_S)
        self._ticked = now
        self._clock_s += passed
        self.silent_s += passed

    def record(self, progress: WorkerProgress) -> None:
        """Record a snapshot of the engine's worker. Activity or an idle engine ends a silence."""
        engine = progress.runner
        signs = (engine.num_tokens, *engine.counters.values())
        is_idle = engine.num_live == 0 and engine.num_waiting == 0
        moved = signs != self._signs
        self._is_steady = engine.is_steady
        if self._signs is not None and moved:
            self._has_begun = True
        self._signs = signs
        if moved or is_idle:
            self._record_ended_silence()
            self.silent_s = 0.0

    @property
    def limit_s(self) -> float:
        """Seconds of silence after which the engine is reported as silent."""
        if not self._has_begun:
            return FIRST * self._stall_s
        return max(self._stall_s, PACE * (self._pauses[0][1] if self._pauses else 0.0))

    @property
    def is_silent(self) -> bool:
        """Return whether the silence has reached `limit_s`."""
        return self.silent_s >= self.limit_s

    @property
    def has_stopped(self) -> bool:
        """Return whether the engine must be replaced.

        An engine that shows activity only at the end of a request is never replaced. Its silence
        may be a long request, and its requests have their own time limits.
        """
        return self._is_steady and self.silent_s >= PATIENCE * self.limit_s

    def describe_silence(self) -> str:
        """Return a clause for messages that states the length and the limit of the silence."""
        longest = f"{self._pauses[0][1]:.1f} s" if self._pauses else "not known"
        return (
            f"produced no token and did not respond for {self.silent_s:.0f} s (its longest recent "
            f"pause: {longest})"
        )

    def _record_ended_silence(self) -> None:
        while self._pauses and self._pauses[-1][1] <= self.silent_s:
            self._pauses.pop()
        self._pauses.append((self._clock_s, self.silent_s))
        while self._clock_s - self._pauses[0][0] > WINDOW_S:
            self._pauses.popleft()
