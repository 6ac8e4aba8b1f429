"""Records the spending of a job over all its runs, and checks it against the budget's limits.

`spent.json` in the output holds tokens, hours and speed, and is rewritten periodically. A run is
one start of the job, and begins with the sums of earlier runs. If a run is killed, the counts since
the last write are lost.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from math import log2

from mclabel.core.settings import Amount, Count
from mclabel.run.shards.digest import add_digest
from mclabel.run.shards.manifest import read_record_file, read_run_id
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobState

FILE = "spent.json"
LOCAL_S, REMOTE_S = 5.0, 60.0
"""Seconds between two writes of `spent.json`, in a local folder and in an object store."""
_SPACING_S = 1.0
"""Minimum seconds between two measurements of speed."""
_FULL = 0.5
"""Engines count as busy if the number of requests in progress is at least this share of the largest
number observed in the run."""


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Spending of a job, summed over all its runs."""

    num_tokens: Count = 0
    """Number of sampled tokens, including tokens whose results were lost when an engine died."""
    hours: Amount = 0.0
    """Hours that the job ran, including the loading of engines."""
    gpu_hours: Amount = 0.0
    busy_tokens: Count = 0
    """Number of tokens sampled while engines were busy, which excludes times when they fill up or
    run out of work."""
    busy_engine_s: Amount = 0.0
    """Seconds that engines were busy, summed over engines."""
    num_engines: Count = 0
    """Maximum number of engines that were loaded at the same time."""

    @property
    def tokens_per_engine_second(self) -> float | None:
        """Tokens per second of one busy engine; None if no engine was ever busy."""
        return self.busy_tokens / self.busy_engine_s if self.busy_engine_s > 0 else None


@dataclass(frozen=True, kw_only=True)
class BudgetLimits:
    """Limits on the spending of a job over all its runs; None means no limit."""

    max_tokens: int | None = None
    max_hours: float | None = None

    def find_reached_limit(self, spent: Spending) -> str | None:
        """Return the reached limit in the form `key=value`; None if no limit is reached."""
        if self.max_tokens is not None and spent.num_tokens >= self.max_tokens:
            return f"budget.max_tokens={self.max_tokens}"
        if self.max_hours is not None and spent.hours >= self.max_hours:
            return f"budget.max_hours={self.max_hours:g}"
        return None


class SpendingLedger:
    """Measures the spending of one run of a job, and writes it to `spent.json`."""

    def __init__(self, store: Store, *, started: float) -> None:
        """Read the spending of earlier runs.

        Args:
            store: store of the job's output.
            started: clock reading at the start of the run, in seconds.

        Raises:
            DamagedFile: the file exists, but is not one that mclabel wrote.
        """
        self._store, self._started = store, started
        self._every_s = LOCAL_S if store.is_local else REMOTE_S
        self._before = self.spent = read_recorded_spending(store)
        self._run = read_run_id(store)
        self._written = started
        self._last: tuple[float, JobState] | None = None
        self._by_live: dict[int, list[float]] = defaultdict(lambda: [0, 0.0])
        """Lists of sampled tokens and engine seconds, by level of load. The level is 8 times the
        binary logarithm of the number of requests in progress, rounded down."""

    def update(self, state: JobState, now: float) -> Spending:
        """Record a state of the job, and return the spending so far.

        Args:
            state: state of the job at the time `now`.
            now: clock reading in seconds.
        """
        before = self._before
        self.spent = replace(
            self.spent,
            num_tokens=before.num_tokens + state.num_tokens,
            hours=before.hours + (now - self._started) / 3600,
            gpu_hours=before.gpu_hours + state.gpu_hours,
        )
        self._record_busy_time(state, now)
        if now - self._written >= self._every_s:
            self.write(now)
        return self.spent

    def write(self, now: float) -> None:
        """Write the spending so far to the file.

        Args:
            now: clock reading in seconds.
        """
        spent = replace(self.spent, hours=self._before.hours + (now - self._started) / 3600)
        content = json.dumps(add_digest({"run": self._run, **asdict(spent)}), indent=1).encode()
        self._store.replace(FILE, io.BytesIO(content))
        self._written = now

    def _record_busy_time(self, state: JobState, now: float) -> None:
        """Record the work since the last measurement, and update the sums of the busy time."""
        if self._last is not None and now - self._last[0] < _SPACING_S:
            return
        then, before = self._last or (now, state)
        self._last = (now, state)
        live = min(before.num_live, state.num_live)
        if live and now > then:
            sums = self._by_live[int(8 * log2(live))]
            sums[0] += state.num_tokens - before.num_tokens
            sums[1] += (now - then) * state.num_workers
        most = max(self._by_live, default=0)
        busy = [sums for level, sums in self._by_live.items() if level >= most + 8 * log2(_FULL)]
        self.spent = replace(
            self.spent,
            busy_tokens=self._before.busy_tokens + round(sum(tokens for tokens, _ in busy)),
            busy_engine_s=self._before.busy_engine_s + sum(seconds for _, seconds in busy),
            num_engines=max(self.spent.num_engines, state.num_workers),
        )


def read_recorded_spending(store: Store) -> Spending:
    """Read the spending of a job so far; zero if the job has not written `spent.json` yet.

    Raises:
        DamagedFile: the file exists, but is not one that mclabel wrote.
    """
    return read_record_file(store, FILE, Spending, ignore=("run",)) or Spending()
