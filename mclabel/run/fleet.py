"""Where blocks run: in this process (`local_fleet`), or in Ray actors (`ray_fleet`).

A fleet takes a book of blocks and gives back reports, each block's exactly once. It leases every
worker as many blocks at a time as keep its engine full, two at least: then the next block's items
are there to work on while the last ones of a block finish. A block whose worker died goes to
another, which replays what the first has journaled, and the commit rule keeps a late attempt from
writing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mclabel.run.leases import LeaseBook
from mclabel.run.worker import BlockReport, WorkerProgress

POLL_S = 0.25
"""Between two snapshots of a fleet."""


@dataclass(frozen=True, kw_only=True)
class FleetProgress:
    """A snapshot of a fleet."""

    workers: Sequence[WorkerProgress]
    """Snapshots of the engines that are loaded."""
    num_starting: int = 0
    """Engines that wait for room, or load."""
    stage: str | None = None
    """What an engine that loads does now, and for how long; None if none is known to load."""
    num_failures: int = 0
    """Engines lost so far."""
    num_silent: int = 0
    """Loaded engines that have given no sign of life for too long."""
    gpu_hours: float = 0.0
    """Hours of the engines' GPUs, since each engine was loaded."""


OnProgress = Callable[[FleetProgress], None]


class Fleet(Protocol):
    """Runs blocks on one or more workers."""

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Reports of all blocks, in the order they finish; until the book is closed.

        Raises:
            EngineError: engines cannot be loaded, or die whatever they are given.
        """
        ...
