"""The output of a job, and the one recipe by which a task is run into it, where its engines run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mclabel.core.errors import DataError
from mclabel.engines.devices import EngineResources
from mclabel.run.blocks import JobBlocks, plan_blocks
from mclabel.run.budget import Limits
from mclabel.run.fleets import LocalFleet, RayFleet
from mclabel.run.forecast import Size
from mclabel.run.job import run_job
from mclabel.run.leases import Fleet, LeaseBook, OnProgress
from mclabel.run.outputs import RUN, Kind, check_places
from mclabel.run.settings import BudgetConfig, RayConfig
from mclabel.run.shards.manifest import (
    Semantic,
    amend_claim,
    changed_fields,
    claim,
    other_configuration,
    read_claim,
)
from mclabel.run.shards.manifest_faults import check_made_for, lost_id
from mclabel.run.shards.rejects import Reject
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState
from mclabel.run.task import Items, Outputs, Task
from mclabel.run.worker import JOURNAL_S, BlockReport, Worker

logger = logging.getLogger(__name__)


class Run:
    """The output of a job: what it belongs to, and what is there. Its manifest is read once.

    Nothing is written before `claim`, so that bad input leaves no file.
    """

    def __init__(self, out: str, kind: Kind) -> None:
        """Look at an output; use `look`."""
        self.out, self._name = out, str(kind.manifest)
        self.store: Store | None = Store(out) if "://" in out or Path(out).is_dir() else None
        """The output's store; None where there is nothing yet."""
        self._manifest = None if self.store is None else read_claim(self.store, self._name)
        self._semantic = Semantic.of({})
        self._is_amended = False

    @classmethod
    def look(cls, out: str, kind: Kind = RUN) -> Run:
        """See what an output holds.

        Args:
            out: folder, which may be missing, or URL.
            kind: kind of output to write there.

        Raises:
            ShardError: it holds something else, or cannot be written.
            ConfigError: nothing can be written there.
        """
        check_places(out, kind)
        return cls(out, kind)

    @property
    def was_begun(self) -> bool:
        """Return whether a job has claimed it already."""
        return self._manifest is not None

    @property
    def recorded(self) -> Mapping[str, Any]:
        """The configuration that it was claimed for; empty before."""
        return {} if self._manifest is None else self._manifest["config"]

    def check(
        self,
        semantic: Semantic,
        may_change: Callable[[Store, Sequence[str]], bool] = lambda store, changed: False,
    ) -> None:
        """Refuse an output of another configuration; else it is known as one of this.

        Args:
            semantic: the job's semantic configuration.
            may_change: returns whether the output may take over new values of the changed keys.

        Raises:
            ShardError: its manifest, its plan or its shards are of another one.
        """
        self._semantic = semantic
        if self.store is None:
            return
        if self._manifest is not None and (changed := changed_fields(self._manifest, semantic)):
            if not may_change(self.store, changed):
                raise other_configuration(self.store, self._manifest, semantic, changed)
            self._is_amended = True
        check_made_for(self.store, self._manifest, semantic)

    def stamp(self, **provenance: Any) -> dict[str, Any]:
        """Return the metadata of every shard: the configuration, and what is kept beside it."""
        return {**provenance, **self._semantic.stamp()}

    def claim(self, provenance: Mapping[str, Any]) -> Store:
        """Write the manifest, if there is none yet.

        Args:
            provenance: versions and the like, kept beside the configuration and not compared.

        Returns:
            The store, which is there now.

        Raises:
            ShardError: another job was faster.
        """
        store = Store(self.out, create=True)
        if self._manifest is None:
            lost = None
            if store.names("plan"):
                lost = lost_id(store)
                logger.warning(
                    "%s: %s was missing. It is written again: the plan there is of this "
                    "configuration",
                    store.location,
                    self._name,
                )
            claim(store, self._name, self._semantic, provenance, run=lost)
        elif self._is_amended:
            amend_claim(store, self._name, self._manifest, self._semantic)
        self.store = store
        return store

    def blocks(
        self,
        items: Items,
        outputs: Outputs,
        *,
        block_items: int,
        accept_changes: bool = False,
        commit: bool = False,
    ) -> JobBlocks:
        """Return the blocks of a job, as they would be planned; see `plan_blocks`."""
        return plan_blocks(
            self.store,
            items,
            outputs,
            identity=self._semantic.identity,
            block_items=block_items,
            accept_changes=accept_changes,
            commit=commit,
        )


class Inputs(Protocol):
    """The input of a job."""

    @property
    def items(self) -> Items:
        """The items to process."""

    @property
    def size(self) -> Size:
        """Amount of text of all items."""

    def rejects(self) -> Iterable[Reject]:
        """Return the rows of the input that cannot be used."""


class JobConfig(Protocol):
    """The part of a configuration that all jobs share."""

    @property
    def ray(self) -> RayConfig:
        """Cluster on which the engines run."""

    @property
    def budget(self) -> BudgetConfig:
        """Limits and prices."""

    @property
    def strict(self) -> bool:
        """Return whether an item that is left out is an error."""


def run_task(
    task: Task,
    run: Run,
    inputs: Inputs,
    config: JobConfig,
    *,
    resources: Callable[[], EngineResources],
    block_items: int,
    journal_s: float = JOURNAL_S,
    on_state: Callable[[JobState], None] = lambda state: None,
    accept_changes: bool = False,
    choose: Callable[[JobBlocks], Collection[str]] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    prepare: Callable[[], None] = lambda: None,
) -> JobReport:
    """Run a task on the items of an input: claim the output, plan it, and run what is missing.

    Args:
        task: the work to do with each item.
        run: the output, which was checked for the job's configuration.
        inputs: the job's input.
        config: the job's configuration.
        resources: returns the needs of a worker; called only if there is work, as it may import
            torch.
        block_items: items in a new block.
        journal_s: seconds between two writes of the journals.
        on_state: called often with the state of the job.
        accept_changes: run items anew that have changed since the run was begun, and leave out
            what is gone; else either is refused.
        choose: ids of the blocks to run now; None runs all.
        should_stop: asked often; no block is begun once it is true, and those under way leave
            their journals.
        prepare: called before the fleet is given work; not at all where none is left.

    Raises:
        ShardError: items have changed, or the store fails.
        DataError: if strict, an item is left out.
        EngineError: engines cannot be loaded or kept alive.
    """
    store = run.claim(task.provenance)
    blocks = run.blocks(
        inputs.items,
        task.outputs,
        block_items=block_items,
        accept_changes=accept_changes,
        commit=True,
    )
    if config.strict:
        _check_none_left_out(store, task.outputs)
    worker = partial(Worker, task, out=from_anywhere(run.out), journal_s=journal_s)
    report = run_job(
        blocks,
        task.outputs,
        JobFleet(config.ray, resources, worker),
        store,
        on_state=on_state,
        limits=Limits(max_tokens=config.budget.max_tokens, max_hours=config.budget.max_hours),
        should_stop=should_stop,
        only=None if choose is None else choose(blocks),
        size=inputs.size,
        rejects=inputs.rejects,
        prepare=prepare,
    )
    if config.strict:
        _check_none_left_out(store, task.outputs)
    return report


def _check_none_left_out(store: Store, outputs: Outputs) -> None:
    if (left_out := next(iter(outputs.set_aside(store)), None)) is not None:
        name = f"row {left_out.row}" if left_out.problem_id is None else left_out.problem_id
        raise DataError(
            f"{store.location}: {outputs.words.item} {name} was left out: {left_out.detail}. "
            "Choose another out=…, or go on without strict"
        )


@dataclass(frozen=True)
class JobFleet:
    """The workers of a job: one in this process, or those of a cluster."""

    ray: RayConfig
    """Cluster on which the workers run."""
    resources: Callable[[], EngineResources]
    """Returns the needs of each worker; called only when there is work."""
    make_worker: Callable[[], Worker]
    """Called in the process of each worker."""

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Yield reports of all blocks; see `Fleet`."""
        ray, resources = self.ray, self.resources()
        fleet: Fleet = RayFleet(self.make_worker, ray, resources=resources)
        if ray.address == "none":
            num_gpus = resources.total_gpus
            fleet = LocalFleet(self.make_worker, num_gpus=num_gpus, stall_s=ray.stall_s)
        return fleet.run(book, on_progress)


def from_anywhere(place: str) -> str:
    """Return the absolute path of a folder or file, which workers find; a URL as it is."""
    return place if "://" in place else str(Path(place).absolute())
