"""Cuts a job's problems into blocks, once: what the run's plan has stays, what is new is added.

A block's id is a hash of its problems and of how they are labelled. Which problems make which block
is committed (`mclabel.data.plan`) before anything is leased. When a job is run again, its input is
compared with the plan: problems that were added get blocks of their own, so a grown input costs
only what is new, in whatever order it comes; problems that changed or are gone are refused, or
superseded where the user accepts that.

Of each problem 28 bytes are kept in memory; its text is read when its block is leased.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mclabel.data.catalog import read_catalog
from mclabel.data.plan import CONTENT_BYTES, META_BYTES, PLAN_SCHEMA, commit_part, read_parts
from mclabel.data.problems import Problems
from mclabel.data.shards import read_labels
from mclabel.data.store import Store
from mclabel.errors import DataError, ShardError
from mclabel.labeling.scheduler import GivenSolution
from mclabel.labeling.worker import Block
from mclabel.records import Problem
from mclabel.seeds import ID_LENGTH, canonical_json

MAX_PART_ROWS = 50_000
"""Rows of a part of the plan, about: parts end where blocks end."""
CHUNK = 4096
"""Problems that are looked up together."""
MAX_NAMED = 5
"""Problems that a message names."""

Given = Mapping[str, tuple[GivenSolution, ...]]
Keys = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class InputChanges:
    """How the input differs from what the run was begun with."""

    num_added: int = 0
    num_changed: int = 0
    """Problems with another text, gold or given solution."""
    num_gone: int = 0
    num_other_meta: int = 0
    """Problems of which only other columns differ; their labels keep the former ones."""
    changed: tuple[str, ...] = ()
    """Ids of the first of them."""


class JobBlocks:
    """The blocks of a job: those of the plan that hold problems of its input."""

    def __init__(
        self,
        problems: Problems,
        given: Given,
        plan: _Plan,
        places: NDArray[np.int64],
        changes: InputChanges,
    ) -> None:
        """Use `plan_blocks`.

        Args:
            problems: of the input.
            given: solutions to label, by problem id.
            plan: of the run.
            places: of each problem of the input in the plan, in the order of the input.
            changes: that the plan has taken up.
        """
        self._problems, self._given, self._plan = problems, given, plan
        numbers, counts = np.unique(plan.blocks[places], return_counts=True)
        self._counts = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        self.num_problems = len(places)
        self.changes = changes

    def __len__(self) -> int:
        return len(self._counts)

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Id of each block and the number of its problems, in the order of the plan."""
        for number, count in self._counts.items():
            yield self._plan.names[number], count

    def blocks(self, wanted: Callable[[str], bool] = lambda block_id: True) -> Iterator[Block]:
        """The blocks, each as soon as all of its problems are read.

        Args:
            wanted: whether to give a block, by its id.

        Raises:
            DataError: the input changes while it is read.
        """
        plan = self._plan
        chosen = {n: count for n, count in self._counts.items() if wanted(plan.names[n])}
        parts: dict[int, list[tuple[int, Problem]]] = {}
        for chunk in _chunks(self._problems):
            places = plan.find(_keys(problem.id for problem in chunk))
            if len(unknown := np.flatnonzero(places < 0)):
                raise _unsteady(chunk[unknown[0]].id)
            columns = plan.blocks[places].tolist(), plan.order[places].tolist(), chunk
            for number, order, problem in zip(*columns, strict=True):
                if number not in chosen:
                    continue
                part = parts.setdefault(number, [])
                part.append((order, problem))
                if len(part) == chosen[number]:
                    yield self._block(number, parts.pop(number))
        if parts:
            raise _unsteady(next(iter(parts.values()))[0][1].id)

    def _block(self, number: int, part: list[tuple[int, Problem]]) -> Block:
        problems = tuple(problem for _, problem in sorted(part, key=lambda one: one[0]))
        given = {p.id: self._given[p.id] for p in problems if p.id in self._given}
        name = self._plan.names[number]
        return Block(id=name, problems=problems, given=given, priority=number)


def plan_blocks(
    store: Store | None,
    problems: Problems,
    *,
    given: Given | None = None,
    semantic: Mapping[str, Any],
    block_problems: int,
    accept_changes: bool = False,
    commit: bool = True,
) -> JobBlocks:
    """The blocks of a job, as the plan of its run has them once what is new was added.

    Args:
        store: of the run; None plans as for a new one.
        problems: of the whole input, with distinct ids.
        given: solutions to label, by problem id.
        semantic: configuration that decides about labels.
        block_problems: problems in a new block.
        accept_changes: supersede problems that changed or are gone, instead of refusing them.
        commit: add what is new to the plan of the run; False only works it out.

    Raises:
        ShardError: problems changed or are gone, and that is not accepted; or the plan is damaged.
        DataError: the input changes while it is read.
    """
    given = given or {}
    how = hashlib.sha256(canonical_json(["block", semantic])).digest()
    taken = InputChanges()
    added: list[pa.Table] = []
    while True:
        plan = _Plan.of([*(read_parts(store) if store is not None else ()), *added])
        found = _compare(problems, given, plan)
        changes = found.changes
        if not (changes.num_added or changes.num_changed or changes.num_gone):
            taken = replace(taken, num_other_meta=changes.num_other_meta)
            return JobBlocks(problems, given, plan, found.places, taken)
        if plan.num_parts:
            taken = changes
        if store is not None and (changes.num_changed or changes.num_gone):
            gone = _names_of(store, plan.keys[found.gone])
            if not accept_changes:
                blocks = [plan.names[number] for number in plan.blocks[found.gone].tolist()]
                raise _refusal(store, changes, gone, blocks)
        else:
            gone = []
        new = _new_parts(problems, given, plan, found, gone, how, block_problems)
        if commit and store is not None:
            for number, table in enumerate(new, plan.num_parts + 1):
                if not commit_part(store, number, table):
                    break  # another driver plans, too: see what it wrote
        else:
            added += new


class _Plan:
    """Every problem that a plan has ever had, by a hash of its id, with its latest state."""

    def __init__(self) -> None:
        self.keys: Keys = np.empty(0, np.uint64)
        """Sorted hashes of ids."""
        self.contents: Keys = np.empty(0, np.uint64)
        self.metas: Keys = np.empty(0, np.uint64)
        self.blocks: NDArray[np.int64] = np.empty(0, np.int64)
        """Number of the block; -1 where the problem was superseded and not labelled anew."""
        self.order: NDArray[np.int64] = np.empty(0, np.int64)
        """Position in the plan."""
        self.names: list[str] = []
        """Ids of the blocks, by number."""
        self.num_parts = 0

    @classmethod
    def of(cls, parts: Iterable[pa.Table]) -> Self:
        """The plan that some parts make."""
        plan = cls()
        columns: list[tuple[NDArray[Any], ...]] = []
        for part in parts:
            plan.num_parts += 1
            columns.append(plan._columns(part))
        if not columns:
            return plan
        keys, contents, metas, blocks = (np.concatenate(c) for c in zip(*columns, strict=True))
        by_key = np.argsort(keys, kind="stable")
        last = by_key[np.append(keys[by_key][1:] != keys[by_key][:-1], True)]
        plan.keys, plan.contents, plan.metas = keys[last], contents[last], metas[last]
        plan.blocks, plan.order = blocks[last], last
        return plan

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Places of problems by the hashes of their ids; -1 where there is none."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, -1)

    def _columns(self, part: pa.Table) -> tuple[NDArray[Any], ...]:
        superseded = part.column("superseded").to_numpy()
        named = part.column("block").combine_chunks().dictionary_encode()
        blocks = named.indices.to_numpy() + len(self.names)
        self.names += named.dictionary.to_pylist()
        return (
            _keys(part.column("problem_id").to_pylist()),
            _first_bytes(part.column("content"), CONTENT_BYTES),
            _first_bytes(part.column("meta"), META_BYTES),
            np.where(superseded, -1, blocks),
        )


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """An input beside a plan."""

    places: NDArray[np.int64]
    """Of each problem of the input in the plan; -1 for a new one."""
    is_new: NDArray[np.bool_]
    """Of each problem of the input: without a block yet."""
    is_changed: NDArray[np.bool_]
    gone: NDArray[np.int64]
    """Places of problems of the plan that the input lacks."""
    num_other_meta: int
    first_changed: tuple[str, ...]

    @property
    def changes(self) -> InputChanges:
        """How they differ, in numbers."""
        return InputChanges(
            num_added=int(self.is_new.sum()),
            num_changed=int(self.is_changed.sum()),
            num_gone=len(self.gone),
            num_other_meta=self.num_other_meta,
            changed=self.first_changed,
        )


def _compare(problems: Problems, given: Given, plan: _Plan) -> _Comparison:
    if not plan.num_parts:
        count = len(problems)
        return _Comparison(
            places=np.full(count, -1, np.int64),
            is_new=np.ones(count, bool),
            is_changed=np.zeros(count, bool),
            gone=np.empty(0, np.int64),
            num_other_meta=0,
            first_changed=(),
        )
    found, contents, metas = [], [], []
    first: list[str] = []
    for chunk in _chunks(problems):
        places = plan.find(_keys(problem.id for problem in chunk))
        digests = [_digests(problem, given) for problem in chunk]
        content = _numbers([content for content, _ in digests])
        here = np.maximum(places, 0)
        is_changed = (places >= 0) & (plan.blocks[here] >= 0) & (plan.contents[here] != content)
        first += [chunk[i].id for i in np.flatnonzero(is_changed)[: MAX_NAMED - len(first)]]
        found.append(places)
        contents.append(is_changed)
        metas.append(_numbers([meta for _, meta in digests]) != plan.metas[here])
    places, is_changed, other_meta = (np.concatenate(part) for part in (found, contents, metas))
    is_new = (places < 0) | (plan.blocks[np.maximum(places, 0)] < 0)
    is_gone = plan.blocks >= 0
    is_gone[places[~is_new]] = False
    return _Comparison(
        places=places,
        is_new=is_new,
        is_changed=is_changed,
        gone=np.flatnonzero(is_gone),
        num_other_meta=int((other_meta & ~is_new & ~is_changed).sum()),
        first_changed=tuple(first),
    )


def _new_parts(
    problems: Problems,
    given: Given,
    plan: _Plan,
    found: _Comparison,
    gone: Sequence[str],
    how: bytes,
    block_problems: int,
) -> Iterator[pa.Table]:
    """Parts to add to a plan: first what they supersede, then new blocks in the input's order."""
    superseded = np.concatenate([found.gone, found.places[found.is_changed]])
    changed = [p.id for p, is_changed in zip(problems, found.is_changed, strict=True) if is_changed]
    rows = [
        _row(name, b"", b"", plan.names[number], superseded=True)
        for name, number in zip([*gone, *changed], plan.blocks[superseded].tolist(), strict=True)
    ]
    number = plan.num_parts + 1
    wanted = found.is_new | found.is_changed
    new = (
        (problem, place >= 0)
        for problem, place, is_wanted in zip(
            problems, found.places.tolist(), wanted.tolist(), strict=True
        )
        if is_wanted
    )
    while block := list(islice(new, block_problems)):
        digests = [_digests(problem, given) for problem, _ in block]
        # A problem that had a block before must not come back under the same name: there its
        # labels are superseded.
        generation = number if any(was_known for _, was_known in block) else 0
        contents = [[p.id, c.hex()] for (p, _), (c, _) in zip(block, digests, strict=True)]
        name = hashlib.sha256(how + canonical_json([contents, generation])).hexdigest()[:ID_LENGTH]
        rows += [
            _row(problem.id, content, meta, name)
            for (problem, _), (content, meta) in zip(block, digests, strict=True)
        ]
        if len(rows) >= MAX_PART_ROWS:
            yield pa.Table.from_pylist(rows, schema=PLAN_SCHEMA)
            number, rows = number + 1, []
    if rows:
        yield pa.Table.from_pylist(rows, schema=PLAN_SCHEMA)


def _row(
    problem_id: str, content: bytes, meta: bytes, block: str, *, superseded: bool = False
) -> dict[str, Any]:
    return {
        "problem_id": problem_id,
        "content": content or bytes(CONTENT_BYTES),
        "meta": meta or bytes(META_BYTES),
        "block": block,
        "superseded": superseded,
    }


def _names_of(store: Store, keys: Keys) -> list[str]:
    """Ids of problems of the plan by their hashes, in the order of the hashes."""
    names: dict[int, str] = {}
    for part in read_parts(store):
        found = _keys(part.column("problem_id").to_pylist())
        at = np.flatnonzero(np.isin(found, keys))
        texts = pc.take(part.column("problem_id"), pa.array(at)).to_pylist()
        names.update(zip(found[at].tolist(), texts, strict=True))
    return [names[key] for key in keys.tolist()]


def _refusal(
    store: Store, changes: InputChanges, gone: Sequence[str], blocks: Sequence[str]
) -> ShardError:
    """Name the problems, those that are gone with the beginning of their text if it is on record.

    Args:
        store: of the run.
        changes: of the input.
        gone: ids of the problems that are gone.
        blocks: of each of them.
    """
    texts: dict[str, str] = {}
    if done := set(blocks[:MAX_NAMED]) & read_catalog(store).blocks.keys():
        texts = {row.problem.id: row.problem.text for row in read_labels(store, done)}
    shown = [f"{name} ({texts[name][:40]}…)" if name in texts else name for name in gone]
    lines = [
        f"  {count:,} {what}: {_listed(names, count)}"
        for count, what, names in (
            (changes.num_changed, "changed (text, gold or given solution)", changes.changed),
            (changes.num_gone, "no longer there", shown[:MAX_NAMED]),
        )
        if count
    ]
    return ShardError(
        f"{store.location}: was begun with other problems:\n" + "\n".join(lines) + "\n"
        "Restore them, choose another out=…, or give --accept-changes: what changed is labelled "
        "anew, and readers skip the labels of what changed or is gone (the shards stay)"
    )


def _listed(names: Sequence[str], count: int) -> str:
    shown = ", ".join(" ".join(name.split())[:120] for name in names)
    return shown + (", …" if count > len(names) else "")


def _unsteady(problem_id: str) -> DataError:
    return DataError(
        f"problem {problem_id[:60]!r}: the input has changed while it was read. Run the same "
        "command again when nothing writes to it"
    )


def _digests(problem: Problem, given: Given) -> tuple[bytes, bytes]:
    """Of what labels of a problem depend on, and of its other columns."""
    texts = [problem.text, problem.answer]
    for solution in given.get(problem.id, ()):
        ends = None if solution.step_ends is None else list(solution.step_ends)
        texts += [solution.text, canonical_json(ends).decode()]
    return (
        _digest(texts, CONTENT_BYTES),
        _digest([text for pair in sorted(problem.meta.items()) for text in pair], META_BYTES),
    )


def _digest(texts: Iterable[str], size: int) -> bytes:
    whole = hashlib.blake2b(digest_size=size)
    for text in texts:
        content = text.encode()
        whole.update(len(content).to_bytes(8, "big"))
        whole.update(content)
    return whole.digest()


def _keys(ids: Iterable[str]) -> Keys:
    return _numbers([hashlib.blake2b(name.encode(), digest_size=8).digest() for name in ids])


def _numbers(digests: Sequence[bytes]) -> Keys:
    """Their first eight bytes."""
    return np.frombuffer(b"".join(digest[:8] for digest in digests), ">u8").astype(np.uint64)


def _first_bytes(column: pa.ChunkedArray, width: int) -> Keys:
    whole = column.combine_chunks()
    raw = np.frombuffer(whole.buffers()[1], np.uint8)
    rows = raw.reshape(-1, width)[whole.offset : whole.offset + len(whole), :8]
    return np.ascontiguousarray(rows).view(">u8").ravel().astype(np.uint64)


def _chunks(problems: Iterable[Problem]) -> Iterator[list[Problem]]:
    stream = iter(problems)
    while chunk := list(islice(stream, CHUNK)):
        yield chunk
