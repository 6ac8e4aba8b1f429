"""Workers in Ray actors, one engine each: as many as the cluster has room for, and they may die.

Actors are started up to a limit, wait for room where there is none yet, and take blocks as soon
as their engine is loaded (`ray_run`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mclabel.core import stop
from mclabel.core.errors import EngineError
from mclabel.engines.devices import ONE_CPU, EngineResources
from mclabel.run.leases import LeaseBook, OnProgress
from mclabel.run.ray_cluster import Place, connect, node_resources
from mclabel.run.ray_run import RayRun
from mclabel.run.settings import RayConfig
from mclabel.run.worker import BlockReport, Worker


class RayFleet:
    """Runs blocks in the actors of a Ray cluster."""

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        ray: RayConfig,
        *,
        resources: EngineResources = ONE_CPU,
    ) -> None:
        """Prepare a fleet; `run` joins the cluster and starts actors.

        Args:
            make_worker: called in each actor.
            ray: the cluster, and how many engines run there.
            resources: that an engine takes.
        """
        self._make_worker, self._ray, self._resources = make_worker, ray, resources
        self.stall_s, self.min_engines = ray.stall_s, ray.min_engines
        self.num_gpus = resources.total_gpus

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Reports of all blocks; engines that die are replaced."""
        if book.closed:
            return
        connect(self._ray.address)
        stop.install()  # ray.init has taken SIGTERM
        run = RayRun(self, book, on_progress)
        try:
            yield from run.reports()
        finally:
            run.stop()

    def new_actor(self) -> tuple[Any, Place]:
        """Ask the cluster for one more actor."""
        from mclabel.run.actor import make_actor

        place = Place.of(self._resources)
        return make_actor(self._make_worker, place), place

    def num_wanted(self) -> int:
        """How many actors there should be now."""
        if self._ray.max_engines is not None:
            return self._ray.max_engines
        return max(self.min_engines, self._room())

    def check_room(self, num_up: int, waited_s: float) -> bool:
        """Whether work may begin, as far as room goes.

        Args:
            num_up: actors that have found room.
            waited_s: seconds since the cluster was asked.

        Raises:
            EngineError: there is none, and none will come, or it did not come in time.
        """
        if num_up >= self.min_engines:
            return True
        hopeless = self._ray.address == "local" and self._room() < self.min_engines
        if hopeless or waited_s > self._ray.wait_s:
            nodes = ", ".join(
                f"{have.get('CPU', 0):g} CPUs and {have.get('GPU', 0):g} GPUs"
                for have in node_resources()
            )
            after = "" if hopeless else f" after ray.wait_s={self._ray.wait_s:g}"
            raise EngineError(
                f"{self._resources}: room for "
                f"{num_up} of ray.min_engines={self.min_engines} engines{after}. The nodes have: "
                f"{nodes or 'nothing'}. Ask for less (ray.num_cpus, ray.num_gpus), or add nodes"
            )
        return False

    def _room(self) -> int:
        """Engines that fit the nodes that are there, were they empty."""
        return self._resources.room(node_resources())
