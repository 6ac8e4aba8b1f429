"""The single files of a run (its manifest, logs and record of its end), and what `verify` finds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mclabel.core.errors import DamagedFile
from mclabel.core.seeds import canonical_json
from mclabel.run.shards.digest import Check, check_lines, log_lines, read_object
from mclabel.run.shards.finished import AGAIN, Finished, losses, read_finished, undone_blocks
from mclabel.run.shards.finished import FILE as FINISHED
from mclabel.run.shards.manifest import MANIFEST, read_claim, run_id
from mclabel.run.shards.manifest_faults import REMEDY, manifest_faults
from mclabel.run.shards.rejects import FILE as REJECTS
from mclabel.run.shards.rejects import FOLDER as NOTES
from mclabel.run.shards.rejects import noted_blocks
from mclabel.run.shards.store import Store, damaged
from mclabel.run.trainings import (
    CHECKPOINTS,
    CLAIMS,
    COMPLETE,
    MODEL,
    checkpoint_faults,
    finished_faults,
    model_remedy,
    step_of,
)

SPENT, PROGRESS = "spent.json", "progress.jsonl"


class SingleFiles:
    """Checks the single files of a run, then what they say against its shards."""

    def __init__(self, store: Store, result: Verification) -> None:
        """Prepare to check.

        Args:
            store: the run's store.
            result: receives the findings.
        """
        self._store, self._result = store, result
        self.has_manifest = store.read(MANIFEST) is not None
        self._finished: Finished | None = None
        self._says_finished = False
        """True if the log of progress says that no block was left."""
        self._noted: set[str] | None = None
        self._stamps: dict[bytes, tuple[str, Mapping[str, Any]]] = {}
        """A shard of each configuration, with its metadata, by a hash of the configuration."""

    def check(self) -> None:
        """Check each file by itself."""
        self._manifest()
        self._checked(SPENT, _check_object)
        self._checked(REJECTS, check_lines)
        for name in self._store.names(NOTES):
            if (raw := self._store.read(name)) is not None and raw != b"{}":
                self._result.add(damaged(self._store, name))
        self._progress()
        self._end()
        if drivers := self._store.names("drivers"):
            self._result.notes.append(
                f"{len(drivers):,} drivers are running or were killed (see drivers/)"
            )

    def add_stamp(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Take in the metadata of a shard, for `check_configurations`."""
        config = metadata.get("config")
        if isinstance(config, Mapping):
            key = hashlib.sha256(canonical_json(config)).digest()
            self._stamps.setdefault(key, (name, metadata))

    def check_configurations(self) -> None:
        """Compare the manifest with the plan, and with what shards carry."""
        try:
            for fault in manifest_faults(self._store, dict(self._stamps.values())):
                self._result.report(MANIFEST, fault, REMEDY)
        except DamagedFile:
            return  # the manifest, or the plan, is among the findings already

    def check_complete(self, committed: Container[str], count: int, folder: str) -> None:
        """Check that everything the finished job had is still there.

        Args:
            committed: ids of the blocks that are there.
            count: their number.
            folder: folder that holds the shards of single blocks.
        """
        if self._finished is None:
            num_parts, blocks = undone_blocks(self._store, committed)
            if not num_parts and count and self.has_manifest and not self._says_finished:
                self._result.report(
                    FINISHED,
                    "missing, and the run has no plan: nothing else says how many blocks it must "
                    "have",
                    f"{AGAIN}; a run that has ended gets only this file",
                )
            if blocks:
                self._result.notes.append(f"{len(blocks):,} planned blocks are not done yet")
            return
        for loss in losses(self._store, self._finished, committed, count, folder):
            self._result.add(loss)

    def check_note(self, block: str) -> None:
        """Check that a block without some of its items has a note, which rejects.jsonl needs."""
        if self._noted is None:
            self._noted = set(noted_blocks(self._store))
        if block not in self._noted:
            self._result.report(
                f"{NOTES}/{block}.json",
                "missing, though items of the block were left out",
                "Create the file with the content {}: without it rejects.jsonl will lack them",
            )

    def _manifest(self) -> None:
        try:
            read_claim(self._store, MANIFEST)
        except DamagedFile as error:
            self._result.add(error)

    def _progress(self) -> None:
        raw = self._store.read(PROGRESS)
        if raw is None:
            return
        lines = list(log_lines(raw))
        if bad := sum(line is None for line in lines):
            fault = f"damaged: {bad:,} of {len(lines):,} lines have changed since they were written"
            self._result.add(damaged(self._store, PROGRESS, fault))
            return
        last = lines[-1] if lines else None
        self._says_finished = any(line and line.get("num_blocks_left") == 0 for line in lines)
        if last is None or not last.get("ended"):
            self._result.notes.append(
                f"{PROGRESS} does not say that the job has ended: the job is running or was "
                "killed, or the log has lost its last lines"
            )

    def _end(self) -> None:
        """Check the record of the end, and that the files which it names are there."""
        try:
            self._finished = read_finished(self._store)
        except DamagedFile as error:
            self._result.add(error)
            return
        if self._finished is None:
            if self._says_finished:
                fault = f"missing, though {PROGRESS} says that the job has ended"
                self._result.report(FINISHED, fault, AGAIN)
            return
        for name in self._finished.files:
            raw = self._store.read(name)
            if not raw:
                state = "missing" if raw is None else "empty"
                fault = f"{state}, though {FINISHED} says that the job has written it"
                self._result.report(name, fault, AGAIN)
        self._same_run(FINISHED, self._finished.run)

    def _checked(self, name: str, check_content: Callable[[bytes], Check]) -> None:
        if (raw := self._store.read(name)) is None:
            return
        check = check_content(raw)
        if check != "sound":
            self._result.add(damaged(self._store, name))
        else:
            first = raw.partition(b"\n")[0] if name == REJECTS else raw
            self._same_run(name, json.loads(first).get("run"))

    def _same_run(self, name: str, run: str | None) -> None:
        """Compare the id of the run that a file carries with that of the manifest."""
        own = run_id(self._store)
        if None not in (run, own) and run != own:
            self._result.report(
                name,
                f"belongs to another run than {MANIFEST}",
                f"Delete it and run the job again, or restore {MANIFEST}",
            )


def _check_object(raw: bytes) -> Check:
    try:
        return read_object(raw)[1]
    except ValueError:
        return "damaged"


def is_training(store: Store) -> bool:
    """Return whether a place is the output of `mclabel train` or `mclabel rl`."""
    if not store.is_local:
        return False
    out = Path(store.location)
    return any((out / name).is_file() for name in CLAIMS) or (
        (out / CHECKPOINTS).is_dir() and not (out / "labels").is_dir()
    )


def check_training(store: Store, result: Verification) -> None:
    """Read the manifest, every checkpoint, and what the training has come to.

    Args:
        store: the store of the training's output.
        result: receives findings, notes and counts.
    """
    out = Path(store.location)
    result.holds = TRAINING
    _check_claims(store, result)
    for folder in sorted((out / CHECKPOINTS).glob("checkpoint-*")):
        if not folder.is_dir() or step_of(folder) is None:
            continue
        if not (folder / COMPLETE).is_file():
            result.notes.append(
                f"{CHECKPOINTS}/{folder.name}/{COMPLETE} is missing: the checkpoint was not "
                "written to its end, or the file was lost. The same command removes the checkpoint "
                "and resumes from the one before it"
            )
            continue
        result.num_files += sum(path.is_file() for path in folder.rglob("*"))
        for fault in checkpoint_faults(folder):
            result.report(
                f"{CHECKPOINTS}/{folder.name}/{fault.name}",
                fault.text,
                f"Remove the folder {folder}: the training resumes from the one before it",
            )
    if not (out / MODEL).is_dir() and not (out / FINISHED).is_file():
        result.notes.append("the training has not ended. Run the same command again to resume it")
        return
    result.num_files += sum(path.is_file() for path in (out / MODEL).rglob("*"))
    for fault in finished_faults(out):
        result.report(fault.name, fault.text, model_remedy(out))


def _check_claims(store: Store, result: Verification) -> None:
    """Read the manifest; without it nothing says what was trained on what."""
    num_sound = 0
    for name in CLAIMS:
        try:
            num_sound += read_claim(store, name) is not None
        except DamagedFile as error:
            result.add(error)
            num_sound += 1
    if num_sound != 1:
        fault = "missing" if not num_sound else f"there beside {CLAIMS[1]}"
        again = "Restore it from a copy, or train into another out=…"
        result.report(CLAIMS[0], f"{fault}, one of the two must be", again)


MAX_LISTED = 1000
TRAINING = "training"
"""Value of `Verification.holds` for a training."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A damaged, missing or inconsistent file."""

    name: str
    fault: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.fault}. {self.remedy}"


@dataclass(kw_only=True)
class Verification:
    """The result of reading everything that a run holds."""

    run: str
    holds: str = "labels"
    """Content of its shards: `labels`, `scores` or `opinions`; `training` or `annotations`, which
    have none."""
    num_blocks: int = 0
    num_shards: int = 0
    """Number of shards of what the run holds."""
    num_solutions: int = 0
    num_rollouts: int = 0
    num_priors: int = 0
    num_journals: int = 0
    num_files: int = 0
    """Files of a training whose digests were checked."""
    num_opinions: int = 0
    """Opinions that people submitted in annotations, each revision counted."""
    num_damaged: int = 0
    """Number of all findings; only the first `MAX_LISTED` are listed."""
    damage: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Observations that are not damage but may surprise."""

    @property
    def is_sound(self) -> bool:
        """Return whether no damage was result."""
        return not self.num_damaged

    def add(self, error: DamagedFile) -> None:
        """Take in a damaged file."""
        self.report(error.name, error.fault, error.remedy)

    def report(self, name: str, fault: str, remedy: str) -> None:
        """Take in what is wrong with a file, and what to do about it."""
        self.num_damaged += 1
        if len(self.damage) < MAX_LISTED:
            self.damage.append(Finding(name=name, fault=fault, remedy=remedy))
