"""One run over the actors of a cluster: what they are leased, what they answer, and their losses.

Every call is awaited through one queue of events, so that the cost of an event does not grow with
the number of blocks that are running.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mclabel.core.components import outside_components
from mclabel.core.errors import EngineDied, EngineError
from mclabel.run.leases import LOGS, POLL_S, FleetProgress, LeaseBook, OnProgress
from mclabel.run.ray_cluster import Place, draining_nodes
from mclabel.run.running import Ended, Lease, Watch, user_error
from mclabel.run.task import RunnerState
from mclabel.run.worker import BlockReport, WorkerProgress

if TYPE_CHECKING:
    from mclabel.run.actor import Exchange


logger = logging.getLogger(__name__)

MAX_FAILED_LOADS = 3
LOOK_S = 2.0
"""Between two looks at the cluster: for room, and for nodes that are about to go."""
_ENDED = (
    "The process ended without a word, as it does when memory runs out: let the engine take less. "
)
LAST_ANSWERS_S = 2.0
"""For the last answers of ended engines to arrive."""
LAST_S = 20.0
"""For the engines when a job is stopped: to commit what is whole, write journals and end."""

_Kind = Literal["node", "load", "stage", "exchange"]


class Actors(Protocol):
    """Source of a run's actors."""

    stall_s: float
    min_engines: int
    num_gpus: float

    def new_actor(self) -> tuple[Any, Place]:
        """Ask the cluster for one more actor."""

    def num_wanted(self) -> int:
        """Return how many actors there should be now."""

    def check_room(self, num_up: int, waited_s: float) -> bool:
        """Return whether enough engines have room for work to begin."""


class RayRun:
    """One run over a fleet's actors."""

    def __init__(self, fleet: Actors, book: LeaseBook, on_progress: OnProgress) -> None:
        """Begin a run without any actor.

        Args:
            fleet: gives the actors.
            book: the book of leases.
            on_progress: called a few times a second.
        """
        self._fleet, self._book, self._on_progress = fleet, book, on_progress
        self._events: queue.SimpleQueue[tuple[_Kind, EngineActor, Any]] = queue.SimpleQueue()
        self._engines: list[EngineActor] = []
        self._begun = False
        self._started = time.monotonic()
        self._looked = self._shown = self._watched = -float("inf")
        self._failed_loads = self._num_failures = 0
        self._engine_s = 0.0
        self._ended = False

    def reports(self) -> Iterator[BlockReport]:
        """Yield the reports of all blocks, or of those that are done when the book is closed."""
        while not self._book.finished and not self._book.closed:
            self._look()
            with suppress(queue.Empty):
                yield from self._handle(*self._events.get(timeout=POLL_S))
            self._watch()
            self._show()
        self._end()
        until = time.monotonic() + LAST_ANSWERS_S
        while any(e.exchanging and e.blocks for e in self._engines) and time.monotonic() < until:
            with suppress(queue.Empty):
                kind, engine, future = self._events.get(timeout=POLL_S)
                if kind == "exchange":
                    engine.exchanging = False
                    if future.exception() is None:
                        yield from self._record(engine, future.result().ended)

    def stop(self) -> None:
        """End the actors; blocks that are running leave their journals."""
        import ray

        self._end()
        for engine in self._engines:
            ray.kill(engine.actor)
            engine.place.give_back()

    def _end(self) -> None:
        """Let the engines commit what is whole, write journals and end; once."""
        import ray

        if not self._ended:
            self._ended = True
            up = [e.actor for e in self._engines if e.node is not None and not e.is_silent]
            refs = [actor.end.remote() for actor in up]
            if refs:
                ray.wait(refs, num_returns=len(refs), timeout=LAST_S)

    def _handle(self, kind: _Kind, engine: EngineActor, future: Any) -> list[BlockReport]:
        """Take an actor's answer.

        Returns:
            Reports of the blocks that have ended by it.
        """
        from ray.exceptions import RayError

        if engine not in self._engines:  # left to its node
            return []
        error = future.exception()
        if error is not None and not isinstance(error, RayError):
            raise error
        if kind == "exchange":
            engine.exchanging = False
            if error is not None:
                self._lost(engine, error)
                return []
            answer: Exchange = future.result()
            engine.progress = answer.progress
            assert engine.watch is not None
            engine.watch.record(answer.progress)
            reports = self._record(engine, answer.ended)
            self._exchange(engine, num_ended=len(answer.ended), failed=answer.failed)
            return reports
        if kind == "stage":
            engine.asking = False
            if error is None:  # else the load itself says why
                engine.stage = future.result()
        elif error is not None:
            self._not_loaded(kind, engine, error)
        elif kind == "node":
            engine.node = future.result()
            engine.num_loads += 1
            self._call("load", engine, engine.num_loads)
        else:
            self._failed_loads = 0
            engine.loaded_at, engine.is_draining = time.monotonic(), False
            engine.stage = None
            engine.watch = Watch(stall_s=self._fleet.stall_s)
            num_loaded = sum(actor.loaded_at is not None for actor in self._engines)
            self._begun = self._begun or num_loaded >= self._fleet.min_engines
            self._exchange(engine)
        return []

    def _record(self, engine: EngineActor, ended: Iterable[Ended]) -> list[BlockReport]:
        """Enter what has ended in the book; the reports of the blocks that were committed."""
        for block_id, _ in ended:
            engine.blocks.remove(block_id)
            self._book.done(engine, block_id)
        return [report for _, report in ended if report is not None]

    def _look(self) -> None:
        """Now and then: for room to add engines, and for nodes that are about to go."""
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        # None that would find no block: an engine takes minutes to load.
        useful = max(self._fleet.min_engines, self._book.num_unfinished)
        while len(self._engines) < min(self._fleet.num_wanted(), useful):
            engine = EngineActor(*self._fleet.new_actor())
            self._engines.append(engine)
            self._call("node", engine)
        if not self._begun:
            num_up = sum(engine.node is not None for engine in self._engines)
            self._fleet.check_room(num_up, now - self._started)
        for engine in self._engines:
            if engine.ask_again:
                engine.ask_again = False
                self._call("node", engine)
        draining = draining_nodes()
        for engine in self._engines:
            if engine.node in draining and not engine.is_draining and engine.loaded_at:
                engine.is_draining = True
                engine.actor.drain.remote()

    def _exchange(self, engine: EngineActor, *, num_ended: int = 0, failed: bool = False) -> None:
        """Lease an engine what it should have, and ask what has ended."""
        leases: list[Lease] = []
        last = engine.progress
        is_draining = engine.is_draining or (last is not None and last.draining)
        if self._begun and not failed and not is_draining and not engine.is_silent:
            state = last.runner if last is not None else RunnerState()
            num_ready = sum(
                actor.loaded_at is not None and not actor.is_draining for actor in self._engines
            )
            leases = self._book.take(engine, state, num_workers=num_ready, num_ended=num_ended)
        engine.blocks += [lease.block.id for lease in leases]
        engine.exchanging = True
        self._call("exchange", engine, engine.num_loads, leases)

    def _call(self, kind: _Kind, engine: EngineActor, *arguments: Any) -> None:
        """Call the actor; its answer becomes an event."""
        future = getattr(engine.actor, kind).remote(*arguments).future()
        future.add_done_callback(lambda f: self._events.put((kind, engine, f)))

    def _lost(self, engine: EngineActor, error: Exception) -> None:
        """Handle an actor that did not answer, or whose work failed: its blocks go to others."""
        from ray.exceptions import RayActorError, RayTaskError

        from mclabel.run.actor import NotLoaded

        cause = user_error(error)
        restarted = isinstance(getattr(error, "cause", None), NotLoaded)
        if isinstance(error, RayTaskError) and not restarted and not isinstance(cause, EngineDied):
            raise cause or error from error  # the code failed, and would again
        preempted = isinstance(error, RayActorError) and error.preempted
        blameless = restarted or preempted or engine.is_draining
        who = _who_may_have() if isinstance(error, RayActorError) and not preempted else ""
        why = engine.why or f"{who}{cause or error}"
        self._down(engine)
        self._release(engine, why, counts=not blameless)

    def _release(self, engine: EngineActor, why: str, *, counts: bool) -> None:
        """Let other engines have the blocks of one that is lost."""
        blocks, engine.blocks = engine.blocks, []
        for block_id in blocks:
            self._book.release(engine, block_id, why, counts=counts)

    def _down(self, engine: EngineActor) -> None:
        """Load an engine again that is gone, where Ray restarts its process."""
        assert engine.loaded_at is not None
        logger.warning("an engine was lost; its blocks go to others")
        self._num_failures += 1
        self._engine_s += time.monotonic() - engine.loaded_at
        engine.loaded_at = engine.progress = engine.node = None
        engine.watch = engine.why = engine.stage = None
        engine.ask_again = True

    def _not_loaded(self, kind: _Kind, engine: EngineActor, error: Exception) -> None:
        """Handle an actor that did not come up, or whose engine did not load."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

        engine.node = None
        engine.ask_again = True
        if kind == "node" and isinstance(error, ActorUnavailableError):
            return  # it is being restarted
        if isinstance(error, RayTaskError) and (cause := user_error(error)):
            raise cause from error
        self._failed_loads += 1
        if self._failed_loads >= MAX_FAILED_LOADS:
            hint = "" if isinstance(error, RayTaskError) else f"{_ENDED}{_who_may_have()}"
            raise EngineError(
                f"the engine failed to load {self._failed_loads} times; the last time: "
                f"{error} {hint}{LOGS}"
            ) from error
        if isinstance(error, ActorDiedError):  # for good: Ray restarts it no more
            engine.place.give_back()
            engine.actor, engine.place = self._fleet.new_actor()

    def _watch(self) -> None:
        """Report engines that are silent for too long, and replace those that stay so."""
        now = time.monotonic()
        if now - self._watched < POLL_S:
            return
        self._watched = now
        for number, engine in enumerate(self._engines):
            if engine.watch is not None and engine.watch_over(engine.watch, now):
                why = str(engine.why)
                engine.place.give_back()
                self._down(engine)
                self._engines[number] = fresh = EngineActor(*self._fleet.new_actor())
                self._call("node", fresh)
                self._release(engine, why, counts=True)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown < POLL_S:
            return
        self._shown = now
        loaded = [engine for engine in self._engines if engine.loaded_at is not None]
        loading = [e for e in self._engines if e.loaded_at is None and e.node is not None]
        for engine in loading:
            if not engine.asking:
                engine.asking = True
                self._call("stage", engine)
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


def _who_may_have() -> str:
    """Name the components that may have ended a process of this job, if any may."""
    if not (names := outside_components()):
        return ""
    return f"It ran {', '.join(names)} from outside mclabel, which may have called os._exit. "


ABANDON_S = 5.0
"""For the process of a stopped engine to end itself, before Ray is asked to kill it."""
KILL_S = 60.0
"""For Ray to kill it. A process that survives even that, as one does that waits for a dead file
system, is left to its node, and another actor takes its place."""


@dataclass(eq=False)
class EngineActor:
    """An actor as the driver sees it."""

    actor: Any
    place: Place
    node: str | None = None
    """Id of its node; None before it was placed."""
    loaded_at: float | None = None
    """Clock reading when it was loaded; None while it waits, loads, or is down."""
    progress: WorkerProgress | None = None
    watch: Watch | None = None
    """Watch of its silence, from its loading on."""
    blocks: list[str] = field(default_factory=list)
    is_draining: bool = False
    """True if its node is about to go. Blocks lost on it then do not count against their items."""
    ask_again: bool = False
    """True to ask for its node again, as the last call was not answered."""
    stage: str | None = None
    """Its stage and seconds while it loads, by its last answer."""
    asking: bool = False
    """True if it is being asked for its stage."""
    num_loads: int = 0
    """Begun so far."""
    exchanging: bool = False
    """True if an exchange is under way."""
    why: str | None = None
    """Why it is being ended, where it has stopped."""
    _ended_at: float = 0.0
    _is_killed: bool = False

    @property
    def is_silent(self) -> bool:
        """Return whether it has given no sign of work for too long."""
        return self.watch is not None and self.watch.is_silent

    def watch_over(self, watch: Watch, now: float) -> bool:
        """Report a silence that is too long, then end the process, by harder and harder means.

        Once the process is gone, the exchange under way fails, and Ray starts the actor anew.

        Args:
            watch: the watch of this engine.
            now: clock reading in seconds.

        Returns:
            Whether the process has survived all means, so that another actor is needed.
        """
        import ray

        was_silent = watch.is_silent
        watch.tick(now)
        if watch.is_silent and not was_silent:
            logger.warning("the engine on node %s %s", self.node, watch.report())
        if self.why is None:
            if watch.has_stopped:
                self.why = f"the engine {watch.report()}, and was ended"
                logger.warning("the engine on node %s has stopped: it is replaced", self.node)
                self.actor.abandon.remote()
                self._ended_at, self._is_killed = now, False
        elif not self._is_killed and now - self._ended_at >= ABANDON_S:
            ray.kill(self.actor, no_restart=False)
            self._is_killed = True
        elif self._is_killed and now - self._ended_at >= ABANDON_S + KILL_S:
            ray.kill(self.actor)
            return True
        return False
