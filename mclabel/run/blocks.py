"""Cuts a job's items into blocks, once: what the run's plan has stays, what is new is added.

A block's id is a hash of its items and of how they are run. Which items make which block is
committed (`mclabel.run.shards.plan`) before anything is leased. When a job is run again, its
input is compared with the plan: items that were added get blocks of their own, so a grown input
costs only what is new, in whatever order it comes; items that changed or are gone are refused, or
superseded where the user accepts that.

No item is kept in memory; it is read when its block is leased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mclabel.core.errors import DataError, ShardError
from mclabel.run.plan_index import (
    MAX_NAMED,
    Comparison,
    InputChanges,
    PlanIndex,
    id_hashes,
    in_chunks,
    item_digests,
    planned_ids,
)
from mclabel.run.shards.plan import (
    CONTENT_BYTES,
    META_BYTES,
    PLAN_SCHEMA,
    block_id,
    blocks_of,
    commit_part,
    read_parts,
)
from mclabel.run.shards.store import Store
from mclabel.run.task import Block, Item, Items, Outputs

MAX_PART_ROWS = 50_000
"""Rows of a part of the plan, about: parts end where blocks end."""


class SteadyItems:
    """An input that has as many items each time it is gone through."""

    def __init__(self, items: Items, word: str) -> None:
        """Count them.

        Args:
            items: of the input.
            word: for an item.
        """
        self._items, self._word, self._count = items, word, len(items)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        """From the first.

        Raises:
            DataError: there are more or fewer than there were at first.
        """
        count = 0
        for item in self._items:
            count += 1
            if count > self._count:
                break
            yield item
        if count != self._count:
            now = f"now {count:,}" if count < self._count else "now more"
            raise DataError(_changed(f"there were {self._count:,} {self._word}s at first, {now}"))


def _changed(what: str) -> str:
    return (
        f"{what}: the input has changed while it was read. Run the same command again when "
        "nothing writes to it"
    )


class JobBlocks:
    """The blocks of a job: those of the plan that hold items of its input."""

    def __init__(
        self,
        items: Items,
        outputs: Outputs,
        plan: PlanIndex,
        places: NDArray[np.int64],
        changes: InputChanges,
    ) -> None:
        """Pair an input with its plan; use `plan_blocks`.

        Args:
            items: of the input.
            outputs: of the task.
            plan: of the run.
            places: of each item of the input in the plan, in the order of the input.
            changes: that the plan has taken up.
        """
        self._items, self._outputs, self._plan = items, outputs, plan
        numbers, counts = np.unique(plan.blocks[places], return_counts=True)
        self._counts = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        self.num_items = len(places)
        self.changes = changes

    @property
    def num_plan_parts(self) -> int:
        """Parts of the run's plan."""
        return self._plan.num_parts

    def __len__(self) -> int:
        return len(self._counts)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Id of each block and the number of its items, in the order of the plan."""
        for number, count in self._counts.items():
            yield self._plan.names[number], count

    def blocks(self, wanted: Callable[[str], bool] = lambda block_id: True) -> Iterator[Block]:
        """The blocks, each as soon as all of its items are read.

        Args:
            wanted: whether to give a block, by its id.

        Raises:
            DataError: the input changes while it is read.
        """
        plan = self._plan
        chosen = {n: count for n, count in self._counts.items() if wanted(plan.names[n])}
        parts: dict[int, tuple[list[int], list[Item]]] = {}
        for chunk in in_chunks(self._items):
            places = plan.find(id_hashes(item.id for item in chunk))
            if len(unknown := np.flatnonzero(places < 0)):
                raise self._unsteady(chunk[unknown[0]])
            orders = plan.order[places]
            for number, start, end in _runs(plan.blocks[places]):
                if number not in chosen:
                    continue
                part = parts.setdefault(number, ([], []))
                part[0].extend(orders[start:end].tolist())
                part[1].extend(chunk[start:end])
                if len(part[0]) == chosen[number]:
                    yield self._block(number, *parts.pop(number))
        if parts:
            raise self._unsteady(next(iter(parts.values()))[1][0])

    def _block(self, number: int, orders: list[int], items: list[Item]) -> Block:
        in_order = sorted(range(len(orders)), key=orders.__getitem__)
        return Block(
            id=self._plan.names[number], items=tuple(items[i] for i in in_order), priority=number
        )

    def _unsteady(self, item: Item) -> DataError:
        return DataError(_changed(f"{self._outputs.words.item} {item.id[:60]!r}"))


def plan_blocks(
    store: Store | None,
    items: Items,
    outputs: Outputs,
    *,
    identity: Mapping[str, Any],
    block_items: int,
    accept_changes: bool = False,
    commit: bool = True,
) -> JobBlocks:
    """The blocks of a job, as the plan of its run has them once what is new was added.

    Args:
        store: of the run; None plans as for a new one.
        items: of the whole input, with distinct ids.
        outputs: of the task.
        identity: of the configuration.
        block_items: items in a new block.
        accept_changes: run items anew that have changed, and supersede those that are gone.
        commit: whether to write the plan; else it is as if it were written.

    Raises:
        ShardError: items changed or are gone, and that is not accepted; or the plan is damaged.
        DataError: the input changes while it is read.
    """
    how = blocks_of(identity)
    items = SteadyItems(items, outputs.words.item)
    taken_up = InputChanges()
    added: list[pa.Table] = []
    while True:
        plan = PlanIndex.of([*(read_parts(store) if store is not None else ()), *added])
        compared = Comparison.of(items, plan)
        changes = compared.changes
        if not (changes.num_added or changes.num_changed or changes.num_gone):
            taken_up = replace(taken_up, num_other_meta=changes.num_other_meta)
            return JobBlocks(items, outputs, plan, compared.places, taken_up)
        if plan.num_parts:
            taken_up = changes
        gone: list[str] = []
        if store is not None and (changes.num_changed or changes.num_gone):
            gone = planned_ids(store, plan.ids[compared.gone])
            if not accept_changes:
                blocks = [plan.names[number] for number in plan.blocks[compared.gone].tolist()]
                named = dict(zip(gone[:MAX_NAMED], blocks, strict=False))
                shown = _shown_gone(store, outputs, items, compared, named)
                raise _refusal(store, outputs, changes, shown)
        new = _new_parts(items, plan, compared, gone, how, block_items)
        if commit and store is not None:
            numbered = enumerate(new, plan.num_parts + 1)
            if not all(commit_part(store, number, table) for number, table in numbered):
                continue  # another driver plans, too: see what it wrote
        else:
            added += new
        # All that differed was added by this very input: contents need not be compared again.
        plan = PlanIndex.of([*(read_parts(store) if store is not None else ()), *added])
        taken_up = replace(taken_up, num_other_meta=changes.num_other_meta)
        return JobBlocks(items, outputs, plan, plan.places(items), taken_up)


def _new_parts(
    items: Items,
    plan: PlanIndex,
    compared: Comparison,
    gone: Sequence[str],
    how: bytes,
    block_items: int,
) -> Iterator[pa.Table]:
    """Parts to add to a plan: first what they supersede, then new blocks in the input's order."""
    superseded = np.concatenate([compared.gone, compared.places[compared.is_changed]])
    changed = [
        item.id for item, is_changed in zip(items, compared.is_changed, strict=True) if is_changed
    ]
    rows = [
        _row(name, b"", b"", plan.names[number], superseded=True)
        for name, number in zip([*gone, *changed], plan.blocks[superseded].tolist(), strict=True)
    ]
    number = plan.num_parts + 1
    wanted = compared.is_new | compared.is_changed
    new = (
        (item, place >= 0)
        for item, place, is_wanted in zip(
            items, compared.places.tolist(), wanted.tolist(), strict=True
        )
        if is_wanted
    )
    while block := list(islice(new, block_items)):
        digests = [item_digests(item) for item, _ in block]
        # An item that had a block before must not come back under the same name: there its
        # result is superseded.
        generation = number if any(was_planned for _, was_planned in block) else 0
        contents = [[item.id, c.hex()] for (item, _), (c, _) in zip(block, digests, strict=True)]
        name = block_id(how, contents, generation)
        rows += [
            _row(item.id, content, meta, name)
            for (item, _), (content, meta) in zip(block, digests, strict=True)
        ]
        if len(rows) >= MAX_PART_ROWS:
            yield pa.Table.from_pylist(rows, schema=PLAN_SCHEMA)
            number, rows = number + 1, []
    if rows:
        yield pa.Table.from_pylist(rows, schema=PLAN_SCHEMA)


def _runs(blocks: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """Runs of neighbours of one block: the number of the block, where a run starts and ends."""
    starts = np.flatnonzero(np.diff(blocks, prepend=-1))
    ends = [*starts[1:].tolist(), len(blocks)]
    return zip(blocks[starts].tolist(), starts.tolist(), ends, strict=True)


def _row(
    item_id: str, content: bytes, meta: bytes, block: str, *, superseded: bool = False
) -> dict[str, Any]:
    return {
        "item_id": item_id,
        "content": content or bytes(CONTENT_BYTES),
        "meta": meta or bytes(META_BYTES),
        "block": block,
        "superseded": superseded,
    }


def _refusal(
    store: Store, outputs: Outputs, changes: InputChanges, gone: Sequence[str]
) -> ShardError:
    """Name the items that have changed or are gone.

    Args:
        store: of the run.
        outputs: of the task.
        changes: of the input.
        gone: what to show of the first items that are gone.
    """
    words = outputs.words
    lines = [
        f"  {count:,} {what}: {_listed(names, count)}"
        for count, what, names in (
            (changes.num_changed, f"changed ({words.content})", changes.changed),
            (changes.num_gone, "no longer there", gone),
        )
        if count
    ]
    return ShardError(
        f"{store.location}: was begun with other {words.items}:\n" + "\n".join(lines) + "\n"
        f"Restore them, choose another out=…, or pass --accept-changes: changed {words.items} are "
        f"{words.done} again, and readers skip the old results of changed and missing ones (shards "
        "are kept)"
    )


def _shown_gone(
    store: Store,
    outputs: Outputs,
    items: Items,
    compared: Comparison,
    gone: Mapping[str, str],
) -> list[str]:
    """What to show of items that are gone: where their text is on record its beginning, and
    whether a new item has the same one, as where ids are hashes of text and gold.

    Args:
        store: of the run.
        outputs: of the task.
        items: of the input.
        compared: the input with the plan.
        gone: block of each item, by id.
    """
    texts = outputs.texts(store, set(gone.values()))
    wanted = {texts[name] for name in gone if name in texts}
    new = (item for item, is_new in zip(items, compared.is_new, strict=True) if is_new)
    again = wanted & {item.content()[0] for item in new} if wanted else set()
    shown = []
    for name in gone:
        text = texts.get(name)
        note = f"; {outputs.words.same_text}" if text in again else ""
        shown.append(name if text is None else f"{name} ({text[:40]}…{note})")
    return shown


def _listed(names: Sequence[str], count: int) -> str:
    shown = ", ".join(" ".join(name.split())[:200] for name in names)
    return shown + (", …" if count > len(names) else "")
