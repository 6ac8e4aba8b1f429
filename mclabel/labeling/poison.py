"""Problems that were set aside: what the committed shards say of them, in one file of the run.

    poison/BLOCK.json   an attempt at the block has left problems out; what counts is the shard
    rejects.jsonl       a line a problem that has no labels, with the reason

The note is created before the shard is committed, so that whatever is killed and when, the end of
the next run finds every shard that left something out without opening the others. A block that
another attempt committed with all its problems says so itself, and nothing is written of it.
"""

from __future__ import annotations

import json

from mclabel.data.catalog import read_catalog
from mclabel.data.shards import read_shard
from mclabel.data.store import Store

FOLDER, REJECTS = "poison", "rejects.jsonl"


def note_set_aside(store: Store, block_id: str) -> None:
    """Note that a block is about to be committed without some of its problems."""
    store.create(f"{FOLDER}/{block_id}.json", b"{}")


def write_set_aside(store: Store) -> int:
    """Add to `rejects.jsonl` what is not there yet; the number of problems set aside in the run."""
    noted = [name.removeprefix(f"{FOLDER}/").removesuffix(".json") for name in store.names(FOLDER)]
    if not noted:
        return 0
    blocks = read_catalog(store).blocks
    rows = []
    for place in {blocks[block] for block in noted if block in blocks}:
        metadata, _ = read_shard(store, place.file, "labels")
        for problem_id, why in metadata.get("set_aside", {}).items():
            rows.append({"problem_id": problem_id, "row": None, "source": None, **why})
    rows.sort(key=lambda row: str(row["problem_id"]))
    lines = [json.dumps(row, sort_keys=True) for row in rows]
    content = store.read(REJECTS) or b""
    known = set(content.decode(errors="replace").splitlines())
    if missing := [line for line in lines if line not in known]:
        torn = "\n" if content and not content.endswith(b"\n") else ""
        store.append(REJECTS, (torn + "\n".join(missing) + "\n").encode())
    return len(lines)
