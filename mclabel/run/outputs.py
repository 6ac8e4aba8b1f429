"""Checks, before a job does any work, that its output can be written and overwrites no other
output.

Without these checks a missing permission, or a file where a folder is needed, could cost hours of
work, and two jobs that write into the same folder could damage each other's output.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from mclabel.core.errors import ConfigError, ShardError


def check_output_is_usable(out: str, kind: OutputKind, *, key: str = "out=") -> None:
    """Check that an output can be written to a folder, and that no other output is there.

    A trial file is written to the folder, or to its nearest existing parent, and deleted again,
    because some faults, such as a read-only file system, show only on writing.

    Args:
        out: output folder, which may be missing, or the URL of a run, which is not checked.
        kind: kind of output to write.
        key: key or option that set the folder, for messages.

    Raises:
        ShardError: files or folders are in the way; the message lists all of them.
        ConfigError: `out` is a URL although the output is not a run, or cannot be written.
    """
    if kind is RUN and "://" in out:
        return
    _require_local_path(out, key, "folder")
    check_no_other_output(out, kind, key)
    if kind in _WITH_FOLDERS:
        _refuse_foreign_files(Path(out), out, kind, key)
    check_writable(out, folders=kind.folders, files=kind.all_files)
    _check_trial_write(Path(out), out, key, make=False)


def check_writable(out: str, *, folders: Iterable[str] = (), files: Iterable[str] = ()) -> None:
    """Check that subfolders and files can be written to a folder.

    Args:
        out: output folder, which may be missing.
        folders: names of subfolders to write to.
        files: names of files to write.

    Raises:
        ShardError: files or folders are in the way; the message lists all of them.
    """
    faults = list(_find_write_faults(Path(out), folders, files))
    if faults:
        raise ShardError("\n".join(faults) + ". Correct this, or choose another out=…")


def make_output_folder(user_path: str, key: str) -> Path:
    """Return a local folder for results; create the folder if it is missing.

    Args:
        user_path: path that the user gave.
        key: key or option that set the path, for messages, such as `-o` or `out=`.

    Raises:
        ConfigError: the path is a URL or a file, or the folder cannot be written.
    """
    folder = _require_local_path(user_path, key, "folder")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{key}{user_path}: is a file, must be a folder. Give another path")
    _check_trial_write(folder, user_path, key, make=True)
    return folder


def prepare_output_file(user_path: str, key: str) -> Path:
    """Return the path of a local file for results; create its folder if it is missing.

    Args:
        user_path: path that the user gave; the file may exist.
        key: key or option that set the path, for messages.

    Raises:
        ConfigError: the path is a URL or a folder, or the file cannot be written.
        ShardError: the file belongs to a run or a training.
    """
    path = _require_local_path(user_path, key, "file")
    if path.is_dir():
        raise ConfigError(f"{key}{user_path}: is a folder, must be a file. Give another path")
    check_file_in_no_output(path, key)
    _check_trial_write(path.parent, user_path, key, make=True)
    return path


def _find_write_faults(root: Path, folders: Iterable[str], files: Iterable[str]) -> Iterator[str]:
    whole = root.absolute()
    above = next(path for path in (whole, *whole.parents) if os.path.exists(path))
    if not above.is_dir():
        yield f"{above}: is a file, must be a folder"
        return
    if not _is_writable(above):
        yield f"{above}: is not writable"
    for folder in (root / name for name in folders):
        is_folder = os.path.isdir(folder)
        if os.path.lexists(folder) and not is_folder:  # also true for a broken link
            yield f"{folder}: is a file, must be a folder"
        elif is_folder and not _is_writable(folder):
            yield f"{folder}: is not writable"
    for file in (root / name for name in files):
        if os.path.isdir(file):
            yield f"{file}: is a folder, must be a file"


def _is_writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _require_local_path(user_path: str, key: str, noun: str) -> Path:
    if not user_path or "://" in user_path:
        raise ConfigError(
            f"{key}{user_path or repr(user_path)}: must be a local {noun}. Give its path"
        )
    return Path(user_path)


def _check_trial_write(folder: Path, user_path: str, key: str, *, make: bool) -> None:
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
            f"{key}{user_path}: cannot be written ({error.strerror}). Give a path where you have "
            "permission to write"
        ) from error


_DEPTH = 3
"""Number of parent folders of an output that are checked for other outputs."""


@dataclass(frozen=True, kw_only=True)
class OutputKind:
    """A kind of output: the names of the files and folders that a command writes."""

    noun: str
    """Noun phrase for messages."""
    mark_patterns: tuple[str, ...]
    """Glob patterns of file names. A folder with a matching file is an output of this kind."""
    manifest: str | None = None
    """Name of the manifest file; None for kinds of output without a manifest."""
    folders: tuple[str, ...] = ()
    """Names of the subfolders that the command writes to."""
    files: tuple[str, ...] = ()
    """Names of the files that the command writes beside the manifest."""

    @property
    def all_files(self) -> tuple[str, ...]:
        """Names of all files that the command writes, including the manifest."""
        return (*([] if self.manifest is None else [self.manifest]), *self.files)


RUN = OutputKind(
    noun="a run of labels, opinions or a search",
    mark_patterns=("run.json", "plan/*.parquet", "labels/*.parquet", "opinions/*.parquet",
           "trees/*.parquet"),
    manifest="run.json",
    folders=("labels", "rollouts", "trees", "opinions", "priors", "journals", "rejects",
             "drivers", "plan", ".partial"),
    files=("rejects.jsonl", "spent.json", "progress.jsonl", "finished.json"),
)  # fmt: skip
TRAINING = OutputKind(
    noun="a training of `mclabel train`",
    mark_patterns=("train.json",),
    manifest="train.json",
    folders=("checkpoints", "model", "model.partial", "tensorboard", "ray"),
    files=("log.jsonl", "finished.json"),
)
BEST_OF_N = OutputKind(
    noun="an evaluation of `mclabel eval best-of-n`",
    mark_patterns=("best_of_n.json", "samples/run.json"),
    folders=("samples", "scores"),
    files=("best_of_n.json", "best_of_n.png", "best_of_n.svg", "provenance.json"),
)
QUICKSTART = OutputKind(
    noun="the results of `mclabel quickstart`",
    mark_patterns=("summary.json", "labels/run.json"),
    folders=("labels", "best-of-n", "prm", "orm", "exact"),
    files=("labels.png", "summary.json", "report.html"),
)
EXPORT = OutputKind(
    noun="data of `mclabel export`",
    mark_patterns=(
        "data.jsonl",
        "data.json",
        "data.parquet",
        "labels-*.parquet",
        "rollouts-*.parquet",
    ),
)
FIGURES = OutputKind(
    noun="figures of `mclabel eval labels` or `eval processbench`",
    mark_patterns=("labels.json", "processbench.json"),
)
ANNOTATIONS = OutputKind(
    noun="annotations of `mclabel annotate`",
    mark_patterns=("annotations.json", "events.jsonl"),
    manifest="annotations.json",
    files=("items.jsonl", "events.jsonl"),
)
_THEIRS = (
    OutputKind(noun="a model", mark_patterns=("*.safetensors", "adapter_config.json", "prm.json")),
    OutputKind(noun="a data set", mark_patterns=("dataset_info.json", "dataset_dict.json")),
    OutputKind(noun="a git repository", mark_patterns=(".git",)),
)
KINDS = (
    *(RUN, TRAINING, BEST_OF_N, QUICKSTART),
    *(EXPORT, FIGURES, ANNOTATIONS),
)
_WITH_FOLDERS = (RUN, TRAINING)
_BESIDE = (".*", "*.log", "*.out", "*.err", "*.txt", "*.yaml", "*.yml", "lost+found")
"""Patterns of files that may be in a new output folder: logs and configurations of the job, and the
folder `lost+found` of a new file system."""
_MAX_NAMED = 3
"""Maximum number of foreign files that a message lists."""


def check_no_other_output(out: str, kind: OutputKind, key: str = "out=") -> None:
    """Refuse a folder that holds another kind of output, or lies inside another output.

    Args:
        out: output folder, which may be missing. URLs are not checked here, because only runs are
            written to URLs, and their manifests are compared later.
        kind: kind of output to write to the folder.
        key: key or option that set the folder, for messages.

    Raises:
        ShardError: another output is in the way.
    """
    if "://" in out:
        return
    root = Path(out)
    for other in (*KINDS, *_THEIRS):
        if other is not kind and (mark := _find_marking_file(root, other)) is not None:
            raise ShardError(
                f"{key}{out}: holds {other.noun} ({mark}), and this command would write "
                f"{kind.noun} into it. Give another folder"
            )
    _check_not_inside_output(root, out, key)


def _refuse_foreign_files(root: Path, out: str, kind: OutputKind, key: str) -> None:
    """Refuse a folder that is not a run yet and holds foreign files.

    Hidden files and files that match `_BESIDE` are allowed.

    Args:
        root: output folder.
        out: path of the folder as the user gave it.
        kind: kind of output to write to the folder.
        key: key or option that set the folder, for messages.
    """
    if not root.is_dir() or _find_marking_file(root, kind) is not None:
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
            f"these files. Give a new folder, such as {Path(out) / 'run'}"
        )


def check_file_in_no_output(path: Path, key: str) -> None:
    """Refuse to overwrite a file of a run or a training, or to write into its folders.

    Args:
        path: path of the file to write; the file may exist.
        key: key or option that set the path, for messages.

    Raises:
        ShardError: the file belongs to another output.
    """
    for kind in _WITH_FOLDERS:
        there = (path.parent / str(kind.manifest)).is_file()
        if there and path.name in (kind.manifest, *kind.files):
            raise ShardError(f"{key}{path}: belongs to {kind.noun}. Give another file")
    _check_not_inside_output(path, str(path), key)


def _find_marking_file(root: Path, kind: OutputKind) -> str | None:
    """Return the first file that marks a folder as a kind of output; None if there is none."""
    if not root.is_dir():
        return None
    for pattern in kind.mark_patterns:
        if (path := next(root.glob(pattern), None)) is not None:
            return str(path.relative_to(root))
    return None


def _check_not_inside_output(path: Path, given: str, key: str) -> None:
    """Refuse a path that lies inside a folder of a run or a training."""
    whole = path.absolute()
    for above in list(whole.parents)[:_DEPTH]:
        for kind in _WITH_FOLDERS:
            inside = whole.relative_to(above).parts[0] in kind.folders
            if inside and (above / str(kind.manifest)).is_file():
                raise ShardError(
                    f"{key}{given}: is part of {kind.noun} in {above}. Give a path outside of it"
                )
