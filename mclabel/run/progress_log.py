"""Computes a job's rates from its states, and writes them to a JSON-lines log and Ray's metrics."""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mclabel.run.shards.digest import add_digest, parse_log_lines
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobState

logger = logging.getLogger(__name__)

PROGRESS_FILE = "progress.jsonl"
LOCAL_S, REMOTE_S = 10.0, 60.0
"""Seconds between two lines, for a local folder and for an object store. In an object store the
whole file is rewritten for each line."""


class ProgressLog:
    """Writes `progress.jsonl`, and Ray metrics if this process is connected to Ray."""

    def __init__(self, store: Store) -> None:
        """Start a log, or continue an existing one.

        Args:
            store: store of the run's output.
        """
        self._store = store
        self._every_s = LOCAL_S if store.is_local else REMOTE_S
        self._started = time.monotonic()
        self._meter = RateMeter()
        self._written = -float("inf")
        self._last: dict[str, Any] | None = None
        self._metrics: _RayMetrics | None = None

    def __call__(self, state: JobState) -> None:
        """Record a state of the job; write a line if enough time has passed since the last line."""
        now = time.monotonic()
        row = make_progress_row(state, self._meter.update(state, now), now - self._started)
        if self._metrics is None and _is_ray_connected():
            self._metrics = _RayMetrics(row, list_cumulative_keys(state), run=self._store.location)
        if self._metrics is not None:
            self._metrics.record(row)
        self._last = row
        if now - self._written >= self._every_s:
            self._append_state()

    def close(self, *, num_blocks_left: int | None = None) -> None:
        """Write the last state again, marked as the last line of this start of the job.

        Args:
            num_blocks_left: number of blocks that are not committed; None if the job failed.
        """
        if self._last is not None:
            self._append_state(ended=True, num_blocks_left=num_blocks_left)

    def _append_state(self, *, ended: bool = False, **more: Any) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        line = add_digest({"time": at, **(self._last or {}), "ended": ended, **more})
        self._store.append(PROGRESS_FILE, json.dumps(line).encode() + b"\n")
        self._written = time.monotonic()


def read_job_starts(store: Store) -> list[dict[str, Any]]:
    """Return the last log line of every start of a job; empty if the run has no log.

    Args:
        store: store of the run's output.
    """
    read = list(parse_log_lines(store.read(PROGRESS_FILE) or b""))
    lines = [line for line in read if line is not None]
    if len(lines) < len(read):
        logger.warning(
            "%s/%s: %d of %d lines are damaged or truncated and are ignored",
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
    """Ray gauges and counters `mclabel_*` of one job."""

    def __init__(
        self, row: Mapping[str, Any], cumulative_keys: Collection[str], *, run: str
    ) -> None:
        from ray.util.metrics import Counter, Gauge

        tags = {"run": run.rsplit("/", 1)[-1]}
        self._counters: dict[str, Any] = {}
        self._gauges: dict[str, Any] = {}
        for name in row:
            kind, metrics = (
                (Counter, self._counters) if name in cumulative_keys else (Gauge, self._gauges)
            )
            description = "mclabel: " + name.removeprefix("num_").replace("_", " ")
            metrics[name] = kind(f"mclabel_{name}", description=description, tag_keys=("run",))
            metrics[name].set_default_tags(tags)
        self._counted = dict.fromkeys(self._counters, 0.0)

    def record(self, row: Mapping[str, Any]) -> None:
        for name, gauge in self._gauges.items():
            if row[name] is not None:
                gauge.set(row[name])
        for name, counter in self._counters.items():
            if (more := (row[name] or 0) - self._counted[name]) > 0:
                counter.inc(more)
                self._counted[name] = row[name]


def _is_ray_connected() -> bool:
    import sys

    ray = sys.modules.get("ray")  # a job without Ray does not import Ray
    is_initialized = getattr(ray, "is_initialized", None)  # None while vLLM's thread imports Ray
    return is_initialized is not None and bool(is_initialized())


WINDOW_S = 60.0
"""Seconds over which rates are averaged."""
_SPACING_S = 1.0
"""Minimum seconds between two states that are kept for rates."""


@dataclass(frozen=True, kw_only=True)
class JobRates:
    """Speed of a job. A rate is None until it can be measured."""

    items_per_s: float | None = None
    tokens_per_s: float | None = None
    counters_per_s: Mapping[str, float] = field(default_factory=dict)
    """Increase per second of the counters in `TaskWords.rates`; empty until it can be measured."""
    slots_used: float | None = None
    """Mean share of the engines' slots that had a request, since the first engine was loaded; in
    [0, 1]. A slot is one request that an engine can process at a time."""
    eta_s: float | None = None
    """Expected seconds until all items are done: the forecast of remaining tokens, divided by the
    number of engines and by an engine's speed in the last minute. None without a forecast."""


class RateMeter:
    """Computes a job's rates from its successive states."""

    def __init__(self) -> None:
        """Start without states."""
        self._states: deque[tuple[float, float, JobState]] = deque()
        """Recent states as tuples: clock reading in seconds, engine seconds until then, and
        state."""
        self._last: tuple[float, JobState] | None = None
        self._engine_s = 0.0
        self._live_s = self._slot_s = 0.0
        """Slot seconds with a request, and slot seconds in total. A slot is one request that an
        engine can process at a time."""

    def update(self, state: JobState, now: float) -> JobRates:
        """Record a state, and return the rates up to it.

        Args:
            state: state of the job at the time `now`.
            now: clock reading in seconds.
        """
        if self._last is not None:
            then, before = self._last
            self._engine_s += (now - then) * before.num_workers
            self._live_s += (now - then) * before.num_live
            self._slot_s += (now - then) * before.num_slots
            # Speed that was measured without a loaded engine, or in another run, is not used.
            if state.num_tokens < before.num_tokens or not before.num_workers:
                self._states.clear()
        self._last = (now, state)
        if not self._states or now - self._states[-1][0] >= _SPACING_S:
            self._states.append((now, self._engine_s, state))
        while len(self._states) > 2 and now - self._states[1][0] >= WINDOW_S:
            self._states.popleft()
        then, engine_s, before = self._states[0]
        seconds, engine_s = now - then, self._engine_s - engine_s
        if seconds <= 0:
            return JobRates()
        num_tokens = state.num_tokens - before.num_tokens
        eta_s = None
        if state.num_tokens_left is not None and num_tokens > 0 and state.num_workers:
            eta_s = state.num_tokens_left * engine_s / (num_tokens * state.num_workers)
        return JobRates(
            items_per_s=(state.num_items_done - before.num_items_done) / seconds,
            tokens_per_s=num_tokens / seconds,
            counters_per_s={
                name: ((state.counters[name] or 0) - (before.counters[name] or 0)) / seconds
                for name in state.words.rates
            },
            slots_used=self._live_s / self._slot_s if self._slot_s else None,
            eta_s=eta_s,
        )


def make_progress_row(state: JobState, rates: JobRates, elapsed_s: float) -> dict[str, Any]:
    """Return the content of one line of `progress.jsonl`, which is also exported to Prometheus.

    Keys use the task's word for items, such as `num_problems_done` for a labelling job.

    Args:
        state: state of the job.
        rates: rates up to the state.
        elapsed_s: seconds since the job was last started.
    """
    items = state.words.items
    shown = {
        f"{items}_per_s": rates.items_per_s,
        "tokens_per_s": rates.tokens_per_s,
        **{
            f"{name.removeprefix('num_')}_per_s": rates.counters_per_s.get(name)
            for name in state.words.rates
        },
        "slots_used": rates.slots_used,
        "eta_s": rates.eta_s,
    }
    return {
        "elapsed_s": round(elapsed_s, 1),
        "num_blocks": state.num_blocks,
        "num_blocks_done": state.num_blocks_done,
        f"num_{items}": state.num_items,
        f"num_{items}_done": state.num_items_done,
        f"num_{items}_resumed": state.num_items_resumed,
        "num_replayed": state.num_replayed,
        "num_tokens": state.num_tokens,
        "num_live": state.num_live,
        "num_slots": state.num_slots,
        "num_waiting": state.num_waiting,
        "loop_lag_s": state.loop_lag_s,
        "num_workers": state.num_workers,
        "num_starting": state.num_starting,
        "num_failures": state.num_failures,
        "num_silent": state.num_silent,
        "gpu_hours": state.gpu_hours,
        "num_tokens_left": state.num_tokens_left,
        **state.counters,
        **state.gauges,
        **{name: None if rate is None else round(rate, 3) for name, rate in shown.items()},
    }


def list_cumulative_keys(state: JobState) -> frozenset[str]:
    """Return the keys of a progress row whose values never decrease."""
    generic = ("num_blocks_done", "num_tokens", "num_replayed", "num_failures", "gpu_hours")
    return frozenset((*generic, f"num_{state.words.items}_done", *state.counters))
