"""Finds the output folders that reports and viewers read, and determines their kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from mclabel.core.errors import ShardError
from mclabel.core.seeds import content_id
from mclabel.run.shards.digest import parse_checked_object
from mclabel.run.shards.manifest import MANIFEST, flatten_config
from mclabel.run.shards.opinions import holds_opinions, make_no_labels_error
from mclabel.run.shards.store import Store, make_damaged_file_error

RunKind = Literal["labels", "best_of_n", "prm"]
BEST_OF_N, TRAINING = "best_of_n.json", "train.json"
MAX_ID = 64
"""Maximum number of characters in a run's id."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One output folder of a job."""

    kind: RunKind
    location: str
    """Folder or object store URL."""
    name: str
    """Display name: the shortest end of the path that distinguishes the run from the other runs
    shown with it."""

    @cached_property
    def store(self) -> Store:
        """Store of the run's files."""
        return Store(self.location)


def find_runs(locations: Sequence[str]) -> list[Run]:
    """Return the runs at the given places, in order.

    A folder whose subfolders are runs is replaced by these runs.

    Args:
        locations: outputs of `mclabel label`, `eval best-of-n`, `train` or `quickstart`.

    Raises:
        ShardError: a place is missing, or does not hold a run.
    """
    kinds: dict[str, RunKind] = {}
    for place in locations:
        for location, kind in _find_runs_at(place):
            kinds.setdefault(location, kind)
    names = _make_short_names(list(kinds))
    return [
        Run(kind=kind, location=location, name=names[location]) for location, kind in kinds.items()
    ]


def is_finished_prm(run: Run) -> bool:
    """Return whether a run is a PRM training that has finished, so that the PRM can be loaded."""
    return run.kind == "prm" and (Path(run.location) / "model" / "prm.json").is_file()


def read_run_identity(run: Run) -> str:
    """Return an identifier of a run that stays the same when the folder is moved.

    It is the id in the run's manifest. If the manifest has no valid id, the identifier is a hash of
    the folder's location.
    """
    manifest = read_checked_json(run.store, MANIFEST)
    given = None if manifest is None else manifest.get("id")
    if isinstance(given, str) and given.isalnum() and len(given) <= MAX_ID:
        return given
    return content_id("run", run.location)


def read_checked_json(store: Store, name: str) -> dict[str, Any] | None:
    """Read a JSON file beside the shards of a run; return None if the file does not exist.

    Args:
        store: store of the run.
        name: path of the file, relative to the run.

    Raises:
        DamagedFile: the file is not a JSON object, or has changed since it was written.
    """
    raw = store.read(name)
    if raw is None:
        return None
    try:
        content, check = parse_checked_object(raw)
    except ValueError as error:
        raise make_damaged_file_error(store, name, f"damaged: not valid JSON ({error})") from error
    if check == "damaged":
        raise make_damaged_file_error(store, name)
    return content


def has_program_solutions(config: Mapping[str, Any]) -> bool:
    """Return whether a run's solutions are programs.

    Args:
        config: the run's configuration, nested or with keys joined by dots.
    """
    settings = flatten_config(config)
    by = settings.get("split.by")
    return by in ("code", "function") or settings.get("checker.kind") == "code"


def _find_runs_at(location: str) -> list[tuple[str, RunKind]]:
    if "://" in location:
        return [(location.rstrip("/"), "labels")]
    folder = Path(location)
    if not folder.is_dir():
        fault = "is a file, must be a folder" if folder.exists() else "no such folder"
        raise ShardError(f"{location}: {fault}. Give the `out` of a job, e.g. runs/quickstart")
    kind = _find_run_kind(folder)
    if kind == "labels" and holds_opinions(Store(location)):  # reports do not show opinions
        raise make_no_labels_error(Store(location))
    if kind is not None:
        return [(str(folder), kind)]
    inside = [
        (str(child), kind)
        for child in sorted(folder.iterdir())
        if child.is_dir()
        and (kind := _find_run_kind(child)) is not None
        and not (kind == "labels" and holds_opinions(Store(str(child))))
    ]
    if not inside:
        raise ShardError(
            f"{location}: is not a run. Neither the folder nor its subfolders hold {MANIFEST}, "
            f"labels/*.parquet, {BEST_OF_N} or {TRAINING}. Give the `out` of `mclabel label`, "
            "`mclabel eval best-of-n`, `mclabel train` or `mclabel quickstart`"
        )
    order: dict[RunKind, int] = {"labels": 0, "best_of_n": 1, "prm": 2}
    return sorted(inside, key=lambda run: order[run[1]])


def _find_run_kind(folder: Path) -> RunKind | None:
    if (folder / MANIFEST).is_file() or any((folder / "labels").glob("*.parquet")):
        return "labels"
    if (folder / BEST_OF_N).is_file():
        return "best_of_n"
    return "prm" if (folder / TRAINING).is_file() else None


def _make_short_names(locations: Sequence[str]) -> dict[str, str]:
    """Return, for each location, the shortest end of its path that no other location ends in."""
    parts = {location: Path(location).absolute().parts for location in locations}
    if any("://" in location for location in locations):
        parts = {location: tuple(location.split("/")) for location in locations}
    names = {}
    for location in locations:
        for count in range(1, len(parts[location]) + 1):
            tail = parts[location][-count:]
            same = [other for other in locations if parts[other][-count:] == tail]
            if len(same) == 1:
                break
        names[location] = "/".join(tail)
    return names
