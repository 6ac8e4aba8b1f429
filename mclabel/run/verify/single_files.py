"""Checks the single files of a run (manifest, logs, `finished.json`), and defines `verify`'s
result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mclabel.core.errors import DamagedFile
from mclabel.core.seeds import canonical_json
from mclabel.run.shards.digest import (
    Check,
    check_lines_digest,
    parse_checked_object,
    parse_log_lines,
)
from mclabel.run.shards.finished import (
    AGAIN,
    CompletionMarker,
    find_missing_files,
    find_unfinished_blocks,
    read_completion_marker,
)
from mclabel.run.shards.finished import FILE as FINISHED
from mclabel.run.shards.manifest import MANIFEST, read_manifest, read_run_id
from mclabel.run.shards.manifest_faults import REMEDY, find_manifest_faults
from mclabel.run.shards.rejects import FILE as REJECTS
from mclabel.run.shards.rejects import FOLDER as NOTES
from mclabel.run.shards.rejects import list_blocks_with_set_aside_items
from mclabel.run.shards.store import Store, make_damaged_file_error
from mclabel.run.trainings import (
    CHECKPOINTS,
    CLAIM,
    COMPLETE,
    MODEL,
    describe_model_remedy,
    find_checkpoint_faults,
    find_finished_training_faults,
    parse_checkpoint_step,
)

SPENT, PROGRESS = "spent.json", "progress.jsonl"


class SingleFilesCheck:
    """Checks the single files of a run, and compares their content with the run's shards."""

    def __init__(self, store: Store, result: Verification) -> None:
        """Prepare the checks.

        Args:
            store: store of the run.
            result: verification result, to which findings are added.
        """
        self._store, self._result = store, result
        self.has_manifest = store.read(MANIFEST) is not None
        self._finished: CompletionMarker | None = None
        self._says_finished = False
        """True if the progress log records that a start of the job ended with no block left."""
        self._noted: set[str] | None = None
        """Ids of blocks with a marker file `rejects/BLOCK.json`, which says that items were left
        out; None until these files are listed."""
        self._stamps: dict[bytes, tuple[str, Mapping[str, Any]]] = {}
        """For each configuration, by its hash, the name and metadata of one shard."""

    def check(self) -> None:
        """Check each file by itself."""
        self._check_manifest()
        self._check_file(SPENT, _check_json_object)
        self._check_file(REJECTS, check_lines_digest)
        for name in self._store.names(NOTES):
            if (raw := self._store.read(name)) is not None and raw != b"{}":
                self._result.add_error(make_damaged_file_error(self._store, name))
        self._check_progress_log()
        self._check_finished_record()
        if drivers := self._store.names("drivers"):
            self._result.notes.append(
                f"{len(drivers):,} drivers are running or were killed (see drivers/)"
            )

    def add_shard_metadata(self, name: str, metadata: Mapping[str, Any]) -> None:
        """Record the metadata of a shard, for `check_configurations`."""
        config = metadata.get("config")
        if isinstance(config, Mapping):
            key = hashlib.sha256(canonical_json(config)).digest()
            self._stamps.setdefault(key, (name, metadata))

    def check_configurations(self) -> None:
        """Compare the manifest's configuration with the plan and with the shards' metadata."""
        try:
            for fault in find_manifest_faults(self._store, dict(self._stamps.values())):
                self._result.add_finding(MANIFEST, fault, REMEDY)
        except DamagedFile:
            return  # the damaged manifest or plan is already among the findings

    def check_complete(self, committed: Set[str], folder: str) -> None:
        """Check that all files of a finished job still exist; for an unfinished job, add a note
        about missing blocks.

        Args:
            committed: ids of the committed blocks.
            folder: folder that holds the shards of single blocks.
        """
        if self._finished is None:
            num_parts, blocks = find_unfinished_blocks(self._store, committed)
            if not num_parts and committed and self.has_manifest and not self._says_finished:
                self._result.add_finding(
                    FINISHED,
                    "missing. The run has no plan either, so its expected number of blocks is "
                    "unknown",
                    f"{AGAIN}; if the run has ended, only this file is written",
                )
            if blocks:
                self._result.notes.append(f"{len(blocks):,} planned blocks are not done yet")
            return
        for loss in find_missing_files(self._store, self._finished, committed, folder):
            self._result.add_error(loss)

    def check_set_aside_marker(self, block: str) -> None:
        """Check that a block with left-out items has its marker file, from which `rejects.jsonl` is
        made.
        """
        if self._noted is None:
            self._noted = set(list_blocks_with_set_aside_items(self._store))
        if block not in self._noted:
            self._result.add_finding(
                f"{NOTES}/{block}.json",
                "missing, although items of the block were left out",
                "Create the file with the content {}. Without the file, rejects.jsonl will lack "
                "these items",
            )

    def _check_manifest(self) -> None:
        try:
            read_manifest(self._store, MANIFEST)
        except DamagedFile as error:
            self._result.add_error(error)

    def _check_progress_log(self) -> None:
        raw = self._store.read(PROGRESS)
        if raw is None:
            return
        lines = list(parse_log_lines(raw))
        if bad := sum(line is None for line in lines):
            fault = f"damaged: {bad:,} of {len(lines):,} lines changed after they were written"
            self._result.add_error(make_damaged_file_error(self._store, PROGRESS, fault))
            return
        last = lines[-1] if lines else None
        self._says_finished = any(line and line.get("num_blocks_left") == 0 for line in lines)
        if last is None or not last.get("ended"):
            self._result.notes.append(
                f"{PROGRESS} does not record the end of the job. The job is running or was "
                "killed, or the log has lost its last lines"
            )

    def _check_finished_record(self) -> None:
        """Check the record of a finished job, `finished.json`, and that the files that it names
        exist.
        """
        try:
            self._finished = read_completion_marker(self._store)
        except DamagedFile as error:
            self._result.add_error(error)
            return
        if self._finished is None:
            if self._says_finished:
                fault = f"missing, although {PROGRESS} records that the job has ended"
                self._result.add_finding(FINISHED, fault, AGAIN)
            return
        for name in self._finished.files:
            raw = self._store.read(name)
            if not raw:
                state = "missing" if raw is None else "empty"
                fault = f"{state}, although {FINISHED} records that the job wrote the file"
                self._result.add_finding(name, fault, AGAIN)
        self._check_same_run(FINISHED, self._finished.run)

    def _check_file(self, name: str, check_content: Callable[[bytes], Check]) -> None:
        if (raw := self._store.read(name)) is None:
            return
        if check_content(raw) != "sound":
            self._result.add_error(make_damaged_file_error(self._store, name))
        else:
            first = raw.partition(b"\n")[0] if name == REJECTS else raw
            self._check_same_run(name, json.loads(first).get("run"))

    def _check_same_run(self, name: str, run: str | None) -> None:
        """Compare the run id in a file with the run id in the manifest."""
        own = read_run_id(self._store)
        if None not in (run, own) and run != own:
            self._result.add_finding(
                name,
                f"belongs to another run than {MANIFEST}",
                f"Delete the file and run the job again, or restore {MANIFEST}",
            )


def _check_json_object(raw: bytes) -> Check:
    try:
        return parse_checked_object(raw)[1]
    except ValueError:
        return "damaged"


def is_training_run(store: Store) -> bool:
    """Return whether a store is the output of `mclabel train`."""
    if not store.is_local:
        return False
    out = Path(store.location)
    return (out / CLAIM).is_file() or (
        (out / CHECKPOINTS).is_dir() and not (out / "labels").is_dir()
    )


def check_training_run(store: Store, result: Verification) -> None:
    """Check the manifest, the checkpoints and the final files of a training.

    Args:
        store: store of the training's output.
        result: verification result, to which findings, notes and counts are added.
    """
    out = Path(store.location)
    result.holds = TRAINING
    _check_training_manifest(store, result)
    for folder in sorted((out / CHECKPOINTS).glob("checkpoint-*")):
        if not folder.is_dir() or parse_checkpoint_step(folder) is None:
            continue
        if not (folder / COMPLETE).is_file():
            result.notes.append(
                f"{CHECKPOINTS}/{folder.name}/{COMPLETE} is missing. The checkpoint was not "
                "written completely, or the file was lost. The same training command removes the "
                "checkpoint and resumes from the checkpoint before it"
            )
            continue
        result.num_files += sum(path.is_file() for path in folder.rglob("*"))
        for fault in find_checkpoint_faults(folder):
            result.add_finding(
                f"{CHECKPOINTS}/{folder.name}/{fault.name}",
                fault.description,
                f"Remove the folder {folder}. The training resumes from the checkpoint before it",
            )
    if not (out / MODEL).is_dir() and not (out / FINISHED).is_file():
        result.notes.append("the training has not ended. Run the same command again to resume it")
        return
    result.num_files += sum(path.is_file() for path in (out / MODEL).rglob("*"))
    for fault in find_finished_training_faults(out):
        result.add_finding(fault.name, fault.description, describe_model_remedy(out))


def _check_training_manifest(store: Store, result: Verification) -> None:
    """Check the manifest of a training."""
    try:
        is_missing = read_manifest(store, CLAIM) is None
    except DamagedFile as error:
        result.add_error(error)
        return
    if is_missing:
        result.add_finding(CLAIM, "missing", "Restore it from a copy, or train into another out=…")


MAX_LISTED = 1000
"""Maximum number of findings that a verification lists."""
TRAINING = "training"
"""Value of `Verification.holds` for a training."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A damaged, missing or inconsistent file."""

    name: str
    """Path of the file, relative to the run."""
    fault: str
    """Description of the fault."""
    remedy: str
    """Sentence that tells the user how to repair the run."""

    def __str__(self) -> str:
        return f"{self.name}: {self.fault}. {self.remedy}"


@dataclass(kw_only=True)
class Verification:
    """Result of checking all files of a run."""

    run: str
    """Folder or URL of the run."""
    holds: str = "labels"
    """Content of the run: `labels`, `scores`, `opinions`, `training` or `annotations`. The last two
    have no shards."""
    num_blocks: int = 0
    """Number of checked blocks; each has one shard with the run's content."""
    num_solutions: int = 0
    num_rollouts: int = 0
    num_priors: int = 0
    num_journals: int = 0
    num_files: int = 0
    """Number of files of a training whose digests were checked."""
    num_opinions: int = 0
    """Number of opinions that people submitted in annotations, including all revisions."""
    num_damaged: int = 0
    """Number of all findings; `damage` lists only the first `MAX_LISTED`."""
    damage: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Sentences about facts that are not damage but that the user may not expect."""

    @property
    def is_sound(self) -> bool:
        """Return whether the check found no damage."""
        return not self.num_damaged

    def add_error(self, error: DamagedFile) -> None:
        """Add the damage that an error describes to the findings."""
        self.add_finding(error.name, error.fault, error.remedy)

    def add_finding(self, name: str, fault: str, remedy: str) -> None:
        """Add a finding.

        Args:
            name: path of the file, relative to the run.
            fault: description of the fault.
            remedy: sentence that tells the user how to repair the run.
        """
        self.num_damaged += 1
        if len(self.damage) < MAX_LISTED:
            self.damage.append(Finding(name=name, fault=fault, remedy=remedy))
