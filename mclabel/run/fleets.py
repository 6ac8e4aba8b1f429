"""Where a job's engines run, from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mclabel.engines.resources import EngineResources
from mclabel.run.fleet import Fleet, OnProgress
from mclabel.run.leases import LeaseBook
from mclabel.run.local_fleet import LocalFleet
from mclabel.run.ray_fleet import RayFleet
from mclabel.run.settings import RayConfig
from mclabel.run.worker import BlockReport, Worker


def make_fleet(
    ray: RayConfig, resources: EngineResources, make_worker: Callable[[], Worker]
) -> Fleet:
    """The workers of a job: one in this process, or as many as a cluster has room for.

    Args:
        ray: where they run.
        resources: that each takes.
        make_worker: called where each is to live.
    """
    if ray.address == "none":
        return LocalFleet(make_worker, num_gpus=resources.total_gpus, stall_s=ray.stall_s)
    return RayFleet(make_worker, ray, resources=resources)


@dataclass(frozen=True)
class LateFleet:
    """A fleet that is made only when it is given work."""

    make: Callable[[], Fleet]

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Reports of all blocks; see `Fleet`."""
        return self.make().run(book, on_progress)


def from_anywhere(place: str) -> str:
    """A folder or file named from the root, so that workers find it; a URL as it is."""
    return place if "://" in place else str(Path(place).absolute())
