"""Errors about damaged files of a run, and what to do about them."""

from __future__ import annotations

from mclabel.data.shards.store import Store
from mclabel.errors import DamagedFile

CHANGED = "damaged: its content has changed since it was written"
CUT_OFF = "damaged: it is cut off"


def damaged(store: Store, name: str, fault: str = CHANGED) -> DamagedFile:
    """The error to raise for a file.

    Args:
        store: of the run.
        name: of the file in it.
        fault: what is wrong with it.
    """
    return DamagedFile(store.location, name, fault, remedy(name))


def remedy(name: str) -> str:
    """What to do about a damaged file, by its name."""
    folder, _, rest = name.rpartition("/")
    match folder.split("/"):
        case ["labels"]:
            return "Delete it and run the job again, which labels its block again"
        case ["merged", "labels"]:
            return "Delete it and run the job again, which labels its blocks again"
        case ["opinions"]:
            return "Delete it and run the job again, which judges its block again"
        case ["trees"]:
            return (
                f"Delete it and labels/{rest.partition('.')[0]}.parquet and run `mclabel search` "
                "again with the same settings, which searches its block again"
            )
        case ["rollouts"]:
            return (
                f"Labels can be read without it. To restore the rollouts, delete it and labels/"
                f"{rest.partition('.')[0]}.parquet and run the job again, which labels the block "
                "again"
            )
        case ["merged", "rollouts"]:
            return (
                f"Labels can be read without it. To restore the rollouts, delete it and "
                f"merged/labels/{rest} and run the job again, which labels the blocks again"
            )
        case ["compacted"]:
            return "Delete it and run the job again, which labels the blocks that it names again"
        case ["plan"]:
            return (
                "Restore it from a copy, or delete the whole folder plan/ and run the job again: "
                "it makes a new plan, keeps blocks with the same problems and labels others again"
            )
        case ["priors"]:
            return (
                "Delete it: labels that depend on it stay valid but cannot be regraded, and an "
                "unfinished job learns new priors"
            )
        case ["journals", *_]:
            return "You need not do anything: the job samples its content again"
        case ["drivers"] | ["rejects"]:
            return "Delete it: nothing depends on it"
        case _:
            return _SINGLE.get(name, "Restore it from a copy, or create it again")


_SINGLE = {
    "run.json": "Restore it from a copy, or choose another out=…",
    "spent.json": "Delete it: the job then counts what it spends from zero",
    "finished.json": "Delete it: the same command writes it again once all is done",
    "rejects.jsonl": "Run the job again, which writes it again",
    "progress.jsonl": "Delete it, or the damaged lines: it is only a log",
}
