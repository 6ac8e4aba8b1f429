"""Cuts a job's items into blocks, and compares the input with the plan of an earlier run.

The plan (`mclabel.run.shards.plan`) is committed before anything is leased. A later input may add
items, which get blocks of their own; changed and missing items are refused, or superseded where the
user accepts that. An item is read when its block is leased, never kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mclabel.core.errors import DataError, ShardError
from mclabel.run.plan_index import (
    CHUNK,
    MAX_NAMED,
    Comparison,
    InputChanges,
    PlanIndex,
    id_hashes,
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
    in_chunks,
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
            items: the input's items.
            word: for an item.
        """
        self._items, self._word, self._count = items, word, len(items)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        """Yield the items from the first.

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
            raise _unsteady(f"there were {self._count:,} {self._word}s at first, {now}")


def _unsteady(place: str) -> DataError:
    return DataError(
        f"{place}: the input has changed while it was read. Run the same command again when "
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
            items: the input's items.
            outputs: the task's outputs.
            plan: the run's plan.
            places: place in the plan of each item of the input, in the input's order.
            changes: changes of the input that the plan has taken up.
        """
        self._items, self._outputs, self._plan = items, outputs, plan
        numbers, counts = np.unique(plan.blocks[places], return_counts=True)
        self._counts = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        self.num_items = len(places)
        self.num_plan_parts = plan.num_parts
        self.changes = changes

    def __len__(self) -> int:
        return len(self._counts)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Yield the id of each block and the number of its items, in the order of the plan."""
        for number, count in self._counts.items():
            yield self._plan.names[number], count

    def blocks(self, wanted: Callable[[str], bool] = lambda block_id: True) -> Iterator[Block]:
        """Yield the blocks, each as soon as all of its items are read.

        Args:
            wanted: whether to give a block, by its id.

        Raises:
            DataError: the input changes while it is read.
        """
        plan = self._plan
        chosen = {n: count for n, count in self._counts.items() if wanted(plan.names[n])}
        word = self._outputs.words.item
        # Items of blocks that are not complete yet, each with its position in the plan.
        parts: dict[int, list[tuple[int, Item]]] = {}
        for chunk in in_chunks(self._items, CHUNK):
            places = plan.find(id_hashes(item.id for item in chunk))
            if len(unknown := np.flatnonzero(places < 0)):
                raise _unsteady(f"{word} {chunk[unknown[0]].id[:60]!r}")
            orders = plan.order[places]
            for number, start, end in _runs(plan.blocks[places]):
                if number not in chosen:
                    continue
                part = parts.setdefault(number, [])
                part.extend(zip(orders[start:end].tolist(), chunk[start:end], strict=True))
                if len(part) == chosen[number]:
                    in_order = sorted(parts.pop(number), key=itemgetter(0))
                    items = tuple(item for _, item in in_order)
                    yield Block(id=plan.names[number], items=items, priority=number)
        for part in parts.values():
            raise _unsteady(f"{word} {part[0][1].id[:60]!r}")


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
    """Return the blocks of a job, by the plan of its run with what is new added.

    Args:
        store: the run's store; None plans as for a new run.
        items: the whole input, with distinct ids.
        outputs: the task's outputs.
        identity: identity of the configuration.
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
    """Yield parts to add to a plan: what they supersede, then new blocks in the input's order."""
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
    """Yield runs of neighbours in one block: the block's number, start and end of the run."""
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
        store: the run's store.
        outputs: the task's outputs.
        changes: changes of the input.
        gone: text to show for each of the first missing items.
    """
    words = outputs.words
    lines = []
    for count, state, names in (
        (changes.num_changed, f"changed ({words.content})", changes.changed),
        (changes.num_gone, "no longer there", gone),
    ):
        if count:
            shown = ", ".join(" ".join(name.split())[:200] for name in names)
            lines.append(f"  {count:,} {state}: {shown}" + (", …" if count > len(names) else ""))
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
    """Return what to show of missing items: the beginning of a text that is on record, and
    whether a new item has the same one, as where ids are hashes of text and gold.

    Args:
        store: the run's store.
        outputs: the task's outputs.
        items: the input's items.
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
