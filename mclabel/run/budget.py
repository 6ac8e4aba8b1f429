"""Records what a job has spent over all its runs, and tells when a limit is reached.

`spent.json` in the output holds tokens, hours and speed, and is replaced now and then. A run begins
with the sums of earlier runs; a kill loses what was counted since the last write.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from math import log2

from mclabel.core.settings import Amount, Count
from mclabel.run.shards.digest import with_digest
from mclabel.run.shards.manifest import read_record_file, run_id
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobState

FILE = "spent.json"
LOCAL_S, REMOTE_S = 5.0, 60.0
"""Seconds between two writes, into a folder and into an object store."""
_SPACING_S = 1.0
_FULL = 0.5
"""Share of the most live requests at any time from which on engines count as busy."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Sums over all runs of a job."""

    num_tokens: Count = 0
    """Tokens, those that a kill has lost included."""
    hours: Amount = 0.0
    """Hours that the job ran, loading of engines included."""
    gpu_hours: Amount = 0.0
    busy_tokens: Count = 0
    """Tokens while engines were busy: neither filling up nor running out of work."""
    busy_engine_s: Amount = 0.0
    """Seconds that engines were busy, times engines."""
    num_engines: Count = 0
    """The most engines that were loaded at a time."""

    @property
    def tokens_per_engine_s(self) -> float | None:
        """Speed of one busy engine; None if none was busy."""
        return self.busy_tokens / self.busy_engine_s if self.busy_engine_s > 0 else None


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a whole job; None is no limit."""

    max_tokens: int | None = None
    max_hours: float | None = None

    def reached(self, spent: Spent) -> str | None:
        """Return the limit that is reached, as a user writes it; None if none is."""
        if self.max_tokens is not None and spent.num_tokens >= self.max_tokens:
            return f"budget.max_tokens={self.max_tokens}"
        if self.max_hours is not None and spent.hours >= self.max_hours:
            return f"budget.max_hours={self.max_hours:g}"
        return None


class Ledger:
    """Keeps `spent.json` of one run."""

    def __init__(self, store: Store, *, started: float) -> None:
        """Read what the runs before this one have spent.

        Args:
            store: the store of the job's output.
            started: clock reading at the start of the run, in seconds.

        Raises:
            DamagedFile: the file is there, and mclabel has not written it.
        """
        self._store, self._started = store, started
        self._every_s = LOCAL_S if store.is_local else REMOTE_S
        self._before = self.spent = read_spent(store)
        self._run = run_id(store)
        self._written = started
        self._last: tuple[float, JobState] | None = None
        self._by_live: dict[int, list[float]] = defaultdict(lambda: [0, 0.0])
        """Tokens and engine seconds, by about how many requests were live (in eighths of powers of
        two)."""

    def update(self, state: JobState, now: float) -> Spent:
        """Record a state; what is spent by then.

        Args:
            state: the job's state at the time `now`.
            now: clock reading in seconds.
        """
        before = self._before
        self.spent = replace(
            self.spent,
            num_tokens=before.num_tokens + state.num_tokens,
            hours=before.hours + (now - self._started) / 3600,
            gpu_hours=before.gpu_hours + state.gpu_hours,
        )
        self._watch(state, now)
        if now - self._written >= self._every_s:
            self.write(now)
        return self.spent

    def write(self, now: float) -> None:
        """Replace the file."""
        spent = replace(self.spent, hours=self._before.hours + (now - self._started) / 3600)
        content = json.dumps(with_digest({"run": self._run, **asdict(spent)}), indent=1).encode()
        self._store.replace(FILE, io.BytesIO(content))
        self._written = now

    def _watch(self, state: JobState, now: float) -> None:
        """Record what was done since the last look, and add up the time when engines were busy."""
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


def read_spent(store: Store) -> Spent:
    """Return what a job has spent so far.

    Raises:
        DamagedFile: the file is there, and mclabel has not written it.
    """
    return read_record_file(store, FILE, Spent, ignore=("run",)) or Spent()
