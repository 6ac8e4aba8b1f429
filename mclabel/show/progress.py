"""Progress of a job on a terminal (a bar with ETA), or as plain lines elsewhere."""

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

from mclabel.run.progress_log import JobRates, Meter
from mclabel.run.tally import JobState

PLAIN_S = 10.0  # between two plain lines
READING = "reading inputs, loading libraries"
"""First stage of every job, which takes seconds."""


class StageProgress:
    """A bar for one stage with a known number of things to do."""

    def __init__(
        self,
        console: Console,
        stage: str,
        unit: str,
        *,
        is_forecast: bool = False,
        opening: str = "",
    ) -> None:
        """Prepare a bar, which is shown from the first update on.

        Args:
            console: where to show it.
            stage: what is being done.
            unit: unit of the things counted, in the plural.
            is_forecast: the ETA comes with every update, and is unknown where it does not; else
                things are taken to be done one after the other, each in the same time.
            opening: what is done before the first update; shown at once, and so is that update.
        """
        self._console, self._stage, self._unit = console, stage, unit
        self._is_forecast, self._opening = is_forecast, opening
        self._started = self._shown = time.monotonic()
        if opening:
            self._shown -= PLAIN_S
        self._done = self._total = self._before = 0
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
            self._line()

    def update(
        self,
        done: int,
        total: int,
        *,
        before: int = 0,
        detail: str = "",
        eta_s: float | None = None,
    ) -> None:
        """Show how far the stage is.

        Args:
            done: things done, those of earlier runs included.
            total: things to do.
            before: number of `done` that earlier runs did; they do not count for the speed.
            detail: shown behind the bar.
            eta_s: seconds until all is done.
        """
        self._done, self._total, self._before, self._detail = done, total, before, detail
        self._eta_s = eta_s
        if self._bar is not None:
            seconds_left = self._left_s()
            least = 0 if done == total else 1
            eta = (
                "-"
                if seconds_left is None
                else str(timedelta(seconds=max(least, round(seconds_left))))
            )
            self._bar.update(self._task, completed=done, total=total, detail=detail, eta=eta)
        elif time.monotonic() - self._shown >= PLAIN_S:
            self._shown = time.monotonic()
            self._line()

    def _line(self) -> None:
        if not self._total:
            return
        elapsed, seconds_left = time.monotonic() - self._started, self._left_s()
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

    def _left_s(self) -> float | None:
        if self._is_forecast or self._eta_s is not None or self._done == self._total:
            return self._eta_s
        fresh = self._done - self._before
        elapsed = time.monotonic() - self._started
        return (self._total - self._done) * elapsed / fresh if fresh else None


class JobProgress:
    """Shows a job's state."""

    def __init__(self, stage: StageProgress) -> None:
        """Begin without a state.

        Args:
            stage: where it is shown.
        """
        self._stage = stage
        self._meter = Meter()

    def __call__(self, state: JobState) -> None:
        """Show a state."""
        rates = self._meter.update(state, time.monotonic())
        self._stage.update(
            state.num_items_done,
            state.num_items,
            before=state.num_items_resumed,
            detail=_detail(state, rates),
            eta_s=rates.eta_s,
        )


def _detail(state: JobState, rates: JobRates) -> str:
    """Return what is shown beside items and ETA; what is nought or unknown is left out."""
    if not state.num_workers:
        return _starting(state)
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


def _starting(state: JobState) -> str:
    """Return what is shown before an engine is loaded."""
    if state.stage is None:
        return "waiting for engines"
    engines = "the engine" if state.num_starting == 1 else f"{state.num_starting} engines"
    return f"starting {engines}: {state.stage}"


@contextmanager
def job_progress(console: Console, stage: str, items: str = "problems") -> Iterator[JobProgress]:
    """Progress of a job.

    Args:
        console: where to show it.
        stage: what is being done.
        items: what is counted.
    """
    with StageProgress(console, stage, items, is_forecast=True, opening=READING) as progress:
        yield JobProgress(progress)


class EvaluationProgress:
    """One bar after the other: sampling, then every scorer."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._name = ""
        self._stage: StageProgress | None = None
        self._job: JobProgress | None = None

    def __enter__(self) -> EvaluationProgress:
        if not self._console.is_terminal:
            self._console.print(f"evaluate: {READING}", highlight=False)
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
        stage = self._open("sample", "problems", is_forecast=True)
        self._job = self._job or JobProgress(stage)
        self._job(state)

    def on_search(self, name: str, state: JobState) -> None:
        """Show the state of one of several searches."""
        before = self._stage
        stage = self._open(f"search {name}", "problems", is_forecast=True)
        if stage is not before or self._job is None:
            self._job = JobProgress(stage)
        self._job(state)

    def on_score(self, name: str, done: int, total: int) -> None:
        """Show how far a scorer is."""
        self._open(f"score {name}", "distinct solutions").update(done, total)

    def _open(self, name: str, unit: str, *, is_forecast: bool = False) -> StageProgress:
        if self._stage is None or name != self._name:
            self.__exit__(None, None, None)
            self._name = name
            self._stage = StageProgress(self._console, name, unit, is_forecast=is_forecast)
            self._stage.__enter__()
        return self._stage
