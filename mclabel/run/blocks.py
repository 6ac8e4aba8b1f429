"""Splits a job's items into blocks, and compares the input with the plan of an earlier run.

The plan (`mclabel.run.shards.plan`) assigns each item to a block, and is committed before any block
is leased. A later input may add items, which get new blocks. Changed and missing items are refused,
or, if the user accepts the changes, superseded: their recorded results no longer count. An item is
read when its block is leased, and is not kept in memory.
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
    InputChanges,
    PlanComparison,
    PlanIndex,
    digest_content_and_extras,
    hash_ids,
    look_up_item_ids,
)
from mclabel.run.shards.plan import (
    CONTENT_BYTES,
    META_BYTES,
    PLAN_SCHEMA,
    commit_plan_part,
    digest_identity,
    make_block_id,
    read_plan_parts,
    split_into_chunks,
)
from mclabel.run.shards.store import Store
from mclabel.run.task import Block, Item, Items, OutputReader

MAX_PART_ROWS = 50_000
"""Approximate number of rows in a part of the plan. A part ends at the end of a block."""


class ItemsWithCheckedCount:
    """Items of an input. Every iteration checks that their number is unchanged."""

    def __init__(self, items: Items, item_noun: str) -> None:
        """Count the items.

        Args:
            items: items of the input.
            item_noun: noun for an item in messages.
        """
        self._items, self._word, self._count = items, item_noun, len(items)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Item]:
        """Yield the items from the first.

        Raises:
            DataError: the number of items differs from the first count.
        """
        count = 0
        for item in self._items:
            count += 1
            if count > self._count:
                break
            yield item
        if count != self._count:
            now = f"now {count:,}" if count < self._count else "now more"
            raise _make_changing_input_error(
                f"there were {self._count:,} {self._word}s at first, {now}"
            )


def _make_changing_input_error(position: str) -> DataError:
    return DataError(
        f"{position}: the input changed while it was read. Run the same command again when no "
        "other program writes to the input"
    )


class JobBlocks:
    """Blocks of a job: those blocks of the run's plan that hold items of the job's input."""

    def __init__(
        self,
        items: Items,
        outputs: OutputReader,
        plan: PlanIndex,
        plan_indices: NDArray[np.int64],
        changes: InputChanges,
    ) -> None:
        """Pair an input with its plan; call `plan_blocks` instead of this.

        Args:
            items: items of the input.
            outputs: outputs of the task.
            plan: index of the run's plan.
            plan_indices: index of each input item in the arrays of `plan`, in the input's order.
            changes: changes of the input that this call has added to the plan.
        """
        self._items, self._outputs, self._plan = items, outputs, plan
        numbers, counts = np.unique(plan.block_indices[plan_indices], return_counts=True)
        self._counts = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        self.num_items = len(plan_indices)
        self.num_plan_parts = plan.num_parts
        self.changes = changes

    def __len__(self) -> int:
        return len(self._counts)

    def iter_item_counts(self) -> Iterator[tuple[str, int]]:
        """Yield the id of each block and the number of its items, in the order of the plan."""
        for number, count in self._counts.items():
            yield self._plan.block_ids[number], count

    def read_blocks(
        self, is_wanted: Callable[[str], bool] = lambda block_id: True
    ) -> Iterator[Block]:
        """Yield the blocks, each as soon as all of its items are read.

        Args:
            is_wanted: function that returns whether to yield the block with a given id.

        Raises:
            DataError: the input changes while it is read.
        """
        plan = self._plan
        chosen = {n: count for n, count in self._counts.items() if is_wanted(plan.block_ids[n])}
        word = self._outputs.words.item
        # Items of incomplete blocks by block number, each with its position in the plan.
        parts: dict[int, list[tuple[int, Item]]] = {}
        for chunk in split_into_chunks(self._items, CHUNK):
            plan_indices = plan.find_by_id_hash(hash_ids(item.id for item in chunk))
            if len(unknown := np.flatnonzero(plan_indices < 0)):
                raise _make_changing_input_error(f"{word} {chunk[unknown[0]].id[:60]!r}")
            columns = (
                plan.block_indices[plan_indices].tolist(),
                plan.row_numbers[plan_indices].tolist(),
                chunk,
            )
            for number, order, item in zip(*columns, strict=True):
                if number not in chosen:
                    continue
                part = parts.setdefault(number, [])
                part.append((order, item))
                if len(part) == chosen[number]:
                    in_order = sorted(parts.pop(number), key=itemgetter(0))
                    items = tuple(item for _, item in in_order)
                    yield Block(id=plan.block_ids[number], items=items, priority=number)
        for part in parts.values():
            raise _make_changing_input_error(f"{word} {part[0][1].id[:60]!r}")


def plan_blocks(
    store: Store | None,
    items: Items,
    outputs: OutputReader,
    *,
    identity: Mapping[str, Any],
    block_items: int,
    accept_changes: bool = False,
    commit: bool = True,
) -> JobBlocks:
    """Compare the input with the run's plan, add new items to the plan, and return the blocks.

    Args:
        store: store of the run; None plans a new run without writing.
        items: the whole input, with distinct ids.
        outputs: outputs of the task.
        identity: settings on which results depend; they are hashed into the ids of blocks.
        block_items: number of items in a new block.
        accept_changes: True runs changed items again, and supersedes missing ones; False makes both
            an error.
        commit: True writes the plan; False only returns the blocks that would be planned.

    Raises:
        ShardError: items changed or are missing without `accept_changes`, or the plan is damaged.
        DataError: the input changes while it is read.
    """
    identity_hash = digest_identity(identity)
    items = ItemsWithCheckedCount(items, outputs.words.item)
    taken_up = InputChanges()
    added: list[pa.Table] = []
    while True:
        plan = PlanIndex.from_parts(
            [*(read_plan_parts(store) if store is not None else ()), *added]
        )
        compared = PlanComparison.compare(items, plan)
        changes = compared.changes
        if not (changes.num_added or changes.num_changed or changes.num_gone):
            taken_up = replace(taken_up, num_other_meta=changes.num_other_meta)
            return JobBlocks(items, outputs, plan, compared.plan_indices, taken_up)
        if plan.num_parts:
            taken_up = changes
        missing_ids: list[str] = []
        if store is not None and (changes.num_changed or changes.num_gone):
            missing_ids = look_up_item_ids(store, plan.id_hashes[compared.missing_plan_indices])
            if not accept_changes:
                blocks = [
                    plan.block_ids[number]
                    for number in plan.block_indices[compared.missing_plan_indices].tolist()
                ]
                named = dict(zip(missing_ids[:MAX_NAMED], blocks, strict=False))
                shown = _describe_missing_items(store, outputs, items, compared, named)
                raise _make_changed_input_error(store, outputs, changes, shown)
        new = _iter_new_parts(items, plan, compared, missing_ids, identity_hash, block_items)
        if commit and store is not None:
            numbered = enumerate(new, plan.num_parts + 1)
            if not all(commit_plan_part(store, number, table) for number, table in numbered):
                continue  # another driver planned at the same time, so read its plan first
        else:
            added += new
        # The parts were just added from this input, so contents need not be compared again.
        plan = PlanIndex.from_parts(
            [*(read_plan_parts(store) if store is not None else ()), *added]
        )
        taken_up = replace(taken_up, num_other_meta=changes.num_other_meta)
        return JobBlocks(items, outputs, plan, plan.find_items(items), taken_up)


def _iter_new_parts(
    items: Items,
    plan: PlanIndex,
    compared: PlanComparison,
    missing_ids: Sequence[str],
    identity_hash: bytes,
    block_items: int,
) -> Iterator[pa.Table]:
    """Yield the parts to add to a plan: first the superseded items, then the new blocks, in the
    order of the input.
    """
    superseded = np.concatenate(
        [compared.missing_plan_indices, compared.plan_indices[compared.is_changed]]
    )
    changed = [
        item.id for item, is_changed in zip(items, compared.is_changed, strict=True) if is_changed
    ]
    rows = [
        _make_plan_row(name, b"", b"", plan.block_ids[number], superseded=True)
        for name, number in zip(
            [*missing_ids, *changed], plan.block_indices[superseded].tolist(), strict=True
        )
    ]
    number = plan.num_parts + 1
    wanted = compared.is_new | compared.is_changed
    new = (
        (item, place >= 0)
        for item, place, is_wanted in zip(
            items, compared.plan_indices.tolist(), wanted.tolist(), strict=True
        )
        if is_wanted
    )
    while block := list(islice(new, block_items)):
        digests = [digest_content_and_extras(item) for item, _ in block]
        # An item that was planned before must not return in a block of the same id, because its
        # result in that block is superseded. The generation makes the new id different.
        generation = number if any(was_planned for _, was_planned in block) else 0
        contents = [[item.id, c.hex()] for (item, _), (c, _) in zip(block, digests, strict=True)]
        name = make_block_id(identity_hash, contents, generation)
        rows += [
            _make_plan_row(item.id, content, meta, name)
            for (item, _), (content, meta) in zip(block, digests, strict=True)
        ]
        if len(rows) >= MAX_PART_ROWS:
            yield pa.Table.from_pylist(rows, schema=PLAN_SCHEMA)
            number, rows = number + 1, []
    if rows:
        yield pa.Table.from_pylist(rows, schema=PLAN_SCHEMA)


def _make_plan_row(
    item_id: str,
    content_digest: bytes,
    extras_digest: bytes,
    block: str,
    *,
    superseded: bool = False,
) -> dict[str, Any]:
    return {
        "item_id": item_id,
        "content": content_digest or bytes(CONTENT_BYTES),
        "meta": extras_digest or bytes(META_BYTES),
        "block": block,
        "superseded": superseded,
    }


def _make_changed_input_error(
    store: Store, outputs: OutputReader, changes: InputChanges, missing_texts: Sequence[str]
) -> ShardError:
    """Return the error that lists the changed and missing items.

    Args:
        store: store of the run.
        outputs: outputs of the task.
        changes: changes of the input.
        missing_texts: text to show for each of the first missing items.
    """
    words = outputs.words
    lines = []
    for count, state, names in (
        (changes.num_changed, f"changed ({words.content})", changes.changed),
        (changes.num_gone, "missing", missing_texts),
    ):
        if count:
            shown = ", ".join(" ".join(name.split())[:200] for name in names)
            lines.append(f"  {count:,} {state}: {shown}" + (", …" if count > len(names) else ""))
    return ShardError(
        f"{store.location}: was begun with other {words.items}:\n" + "\n".join(lines) + "\n"
        f"Restore the {words.items}, choose another out=…, or pass --accept-changes. Then changed "
        f"{words.items} are {words.done} again, and the old results of changed and missing "
        f"{words.items} stay in the shards but are no longer read"
    )


def _describe_missing_items(
    store: Store,
    outputs: OutputReader,
    items: Items,
    compared: PlanComparison,
    missing: Mapping[str, str],
) -> list[str]:
    """Describe each missing item by its id and the beginning of its recorded text.

    A note is added if a new item has the same text. That happens if ids are hashes of text and gold
    answer, and the gold answer was changed.

    Args:
        store: store of the run.
        outputs: outputs of the task.
        items: items of the input.
        compared: comparison of the input with the plan.
        missing: id of the block of each missing item, by item id.
    """
    texts = outputs.read_item_texts(store, set(missing.values()))
    wanted = {texts[name] for name in missing if name in texts}
    new = (item for item, is_new in zip(items, compared.is_new, strict=True) if is_new)
    again = wanted & {item.content()[0] for item in new} if wanted else set()
    shown = []
    for name in missing:
        text = texts.get(name)
        note = f"; {outputs.words.same_text}" if text in again else ""
        shown.append(name if text is None else f"{name} ({text[:40]}…{note})")
    return shown
