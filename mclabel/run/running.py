"""The blocks that run on one worker, in an actor or in this process.

`RunningBlocks` runs them concurrently and reports those that have ended; `Suspect` finds the item
under which engines die; `Watch` measures the silence of an engine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mclabel.core.errors import EngineDied, EngineError, MclabelError, RejectReason, bounded
from mclabel.run.task import Block, TaskWords
from mclabel.run.worker import BlockReport, Worker, WorkerProgress

GATHER_S = 0.05
"""Seconds from the first block that ends to its report, while others are running."""
RAMP_S = 0.1
"""Maximum seconds from new leases to a report: the engine may need as many again."""

Ended = tuple[str, BlockReport | None]
"""Id of a block of which all that was leased is done, and the report if it was committed."""


class RunningBlocks:
    """Runs the leases of a worker, on its event loop.

    Blocks that have ended are reported together, after a moment in which others may end, so that
    blocks of a few milliseconds cost no message each.
    """

    def __init__(self, worker: Worker) -> None:
        """Begin without any block.

        Args:
            worker: started.
        """
        self._worker = worker
        self._tasks: dict[asyncio.Task[BlockReport | None], str] = {}
        self._has_new = False

    @property
    def unreported(self) -> list[str]:
        """Ids of blocks that are still running, or whose end has not been reported."""
        return list(self._tasks.values())

    @property
    def failure(self) -> BaseException | None:
        """Error of a failed block, if any: that the engine died only if there is no other error."""
        errors = [error for task in self._tasks if (error := _error(task)) is not None]
        return next((e for e in errors if not isinstance(e, EngineDied)), next(iter(errors), None))

    def begin(self, leases: Iterable[Lease]) -> None:
        """Start the leased blocks."""
        for lease in leases:
            self._has_new = True
            self._tasks[asyncio.create_task(self._run(lease))] = lease.block.id

    async def ended(self, wait_s: float) -> list[Ended]:
        """Return the blocks that have ended well since the last report, in the order of leases.

        Args:
            wait_s: seconds to wait for the first one; with new leases less.
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
        return self.take_ended()

    def take_ended(self) -> list[Ended]:
        """Return the blocks that have ended well by now and were not reported."""
        ended = [
            task
            for task in self._tasks
            if task.done() and not task.cancelled() and task.exception() is None
        ]
        return [(self._tasks.pop(task), task.result()) for task in ended]

    async def stop(self) -> None:
        """End the blocks that are running: each writes its journal, and a commit is finished."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, lease: Lease) -> BlockReport | None:
        if lease.only is not None:
            await self._worker.try_item(lease.block, lease.only)
            return None
        return await self._worker.run_block(
            lease.block, replay=lease.replay, set_aside=lease.set_aside
        )


def _error(task: asyncio.Task[BlockReport | None]) -> BaseException | None:
    error = task.exception() if task.done() and not task.cancelled() else None
    return user_error(error) or error


def user_error(error: BaseException | None) -> MclabelError | None:
    """Return the error with a message for the user inside one of Ray or of a task group."""
    while error is not None:
        # Ray's own is of the same class as its cause, and its text is the whole traceback.
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        inner = inner or getattr(error, "cause", None)
        if inner is None and isinstance(error, MclabelError):
            return error
        error = inner
    return None


MAX_SHARED_LOSSES = 2
"""Engine deaths under a block that shares the engine with other blocks. After these the block is
leased alone."""
MAX_DEATHS = 2
"""Engines that may die under an item: alone, or once with its block."""
MAX_WHOLE_LOSSES = 5
"""Engine deaths under a block that is leased alone, although its items succeed one by one. After
these the job fails."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A block that a worker is to run."""

    block: Block
    replay: bool
    """True if earlier attempts may have left journals."""
    only: str | None = None
    """Id of the one item to try, whose work goes to the journal; None runs and commits all."""
    set_aside: Mapping[str, RejectReason] = field(default_factory=dict)
    """Items that are left out, by id."""


class Suspect:
    """A block that has lost its engine beside others too often.

    An engine that dies takes all its blocks with it, and mostly none of them is to blame: a first
    loss changes nothing for a block. After a second one the block is leased alone. If the engine
    dies again, its items are tried one by one, each alone, on what the journals hold. An item that
    has killed two engines is set aside, and the block is committed without it. The death of the
    whole block counts for the first item that kills an engine alone, so a block with one such item
    costs four engines. Trials write journals, so nothing is done twice.

    Counts are in the driver's memory and begin anew after a restart. The metadata of the block's
    shard records the items that were set aside (`mclabel.run.shards.rejects`).
    """

    def __init__(self, block: Block, words: TaskWords) -> None:
        """Begin to examine a block.

        Args:
            block: the block, which is leased alone from now on.
            words: names that messages use for the task's items.
        """
        self._block, self._words = block, words
        self._set_aside: dict[str, RejectReason] = {}
        self._untried: deque[str] = deque()
        self._deaths = self._whole_losses = 0
        self._unexplained = 0
        """1 after a death of the whole block for which no item has been set aside yet."""

    def lease(self) -> Lease:
        """Return the next lease, which runs alone on its engine."""
        only = self._untried[0] if self._untried else None
        return Lease(block=self._block, replay=True, only=only, set_aside=dict(self._set_aside))

    def passed(self) -> bool:
        """Record that the engine survived the last lease.

        Returns:
            Whether the block is done.
        """
        if not self._untried:
            return True
        self._untried.popleft()
        self._deaths = 0
        return False

    def failed(self, reason: str) -> bool:
        """Record that the engine died during the last lease.

        Returns:
            Whether an item was set aside for it.

        Raises:
            EngineError: engines die under the block, but under none of its items.
        """
        if not self._untried:
            self._whole_losses += 1
            if self._whole_losses >= MAX_WHOLE_LOSSES:
                raise EngineError(
                    f"block {self._block.id} made its engine die {self._whole_losses} times with "
                    f"nothing else running on it, though its {self._words.items} succeed one by "
                    f"one; the last time: {reason}. Make blocks smaller "
                    f"({self._words.block_setting}), or give engines more memory"
                )
            self._untried.extend(
                item.id for item in self._block.items if item.id not in self._set_aside
            )
            self._deaths, self._unexplained = 0, 1
            return False
        self._deaths += 1
        if self._deaths + self._unexplained < MAX_DEATHS:
            return False
        self._set_aside[self._untried.popleft()] = RejectReason("kills_engine", bounded(reason))
        self._deaths = self._unexplained = 0
        return True


STALL_S = 120.0
"""Silence under which no engine is suspected."""
PACE = 5.0
"""Times the longest pause of late that a silence must last to be remarkable."""
FIRST = 5.0
"""Times the floor for the first sign after loading, of which no pace is known."""
PATIENCE = 2.0
"""Times the remarkable silence after which the engine is replaced."""
WINDOW_S = 600.0
"""Time within which pauses count, by the watch's own clock."""
MAX_TICK_S = 2.0
"""Counted between two ticks at most: a driver that was itself held up could receive nothing."""


class Watch:
    """Measures the silence of one engine, from its loading on.

    An engine stops without an error when its process is stopped, a kernel hangs, or a file system
    does not answer. Only its silence shows that, and the tolerable silence depends on the engine: a
    large model on a CPU needs seconds for a token. So an engine is measured by its own longest
    pause within the last minutes. An engine without requests is not silent. Signs of life are the
    counts that rise as an engine works (`RunnerState`).
    """

    def __init__(self, *, stall_s: float = STALL_S) -> None:
        """Begin to watch an engine that has just been loaded.

        Args:
            stall_s: seconds of silence under which the engine is never suspected.
        """
        self._stall_s = stall_s
        self._clock_s = 0.0
        self._ticked: float | None = None
        self._signs: tuple[int | None, ...] | None = None
        self._has_begun = False
        self._is_steady = True
        self._pauses: deque[tuple[float, float]] = deque()
        """End and length of pauses in seconds, each shorter than the one before."""
        self.silent_s = 0.0
        """Seconds since the last sign of life."""

    def tick(self, now: float) -> None:
        """Advance the clock.

        Args:
            now: clock reading in seconds.
        """
        passed = 0.0 if self._ticked is None else min(now - self._ticked, MAX_TICK_S)
        self._ticked = now
        self._clock_s += passed
        self.silent_s += passed

    def record(self, progress: WorkerProgress) -> None:
        """Record a snapshot of the engine's worker; only new work ends a silence."""
        engine = progress.runner
        signs = (engine.num_tokens, engine.num_signs, *engine.counters.values())
        is_idle = engine.num_live == 0 and engine.num_waiting == 0
        moved = signs != self._signs
        self._is_steady = engine.is_steady
        if self._signs is not None and moved:
            self._has_begun = True
        self._signs = signs
        if moved or is_idle:
            self._note_pause()
            self.silent_s = 0.0

    @property
    def limit_s(self) -> float:
        """Return the seconds of silence after which the engine is assumed to have stopped."""
        if not self._has_begun:
            return FIRST * self._stall_s
        longest = self._pauses[0][1] if self._pauses else 0.0
        return max(self._stall_s, PACE * longest)

    @property
    def is_silent(self) -> bool:
        """Return whether the silence is remarkable."""
        return self.silent_s >= self.limit_s

    @property
    def has_stopped(self) -> bool:
        """Return whether the engine is to be replaced.

        Never one that gives signs only when a request has ended: its silence may be a long request,
        and its requests have time limits of their own.
        """
        return self._is_steady and self.silent_s >= PATIENCE * self.limit_s

    def report(self) -> str:
        """Return a clause that describes the silence."""
        longest = f"{self._pauses[0][1]:.1f} s" if self._pauses else "not known"
        return (
            f"produced no token and did not respond for {self.silent_s:.0f} s (its longest recent "
            f"pause: {longest})"
        )

    def _note_pause(self) -> None:
        while self._pauses and self._pauses[-1][1] <= self.silent_s:
            self._pauses.pop()
        self._pauses.append((self._clock_s, self.silent_s))
        while self._clock_s - self._pauses[0][0] > WINDOW_S:
            self._pauses.popleft()
