"""Protocols of a task: the work that a job does exactly once with each of its items.

A `Task` is frozen and picklable. It creates a `Runner` on every worker, which processes many items
concurrently. `OutputReader` reads the results of finished blocks from the store. For example,
`mclabel.labeling.task` labels problems, and `mclabel.judge.task` judges solutions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from mclabel.core.errors import RejectReason
from mclabel.run.forecast import Size
from mclabel.run.shards.journal import BlockJournal, JournalEntry, Line
from mclabel.run.shards.rejects import Reject
from mclabel.run.shards.store import Store

ItemT_contra = TypeVar("ItemT_contra", contravariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)


class Item(Protocol):
    """Protocol of an item, such as a problem, that a task processes. Implementations must be frozen
    and picklable.
    """

    @property
    def id(self) -> str:
        """Id of the item, unique in the job's input."""

    @property
    def num_chars(self) -> int:
        """Length in characters of the text from which the item's cost is forecast."""

    def content(self) -> Sequence[str]:
        """Return the texts on which the result depends. If they change, the item is run again."""

    def extra_texts(self) -> Sequence[str]:
        """Return texts that are stored with the result but do not affect it."""


class Items(Protocol):
    """Protocol of an iterable of items with distinct ids. A job iterates over it several times."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Item]: ...


@dataclass(frozen=True, kw_only=True)
class Block:
    """The unit of work: a group of items that are run and committed together."""

    id: str
    """Hash of the items' contents and of the settings on which results depend."""
    items: tuple[Any, ...]
    priority: int
    """Position of the block in the job; engines work on earlier blocks first."""

    @property
    def size(self) -> Size:
        """Amount of text of the items."""
        return Size.from_lengths(item.num_chars for item in self.items)


class Result(Protocol):
    """Protocol of a runner's result for one item."""

    @property
    def num_tokens(self) -> int:
        """Cost of the item: sampled tokens, or tokens read if the task samples none. Work taken
        from a journal is included.
        """

    @property
    def set_aside(self) -> RejectReason | None:
        """Reason why the item has no result, which `rejects.jsonl` lists; None if it has one."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt to run a block."""

    block: Block
    journal: BlockJournal
    """Journal with the work of earlier attempts at the block, which also stores the work of this
    attempt."""
    is_trial: bool = False
    """True if a single item is run to test whether the engine survives it. Its result is not
    committed, but its journal is kept."""


@dataclass(frozen=True, kw_only=True)
class FinishedBlock:
    """A block that can be committed, because every item is done."""

    block: Block
    attempt: str
    """Unique id of this attempt at the block."""
    results: Sequence[tuple[Any, Any]]
    """Each item that was run, with its result, in the order of the block."""
    set_aside: Mapping[str, RejectReason]
    """Items without a result, including items that were not run: the reason by item id."""
    num_tokens: int
    """Cost of all results."""


@dataclass(frozen=True, kw_only=True)
class RunnerState:
    """Current state of a runner, and its work since it was loaded.

    Any increase of `num_tokens` or a counter is activity. A runner that has work but
    shows no activity for too long is assumed to have stopped (`mclabel.run.running`).
    """

    num_live: int = 0
    """Number of requests that the engine is processing."""
    max_live: int = 0
    """Number of requests that the engine can process at a time; 0 for no limit."""
    num_waiting: int = 0
    """Number of requests that wait for the engine."""
    num_tokens: int = 0
    """Cost of the work so far: sampled tokens, or tokens read if the task samples none."""
    counters: Mapping[str, int | None] = field(default_factory=dict)
    """Counts that never decrease, by name; None if the engine does not report a counter."""
    gauges: Mapping[str, float | None] = field(default_factory=dict)
    """Current values by name, such as the use of a cache. A job shows their mean over its
    workers."""
    is_steady: bool = True
    """True if the runner shows activity continuously; False if only at the end of a request. A
    runner of the second kind is reported when it is silent, but not replaced."""


class Runner(Protocol[ItemT_contra, ResultT_co]):
    """Protocol of a runner, which processes a task's items on one worker.

    All methods except `commit` and `state` are called on one event loop.
    """

    async def start(self) -> None:
        """Load the engine or model.

        Raises:
            EngineError: the engine cannot be loaded; the message gives the cause and the remedy.
        """

    async def begin(self, attempt: Attempt) -> None:
        """Prepare for the items of a block; called before the first item is run."""

    async def run(self, item: ItemT_contra, attempt: Attempt) -> ResultT_co:
        """Process one item. This method is called for many items concurrently.

        It may be cancelled at any await. Work that must survive a cancellation is written to the
        attempt's journal.

        Raises:
            EngineDied: the engine died; the item is run again on another engine.
            MclabelError: the job cannot continue.
        """

    def commit(self, finished: FinishedBlock) -> dict[str, int]:
        """Write the result of a block atomically, so that only one of several attempts is stored.

        This method is called in a thread, and is never interrupted by a stop of the job.
        """

    def state(self) -> RunnerState:
        """Return the runner's state. Any thread may call this method, also before `start`."""

    async def close(self) -> None:
        """Free the engine or model."""


class Task(Protocol):
    """Protocol of a task, the work that a job does with its items. Implementations must be frozen
    and picklable.
    """

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Metadata that every shard and the manifest store."""

    @property
    def outputs(self) -> OutputReader:
        """Object that reads the finished blocks from a store."""

    def runner(self, store: Store) -> Runner[Any, Any]:
        """Create a runner of the task; called on each worker.

        Args:
            store: store of the job's output.
        """

    def read_entry(self, line: Line) -> JournalEntry:
        """Parse a journal line that a runner of the task has written.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: the line has an unexpected form.
        """


@dataclass(frozen=True, kw_only=True)
class TaskWords:
    """Words and names with which messages and progress displays describe a task."""

    item: str
    """Noun for one item, such as `problem`."""
    items: str
    """Plural noun for items, such as `problems`."""
    content: str
    """Parts of an item on which its result depends, such as `text or gold`."""
    done: str
    """Past participle for the work on an item, such as `labelled`."""
    block_setting: str
    """Configuration key that sets the number of items per block."""
    same_text: str = "the same text is recorded under another id"
    """Note on a missing item if a new item has the same text."""
    counters: Mapping[str, int | None] = field(default_factory=dict)
    """Names of the task's own counters (`num_…`), with their values before any engine is loaded: 0,
    or None for a counter that not every engine reports."""
    gauges: tuple[str, ...] = ()
    """Names of the current values in `RunnerState.gauges`."""
    rates: Mapping[str, str] = field(default_factory=dict)
    """Counters whose increase per second is shown, by name, with the label to show."""
    shown_counters: Mapping[str, str] = field(default_factory=dict)
    """Counters that a progress display shows, by name, with the label to show."""
    shown_shares: Mapping[str, str] = field(default_factory=dict)
    """Gauges and derived figures that a progress display shows as percentages, by name, with the
    label to show."""


ANY_WORDS = TaskWords(
    item="item", items="items", content="content", done="done", block_setting="block_items"
)
"""General words, for use without a particular task."""


@dataclass(frozen=True, kw_only=True)
class CommittedBlocks:
    """Committed blocks of a job in a store."""

    blocks: Set[str]
    """Ids of the committed blocks."""
    foreign_files: Sequence[str] = ()
    """Names of files in the output folder that do not belong to any block of the job."""


class OutputReader(Protocol):
    """Protocol of an object that reads the finished blocks of a task from a store."""

    @property
    def words(self) -> TaskWords:
        """Words for the task's items in messages."""

    def read_committed_blocks(self, store: Store) -> CommittedBlocks:
        """Return the committed blocks.

        Raises:
            DamagedFile: an output is damaged; the message gives the remedy.
        """

    def delete_uncommitted_files(self, store: Store) -> None:
        """Remove the files of attempts that were not committed, because another attempt was. This
        is called only while no attempt is running.
        """

    def iter_set_aside_items(self, store: Store) -> Iterator[Reject]:
        """Yield the items of committed blocks that have no result, sorted by id."""

    def read_item_texts(self, store: Store, blocks: Collection[str]) -> Mapping[str, str]:
        """Return the texts of the items of committed blocks, by item id, for messages."""

    def derived_figures(self, counters: Mapping[str, int | None]) -> Mapping[str, float | None]:
        """Return figures computed from the sums of the counters, which progress displays show."""
