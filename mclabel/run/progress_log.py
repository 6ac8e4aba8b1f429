"""A job's progress for machines: JSON lines beside the output, and Ray's metrics."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from mclabel.run.meter import Meter, progress_row, totals
from mclabel.run.shards.digest import log_lines, with_digest
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobState

logger = logging.getLogger(__name__)

PROGRESS_FILE = "progress.jsonl"
LOCAL_S, REMOTE_S = 10.0, 60.0
"""Between two lines; a line costs an object store the whole file again."""


class ProgressLog:
    """Writes `progress.jsonl`, and metrics where this process is connected to Ray."""

    def __init__(self, store: Store) -> None:
        """Begin a log, or go on with one that is there.

        Args:
            store: of the run's output.
        """
        self._store = store
        self._every_s = LOCAL_S if store.is_local else REMOTE_S
        self._started = time.monotonic()
        self._meter = Meter()
        self._written = -float("inf")
        self._last: dict[str, Any] | None = None
        self._metrics: _RayMetrics | None = None

    def __call__(self, state: JobState) -> None:
        """Record a state of the job."""
        now = time.monotonic()
        row = progress_row(state, self._meter.update(state, now), now - self._started)
        if self._metrics is None and _connected():
            self._metrics = _RayMetrics(row, totals(state), run=self._store.location)
        if self._metrics is not None:
            self._metrics.record(row)
        self._last = row
        if now - self._written >= self._every_s:
            self._write()

    def close(self, *, num_blocks_left: int | None = None) -> None:
        """Write the last state once more, as the last line of this start.

        Args:
            num_blocks_left: blocks that are not committed; None where the job failed.
        """
        if self._last is not None:
            self._write(ended=True, num_blocks_left=num_blocks_left)

    def _write(self, *, ended: bool = False, **more: Any) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        line = with_digest({"time": at, **(self._last or {}), "ended": ended, **more})
        self._store.append(PROGRESS_FILE, json.dumps(line).encode() + b"\n")
        self._written = time.monotonic()


def job_starts(store: Store) -> list[dict[str, Any]]:
    """The last line of every start of a job; none if the run has no log.

    Args:
        store: of the run's output.
    """
    read = list(log_lines(store.read(PROGRESS_FILE) or b""))
    lines = [line for line in read if line is not None]
    if len(lines) < len(read):
        logger.warning(
            "%s/%s: %d of %d lines are damaged or cut off, and left out",
            store.location,
            PROGRESS_FILE,
            len(read) - len(lines),
            len(read),
        )
    return [
        line
        for number, line in enumerate(lines, 1)
        if number == len(lines) or lines[number].get("elapsed_s", 0.0) < line.get("elapsed_s", 0.0)
    ]


class _RayMetrics:
    """Gauges and counters `mclabel_*` of one job."""

    def __init__(self, row: Mapping[str, Any], totals: Collection[str], *, run: str) -> None:
        from ray.util.metrics import Counter, Gauge

        tags = {"run": run.rsplit("/", 1)[-1]}
        self._counters: dict[str, Any] = {}
        self._gauges: dict[str, Any] = {}
        for name in row:
            metric = (Counter if name in totals else Gauge)(
                f"mclabel_{name}", description=_described(name), tag_keys=("run",)
            )
            metric.set_default_tags(tags)
            if name in totals:
                self._counters[name] = metric
            else:
                self._gauges[name] = metric
        self._counted = dict.fromkeys(self._counters, 0.0)

    def record(self, row: Mapping[str, Any]) -> None:
        for name, gauge in self._gauges.items():
            if row[name] is not None:
                gauge.set(row[name])
        for name, counter in self._counters.items():
            if (more := (row[name] or 0) - self._counted[name]) > 0:
                counter.inc(more)
                self._counted[name] = row[name]


def _described(name: str) -> str:
    return "mclabel: " + name.removeprefix("num_").replace("_", " ")


def _connected() -> bool:
    import sys

    ray = sys.modules.get("ray")  # not imported for a job without Ray
    is_initialized = getattr(ray, "is_initialized", None)  # None while vLLM's thread imports Ray
    return is_initialized is not None and bool(is_initialized())
