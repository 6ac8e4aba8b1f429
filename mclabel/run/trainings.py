"""Completion marks (files that record complete output) of a training, one per checkpoint and a
final one.

Each mark (`checkpoints/checkpoint-N/complete`, `finished.json`) is a JSON object with its own
digest, the `id` of the training's manifest, and the SHA-256 of every file that it covers. So
damaged, lost or foreign files are detected before a training resumes from them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.core.errors import DamagedFile, DataError
from mclabel.core.plain_files import check_plain
from mclabel.run.shards.digest import add_digest, parse_checked_object
from mclabel.run.shards.durable import create_durably
from mclabel.run.shards.finished import FILE as FINISHED
from mclabel.run.shards.manifest import read_manifest
from mclabel.run.shards.store import Store

CLAIM = "train.json"
"""Manifest of a training."""
CHECKPOINTS, COMPLETE, MODEL = "checkpoints", "complete", "model"
BEST = "best.safetensors"
"""Name of the file with the best weights so far, in the folder of checkpoints."""
CARD = "README.md"
"""Name of the model card's file, which the user may edit."""
_FINAL = ("log.jsonl", f"{CHECKPOINTS}/{BEST}", f"{CHECKPOINTS}/{CARD}")
"""Files besides the model that the final mark covers if they exist. TRL writes a model card into
the folder of checkpoints."""
_PARTIAL = ".partial"
_STEP = re.compile(r"checkpoint-(\d{1,18})")


@dataclass(frozen=True, kw_only=True)
class FileFault:
    """A file that is missing, or differs from the file that the training wrote."""

    name: str
    """Path of the file, relative to the checked folder."""
    description: str
    """Description of the fault."""


def parse_checkpoint_step(folder: Path) -> int | None:
    """Return the number of optimizer steps in a checkpoint's name; None for other folders."""
    match = _STEP.fullmatch(folder.name)
    return None if match is None else int(match[1])


def mark_checkpoint(folder: Path) -> None:
    """Mark a checkpoint as complete; call this after all of its files are written.

    Raises:
        OSError: the mark cannot be written.
    """
    files = {str(path.relative_to(folder)): path for path in _list_files(folder)}
    content = {
        "run": _read_run_id(folder.parent.parent),
        "step": parse_checkpoint_step(folder),
        "files": {name: _hash_file(path) for name, path in files.items() if name != COMPLETE},
    }
    _write_completion_mark(folder, COMPLETE, content)


def find_checkpoint_faults(folder: Path) -> Iterator[FileFault]:
    """Read every file of a checkpoint that is marked as complete, and yield the faults."""
    files = yield from _find_mark_or_file_faults(
        folder, COMPLETE, folder.parent.parent, step=parse_checkpoint_step(folder)
    )
    if files is not None:
        for path in _list_files(folder):
            if (name := str(path.relative_to(folder))) not in {*files, COMPLETE}:
                yield FileFault(name=name, description="does not belong to the checkpoint")


def mark_training_finished(out: Path, model: Path) -> None:
    """Mark a training as finished: write `finished.json` with the digest of each covered file.

    Call this before the model is moved to its final folder.

    Args:
        out: folder of the training's output.
        model: folder that holds the model now.

    Raises:
        OSError: the mark cannot be written.
    """
    files = {f"{MODEL}/{path.relative_to(model)}": path for path in _list_files(model)}
    files |= {name: out / name for name in _FINAL if (out / name).is_file()}
    content = {
        "run": _read_run_id(out),
        "files": {name: _hash_file(path) for name, path in sorted(files.items())},
    }
    _write_completion_mark(out, FINISHED, content)


def find_finished_training_faults(out: Path) -> Iterator[FileFault]:
    """Read every file of a finished training, and yield the faults."""
    yield from _find_mark_or_file_faults(out, FINISHED, out)


def check_training_finished(out: Path) -> None:
    """Check that a training's model is unchanged.

    Raises:
        DataError: a file of the model is missing or has changed.
    """
    card = f"{MODEL}/{CARD}"
    for fault in find_finished_training_faults(out):
        if fault.name == FINISHED or (fault.name.startswith(f"{MODEL}/") and fault.name != card):
            raise DataError(
                f"{out / fault.name}: {fault.description}. {describe_model_remedy(out)}"
            )


def describe_model_remedy(out: Path) -> str:
    """Return the remedy, for messages, for a model whose files differ from those that its training
    wrote.
    """
    return (
        f"If {out / MODEL} was put there by this training, delete it and run the same command "
        "again, which resumes from the last checkpoint. Otherwise choose another out=…"
    )


def _find_mark_or_file_faults(
    root: Path, name: str, out: Path, *, step: int | None = None
) -> Generator[FileFault, None, Mapping[str, str] | None]:
    """Yield the faults of a completion mark, and of the files that it lists.

    A completion mark is a JSON file that is written last, with the digests of all other files.

    Args:
        root: folder of the mark.
        name: file name of the mark.
        out: output folder of the training that the mark must belong to.
        step: optimizer step that the mark must belong to; None for the whole training.

    Returns:
        The listed files with their digests; None if the mark cannot be read.
    """
    record = _read_completion_mark(root, name)
    if isinstance(record, FileFault):
        yield record
        return None
    run = _read_run_id(out)
    files: Mapping[str, str] = record["files"]
    if record.get("step") != step:
        yield FileFault(
            name=name, description=f"belongs to the checkpoint of step {record.get('step')}"
        )
    elif None not in (run, record["run"]) and record["run"] != run:
        yield FileFault(name=name, description=f"belongs to another training than {CLAIM}")
    yield from _find_file_faults(root, files)
    return files


def _find_file_faults(root: Path, files: Mapping[str, str]) -> Iterator[FileFault]:
    for name, digest in files.items():
        path = root / name
        check_plain(path, DataError)
        if not path.is_file():
            yield FileFault(name=name, description="missing")
        elif _hash_file(path) != digest:
            yield FileFault(
                name=name, description="damaged: its content has changed since it was written"
            )


def _read_completion_mark(root: Path, name: str) -> dict[str, Any] | FileFault:
    """Return the content of a mark, or the fault of the mark."""
    check_plain(root / name, DataError)
    if not (root / name).is_file():
        return FileFault(name=name, description="missing")
    try:
        content, check = parse_checked_object((root / name).read_bytes())
        files = content["files"]
        inside = isinstance(files, dict) and not any(
            {"", ".", ".."} & set(path.split("/")) for path in files
        )
        if not inside or "run" not in content:
            raise ValueError("the mark must name a run, and only files inside its folder")
    except (ValueError, KeyError) as error:
        return FileFault(name=name, description=f"damaged, or not written by mclabel ({error})")
    if check != "sound":
        return FileFault(
            name=name, description="damaged: its content has changed since it was written"
        )
    return content


def _write_completion_mark(folder: Path, name: str, json_object: Mapping[str, Any]) -> None:
    (folder / name).unlink(missing_ok=True)
    create_durably(folder, name, json.dumps(add_digest(json_object), indent=1).encode())


def _read_run_id(out: Path) -> str | None:
    """Return the `id` in a training's manifest; None if the manifest is missing or damaged."""
    try:
        claim = read_manifest(Store(str(out)), CLAIM)
    except DamagedFile:
        return None
    return None if claim is None else claim["id"]


def _list_files(folder: Path) -> list[Path]:
    """Return all files under a folder, except temporary files of interrupted writes."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(_PARTIAL) and _PARTIAL not in path.parts
    )


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
