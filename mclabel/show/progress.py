"""Progress of a job: a bar with an ETA on a terminal, plain lines in other outputs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from mclabel.run.progress_log import JobRates, RateMeter
from mclabel.run.tally import JobState

PLAIN_INTERVAL_S = 10.0
"""Minimum seconds between two plain lines."""
STARTING_STATUS = "reading inputs, loading libraries"
"""Status text for the first seconds of every job."""


class StageProgress:
    """A progress bar for one stage of a job with a known number of items."""

    def __init__(
        self,
        console: Console,
        stage: str,
        unit: str,
        *,
        is_forecast: bool = False,
        opening: str = "",
    ) -> None:
        """Prepare a bar, which starts when the object is entered as a context.

        Args:
            console: console on which the bar is shown.
            stage: name of the stage.
            unit: name of the counted items, in the plural.
            is_forecast: True takes the ETA only from `update`; without one, it is unknown. False
                computes a missing ETA from the mean time per item so far.
            opening: text for the time before the first update, shown at once; empty for none. A
                plain output then shows the first update without delay.
        """
        self._console, self._stage, self._unit = console, stage, unit
        self._is_forecast, self._opening = is_forecast, opening
        self._start_s = self._last_update_s = time.monotonic()
        if opening:
            self._last_update_s -= PLAIN_INTERVAL_S
        self._done = self._total = self._num_resumed = 0
        self._detail = ""
        self._eta_s: float | None = None
        self._bar: Progress | None = None

    def __enter__(self) -> StageProgress:
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(self._unit),
                TimeElapsedColumn(),
                TextColumn("eta {task.fields[eta]}"),
                TextColumn("{task.fields[detail]}", style="dim"),
                console=self._console,
            )
            self._task = self._bar.add_task(self._stage, total=None, detail=self._opening, eta="-")
            self._bar.start()
        elif self._opening:
            self._console.print(f"{self._stage}: {self._opening}", highlight=False, soft_wrap=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        else:
            self._print_line()

    def update(
        self,
        done: int,
        total: int,
        *,
        num_resumed: int = 0,
        detail: str = "",
        eta_s: float | None = None,
    ) -> None:
        """Show the progress of the stage.

        Args:
            done: number of finished items, including those of earlier runs.
            total: number of all items.
            num_resumed: number of items that earlier runs finished. They do not affect the speed.
            detail: text after the bar.
            eta_s: seconds until the end of the stage; None if unknown.
        """
        self._done, self._total, self._num_resumed, self._detail = done, total, num_resumed, detail
        self._eta_s = eta_s
        if self._bar is not None:
            seconds_left = self._estimate_remaining_s()
            min_seconds = 0 if done == total else 1
            eta = (
                "-"
                if seconds_left is None
                else str(timedelta(seconds=max(min_seconds, round(seconds_left))))
            )
            self._bar.update(self._task, completed=done, total=total, detail=detail, eta=eta)
        elif time.monotonic() - self._last_update_s >= PLAIN_INTERVAL_S:
            self._last_update_s = time.monotonic()
            self._print_line()

    def _print_line(self) -> None:
        if not self._total:
            return
        elapsed, seconds_left = time.monotonic() - self._start_s, self._estimate_remaining_s()
        eta = (
            ""
            if seconds_left is None or self._done == self._total
            else f", eta {max(1, seconds_left):.0f} s"
        )
        detail = f", {self._detail}" if self._detail else ""
        self._console.print(
            f"{self._stage}: {self._done}/{self._total} {self._unit}, {elapsed:.0f} s{eta}{detail}",
            highlight=False,
            soft_wrap=True,
        )

    def _estimate_remaining_s(self) -> float | None:
        if self._is_forecast or self._eta_s is not None or self._done == self._total:
            return self._eta_s
        num_new = self._done - self._num_resumed
        elapsed = time.monotonic() - self._start_s
        return (self._total - self._done) * elapsed / num_new if num_new else None


class JobProgress:
    """Callback that shows a job's state in a progress bar."""

    def __init__(self, stage: StageProgress) -> None:
        """Prepare to show states.

        Args:
            stage: bar in which the states are shown.
        """
        self._stage = stage
        self._meter = RateMeter()

    def __call__(self, state: JobState) -> None:
        """Show a state of the job in the bar."""
        rates = self._meter.update(state, time.monotonic())
        self._stage.update(
            state.num_items_done,
            state.num_items,
            num_resumed=state.num_items_resumed,
            detail=_format_detail(state, rates),
            eta_s=rates.eta_s,
        )


def _format_detail(state: JobState, rates: JobRates) -> str:
    """Return the text after items and ETA, such as rates; zero and unknown values are left out."""
    if not state.num_workers:
        return _describe_engine_start(state)
    words = state.words
    parts = [f"{state.num_workers} {'engine' if state.num_workers == 1 else 'engines'}"]
    if rates.tokens_per_s is not None:
        for name, noun in words.rates.items():
            parts.append(f"{rates.counters_per_s[name]:,.0f} {noun}/s")
        parts.append(f"{rates.tokens_per_s:,.0f} tokens/s")
    slots = f" of {state.num_slots:,}" if state.num_slots else ""
    parts.append(f"{state.num_live:,}{slots} live")
    if rates.slots_used is not None:
        parts.append(f"{rates.slots_used:.0%} of slots used")
    for name, noun in words.shown_shares.items():
        share = state.gauges[name]
        if share is not None:
            parts.append(f"{noun} {share:.0%}")
    counts = [
        *((state.counters[name], noun) for name, noun in words.shown_counters.items()),
        (state.num_starting, "starting"),
        (state.num_replayed, "replayed"),
        (state.num_failures, "engines lost"),
        (state.num_silent, "silent"),
    ]
    parts += [f"{count:,} {noun}" for count, noun in counts if count]
    if state.gpu_hours:
        parts.append(f"{state.gpu_hours:.2f} GPU-h")
    return ", ".join(parts)


def _describe_engine_start(state: JobState) -> str:
    """Return the text that is shown before the first engine is loaded."""
    if state.stage is None:
        return "waiting for engines"
    engines = "the engine" if state.num_starting == 1 else f"{state.num_starting} engines"
    return f"starting {engines}: {state.stage}"


@contextmanager
def job_progress(console: Console, stage: str, items: str = "problems") -> Iterator[JobProgress]:
    """Show the progress of a job; yield the callback that receives the job's states.

    Args:
        console: console on which the progress is shown.
        stage: name of the stage.
        items: name of the counted items, in the plural.
    """
    with StageProgress(
        console, stage, items, is_forecast=True, opening=STARTING_STATUS
    ) as progress:
        yield JobProgress(progress)


class EvaluationProgress:
    """Progress of an evaluation: one bar for sampling, then one for each scorer."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._name = ""
        self._stage: StageProgress | None = None
        self._job: JobProgress | None = None

    def __enter__(self) -> EvaluationProgress:
        if not self._console.is_terminal:
            self._console.print(f"evaluate: {STARTING_STATUS}", highlight=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stage is not None:
            self._stage.__exit__(kind, error, trace)

    def on_state(self, state: JobState) -> None:
        """Show the state of the sampling job."""
        self._job = self._job or JobProgress(
            self._open_stage("sample", "problems", is_forecast=True)
        )
        self._job(state)

    def on_score(self, name: str, done: int, total: int) -> None:
        """Show that the scorer `name` has scored `done` of `total` distinct solutions."""
        self._open_stage(f"score {name}", "distinct solutions").update(done, total)

    def _open_stage(self, name: str, unit: str, *, is_forecast: bool = False) -> StageProgress:
        if self._stage is None or name != self._name:
            self.__exit__(None, None, None)
            self._name = name
            self._stage = StageProgress(self._console, name, unit, is_forecast=is_forecast)
            self._stage.__enter__()
        return self._stage
