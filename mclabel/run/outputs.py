"""Checks, before any work, that a job can write its output and that no other output is there.

A file in place of a folder, or a folder without permission, would otherwise cost hours of work. The
output of one job inside another's would leave neither whole.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from mclabel.core.errors import ConfigError, ShardError


def check_places(out: str, kind: Kind, *, key: str = "out=") -> None:
    """Refuse an output in which a folder or a file could not be written, or that holds another.

    A file is written into it, or into the folder above that is there, and deleted: some places are
    refused by nothing but that.

    Args:
        out: folder, which may be missing; of a run, also a URL, of which nothing is checked.
        kind: kind of output to write.
        key: the user's key for it, for messages.

    Raises:
        ShardError: names everything that stands in the way.
        ConfigError: it is a URL, or nothing can be written there.
    """
    if kind is RUN and "://" in out:
        return
    _local(out, key, "folder")
    check_free(out, kind, key)
    if kind in _WITH_FOLDERS:
        _check_known(Path(out), out, kind, key)
    check_writable(out, folders=kind.folders, files=kind.all_files)
    _try_to_write(Path(out), out, key, make=False)


def check_writable(out: str, *, folders: Iterable[str] = (), files: Iterable[str] = ()) -> None:
    """Refuse a folder in which a folder or a file could not be written.

    Raises:
        ShardError: names everything that stands in the way.
    """
    faults = list(_faults(Path(out), folders, files))
    if faults:
        raise ShardError("\n".join(faults) + ". Move that away, or choose another out=…")


def output_folder(place: str, key: str) -> Path:
    """Return a local folder for results. Make it if it is missing.

    Args:
        place: path that the user gave.
        key: how, for messages: `-o` or `out=`.

    Raises:
        ConfigError: it is a URL or a file, or nothing can be written there.
    """
    folder = _local(place, key, "folder")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{key}{place}: is a file, must be a folder")
    _try_to_write(folder, place, key, make=True)
    return folder


def output_file(place: str, key: str) -> Path:
    """Return a local file for results, which may exist. Make its folder if it is missing.

    Args:
        place: path that the user gave.
        key: how, for messages.

    Raises:
        ConfigError: it is a URL or a folder, or nothing can be written there.
    """
    path = _local(place, key, "file")
    if path.is_dir():
        raise ConfigError(f"{key}{place}: is a folder, must be a file")
    check_file_free(path, key)
    _try_to_write(path.parent, place, key, make=True)
    return path


def _faults(root: Path, folders: Iterable[str], files: Iterable[str]) -> Iterator[str]:
    whole = root.absolute()
    above = next(path for path in (whole, *whole.parents) if os.path.exists(path))
    if not above.is_dir():
        yield f"{above}: is a file, must be a folder"
        return
    if not _writable(above):
        yield f"{above}: is not writable"
    for folder in (root / name for name in folders):
        is_folder = os.path.isdir(folder)
        if os.path.lexists(folder) and not is_folder:  # a link to nothing is in the way, too
            yield f"{folder}: is a file, must be a folder"
        elif is_folder and not _writable(folder):
            yield f"{folder}: is not writable"
    for file in (root / name for name in files):
        if os.path.isdir(file):
            yield f"{file}: is a folder, must be a file"


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _local(place: str, key: str, noun: str) -> Path:
    if not place or "://" in place:
        raise ConfigError(f"{key}{place or repr(place)}: must be a local {noun}: give its path")
    return Path(place)


def _try_to_write(folder: Path, place: str, key: str, *, make: bool) -> None:
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        while not folder.exists():
            folder = folder.parent
        trial = folder / f".{uuid.uuid4().hex}.partial"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise ConfigError(
            f"{key}{place}: cannot be written ({error.strerror}). Give a path where you have "
            "permission to write"
        ) from error


_DEPTH = 3
"""Folders above an output that may be another output."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of output."""

    noun: str
    """Noun phrase for messages."""
    marks: tuple[str, ...]
    """Patterns of names; one that is there says that a folder is of this kind."""
    manifest: str | None = None
    """File that says so of a folder whose subfolders are its own."""
    folders: tuple[str, ...] = ()
    """Subfolders that are its own, and are written to."""
    files: tuple[str, ...] = ()
    """Files beside its manifest that are its own."""

    @property
    def all_files(self) -> tuple[str, ...]:
        """Its files, its manifest among them."""
        return (*([] if self.manifest is None else [self.manifest]), *self.files)


RUN = Kind(
    noun="a run of labels, opinions or a search",
    marks=("run.json", "plan/*.parquet", "labels/*.parquet", "opinions/*.parquet",
           "trees/*.parquet", "merged/labels/*.parquet"),
    manifest="run.json",
    folders=("labels", "rollouts", "trees", "opinions", "priors", "journals", "batches",
             "rejects", "drivers", "plan", "compacted", "merged", "merged/labels",
             "merged/rollouts", ".partial"),
    files=("rejects.jsonl", "spent.json", "progress.jsonl", "finished.json"),
)  # fmt: skip
TRAINING = Kind(
    noun="a training of `mclabel train`",
    marks=("train.json",),
    manifest="train.json",
    folders=("checkpoints", "model", "model.partial", "tensorboard", "ray"),
    files=("log.jsonl", "finished.json"),
)
REINFORCED = Kind(
    noun="a training of `mclabel rl`",
    marks=("rl.json",),
    manifest="rl.json",
    folders=("checkpoints", "measured", "model", "model.partial", "tensorboard"),
    files=("log.jsonl", "finished.json"),
)
BEST_OF_N = Kind(
    noun="an evaluation of `mclabel eval best-of-n`",
    marks=("best_of_n.json", "samples/run.json"),
    folders=("samples", "scores"),
    files=("best_of_n.json", "best_of_n.png", "best_of_n.svg", "provenance.json"),
)
SEARCH_EVAL = Kind(
    noun="a comparison of `mclabel eval search`",
    marks=("search.json", "best_of_n/run.json", "oracle/*/run.json"),
    folders=("oracle",),
    files=("search.json", "search.png", "search.svg", "provenance.json"),
)
QUICKSTART = Kind(
    noun="the results of `mclabel quickstart`",
    marks=("summary.json", "labels/run.json"),
    folders=("labels", "best-of-n", "prm", "orm", "exact"),
    files=("labels.png", "summary.json", "report.html"),
)
EXPORT = Kind(
    noun="data of `mclabel export`",
    marks=("data.jsonl", "data.json", "data.parquet", "labels-*.parquet", "rollouts-*.parquet"),
)
FIGURES = Kind(
    noun="figures of `mclabel eval labels` or `eval processbench`",
    marks=("labels.json", "processbench.json"),
)
ANNOTATIONS = Kind(
    noun="annotations of `mclabel annotate`",
    marks=("annotations.json", "events.jsonl"),
    manifest="annotations.json",
    files=("items.jsonl", "events.jsonl"),
)
_THEIRS = (
    Kind(noun="a model", marks=("*.safetensors", "adapter_config.json", "prm.json")),
    Kind(noun="a data set", marks=("dataset_info.json", "dataset_dict.json")),
    Kind(noun="a git repository", marks=(".git",)),
)
KINDS = (
    *(RUN, TRAINING, REINFORCED, BEST_OF_N, SEARCH_EVAL),
    *(QUICKSTART, EXPORT, FIGURES, ANNOTATIONS),
)
_WITH_FOLDERS = (RUN, TRAINING, REINFORCED)
_BESIDE = (".*", "*.log", "*.out", "*.err", "*.txt", "*.yaml", "*.yml", "lost+found")
"""Logs and configurations of a job that were there first, and what a new disk holds."""
_MAX_NAMED = 3


def check_free(out: str, kind: Kind, key: str = "out=") -> None:
    """Refuse a folder that holds something else than a kind of output, or is part of one.

    Args:
        out: folder, which may be missing. Of a URL nothing is asked: only runs are written to
            one, and their manifests are compared.
        kind: kind of output to write there.
        key: the user's key for it, for messages.

    Raises:
        ShardError: says what is there.
    """
    if "://" in out:
        return
    root = Path(out)
    for other in (*KINDS, *_THEIRS):
        if other is not kind and (mark := _mark_of(root, other)) is not None:
            raise ShardError(
                f"{key}{out}: holds {other.noun} ({mark}), and this command would write "
                f"{kind.noun} into it. Give another folder"
            )
    _check_outside(root, out, key)


def _check_known(root: Path, out: str, kind: Kind, key: str) -> None:
    """Refuse a folder that was not begun and holds files that no run writes.

    Hidden files are left alone, and so are `_BESIDE`, which people keep beside what a job writes.
    """
    if not root.is_dir() or _mark_of(root, kind) is not None:
        return
    own = {name.split("/")[0] for name in (*kind.folders, *kind.all_files)}
    foreign = sorted(
        path.name
        for path in root.iterdir()
        if path.name not in own and not any(fnmatch(path.name, pattern) for pattern in _BESIDE)
    )
    if foreign:
        shown = ", ".join(foreign[:_MAX_NAMED])
        more = f" and {len(foreign) - _MAX_NAMED:,} more" if len(foreign) > _MAX_NAMED else ""
        raise ShardError(
            f"{key}{out}: holds {shown}{more}, and this command would write {kind.noun} among "
            f"them. Give a new folder, such as {Path(out) / 'run'}"
        )


def check_file_free(path: Path, key: str) -> None:
    """Refuse to write a file over one of a run or a training, or into its folders.

    Args:
        path: path of the file, which may exist.
        key: the user's key for it, for messages.

    Raises:
        ShardError: says of which output it is.
    """
    for kind in _WITH_FOLDERS:
        there = (path.parent / str(kind.manifest)).is_file()
        if there and path.name in (kind.manifest, *kind.files):
            raise ShardError(f"{key}{path}: belongs to {kind.noun}. Give another file")
    _check_outside(path, str(path), key)


def _mark_of(root: Path, kind: Kind) -> str | None:
    """Return the first file that shows that a folder is of a kind."""
    if not root.is_dir():
        return None
    for pattern in kind.marks:
        if (path := next(root.glob(pattern), None)) is not None:
            return str(path.relative_to(root))
    return None


def _check_outside(path: Path, given: str, key: str) -> None:
    """Refuse what lies in a folder that belongs to a run or a training above it."""
    whole = path.absolute()
    for above in list(whole.parents)[:_DEPTH]:
        for kind in _WITH_FOLDERS:
            inside = whole.relative_to(above).parts[0] in kind.folders
            if inside and (above / str(kind.manifest)).is_file():
                raise ShardError(
                    f"{key}{given}: is part of {kind.noun} in {above}. Give a place outside of it"
                )
