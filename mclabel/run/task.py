"""The protocols of a task: work that a job does with each of its items, exactly once.

`Task` is frozen and picklable, and makes a `Runner` on every worker, on which many items run side
by side. `Outputs` reads what finished blocks left in the store. `mclabel.labeling.task` labels
problems, `mclabel.judge.task` judges solutions.
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
    """One thing that a task works on. Frozen and picklable."""

    @property
    def id(self) -> str:
        """Unique in the job's input."""

    @property
    def num_chars(self) -> int:
        """Length of the text from which the item's cost is forecast."""

    def content(self) -> Sequence[str]:
        """Return the texts that the result depends on: with other texts it is another item."""

    def extras(self) -> Sequence[str]:
        """Return the texts that are carried along and may change without another result."""


class Items(Protocol):
    """Items that can be gone through again and again, with distinct ids."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Item]: ...


@dataclass(frozen=True, kw_only=True)
class Block:
    """The unit of work: items that are run and committed together."""

    id: str
    """Hash of the items' contents and of the job's identity."""
    items: tuple[Any, ...]
    priority: int
    """Position in the job; engines work on earlier blocks first."""

    @property
    def size(self) -> Size:
        """Amount of text of the items."""
        return Size.of_lengths(item.num_chars for item in self.items)


class Result(Protocol):
    """Result of a runner for one item."""

    @property
    def num_tokens(self) -> int:
        """Cost of the item, including work taken from a journal."""

    @property
    def set_aside(self) -> RejectReason | None:
        """Why the item has no result, if it has none; it is then named in `rejects.jsonl`."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a block, as its items see it."""

    block: Block
    journal: BlockJournal
    """Holds what earlier attempts at the block have done, and receives what this one does."""
    is_trial: bool = False
    """True if one item is run alone, to see whether the engine survives it. Its result is not
    committed, but its journal is kept."""


@dataclass(frozen=True, kw_only=True)
class FinishedBlock:
    """A block of which every item is done, to be committed."""

    block: Block
    attempt: str
    """Unique to this attempt at the block."""
    results: Sequence[tuple[Any, Any]]
    """Each item that was run, with its result, in the order of the block."""
    set_aside: Mapping[str, RejectReason]
    """Items without a result, by id, those that were not run among them."""
    num_tokens: int
    """Cost of all results."""


@dataclass(frozen=True, kw_only=True)
class Commit:
    """Outcome of committing a block."""

    won: bool
    """False: another attempt had committed the block before, and its result stands."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Named counts of what the block holds, for the report of the job."""


@dataclass(frozen=True, kw_only=True)
class RunnerState:
    """Current state of a runner, and its work since it was loaded.

    Whatever rises in `num_tokens`, `num_signs` or a counter is a sign of life: a runner that has
    work and gives none for too long is taken to have stopped (`mclabel.run.running`).
    """

    num_live: int = 0
    """Requests that the engine is working on."""
    max_live: int = 0
    """Requests that it can work on at a time; 0 for no bound."""
    num_waiting: int = 0
    """Requests that wait for it."""
    num_tokens: int = 0
    """The unit of cost: tokens sampled, or read where nothing is sampled."""
    num_signs: int = 0
    """Signs of life that are not counted as work."""
    counters: Mapping[str, int | None] = field(default_factory=dict)
    """Counts that only rise, by name; None if the engine does not report one."""
    gauges: Mapping[str, float | None] = field(default_factory=dict)
    """Readings of the moment, by name, of which a job shows the mean over its workers."""
    is_steady: bool = True
    """True if there are signs of life all the while, and not only when a request has ended. A
    runner without them is reported when it is silent, and not replaced."""


class Runner(Protocol[ItemT_contra, ResultT_co]):
    """A task on one worker. All but `commit` and `state` is called on one event loop."""

    async def start(self) -> None:
        """Load the engine or model.

        Raises:
            EngineError: it cannot be loaded; says why and what to do.
        """

    async def begin(self, attempt: Attempt) -> None:
        """Prepare for the items of a block, before the first of them is run."""

    async def run(self, item: ItemT_contra, attempt: Attempt) -> ResultT_co:
        """Do the task with one item. Called for many items at a time.

        It may be cancelled at any await: what is to survive that goes into the attempt's journal.

        Raises:
            EngineDied: the engine is gone; the item is run again on another one.
            MclabelError: anything else stops the job.
        """

    def commit(self, finished: FinishedBlock) -> Commit:
        """Write the result of a block so that of several attempts one wins as a whole.

        Called in a thread, and in no case cut short by a stop of the job.
        """

    def state(self) -> RunnerState:
        """Return the runner's state; callable from any thread, also before `start`."""

    async def close(self) -> None:
        """Free the engine or model."""


class Task(Protocol):
    """Work that a job does with its items. Frozen and picklable."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Metadata of every shard; the manifest has it, too."""

    @property
    def outputs(self) -> Outputs:
        """Reader of the finished blocks in a store."""

    def runner(self, store: Store) -> Runner[Any, Any]:
        """Make the runner of the task on the worker that calls this.

        Args:
            store: the store of the job's output.
        """

    def read_entry(self, line: Line) -> JournalEntry:
        """Read a line that a runner of the task has written to a journal.

        Raises:
            ValueError, LookupError, TypeError, AttributeError: the line has another form.
        """


@dataclass(frozen=True, kw_only=True)
class TaskWords:
    """Words with which messages and progress describe a task and its counters."""

    item: str
    """One item, such as `problem`."""
    items: str
    """Several, such as `problems`."""
    content: str
    """Parts of an item on which its result depends, such as `text or gold`."""
    done: str
    """Past participle for the work on an item, such as `labelled`."""
    block_setting: str
    """The setting that says how many items a block has."""
    same_text: str = "its text is there under another id"
    """Note on a missing item when a new one begins with the same text."""
    counters: Mapping[str, int | None] = field(default_factory=dict)
    """The task's own counters by name (`num_…`), with what they are before any engine is loaded:
    0, or None for one that not every engine reports."""
    gauges: tuple[str, ...] = ()
    """Names of its gauges."""
    rates: Mapping[str, str] = field(default_factory=dict)
    """Counters of which progress shows how much they rise each second, and what that is called."""
    shown_counters: Mapping[str, str] = field(default_factory=dict)
    """Counters that a display of progress shows, and what they are called there."""
    shown_shares: Mapping[str, str] = field(default_factory=dict)
    """Gauges and derived figures that it shows as percentages, and what they are called there."""


ANY_WORDS = TaskWords(
    item="item", items="items", content="content", done="done", block_setting="block_items"
)
"""Words for a task that is not known."""


@dataclass(frozen=True, kw_only=True)
class CommittedBlocks:
    """Committed blocks of a job in a store."""

    blocks: Set[str]
    """Ids of the blocks that are done."""
    foreign: Sequence[str] = ()
    """Files among the outputs that belong to no block of the job."""


class Outputs(Protocol):
    """Reader of a task's finished blocks in a store."""

    @property
    def words(self) -> TaskWords:
        """Words for the task's items in messages."""

    def committed(self, store: Store) -> CommittedBlocks:
        """Return the blocks that are done.

        Raises:
            DamagedFile: names outputs that are damaged, and the remedy.
        """

    def sweep(self, store: Store) -> None:
        """Remove what attempts have left that did not win; called while none is under way."""

    def set_aside(self, store: Store) -> Iterator[Reject]:
        """Yield the items that committed blocks have no result for, by id."""

    def texts(self, store: Store, blocks: Collection[str]) -> Mapping[str, str]:
        """Return the texts of the items of some committed blocks, by id, for messages."""

    def derived(self, counters: Mapping[str, int | None]) -> Mapping[str, float | None]:
        """Return the figures that progress shows beside the counters, computed from their sums."""
