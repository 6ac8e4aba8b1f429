"""Records what a job could not process, and why, in `rejects.jsonl`.

Unreadable rows never reach a block. An impossible problem stays in its block, whose shard records
the reason (`set_aside`); a note `rejects/BLOCK.json` is created before, so that the end of a run
finds those shards. `rejects.jsonl` is replaced from both at every end, with a digest of its lines.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mclabel.core.errors import bounded
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.digest import LinesDigest, check_lines
from mclabel.run.shards.manifest import run_id
from mclabel.run.shards.shard import read_shard
from mclabel.run.shards.store import Store, damaged

FOLDER, FILE = "rejects", "rejects.jsonl"
_IN_MEMORY = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Reject:
    """A row or problem without labels."""

    problem_id: str | None = None
    row: int | None = None
    """Number in `source`, from 1: the line of JSON Lines, else the row."""
    source: str | None = None
    reason: str
    """A short code; docs/formats.md has all."""
    detail: str

    def content(self) -> dict[str, Any]:
        """Return the content of one line of the file."""
        content = {**asdict(self), "detail": bounded(self.detail)}
        if self.problem_id is not None:
            content["problem_id"] = bounded(self.problem_id)
        return content

    def line(self) -> bytes:
        """Return one line of a file."""
        return json.dumps(self.content(), ensure_ascii=True).encode() + b"\n"


def noted_blocks(store: Store) -> list[str]:
    """Return the ids of blocks of which an attempt has left items out, whether it won or not."""
    return [name.removeprefix(f"{FOLDER}/").removesuffix(".json") for name in store.names(FOLDER)]


def note_set_aside(store: Store, block_id: str) -> None:
    """Note that a block is about to be committed without some of its items."""
    store.create(f"{FOLDER}/{block_id}.json", b"{}")


def set_aside(store: Store) -> Iterator[Reject]:
    """Yield the problems that committed blocks left out, by id."""
    noted = noted_blocks(store)
    if not noted:
        return
    catalog = read_catalog(store, must_be_whole=False)
    blocks_of: dict[str, list[str]] = defaultdict(list)
    for block in noted:
        if block in catalog.blocks:
            blocks_of[catalog.blocks[block].file].append(block)
    reasons: dict[str, dict[str, str]] = {}
    for file, blocks in blocks_of.items():
        metadata, _ = read_shard(store, file, "labels")
        reasons |= catalog.without_rows(blocks, metadata)["set_aside"]
    for problem_id, why in sorted(reasons.items()):
        yield Reject(problem_id=problem_id, reason=why["reason"], detail=why["detail"])


def write_lines(path: Path, rejects: Sequence[Reject]) -> None:
    """Write rejects beside an output that is no run; without any, delete what is there of others.

    Args:
        path: path of the JSON Lines file.
        rejects: in order.
    """
    if rejects:
        path.write_bytes(b"".join(reject.line() for reject in rejects))
    else:
        path.unlink(missing_ok=True)


def read_rejects(store: Store) -> list[Reject]:
    """Return the rejects of a run, as the end of its job has written them.

    Raises:
        DamagedFile: they are damaged.
    """
    raw = store.read(FILE) or b""
    try:
        if raw and check_lines(raw) != "sound":
            raise ValueError("its digest does not match its lines")
        lines = [json.loads(line) for line in raw.splitlines()]
        names = [field.name for field in fields(Reject)]
        return [Reject(**{name: line[name] for name in names}) for line in lines]
    except (ValueError, LookupError, TypeError) as error:
        raise damaged(store, FILE, f"damaged, or not a rejects file ({error})") from error


def write_rejects(store: Store, rejects: Iterable[Reject]) -> int:
    """Replace a run's `rejects.jsonl`, or delete it if empty; returns the number of lines."""
    count = 0
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as lines:
        digest, place = LinesDigest(), 0
        for reject in rejects:
            content = reject.content()
            if not count:
                content["run"] = run_id(store)
            digest.add(content)
            if not count:  # the digest of all lines is written over this one, which is as long
                content["digest"] = digest.text
                place = len(json.dumps(content, ensure_ascii=True)) - len(f'{digest.text}"}}')
            lines.write(json.dumps(content, ensure_ascii=True).encode() + b"\n")
            count += 1
        if not count:
            store.delete(FILE)
            return 0
        lines.seek(place)
        lines.write(digest.text.encode())
        lines.seek(0)
        store.replace(FILE, lines)
    return count
