"""Errors about damaged files of a run, and what to do about them."""

from __future__ import annotations

from mclabel.data.shards.store import Store
from mclabel.errors import DamagedFile

CHANGED = "damaged: its content is not what was written"
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
            return "Delete it and run the job again: its block is labelled again"
        case ["merged", "labels"]:
            return "Delete it and run the job again: its blocks are labelled again"
        case ["scores"]:
            return "Delete it and run the job again: its block is scored again"
        case ["rollouts"]:
            return (
                f"Labels are read without it. To have its rollouts, delete it and labels/"
                f"{rest.partition('.')[0]}.parquet and run the job again: the block is labelled "
                "again"
            )
        case ["merged", "rollouts"]:
            return (
                f"Labels are read without it. To have its rollouts, delete it and merged/labels/"
                f"{rest} and run the job again: the blocks are labelled again"
            )
        case ["compacted"]:
            return "Delete it and run the job again: the blocks it names are labelled again"
        case ["plan"]:
            return (
                "Restore it from a copy. Without the whole folder plan/ the job plans anew: blocks "
                "that were cut the same way are found done, others are labelled again"
            )
        case ["priors"]:
            return (
                "Delete it: labels that rest on it stay, and cannot be graded again; a job that "
                "is not done learns others"
            )
        case ["journals", *_]:
            return "Nothing need be done: what it holds is sampled again"
        case ["drivers"] | ["rejects"]:
            return "Delete it: it decides nothing"
        case _:
            return _SINGLE.get(name, "Restore it from a copy, or make it anew")


_SINGLE = {
    "run.json": "Restore it from a copy, or choose another out=…",
    "spent.json": "Delete it: what the job has spent is then counted from now on",
    "rejects.jsonl": "Run the job again: it is made anew",
    "progress.jsonl": "Delete it, or the lines: it is a log, and decides nothing",
}
