"""Rates of a job from its states: what every display of progress shows."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from mclabel.work.job import JobState

WINDOW_S = 60.0
"""Rates are those of the last minute."""
_SPACING_S = 1.0


@dataclass(frozen=True, kw_only=True)
class JobRates:
    """Speed of a job; None before there is anything to measure."""

    problems_per_s: float | None = None
    completions_per_s: float | None = None
    tokens_per_s: float | None = None
    eta_s: float | None = None
    """Until all problems are labelled: the tokens that are left, as forecast, at the speed of an
    engine in the last minute, times the engines there are. None before there is a forecast."""


class Meter:
    """Turns states into rates."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float, JobState]] = deque()
        """Clock readings, seconds of engines until then, and states."""
        self._last: tuple[float, JobState] | None = None
        self._engine_s = 0.0

    def update(self, state: JobState, now: float) -> JobRates:
        """The rates at a state.

        Args:
            state: as of `now`.
            now: clock reading in seconds.
        """
        if self._last is not None:
            then, before = self._last
            self._engine_s += (now - then) * before.num_workers
            # The speed while no engine was loaded, or of another run, says nothing of this one.
            if state.num_tokens < before.num_tokens or not before.num_workers:
                self._seen.clear()
        self._last = (now, state)
        if not self._seen or now - self._seen[-1][0] >= _SPACING_S:
            self._seen.append((now, self._engine_s, state))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        then, engine_s, before = self._seen[0]
        seconds, engine_s = now - then, self._engine_s - engine_s
        if seconds <= 0:
            return JobRates()
        num_tokens = state.num_tokens - before.num_tokens
        eta_s = None
        if state.num_tokens_left is not None and num_tokens > 0 and state.num_workers:
            eta_s = state.num_tokens_left * engine_s / (num_tokens * state.num_workers)
        return JobRates(
            problems_per_s=(state.num_problems_done - before.num_problems_done) / seconds,
            completions_per_s=(state.num_completions - before.num_completions) / seconds,
            tokens_per_s=num_tokens / seconds,
            eta_s=eta_s,
        )


def progress_row(state: JobState, rates: JobRates, elapsed_s: float) -> dict[str, Any]:
    """One line of `progress.jsonl`; also what goes to Prometheus."""
    rounded = {
        name: None if rate is None else round(rate, 3) for name, rate in asdict(rates).items()
    }
    return {
        "elapsed_s": round(elapsed_s, 1),
        **asdict(state),
        "cache_hits": state.cache_hits,
        **rounded,
    }
