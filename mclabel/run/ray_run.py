"""Runs the blocks of a job on the actors of a Ray cluster, and replaces actors that are lost.

The replies of all remote calls arrive in one queue, so the cost of handling a reply does not grow
with the number of running blocks. The driver, the process that leads the job, calls each actor's
`exchange` repeatedly: a call passes new leases, and returns the blocks that have ended.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mclabel.core.components import list_third_party_components
from mclabel.core.errors import EngineDied, EngineError
from mclabel.run.leases import LOGS, POLL_S, FleetProgress, LeaseBook, OnProgress
from mclabel.run.ray_cluster import Placement, list_draining_nodes
from mclabel.run.running import EngineSilenceMonitor, FinishedLease, Lease, find_user_error
from mclabel.run.task import RunnerState
from mclabel.run.worker import BlockReport, WorkerProgress

if TYPE_CHECKING:
    from mclabel.run.actor import ExchangeReply


logger = logging.getLogger(__name__)

MAX_FAILED_LOADS = 3
"""Number of consecutive failed loads after which the job fails."""
LOOK_S = 2.0
"""Seconds between two checks of the cluster for free resources and draining nodes."""
_ENDED = (
    "The process exited without an error message, as happens when memory runs out. Configure the "
    "engine to use less memory. "
)
LAST_REPLIES_S = 2.0
"""Seconds to wait for the last replies of engines that were asked to close."""
LAST_S = 20.0
"""Seconds for the engines of a stopped job to commit finished blocks, write journals and close."""

_ActorMethod = Literal["node", "load", "stage", "exchange"]


class ActorFleet(Protocol):
    """Protocol of a fleet that creates the actors of a run."""

    stall_s: float
    """Minimum seconds without activity before an engine is reported as silent."""
    min_engines: int
    """Number of engines that must be loaded before work starts."""
    num_gpus: float
    """Number of GPUs per engine."""

    def new_actor(self) -> tuple[Any, Placement]:
        """Create one more actor, and return its Ray handle and its reserved resources."""

    def num_wanted_engines(self) -> int:
        """Return the number of actors that should exist now."""

    def check_enough_placed(self, num_placed: int, waited_s: float) -> bool:
        """Return whether `num_placed` actors on nodes are enough for work to begin, `waited_s`
        seconds after the actors were requested.
        """


class RayRun:
    """One run of a job's blocks on the actors of a fleet."""

    def __init__(self, fleet: ActorFleet, book: LeaseBook, on_progress: OnProgress) -> None:
        """Start a run without actors.

        Args:
            fleet: fleet that creates the actors.
            book: lease book of the job.
            on_progress: called a few times a second with a snapshot of the fleet.
        """
        self._fleet, self._book, self._on_progress = fleet, book, on_progress
        self._events: queue.SimpleQueue[tuple[_ActorMethod, EngineActor, Any]] = queue.SimpleQueue()
        self._engines: list[EngineActor] = []
        self._begun = False
        self._started = time.monotonic()
        self._looked = self._shown = self._watched = -float("inf")
        self._failed_loads = self._num_failures = 0
        self._engine_s = 0.0
        self._are_engines_closed = False

    def run_until_done(self) -> Iterator[BlockReport]:
        """Run blocks until all are done or the book is closed, and yield their reports."""
        while not self._book.finished and not self._book.closed:
            self._add_and_drain_engines()
            with suppress(queue.Empty):
                yield from self._record_call_result(*self._events.get(timeout=POLL_S))
            self._replace_stopped_engines()
            self._report_progress()
        self._close_engines_once()
        until = time.monotonic() + LAST_REPLIES_S
        while any(e.is_exchanging and e.blocks for e in self._engines) and time.monotonic() < until:
            with suppress(queue.Empty):
                method, engine, future = self._events.get(timeout=POLL_S)
                if method == "exchange":
                    engine.is_exchanging = False
                    if future.exception() is None:
                        yield from self._mark_done(engine, future.result().ended)

    def stop(self) -> None:
        """Terminate the actors. Running blocks write their journals first."""
        import ray

        self._close_engines_once()
        for engine in self._engines:
            ray.kill(engine.actor)
            engine.placement.release()

    def _close_engines_once(self) -> None:
        """Make the engines commit finished blocks, write their journals and close; only once."""
        import ray

        if not self._are_engines_closed:
            self._are_engines_closed = True
            up = [e.actor for e in self._engines if e.node is not None and not e.is_silent]
            refs = [actor.stop_and_close_engine.remote() for actor in up]
            if refs:
                ray.wait(refs, num_returns=len(refs), timeout=LAST_S)

    def _record_call_result(
        self, method: _ActorMethod, engine: EngineActor, future: Any
    ) -> list[BlockReport]:
        """Handle the reply of an actor to a remote call.

        Args:
            method: name of the called method.
            engine: actor that was called.
            future: finished future of the call.

        Returns:
            Reports of the committed blocks that the reply contains.
        """
        from ray.exceptions import RayError

        if engine not in self._engines:  # the actor was terminated and replaced
            return []
        error = future.exception()
        if error is not None and not isinstance(error, RayError):
            raise error
        if method == "exchange":
            engine.is_exchanging = False
            if error is not None:
                self._recover_from_failed_exchange(engine, error)
                return []
            reply: ExchangeReply = future.result()
            engine.progress = reply.progress
            assert engine.watch is not None
            engine.watch.record(reply.progress)
            reports = self._mark_done(engine, reply.ended)
            self._start_exchange(engine, num_ended=len(reply.ended), failed=reply.failed)
            return reports
        if method == "stage":
            engine.is_stage_requested = False
            if error is None:  # otherwise the failed load reports the error itself
                engine.stage = future.result()
        elif error is not None:
            self._recover_from_failed_load(method, engine, error)
        elif method == "node":
            engine.node = future.result()
            engine.num_loads += 1
            self._call_actor("load", engine, engine.num_loads)
        else:
            self._failed_loads = 0
            engine.loaded_at, engine.is_draining = time.monotonic(), False
            engine.stage = None
            engine.watch = EngineSilenceMonitor(stall_s=self._fleet.stall_s)
            num_loaded = sum(actor.loaded_at is not None for actor in self._engines)
            self._begun = self._begun or num_loaded >= self._fleet.min_engines
            self._start_exchange(engine)
        return []

    def _mark_done(self, engine: EngineActor, ended: Iterable[FinishedLease]) -> list[BlockReport]:
        """Mark blocks as done in the lease book, and return the reports of the committed ones."""
        for block_id, _ in ended:
            engine.blocks.remove(block_id)
            self._book.mark_done(engine, block_id)
        return [report for _, report in ended if report is not None]

    def _add_and_drain_engines(self) -> None:
        """Add engines if there are free resources, and drain engines on nodes that will be removed.
        Do this at most every `LOOK_S` seconds.
        """
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        # No engine is added that would get no block, because loading an engine takes minutes.
        useful = max(self._fleet.min_engines, self._book.num_unfinished)
        while len(self._engines) < min(self._fleet.num_wanted_engines(), useful):
            engine = EngineActor(*self._fleet.new_actor())
            self._engines.append(engine)
            self._call_actor("node", engine)
        if not self._begun:
            num_placed = sum(engine.node is not None for engine in self._engines)
            self._fleet.check_enough_placed(num_placed, now - self._started)
        for engine in self._engines:
            if engine.must_request_node:
                engine.must_request_node = False
                self._call_actor("node", engine)
        draining = list_draining_nodes()
        for engine in self._engines:
            if engine.node in draining and not engine.is_draining and engine.loaded_at:
                engine.is_draining = True
                engine.actor.drain.remote()

    def _start_exchange(
        self, engine: EngineActor, *, num_ended: int = 0, failed: bool = False
    ) -> None:
        """Lease blocks to an engine, and start the next call of its actor's `exchange`."""
        leases: list[Lease] = []
        last = engine.progress
        is_draining = engine.is_draining or (last is not None and last.draining)
        if self._begun and not failed and not is_draining and not engine.is_silent:
            state = last.runner if last is not None else RunnerState()
            num_ready = sum(
                actor.loaded_at is not None and not actor.is_draining for actor in self._engines
            )
            leases = self._book.lease_blocks(
                engine, state, num_workers=num_ready, num_ended=num_ended
            )
        engine.blocks += [lease.block.id for lease in leases]
        engine.is_exchanging = True
        self._call_actor("exchange", engine, engine.num_loads, leases)

    def _call_actor(self, method: _ActorMethod, engine: EngineActor, *arguments: Any) -> None:
        """Call a method of the actor; its reply will be put into the queue."""
        future = getattr(engine.actor, method).remote(*arguments).future()
        future.add_done_callback(lambda f: self._events.put((method, engine, f)))

    def _recover_from_failed_exchange(self, engine: EngineActor, error: Exception) -> None:
        """Handle a failed call of `exchange`: let other engines run the blocks of this one.

        An error that the job's code or configuration caused is raised instead.
        """
        from ray.exceptions import RayActorError, RayTaskError

        from mclabel.run.actor import EngineNotLoaded

        cause = find_user_error(error)
        restarted = isinstance(getattr(error, "cause", None), EngineNotLoaded)
        if isinstance(error, RayTaskError) and not restarted and not isinstance(cause, EngineDied):
            raise cause or error from error  # the code failed, and would fail again
        preempted = isinstance(error, RayActorError) and error.preempted
        blameless = restarted or preempted or engine.is_draining
        hint = (
            _make_third_party_hint() if isinstance(error, RayActorError) and not preempted else ""
        )
        why = engine.termination_reason or f"{hint}{cause or error}"
        self._record_loss(engine)
        self._release_blocks(engine, why, may_be_cause=not blameless)

    def _release_blocks(self, engine: EngineActor, why: str, *, may_be_cause: bool) -> None:
        """Release the blocks of a lost engine, so that other engines run them.

        Args:
            engine: the lost engine.
            why: reason why it was lost.
            may_be_cause: True if one of the blocks may have caused the loss.
        """
        blocks, engine.blocks = engine.blocks, []
        for block_id in blocks:
            self._book.release(engine, block_id, why, may_be_cause=may_be_cause)

    def _record_loss(self, engine: EngineActor) -> None:
        """Record that an engine was lost, and prepare to load it again after Ray restarts it."""
        assert engine.loaded_at is not None
        logger.warning("an engine was lost; other engines run its blocks")
        self._num_failures += 1
        self._engine_s += time.monotonic() - engine.loaded_at
        engine.loaded_at = engine.progress = engine.node = None
        engine.watch = engine.termination_reason = engine.stage = None
        engine.must_request_node = True

    def _recover_from_failed_load(
        self, method: _ActorMethod, engine: EngineActor, error: Exception
    ) -> None:
        """Handle an actor that did not start, or whose engine did not load."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

        engine.node = None
        engine.must_request_node = True
        if method == "node" and isinstance(error, ActorUnavailableError):
            return  # Ray is restarting the actor
        if isinstance(error, RayTaskError) and (cause := find_user_error(error)):
            raise cause from error
        self._failed_loads += 1
        if self._failed_loads >= MAX_FAILED_LOADS:
            hint = "" if isinstance(error, RayTaskError) else f"{_ENDED}{_make_third_party_hint()}"
            raise EngineError(
                f"the engine failed to load {self._failed_loads} times. The last error: "
                f"{error} {hint}{LOGS}"
            ) from error
        if isinstance(error, ActorDiedError):  # Ray will not restart this actor any more
            engine.placement.release()
            engine.actor, engine.placement = self._fleet.new_actor()

    def _replace_stopped_engines(self) -> None:
        """Log engines that have been silent for too long, and replace those that have stopped."""
        now = time.monotonic()
        if now - self._watched < POLL_S:
            return
        self._watched = now
        for number, engine in enumerate(self._engines):
            if engine.watch is not None and engine.terminate_actor_if_engine_stopped(
                engine.watch, now
            ):
                why = str(engine.termination_reason)
                engine.placement.release()
                self._record_loss(engine)
                self._engines[number] = fresh = EngineActor(*self._fleet.new_actor())
                self._call_actor("node", fresh)
                self._release_blocks(engine, why, may_be_cause=True)

    def _report_progress(self) -> None:
        now = time.monotonic()
        if now - self._shown < POLL_S:
            return
        self._shown = now
        loaded = [engine for engine in self._engines if engine.loaded_at is not None]
        loading = [e for e in self._engines if e.loaded_at is None and e.node is not None]
        for engine in loading:
            if not engine.is_stage_requested:
                engine.is_stage_requested = True
                self._call_actor("stage", engine)
        alive_s = sum(now - (engine.loaded_at or now) for engine in loaded)
        self._on_progress(
            FleetProgress(
                workers=[engine.progress for engine in loaded if engine.progress is not None],
                num_starting=len(self._engines) - len(loaded),
                stage=next((engine.stage for engine in loading if engine.stage is not None), None),
                num_silent=sum(engine.is_silent for engine in loaded),
                num_failures=self._num_failures,
                gpu_hours=(self._engine_s + alive_s) * self._fleet.num_gpus / 3600,
            )
        )


def _make_third_party_hint() -> str:
    """Return a hint that names the third-party components that may have ended a process; empty if
    there are none.
    """
    if not (names := list_third_party_components()):
        return ""
    return f"It ran {', '.join(names)} from outside mclabel, which may have called os._exit. "


EXIT_S = 5.0
"""Seconds for the process of a stopped engine to exit by itself before Ray is asked to kill it."""
KILL_S = 60.0
"""Seconds for Ray to kill the process. A process may survive that, for example if it waits for a
dead file system. It is then left alone, and a new actor replaces it."""


@dataclass(eq=False)
class EngineActor:
    """The driver's record of one actor and its engine."""

    actor: Any
    """Ray handle of the actor."""
    placement: Placement
    """Reserved resources of the actor."""
    node: str | None = None
    """Id of the actor's node; None until the actor is placed."""
    loaded_at: float | None = None
    """Clock reading when the engine was loaded; None while the actor waits, loads, or is down."""
    progress: WorkerProgress | None = None
    """Latest snapshot of the actor's worker; None before the first reply of `exchange`."""
    watch: EngineSilenceMonitor | None = None
    """Measurement of the engine's silence; None while the engine is not loaded."""
    blocks: list[str] = field(default_factory=list)
    """Ids of the blocks that are leased to the actor."""
    is_draining: bool = False
    """True if the actor's node is about to be removed. Engine deaths then do not count against the
    blocks that were running."""
    must_request_node: bool = False
    """True if the id of the actor's node must be requested again, because the last request
    failed."""
    stage: str | None = None
    """Name and duration of the current stage of loading, from the actor's last reply; None if the
    engine is not loading."""
    is_stage_requested: bool = False
    """True while a call for the actor's stage is in progress."""
    num_loads: int = 0
    """Number of loads that were started so far."""
    is_exchanging: bool = False
    """True while a call of `exchange` is in progress."""
    termination_reason: str | None = None
    """Reason why the process of the actor is being terminated; None if it is not."""
    _terminated_at: float = 0.0
    _is_killed: bool = False

    @property
    def is_silent(self) -> bool:
        """Return whether the engine has shown no activity for too long."""
        return self.watch is not None and self.watch.is_silent

    def terminate_actor_if_engine_stopped(self, watch: EngineSilenceMonitor, now: float) -> bool:
        """Log a silence that is too long; terminate the process of an engine that has stopped.

        The process is first asked to exit. Ray kills it if it does not. Once the process is
        gone, the call of `exchange` in progress fails, and Ray restarts the actor.

        Args:
            watch: silence monitor of this engine.
            now: clock reading in seconds.

        Returns:
            Whether the process has survived all attempts, so that a new actor is needed.
        """
        import ray

        was_silent = watch.is_silent
        watch.advance_clock(now)
        if watch.is_silent and not was_silent:
            logger.warning("the engine on node %s %s", self.node, watch.describe_silence())
        if self.termination_reason is None:
            if watch.has_stopped:
                self.termination_reason = f"the engine {watch.describe_silence()} and was killed"
                logger.warning("the engine on node %s has stopped, so it is replaced", self.node)
                self.actor.flush_and_kill_process.remote()
                self._terminated_at, self._is_killed = now, False
        elif not self._is_killed and now - self._terminated_at >= EXIT_S:
            ray.kill(self.actor, no_restart=False)
            self._is_killed = True
        elif self._is_killed and now - self._terminated_at >= EXIT_S + KILL_S:
            ray.kill(self.actor)
            return True
        return False
