"""Rates of a job from its states: what every display of progress shows."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from mclabel.labeling.job import JobState

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
    """Until all problems are labelled: the tokens that are left, as forecast, at the speed of the
    last minute. Before there is a forecast, by problems, at the speed of this run so far."""


class Meter:
    """Turns states into rates."""

    def __init__(self, *, started: float) -> None:
        """Args:
        started: clock reading at the start of the run, in seconds.
        """
        self._started = started
        self._seen: deque[tuple[float, JobState]] = deque()

    def update(self, state: JobState, now: float) -> JobRates:
        """The rates at a state.

        Args:
            state: as of `now`.
            now: clock reading in seconds.
        """
        if self._seen and state.num_tokens < self._seen[-1][1].num_tokens:  # another run begins
            self._seen.clear()
            self._started = now
        if not self._seen or now - self._seen[-1][0] >= _SPACING_S:
            self._seen.append((now, state))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        then, before = self._seen[0]
        seconds = now - then
        if seconds <= 0:
            return JobRates()
        fresh = state.num_problems_done - state.num_problems_resumed
        left = state.num_problems - state.num_problems_done
        tokens_per_s = (state.num_tokens - before.num_tokens) / seconds
        eta_s = left * (now - self._started) / fresh if fresh > 0 else None
        if state.num_tokens_left is not None and tokens_per_s > 0:
            eta_s = state.num_tokens_left / tokens_per_s
        return JobRates(
            problems_per_s=(state.num_problems_done - before.num_problems_done) / seconds,
            completions_per_s=(state.num_completions - before.num_completions) / seconds,
            tokens_per_s=tokens_per_s,
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
