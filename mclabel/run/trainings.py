"""Marks that record which files of a training are complete: of each checkpoint and at its end.

Each mark (`checkpoints/checkpoint-N/complete`, `finished.json`) is a JSON object with its digest,
the `id` of the manifest and the SHA-256 of every file that it covers, so that damaged, lost or
foreign files are noticed before anything is trained on them.
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
from mclabel.run.shards.digest import read_object, with_digest
from mclabel.run.shards.durable import create_durably
from mclabel.run.shards.finished import FILE as FINISHED
from mclabel.run.shards.manifest import read_claim
from mclabel.run.shards.store import Store

CLAIMS = ("train.json", "rl.json")
"""Manifests of trainings."""
CHECKPOINTS, COMPLETE, MODEL = "checkpoints", "complete", "model"
BEST = "best.safetensors"
"""The best weights so far, among the checkpoints."""
CARD = "README.md"
"""The model's card, which its owner may edit."""
_FINAL = ("log.jsonl", f"{CHECKPOINTS}/{BEST}", f"{CHECKPOINTS}/{CARD}")
"""Single files, where they are there; TRL writes a card beside the checkpoints."""
_FOLDERS = ("measured",)
_PARTIAL = ".partial"
_STEP = re.compile(r"checkpoint-(\d{1,18})")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A file that is not what was written."""

    name: str
    """Relative to the folder that was checked."""
    text: str


def step_of(folder: Path) -> int | None:
    """Return a checkpoint's number of optimizer steps, by its name; None for another folder."""
    match = _STEP.fullmatch(folder.name)
    return None if match is None else int(match[1])


def mark_checkpoint(folder: Path) -> None:
    """Mark a checkpoint as whole, once all of its files are written.

    Raises:
        OSError: no space, no permission.
    """
    files = {str(path.relative_to(folder)): path for path in _files(folder)}
    content = {
        "run": _run_id(folder.parent.parent),
        "step": step_of(folder),
        "files": {name: _digest(path) for name, path in files.items() if name != COMPLETE},
    }
    _write(folder, COMPLETE, content)


def checkpoint_faults(folder: Path) -> Iterator[Fault]:
    """Yield the faults of a checkpoint that is marked as whole; read every file of it."""
    files = yield from _faults(folder, COMPLETE, folder.parent.parent, step=step_of(folder))
    if files is not None:
        for path in _files(folder):
            if (name := str(path.relative_to(folder))) not in {*files, COMPLETE}:
                fault = "is none of the files that were written with the others"
                yield Fault(name=name, text=fault)


def mark_finished(out: Path, model: Path) -> None:
    """Record what a training has come to, before its model is put in its place.

    Args:
        out: folder of the training's output.
        model: folder in which the model lies now.

    Raises:
        OSError: no space, no permission.
    """
    files = {f"{MODEL}/{path.relative_to(model)}": path for path in _files(model)}
    files |= {name: out / name for name in _FINAL if (out / name).is_file()}
    for folder in _FOLDERS:
        files |= {str(path.relative_to(out)): path for path in _files(out / folder)}
    content = {
        "run": _run_id(out),
        "files": {name: _digest(path) for name, path in sorted(files.items())},
    }
    _write(out, FINISHED, content)


def finished_faults(out: Path) -> Iterator[Fault]:
    """Yield the faults of a training's files when its model is there; read every one."""
    yield from _faults(out, FINISHED, out)


def check_finished(out: Path) -> None:
    """Refuse a training's model that is not what the training has written.

    Raises:
        DataError: names the file, and what to do.
    """
    card = f"{MODEL}/{CARD}"
    for fault in finished_faults(out):
        if fault.name == FINISHED or (fault.name.startswith(f"{MODEL}/") and fault.name != card):
            raise DataError(f"{out / fault.name}: {fault.text}. {model_remedy(out)}")


def model_remedy(out: Path) -> str:
    """Tell what to do about a model that is not what its training wrote."""
    return (
        f"If {out / MODEL} was put there by this training, delete it and run the same command "
        "again: the last checkpoint is trained on. Else choose another out=…"
    )


def _faults(
    root: Path, name: str, out: Path, *, step: int | None = None
) -> Generator[Fault, None, Mapping[str, str] | None]:
    """Yield the faults of a mark, and of the files that it lists.

    Args:
        root: folder of the mark.
        name: file name of the mark.
        out: output folder of the training that the mark must belong to.
        step: optimizer step that the mark must belong to; None for the whole training.

    Returns:
        The files and their digests; None where the mark cannot be read.
    """
    record = _record(root, name)
    if isinstance(record, Fault):
        yield record
        return None
    run = _run_id(out)
    files: Mapping[str, str] = record["files"]
    if record.get("step") != step:
        yield Fault(name=name, text=f"belongs to the checkpoint of step {record.get('step')}")
    elif None not in (run, record["run"]) and record["run"] != run:
        yield Fault(name=name, text=f"belongs to another training than {' or '.join(CLAIMS)}")
    yield from _differing(root, files)
    return files


def _differing(root: Path, files: Mapping[str, str]) -> Iterator[Fault]:
    for name, digest in files.items():
        path = root / name
        check_plain(path, DataError)
        if not path.is_file():
            yield Fault(name=name, text="missing")
        elif _digest(path) != digest:
            yield Fault(name=name, text="damaged: its content has changed since it was written")


def _record(root: Path, name: str) -> dict[str, Any] | Fault:
    """Return the content of a mark, or its fault."""
    check_plain(root / name, DataError)
    if not (root / name).is_file():
        return Fault(name=name, text="missing")
    try:
        content, check = read_object((root / name).read_bytes())
        files = content["files"]
        inside = isinstance(files, dict) and not any(
            {"", ".", ".."} & set(path.split("/")) for path in files
        )
        if not inside or "run" not in content:
            raise ValueError("it must name files inside its folder, and a run")
    except (ValueError, KeyError) as error:
        return Fault(name=name, text=f"damaged, or not what mclabel wrote ({error})")
    if check != "sound":
        return Fault(name=name, text="damaged: its content has changed since it was written")
    return content


def _write(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    (folder / name).unlink(missing_ok=True)
    create_durably(folder, name, json.dumps(with_digest(content), indent=1).encode())


def _run_id(out: Path) -> str | None:
    """Return the `id` of a training's manifest; None without a sound one."""
    for name in CLAIMS:
        if (out / name).is_file():
            try:
                claim = read_claim(Store(str(out)), name)
            except DamagedFile:
                return None
            return None if claim is None else claim["id"]
    return None


def _files(folder: Path) -> list[Path]:
    """Return all files under a folder, less those that were not finished."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(_PARTIAL) and _PARTIAL not in path.parts
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
