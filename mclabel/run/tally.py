"""Computes the progress of a job: its state while it runs, and its report at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mclabel.run.forecast import RemainderForecast, Size
from mclabel.run.leases import FleetProgress
from mclabel.run.plan_index import InputChanges
from mclabel.run.task import OutputReader, TaskWords
from mclabel.run.worker import BlockReport, WorkerProgress


@dataclass(frozen=True, kw_only=True)
class JobState:
    """State of a running job, for progress displays.

    Tokens and counters cover only this run (one start of the job), and include the work of engines
    that died.
    """

    words: TaskWords
    """Words that describe the task's items."""
    num_blocks: int
    """Number of blocks of the job."""
    num_blocks_done: int
    """Number of committed blocks, including those of earlier runs."""
    num_items: int
    """Number of items to run now, plus the items that earlier runs have committed."""
    num_items_done: int
    """Number of finished items, including items of blocks that are not committed yet."""
    num_items_resumed: int
    """Number of items that earlier runs have committed."""
    num_replayed: int = 0
    """Number of entries that were taken from the journals of earlier attempts."""
    num_tokens: int = 0
    """Cost of the engines' work so far: sampled tokens, or tokens read if the task samples none."""
    num_live: int = 0
    """Number of requests that the engines are processing."""
    num_slots: int = 0
    """Number of requests that the loaded engines can process at a time; 0 if no engine reports it.
    """
    num_waiting: int = 0
    """Number of requests that wait for the engines."""
    loop_lag_s: float = 0.0
    """Longest time in seconds for which an engine's event loop was blocked since the last state."""
    num_workers: int = 0
    """Number of loaded engines."""
    num_starting: int = 0
    """Number of engines that are loading or waiting for free resources."""
    stage: str | None = None
    """Name and duration of a loading engine's current stage; None if no engine is known to be
    loading."""
    num_failures: int = 0
    """Number of engines that were lost."""
    num_silent: int = 0
    """Number of loaded engines without activity for longer than `EngineSilenceMonitor.limit_s`."""
    gpu_hours: float = 0.0
    num_tokens_left: float | None = None
    """Forecast of the remaining tokens; None before the first item is finished."""
    counters: Mapping[str, int | None] = field(default_factory=dict)
    """Sums of the task's own counters over all engines, by name; None if no engine reports a
    counter."""
    gauges: Mapping[str, float | None] = field(default_factory=dict)
    """Figures for display by name: the means of the engines' current values, such as cache use, and
    figures derived from the counters."""


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """Result of one run of a job."""

    num_blocks: int
    """Number of blocks of the job."""
    num_blocks_resumed: int
    """Number of blocks that were already committed at the start."""
    num_items: int
    """Number of items in the blocks that this run committed."""
    num_tokens: int
    """Cost of these blocks: sampled tokens, or tokens read if the task samples none."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Sums of `BlockReport.counts`, by name, over the blocks that this run committed."""
    changes: InputChanges = field(default_factory=InputChanges)
    """Differences between the job's input and the input that its plan recorded before."""
    num_blocks_left: int = 0
    """Number of blocks that are not committed because the run was stopped early."""
    num_tokens_left: float | None = None
    """Forecast of the remaining tokens; None if this run finished no item."""
    stopped_by: str | None = None
    """Limit of the budget that stopped the run early, as `key=value`; None if no limit did."""
    num_rejected: int = 0
    """Number of rows and items of the whole job without a result; `rejects.jsonl` gives the
    reasons."""


class JobTally:
    """Adds up the reports of blocks and the snapshots of workers, including workers that died."""

    def __init__(
        self,
        outputs: OutputReader,
        *,
        num_blocks: int,
        num_blocks_resumed: int,
        num_items: int,
        num_items_resumed: int,
        size: Size | None,
    ) -> None:
        """Start the tally of one run.

        Args:
            outputs: outputs of the task.
            num_blocks: number of the job's blocks.
            num_blocks_resumed: number of blocks that earlier runs have committed.
            num_items: number of items to run now, plus the items that earlier runs have committed.
            num_items_resumed: number of items that earlier runs have committed.
            size: size of all items of the job, for the forecast; None makes no forecast.
        """
        self._outputs = outputs
        self._remainder = RemainderForecast(num_items=num_items - num_items_resumed, size=size)
        self._loaded: Sequence[WorkerProgress] = ()
        self._num_blocks, self._num_blocks_resumed = num_blocks, num_blocks_resumed
        self._num_items, self._num_items_resumed = num_items, num_items_resumed
        self._workers: dict[str, WorkerProgress] = {}
        self._num_reports = self._num_done = self._num_tokens = 0
        self._counts: Counter[str] = Counter()

    def add(self, report: BlockReport) -> None:
        """Add the cost and counts in the report of a finished block."""
        self._num_reports += 1
        self._num_done += report.num_items
        self._num_tokens += report.num_tokens
        self._counts.update(report.counts)
        self._remainder.add_committed_block(report.size, report.num_tokens)

    def report(self) -> JobReport:
        """Return the report of the run so far."""
        return JobReport(
            num_blocks=self._num_blocks,
            num_blocks_resumed=self._num_blocks_resumed,
            num_items=self._num_done,
            num_tokens=self._num_tokens,
            counts=dict(self._counts),
            num_tokens_left=self._forecast_tokens_left(),
            num_blocks_left=max(0, self._num_blocks - self._num_blocks_resumed - self._num_reports),
        )

    def state(self, fleet: FleetProgress) -> JobState:
        """Return the state of the job, given a snapshot of its fleet."""
        self._workers |= {worker.worker: worker for worker in fleet.workers}
        every, now = self._workers.values(), fleet.workers
        self._loaded = now
        done = max(self._num_done, sum(worker.num_items for worker in now))
        words = self._outputs.words
        counters = _sum_counters(words.counters, (worker.runner.counters for worker in every))
        return JobState(
            words=words,
            num_blocks=self._num_blocks,
            num_blocks_done=self._num_blocks_resumed + self._num_reports,
            num_items=self._num_items,
            num_items_done=min(self._num_items, self._num_items_resumed + done),
            num_items_resumed=self._num_items_resumed,
            num_replayed=sum(worker.num_replayed for worker in every),
            num_tokens=sum(worker.runner.num_tokens for worker in every),
            num_live=sum(worker.runner.num_live for worker in now),
            num_slots=sum(worker.runner.max_live for worker in now),
            num_waiting=sum(worker.runner.num_waiting for worker in now),
            loop_lag_s=max((worker.loop_lag_s for worker in now), default=0.0),
            num_workers=len(now),
            num_starting=fleet.num_starting,
            stage=fleet.stage,
            num_failures=fleet.num_failures,
            num_silent=fleet.num_silent,
            gpu_hours=fleet.gpu_hours,
            num_tokens_left=self._forecast_tokens_left(),
            counters=counters,
            gauges={
                **_average_gauges(words.gauges, (worker.runner.gauges for worker in now)),
                **self._outputs.derived_figures(counters),
            },
        )

    def _forecast_tokens_left(self) -> float | None:
        """Return the forecast of the remaining tokens; None if no item is finished or no forecast
        is made.
        """
        every = self._workers.values()
        return self._remainder.forecast_remaining_tokens(
            num_done=sum(worker.num_items for worker in every),
            num_open=sum(worker.num_open for worker in self._loaded),
            done_tokens=sum(worker.num_done_tokens for worker in every),
            open_tokens=sum(worker.num_open_tokens for worker in self._loaded),
        )


def _sum_counters(
    start: Mapping[str, int | None], counters: Iterable[Mapping[str, int | None]]
) -> dict[str, int | None]:
    """Return the sum of each counter over the workers; if no worker reports a counter, its value in
    `start`.
    """
    sums = dict(start)
    for worker_counters in counters:
        for name, count in worker_counters.items():
            before = sums.get(name)
            sums[name] = before if count is None else (before or 0) + count
    return sums


def _average_gauges(
    names: Iterable[str], gauges: Iterable[Mapping[str, float | None]]
) -> dict[str, float | None]:
    """Return the mean of each gauge over the workers that report it; None if none does."""
    readings: dict[str, list[float]] = {name: [] for name in names}
    for worker_gauges in gauges:
        for name, reading in worker_gauges.items():
            if reading is not None:
                readings[name].append(reading)
    return {name: sum(each) / len(each) if each else None for name, each in readings.items()}
