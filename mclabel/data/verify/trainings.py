"""Checks a training's files against the marks of its checkpoints and of its end."""

from __future__ import annotations

from pathlib import Path

from mclabel.data.shards.finished import FILE as FINISHED
from mclabel.data.shards.manifest import read_claim
from mclabel.data.shards.store import Store
from mclabel.data.trainings import (
    CHECKPOINTS,
    CLAIMS,
    COMPLETE,
    MODEL,
    checkpoint_faults,
    finished_faults,
    model_remedy,
    step_of,
)
from mclabel.data.verify.findings import TRAINING, Verification
from mclabel.errors import DamagedFile


def is_training(store: Store) -> bool:
    """Whether a place is the output of `mclabel train` or `mclabel rl`."""
    if not store.is_local:
        return False
    out = Path(store.location)
    return any((out / name).is_file() for name in CLAIMS) or (
        (out / CHECKPOINTS).is_dir() and not (out / "labels").is_dir()
    )


def check_training(store: Store, found: Verification) -> None:
    """Read the manifest, every checkpoint, and what the training has come to.

    Args:
        store: of the training's output.
        found: receives findings, notes and counts.
    """
    out = Path(store.location)
    found.holds = TRAINING
    _check_claims(store, found)
    for folder in sorted((out / CHECKPOINTS).glob("checkpoint-*")):
        if not folder.is_dir() or step_of(folder) is None:
            continue
        if not (folder / COMPLETE).is_file():
            found.notes.append(
                f"{CHECKPOINTS}/{folder.name}/{COMPLETE} is missing: the checkpoint was not "
                "written to its end, or the file was lost. The same command removes the checkpoint "
                "and resumes from the one before it"
            )
            continue
        found.num_files += sum(path.is_file() for path in folder.rglob("*"))
        for fault in checkpoint_faults(folder):
            name = f"{CHECKPOINTS}/{folder.name}/{fault.name}"
            again = f"Remove the folder {folder}: the training resumes from the one before it"
            found.add(DamagedFile(store.location, name, fault.what, again))
    if not (out / MODEL).is_dir() and not (out / FINISHED).is_file():
        found.notes.append("the training has not ended. Run the same command again to resume it")
        return
    found.num_files += sum(path.is_file() for path in (out / MODEL).rglob("*"))
    for fault in finished_faults(out):
        found.add(DamagedFile(store.location, fault.name, fault.what, model_remedy(out)))


def _check_claims(store: Store, found: Verification) -> None:
    """Read the manifest; without it nothing says what was trained on what."""
    num_sound = 0
    for name in CLAIMS:
        try:
            num_sound += read_claim(store, name) is not None
        except DamagedFile as error:
            found.add(error)
            num_sound += 1
    if num_sound != 1:
        fault = "missing" if not num_sound else f"there beside {CLAIMS[1]}"
        again = "Restore it from a copy, or train into another out=…"
        found.add(DamagedFile(store.location, CLAIMS[0], f"{fault}, one of the two must be", again))
