"""The output of a job, and `run_task`, which runs a task and writes to the output."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mclabel.core.errors import DataError
from mclabel.engines.devices import EngineResources
from mclabel.run.blocks import JobBlocks, plan_blocks
from mclabel.run.budget import BudgetLimits
from mclabel.run.fleets import LocalFleet, RayFleet
from mclabel.run.forecast import Size
from mclabel.run.job import run_job
from mclabel.run.leases import Fleet, LeaseBook, OnProgress
from mclabel.run.outputs import RUN, OutputKind, check_output_is_usable
from mclabel.run.settings import BudgetConfig, RayConfig
from mclabel.run.shards.manifest import (
    SemanticConfig,
    claim_manifest,
    find_changed_fields,
    make_other_configuration_error,
    read_manifest,
    replace_configuration,
)
from mclabel.run.shards.manifest_faults import check_plan_and_shards_match, find_lost_run_id
from mclabel.run.shards.rejects import Reject
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState
from mclabel.run.task import Items, OutputReader, Task
from mclabel.run.worker import JOURNAL_S, BlockReport, Worker

logger = logging.getLogger(__name__)


class RunOutput:
    """Output of a job with its manifest, which is read once.

    Nothing is written before `claim_manifest`, so that bad input leaves no files behind.
    """

    def __init__(self, out: str, kind: OutputKind) -> None:
        """Read the manifest of an output. Call `inspect` instead of this; it also checks the
        output.

        Args:
            out: folder, which may be missing, or URL.
            kind: kind of output to write.
        """
        self.out, self._name = out, str(kind.manifest)
        self.store: Store | None = Store(out) if "://" in out or Path(out).is_dir() else None
        """Store of the output; None if the folder does not exist yet."""
        self._manifest = None if self.store is None else read_manifest(self.store, self._name)
        self._semantic = SemanticConfig.from_config({})
        self._is_amended = False

    @classmethod
    def inspect(cls, out: str, kind: OutputKind = RUN) -> RunOutput:
        """Check an output, and read its manifest.

        Args:
            out: folder, which may be missing, or URL.
            kind: kind of output to write.

        Raises:
            ShardError: the folder holds another kind of output, or files are in the way.
            ConfigError: the folder cannot be written.
        """
        check_output_is_usable(out, kind)
        return cls(out, kind)

    @property
    def is_claimed(self) -> bool:
        """Return whether a job has already claimed the output."""
        return self._manifest is not None

    @property
    def recorded_config(self) -> Mapping[str, Any]:
        """Configuration in the manifest; empty if the output is not claimed yet."""
        return {} if self._manifest is None else self._manifest["config"]

    def check_config(
        self,
        semantic: SemanticConfig,
        may_change: Callable[[Store, Sequence[str]], bool] = lambda store, changed: False,
    ) -> None:
        """Refuse an output that belongs to another configuration; otherwise store the job's
        configuration.

        Args:
            semantic: settings and content hashes on which the job's results depend.
            may_change: function that receives the store and the changed keys, and returns whether
                the manifest may be updated to the new values.

        Raises:
            ShardError: the manifest, the plan or the shards belong to another configuration.
        """
        self._semantic = semantic
        if self.store is None:
            return
        if self._manifest is not None and (
            changed := find_changed_fields(self._manifest, semantic)
        ):
            if not may_change(self.store, changed):
                raise make_other_configuration_error(self.store, self._manifest, semantic, changed)
            self._is_amended = True
        check_plan_and_shards_match(self.store, self._manifest, semantic)

    def shard_metadata(self, **provenance: Any) -> dict[str, Any]:
        """Return the metadata of every shard: the configuration, and the given provenance."""
        return {**provenance, **self._semantic.as_shard_metadata()}

    def claim(self, provenance: Mapping[str, Any]) -> Store:
        """Create the output, and write its manifest if it is missing or must be updated.

        Args:
            provenance: versions and similar facts, which are stored beside the configuration but
                not compared.

        Returns:
            The store of the output.

        Raises:
            ShardError: another job claimed the output first.
        """
        store = Store(self.out, create=True)
        if self._manifest is None:
            lost = None
            if store.names("plan"):
                lost = find_lost_run_id(store)
                logger.warning(
                    "%s: %s was missing. It is written again, because the existing plan belongs to "
                    "this configuration",
                    store.location,
                    self._name,
                )
            claim_manifest(store, self._name, self._semantic, provenance, restored_id=lost)
        elif self._is_amended:
            replace_configuration(store, self._name, self._manifest, self._semantic)
        self.store = store
        return store

    def plan_blocks(
        self,
        items: Items,
        outputs: OutputReader,
        *,
        block_items: int,
        accept_changes: bool = False,
        commit: bool = False,
    ) -> JobBlocks:
        """Return the blocks of a job, as the function `mclabel.run.blocks.plan_blocks` does for
        this output.
        """
        return plan_blocks(
            self.store,
            items,
            outputs,
            identity=self._semantic.identity,
            block_items=block_items,
            accept_changes=accept_changes,
            commit=commit,
        )


class JobInputs(Protocol):
    """Protocol of a job's input."""

    @property
    def items(self) -> Items:
        """Items to process."""

    @property
    def size(self) -> Size:
        """Amount of text of all items."""

    def rejects(self) -> Iterable[Reject]:
        """Return the rows of the input that cannot be used."""


class JobConfig(Protocol):
    """Protocol of a job's configuration: the settings that all jobs share."""

    @property
    def ray(self) -> RayConfig:
        """Settings of the cluster on which the engines run."""

    @property
    def budget(self) -> BudgetConfig:
        """Limits on the job's tokens and hours, and prices for the forecast."""

    @property
    def strict(self) -> bool:
        """Return whether the job fails if an item cannot be processed."""


def run_task(
    task: Task,
    run: RunOutput,
    inputs: JobInputs,
    config: JobConfig,
    *,
    resources: Callable[[], EngineResources],
    block_items: int,
    journal_s: float = JOURNAL_S,
    on_state: Callable[[JobState], None] = lambda state: None,
    accept_changes: bool = False,
    choose_blocks: Callable[[JobBlocks], Collection[str]] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    prepare: Callable[[], None] = lambda: None,
) -> JobReport:
    """Claim an output, plan the blocks of an input, and run a task on the missing blocks.

    Args:
        task: task that processes each item.
        run: output, which was checked for the job's configuration.
        inputs: input of the job.
        config: configuration of the job.
        resources: function that returns the resources of one worker. It is called only if there is
            work, because it may import torch.
        block_items: number of items in a new block.
        journal_s: seconds between two writes of the journals.
        on_state: called every few seconds or more often with the state of the job.
        accept_changes: run items again that changed since the run started, and drop items that
            were removed. If False, such changes are an error.
        choose_blocks: function that returns the ids of the blocks to run now; None runs all blocks.
        should_stop: function that is polled during the job. Once it returns True, no further block
            is started, and running blocks write their finished work to journals.
        prepare: function that is called before the fleet receives work, and only if work is left.

    Raises:
        ShardError: items have changed, or the store fails.
        DataError: `strict` is set, and an item cannot be processed.
        EngineError: engines cannot be loaded or kept alive.
    """
    store = run.claim(task.provenance)
    blocks = run.plan_blocks(
        inputs.items,
        task.outputs,
        block_items=block_items,
        accept_changes=accept_changes,
        commit=True,
    )
    if config.strict:
        _refuse_left_out_items(store, task.outputs)
    worker = partial(Worker, task, out=make_location_absolute(run.out), journal_s=journal_s)
    report = run_job(
        blocks,
        task.outputs,
        JobFleet(config.ray, resources, worker),
        store,
        on_state=on_state,
        limits=BudgetLimits(max_tokens=config.budget.max_tokens, max_hours=config.budget.max_hours),
        should_stop=should_stop,
        only_blocks=None if choose_blocks is None else choose_blocks(blocks),
        size=inputs.size,
        rejects=inputs.rejects,
        prepare=prepare,
    )
    if config.strict:
        _refuse_left_out_items(store, task.outputs)
    return report


def _refuse_left_out_items(store: Store, outputs: OutputReader) -> None:
    if (left_out := next(iter(outputs.iter_set_aside_items(store)), None)) is not None:
        name = f"row {left_out.row}" if left_out.problem_id is None else left_out.problem_id
        raise DataError(
            f"{store.location}: {outputs.words.item} {name} was left out: {left_out.detail}. "
            "Choose another out=…, or continue without strict"
        )


@dataclass(frozen=True)
class JobFleet:
    """Fleet of a job: one worker in this process, or workers on a cluster."""

    ray: RayConfig
    """Settings of the cluster; with `address: none` the worker runs in this process."""
    resources: Callable[[], EngineResources]
    """Function that returns the resources of one worker. It is called only if there is work,
    because it may import torch."""
    make_worker: Callable[[], Worker]
    """Function that creates a worker; called in each worker's process."""

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Run blocks until all are done or the lease book is closed, and yield reports as blocks
        finish.
        """
        ray, resources = self.ray, self.resources()
        fleet: Fleet = RayFleet(self.make_worker, ray, resources=resources)
        if ray.address == "none":
            fleet = LocalFleet(self.make_worker, num_gpus=resources.total_gpus, stall_s=ray.stall_s)
        return fleet.run(book, on_progress)


def make_location_absolute(location: str) -> str:
    """Return a path as an absolute path, so that processes in other folders can use it; return a
    URL unchanged.
    """
    return location if "://" in location else os.path.realpath(location)
