"""Writes `rejects.jsonl`, which lists the rows and problems that a job could not process.

Unreadable rows are never assigned to a block. A problem that cannot be processed is set aside: it
stays in its block, and the block's shard records the reason under `set_aside`. Before the shard is
committed, a marker file `rejects/BLOCK.json` is created, by which these shards are found when the
job ends and `rejects.jsonl` is replaced.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from mclabel.core.errors import shorten_detail
from mclabel.run.shards.catalog import read_catalog, read_labels_shard
from mclabel.run.shards.digest import LinesDigest, check_lines_digest
from mclabel.run.shards.manifest import read_run_id
from mclabel.run.shards.store import Store, make_damaged_file_error

FOLDER, FILE = "rejects", "rejects.jsonl"
_IN_MEMORY = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Reject:
    """A row or problem without labels."""

    problem_id: str | None = None
    row: int | None = None
    """Number of the row in `source`, from 1. In JSON Lines files it is the number of the line."""
    source: str | None = None
    """Name of the file from which the row was read; None for a problem that no file holds."""
    reason: str
    """Short code of the reason; docs/formats.md lists all codes."""
    detail: str
    """Description of the fault."""

    def content(self) -> dict[str, Any]:
        """Return the record as the JSON object of a line, with long texts shortened."""
        content = {**asdict(self), "detail": shorten_detail(self.detail)}
        if self.problem_id is not None:
            content["problem_id"] = shorten_detail(self.problem_id)
        return content

    def line(self) -> bytes:
        """Return the record as a line of a JSON Lines file, including the newline."""
        return json.dumps(self.content(), ensure_ascii=True).encode() + b"\n"


def list_blocks_with_set_aside_items(store: Store) -> list[str]:
    """Return the ids of blocks with set-aside items in any attempt, committed or not."""
    return [name.removeprefix(f"{FOLDER}/").removesuffix(".json") for name in store.names(FOLDER)]


def create_set_aside_marker(store: Store, block_id: str) -> None:
    """Create the marker of a block that is about to be committed with items set aside."""
    store.create(f"{FOLDER}/{block_id}.json", b"{}")


def read_set_aside(store: Store) -> Iterator[Reject]:
    """Yield the problems that were set aside in committed blocks, sorted by id."""
    noted = list_blocks_with_set_aside_items(store)
    if not noted:
        return
    catalog = read_catalog(store, require_complete=False)
    reasons: dict[str, dict[str, str]] = {}
    for block in noted:
        if block in catalog.blocks:
            metadata, _ = read_labels_shard(store, block)
            reasons |= catalog.problems_without_rows(block, metadata)["set_aside"]
    for problem_id, why in sorted(reasons.items()):
        yield Reject(problem_id=problem_id, reason=why["reason"], detail=why["detail"])


def write_reject_lines(path: Path, rejects: Sequence[Reject]) -> None:
    """Write the rejects of a job whose output is not a run, such as a file of scores.

    Without rejects, the file that an earlier job wrote there is deleted.

    Args:
        path: path of the JSON Lines file, beside the job's output.
        rejects: rejects in the order of the file.
    """
    if rejects:
        path.write_bytes(b"".join(reject.line() for reject in rejects))
    else:
        path.unlink(missing_ok=True)


def read_rejects(store: Store) -> list[Reject]:
    """Return the rejects in a run's `rejects.jsonl`; an empty list if there is no such file.

    Raises:
        DamagedFile: the file is damaged.
    """
    raw = store.read(FILE) or b""
    try:
        if raw and check_lines_digest(raw) != "sound":
            raise ValueError("its digest does not match its lines")
        lines = [json.loads(line) for line in raw.splitlines()]
        names = [field.name for field in fields(Reject)]
        return [Reject(**{name: line[name] for name in names}) for line in lines]
    except (ValueError, LookupError, TypeError) as error:
        raise make_damaged_file_error(
            store, FILE, f"damaged, or not a rejects file ({error})"
        ) from error


def write_rejects(store: Store, rejects: Iterable[Reject]) -> int:
    """Replace a run's `rejects.jsonl`, and return its number of lines.

    Without rejects, an existing file is deleted.
    """
    count = 0
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as lines:
        digest, place = LinesDigest(), 0
        for reject in rejects:
            content = reject.content()
            if not count:
                content["run"] = read_run_id(store)
            digest.add(content)
            if not count:  # a placeholder, which the digest of all lines overwrites below
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
