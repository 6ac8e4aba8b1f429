"""Rates of a job from its states: what every display of progress shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mclabel.run.tally import JobState

WINDOW_S = 60.0
"""Rates are those of the last minute."""
_SPACING_S = 1.0


@dataclass(frozen=True, kw_only=True)
class JobRates:
    """Speed of a job; None before there is anything to measure."""

    items_per_s: float | None = None
    tokens_per_s: float | None = None
    counters_per_s: Mapping[str, float] = field(default_factory=dict)
    """How much counters rise, those of which the task wants it shown; empty before there is
    anything to measure."""
    eta_s: float | None = None
    """Seconds until all items are done: the tokens that are left, as forecast, at the speed of an
    engine in the last minute, times the engines there are. None before there is a forecast."""


class Meter:
    """Turns states into rates."""

    def __init__(self) -> None:
        """Begin without a state."""
        self._states: deque[tuple[float, float, JobState]] = deque()
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
            # Speed measured while no engine was loaded, or on another run, predicts nothing here.
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
            eta_s=eta_s,
        )


def progress_row(state: JobState, rates: JobRates, elapsed_s: float) -> dict[str, Any]:
    """One line of `progress.jsonl`; also what goes to Prometheus.

    Items go by the task's own name for them: `num_problems_done` of a labelling job.
    """
    items = state.words.items
    shown = {
        f"{items}_per_s": rates.items_per_s,
        "tokens_per_s": rates.tokens_per_s,
        **{
            f"{name.removeprefix('num_')}_per_s": rates.counters_per_s.get(name)
            for name in state.words.rates
        },
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


def totals(state: JobState) -> frozenset[str]:
    """Names in a progress row of figures that only rise."""
    generic = ("num_blocks_done", "num_tokens", "num_replayed", "num_failures", "gpu_hours")
    return frozenset((*generic, f"num_{state.words.items}_done", *state.counters))
