"""Where blocks run: in this process, or in Ray actors that may die at any moment.

A fleet takes blocks and gives back reports, each block's exactly once. It leases every worker
as many blocks at a time as keep its engine full, two at least: then there are the next block's
rollouts to sample while the last ones of a block finish. A block whose worker died goes to
another; nothing is lost but the work since its lease began, and the commit rule keeps a late
attempt from writing twice.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from mclabel.errors import EngineError, MclabelError
from mclabel.labeling.worker import Block, BlockReport, LabelWorker, WorkerProgress
from mclabel.policy import EngineStats

MIN_LEASES, MAX_LEASES = 2, 64
"""Blocks a worker holds at a time."""
MAX_FAILED_LOADS = 3
MAX_BLOCK_ATTEMPTS = 5
POLL_S = 0.25


def num_more_leases(held: int, engine: EngineStats) -> int:
    """How many blocks to lease a worker that holds some.

    Enough for as many completions to wait as are sampled. An estimator that asks for little at a
    time needs many blocks for that; the engine samples the earliest ones first.

    Args:
        held: blocks it holds.
        engine: its engine, as last seen.
    """
    demand, wanted = engine.num_live + engine.num_waiting, 2 * engine.max_live
    if held < MIN_LEASES:
        return MIN_LEASES - held
    if demand >= wanted:
        return 0
    more = math.ceil(held * (wanted / demand - 1)) if demand else held
    return min(more, held, MAX_LEASES - held)  # at most twice as many before looking again


class Fleet(Protocol):
    """Runs blocks on one or more workers."""

    def run(
        self, blocks: Sequence[Block], on_progress: Callable[[Sequence[WorkerProgress]], None]
    ) -> Iterator[BlockReport]:
        """Reports of all blocks, in the order they finish.

        Raises:
            EngineError: engines cannot be loaded, or a block kills every worker it meets.
        """
        ...


class LocalFleet:
    """One worker in this process, without Ray."""

    def __init__(self, make_worker: Callable[[], LabelWorker]) -> None:
        self._make_worker = make_worker

    def run(
        self, blocks: Sequence[Block], on_progress: Callable[[Sequence[WorkerProgress]], None]
    ) -> Iterator[BlockReport]:
        with asyncio.Runner() as runner:
            worker = self._make_worker()
            runner.run(worker.start())
            waiting, due = deque(blocks), set[asyncio.Task[BlockReport]]()
            try:
                progress = runner.run(worker.progress())
                while waiting or due:
                    for _ in range(min(num_more_leases(len(due), progress.engine), len(waiting))):
                        block = waiting.popleft()
                        due.add(runner.get_loop().create_task(worker.run_block(block)))
                    done, due = runner.run(_first_of(due))
                    progress = runner.run(worker.progress())
                    on_progress([progress])
                    for task in done:
                        if (failure := task.exception()) is not None:
                            raise _user_error(failure) or failure
                        yield task.result()
            finally:
                for task in due:
                    task.cancel()
                runner.run(worker.close())


async def _first_of(
    due: set[asyncio.Task[BlockReport]],
) -> tuple[set[asyncio.Task[BlockReport]], set[asyncio.Task[BlockReport]]]:
    return await asyncio.wait(due, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)


def _user_error(error: BaseException | None) -> MclabelError | None:
    """The error with a message for the user inside an error of Ray or of a task group."""
    while error is not None and not isinstance(error, MclabelError):
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = inner or getattr(error, "cause", None)
    return error


class RayFleet:
    """Workers in Ray actors, one engine each."""

    def __init__(
        self,
        make_worker: Callable[[], LabelWorker],
        *,
        address: str,
        num_engines: int | None,
        num_cpus: float,
        num_gpus: float,
    ) -> None:
        """Args:
        make_worker: called in each actor.
        address: `local`, `auto` or a cluster's address.
        num_engines: actors; None is as many as the cluster has room for.
        num_cpus: that an actor takes.
        num_gpus: that an actor takes.
        """
        self._make_worker, self._address = make_worker, address
        self._num_engines, self._num_cpus, self._num_gpus = num_engines, num_cpus, num_gpus

    def run(
        self, blocks: Sequence[Block], on_progress: Callable[[Sequence[WorkerProgress]], None]
    ) -> Iterator[BlockReport]:
        import ray

        self._connect()
        actors = [self._actor() for _ in range(min(self._count(), max(1, len(blocks))))]
        try:
            yield from _Leases(actors, blocks, on_progress).run()
        finally:
            for actor in actors:
                ray.kill(actor)

    def _connect(self) -> None:
        import ray

        if ray.is_initialized():
            return
        # Ray would run engines at low priority even where the machine is theirs, and would hide
        # GPUs from actors that ask for none, with a warning that it will stop doing so.
        os.environ.setdefault("RAY_worker_niceness", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            ray.init(
                address=self._address,
                log_to_driver=False,
                logging_level=logging.WARNING,
                include_dashboard=False if self._address == "local" else None,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise EngineError(
                f"ray.address={self._address!r}: cannot connect: {error}. Use ray.address=local "
                "to start Ray on this machine"
            ) from error

    def _count(self) -> int:
        import ray

        if self._num_engines is not None:
            return self._num_engines
        have = ray.cluster_resources()
        fits = [
            int(have.get(kind, 0) // need)
            for kind, need in (("CPU", self._num_cpus), ("GPU", self._num_gpus))
            if need
        ]
        room = min(fits, default=1)
        if room < 1:
            raise EngineError(
                f"ray.num_cpus={self._num_cpus}, ray.num_gpus={self._num_gpus}: no engine fits a "
                f"cluster of {have.get('CPU', 0):g} CPUs and {have.get('GPU', 0):g} GPUs"
            )
        return room

    def _actor(self) -> Any:
        from mclabel.labeling.actor import make_actor

        return make_actor(self._make_worker, num_cpus=self._num_cpus, num_gpus=self._num_gpus)


class _Leases:
    """The lease book of one run over Ray actors."""

    def __init__(
        self,
        actors: Sequence[Any],
        blocks: Sequence[Block],
        on_progress: Callable[[Sequence[WorkerProgress]], None],
    ) -> None:
        self._actors, self._on_progress = actors, on_progress
        self._waiting = deque(blocks)
        self._attempts: dict[str, int] = {}
        self._failed_loads = 0
        self._starting = {actor.load.remote(): actor for actor in actors}
        self._leased: dict[Any, tuple[Any, Block]] = {}
        self._held: Counter[Any] = Counter()
        self._asked: dict[Any, Any] = {}
        self._progress: dict[Any, WorkerProgress] = {}

    def run(self) -> Iterator[BlockReport]:
        import ray

        while self._waiting or self._leased:
            refs = [*self._starting, *self._leased, *self._asked]
            done, _ = ray.wait(refs, num_returns=1, timeout=POLL_S)
            for ref in done:
                if ref in self._starting:
                    self._started(ref)
                elif ref in self._asked:
                    self._take_progress(ref)
                elif (report := self._finished(ref)) is not None:
                    yield report
            self._on_progress(list(self._progress.values()))

    def _started(self, ref: Any) -> None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        actor = self._starting.pop(ref)
        try:
            ray.get(ref)
        except RayError as error:
            if isinstance(error, RayTaskError) and (known := _user_error(error)):
                raise known from error
            self._failed_loads += 1
            if self._failed_loads >= MAX_FAILED_LOADS:
                raise EngineError(
                    f"the engine failed to load {self._failed_loads} times; the last time: {error}"
                ) from error
            self._starting[actor.load.remote()] = actor
            return
        self._failed_loads = 0
        self._ask_progress(actor)
        self._lease(actor)

    def _lease(self, actor: Any) -> None:
        """Lease a worker what keeps its engine full."""
        seen = self._progress.get(actor)
        more = num_more_leases(self._held[actor], seen.engine if seen else EngineStats())
        share = math.ceil(len(self._waiting) / len(self._actors))  # the others want some too
        for _ in range(min(more, share)):
            block = self._waiting.popleft()
            self._leased[actor.run_block.remote(block)] = (actor, block)
            self._held[actor] += 1

    def _finished(self, ref: Any) -> BlockReport | None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        actor, block = self._leased.pop(ref)
        self._held[actor] -= 1
        try:
            report: BlockReport = ray.get(ref)
        except RayTaskError as error:  # the code failed, and would again
            raise _user_error(error) or error from error
        except RayError as error:
            self._lost(actor, block, error)
            return None
        self._lease(actor)
        return report

    def _lost(self, actor: Any, block: Block, error: Exception) -> None:
        """A worker died under a block: lease it anew, and load the worker's engine again."""
        self._attempts[block.id] = self._attempts.get(block.id, 0) + 1
        if self._attempts[block.id] >= MAX_BLOCK_ATTEMPTS:
            raise EngineError(
                f"block {block.id} killed its worker {MAX_BLOCK_ATTEMPTS} times (problems "
                f"{', '.join(p.id for p in block.problems)}); the last time: {error}"
            ) from error
        self._waiting.appendleft(block)
        self._progress.pop(actor, None)
        if actor not in self._starting.values():
            self._starting[actor.load.remote()] = actor

    def _ask_progress(self, actor: Any) -> None:
        self._asked[actor.progress.remote()] = actor

    def _take_progress(self, ref: Any) -> None:
        import ray
        from ray.exceptions import RayError

        actor = self._asked.pop(ref)
        try:
            self._progress[actor] = ray.get(ref)
        except RayError:  # the leases of a dead worker tell of it; progress starts anew then
            self._progress.pop(actor, None)
            return
        self._ask_progress(actor)
        self._lease(actor)
