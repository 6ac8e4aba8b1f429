"""Workers in Ray actors, one engine each: as many as the cluster has room for, and they may die.

Actors are started up to a limit, wait for room where there is none yet, and take blocks as soon
as their engine is loaded. Every call is awaited through one queue of events, so that the cost of
an event does not grow with the number of blocks that are out.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from mclabel import stop
from mclabel.engines import EngineStats
from mclabel.engines.resources import ONE_CPU, EngineResources
from mclabel.errors import EngineDied, EngineError
from mclabel.work.fleet import POLL_S, FleetProgress, OnProgress
from mclabel.work.leased import Ended, user_error
from mclabel.work.leases import LOGS, LeaseBook
from mclabel.work.ray_cluster import connect, draining_nodes, node_resources
from mclabel.work.ray_engine import Engine
from mclabel.work.resources import Place
from mclabel.work.suspects import Lease
from mclabel.work.watch import STALL_S, Watch
from mclabel.work.worker import BlockReport, LabelWorker

if TYPE_CHECKING:
    from mclabel.work.actor import Exchange

logger = logging.getLogger(__name__)

MAX_FAILED_LOADS = 3
LOOK_S = 2.0
"""Between two looks at the cluster: for room, and for nodes that are about to go."""
_DIED_LOADING = (
    "The process ended without a word, as it does when memory runs out: let the engine take less. "
)
LAST_ANSWERS_S = 2.0
"""For what ended engines have said to arrive."""
LAST_S = 20.0
"""For the engines when a job is stopped: to commit what is whole, write journals and end."""


class RayFleet:
    """Runs blocks in the actors of a Ray cluster."""

    def __init__(
        self,
        make_worker: Callable[[], LabelWorker],
        *,
        address: str,
        min_engines: int = 1,
        max_engines: int | None = None,
        wait_s: float = 300.0,
        stall_s: float = STALL_S,
        resources: EngineResources = ONE_CPU,
    ) -> None:
        """Args:
        make_worker: called in each actor.
        address: `local`, `auto` or a cluster's address.
        min_engines: work begins when so many are loaded.
        max_engines: actors at most; None is as many as the cluster has room for at any time.
        wait_s: seconds that the cluster is given to find room for `min_engines`.
        stall_s: seconds of silence under which no engine is suspected to have stopped.
        resources: that an engine takes.
        """
        self._make_worker, self._address = make_worker, address
        self._max_engines = max_engines
        self._wait_s, self._resources = wait_s, resources
        self.stall_s = stall_s
        self.min_engines, self.num_gpus = min_engines, resources.total_gpus

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        connect(self._address)
        stop.install()  # ray.init has taken SIGTERM
        run = _Run(self, book, on_progress)
        try:
            yield from run.reports()
        finally:
            run.stop()

    def new_actor(self) -> tuple[Any, Place]:
        """Ask the cluster for one more actor."""
        from mclabel.work.actor import make_actor

        place = Place.of(self._resources)
        return make_actor(self._make_worker, place), place

    def num_wanted(self) -> int:
        """How many actors there should be now."""
        if self._max_engines is not None:
            return self._max_engines
        return max(self.min_engines, self._room())

    def check_room(self, num_up: int, waited_s: float) -> bool:
        """Whether work may begin, as far as room goes.

        Raises:
            EngineError: there is none, and none will come, or it did not come in time.
        """
        if num_up >= self.min_engines:
            return True
        hopeless = self._address == "local" and self._room() < self.min_engines
        if hopeless or waited_s > self._wait_s:
            nodes = ", ".join(
                f"{have.get('CPU', 0):g} CPUs and {have.get('GPU', 0):g} GPUs"
                for have in node_resources()
            )
            after = "" if hopeless else f" after ray.wait_s={self._wait_s:g}"
            raise EngineError(
                f"{self._resources}: room for "
                f"{num_up} of ray.min_engines={self.min_engines} engines{after}. The nodes have: "
                f"{nodes or 'nothing'}. Ask for less (ray.num_cpus, ray.num_gpus), or add nodes"
            )
        return False

    def _room(self) -> int:
        """Engines that fit the nodes that are there, were they empty."""
        return self._resources.room(node_resources())


_Kind = Literal["node", "load", "exchange"]


class _Run:
    """One run over a fleet's actors."""

    def __init__(self, fleet: RayFleet, book: LeaseBook, on_progress: OnProgress) -> None:
        self._fleet, self._book, self._on_progress = fleet, book, on_progress
        self._events: queue.SimpleQueue[tuple[_Kind, Engine, Any]] = queue.SimpleQueue()
        self._engines: list[Engine] = []
        self._begun = False
        self._started = time.monotonic()
        self._looked = self._shown = self._watched = -float("inf")
        self._failed_loads = self._num_failures = 0
        self._engine_s = 0.0
        self._ended = False

    def reports(self) -> Iterator[BlockReport]:
        """Reports of all blocks, or of those that are done when the book is closed."""
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
                        yield from self._ended_blocks(engine, future.result().ended)

    def stop(self) -> None:
        """End the actors; blocks that are under way leave their journals."""
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

    def _handle(self, kind: _Kind, engine: Engine, future: Any) -> list[BlockReport]:
        """Take an actor's answer; reports of the blocks that it says have ended."""
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
            engine.watch.heard(answer.progress)
            reports = self._ended_blocks(engine, answer.ended)
            self._exchange(engine, num_ended=len(answer.ended), failed=answer.failed)
            return reports
        if error is not None:
            self._not_loaded(kind, engine, error)
        elif kind == "node":
            engine.node = future.result()
            engine.num_loads += 1
            self._call("load", engine, engine.num_loads)
        else:
            self._failed_loads = 0
            engine.loaded_at, engine.told_to_drain = time.monotonic(), False
            engine.watch = Watch(stall_s=self._fleet.stall_s)
            num_loaded = sum(one.loaded_at is not None for one in self._engines)
            self._begun = self._begun or num_loaded >= self._fleet.min_engines
            self._exchange(engine)
        return []

    def _ended_blocks(self, engine: Engine, ended: Iterable[Ended]) -> list[BlockReport]:
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
            engine = Engine(*self._fleet.new_actor())
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
            if engine.node in draining and not engine.told_to_drain and engine.loaded_at:
                engine.told_to_drain = True
                engine.actor.drain.remote()

    def _exchange(self, engine: Engine, *, num_ended: int = 0, failed: bool = False) -> None:
        """Lease an engine what it should have, and ask what has ended."""
        leases: list[Lease] = []
        seen = engine.progress
        draining = engine.told_to_drain or (seen is not None and seen.draining)
        if self._begun and not failed and not draining and not engine.is_silent:
            stats = seen.engine if seen is not None else EngineStats()
            num_ready = sum(
                one.loaded_at is not None and not one.told_to_drain for one in self._engines
            )
            leases = self._book.take(engine, stats, num_workers=num_ready, num_ended=num_ended)
        engine.blocks += [lease.block.id for lease in leases]
        engine.exchanging = True
        self._call("exchange", engine, engine.num_loads, leases)

    def _call(self, kind: _Kind, engine: Engine, *arguments: Any) -> None:
        """Call the actor; its answer becomes an event."""
        future = getattr(engine.actor, kind).remote(*arguments).future()
        future.add_done_callback(lambda f: self._events.put((kind, engine, f)))

    def _lost(self, engine: Engine, error: Exception) -> None:
        """An actor did not answer, or its work failed: its blocks go to others."""
        from ray.exceptions import RayActorError, RayTaskError

        from mclabel.work.actor import NotLoaded

        known = user_error(error)
        restarted = isinstance(getattr(error, "cause", None), NotLoaded)
        if isinstance(error, RayTaskError) and not restarted and not isinstance(known, EngineDied):
            raise known or error from error  # the code failed, and would again
        preempted = isinstance(error, RayActorError) and error.preempted
        blameless = restarted or preempted or engine.told_to_drain
        why = engine.why or str(known or error)
        self._down(engine)
        self._give_back(engine, why, counts=not blameless)

    def _give_back(self, engine: Engine, why: str, *, counts: bool) -> None:
        """The blocks of an engine that is lost go to others."""
        blocks, engine.blocks = engine.blocks, []
        for block_id in blocks:
            self._book.lost(engine, block_id, why, counts=counts)

    def _down(self, engine: Engine) -> None:
        """An engine is gone: load it again, where Ray restarts its process."""
        assert engine.loaded_at is not None
        logger.warning("an engine was lost; its blocks go to others")
        self._num_failures += 1
        self._engine_s += time.monotonic() - engine.loaded_at
        engine.forget_load()
        engine.ask_again = True

    def _not_loaded(self, kind: _Kind, engine: Engine, error: Exception) -> None:
        """An actor did not come up, or its engine did not load."""
        from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

        engine.node = None
        engine.ask_again = True
        if kind == "node" and isinstance(error, ActorUnavailableError):
            return  # it is being restarted
        if isinstance(error, RayTaskError) and (known := user_error(error)):
            raise known from error
        self._failed_loads += 1
        if self._failed_loads >= MAX_FAILED_LOADS:
            hint = "" if isinstance(error, RayTaskError) else _DIED_LOADING
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
                self._engines[number] = fresh = Engine(*self._fleet.new_actor())
                self._call("node", fresh)
                self._give_back(engine, why, counts=True)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown < POLL_S:
            return
        self._shown = now
        loaded = [engine for engine in self._engines if engine.loaded_at is not None]
        alive_s = sum(now - (engine.loaded_at or now) for engine in loaded)
        self._on_progress(
            FleetProgress(
                workers=[engine.progress for engine in loaded if engine.progress is not None],
                num_starting=len(self._engines) - len(loaded),
                num_silent=sum(engine.is_silent for engine in loaded),
                num_failures=self._num_failures,
                gpu_hours=(self._engine_s + alive_s) * self._fleet.num_gpus / 3600,
            )
        )
