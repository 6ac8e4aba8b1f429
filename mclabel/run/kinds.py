"""Kinds of the folders that the report and the viewer read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from mclabel.core.errors import ShardError
from mclabel.core.seeds import content_id
from mclabel.run.shards.digest import read_object
from mclabel.run.shards.manifest import MANIFEST, flat
from mclabel.run.shards.opinions import holds_opinions, no_labels
from mclabel.run.shards.store import Store, damaged

RunKind = Literal["labels", "best_of_n", "prm", "rl"]
BEST_OF_N, TRAINING, REINFORCED = "best_of_n.json", "train.json", "rl.json"
MAX_ID = 64
"""Characters of a run's id."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One output folder of a job."""

    kind: RunKind
    location: str
    """Folder or object store URL."""
    name: str
    """Shortest end of the path that distinguishes the runs."""

    @cached_property
    def store(self) -> Store:
        """The files under it."""
        return Store(self.location)


def find_runs(places: Sequence[str]) -> list[Run]:
    """Return the runs at these places, in order; a folder that holds runs stands for them.

    Args:
        places: outputs of `mclabel label`, `eval best-of-n`, `train`, `rl` or `quickstart`.

    Raises:
        ShardError: a place is missing, or no run.
    """
    kinds: dict[str, RunKind] = {}
    for place in places:
        for location, kind in _runs_at(place):
            kinds.setdefault(location, kind)
    names = _short_names(list(kinds))
    return [
        Run(kind=kind, location=location, name=names[location]) for location, kind in kinds.items()
    ]


def is_finished_prm(run: Run) -> bool:
    """Return whether a run is a training whose PRM can be loaded."""
    return run.kind == "prm" and (Path(run.location) / "model" / "prm.json").is_file()


def run_identity(run: Run) -> str:
    """Return what a run is known by wherever its folder lies: the id in its manifest.

    Without one that mclabel could have written, the folder.
    """
    manifest = read_json(run.store, MANIFEST)
    given = None if manifest is None else manifest.get("id")
    if isinstance(given, str) and given.isalnum() and len(given) <= MAX_ID:
        return given
    return content_id("run", run.location)


def read_json(store: Store, name: str) -> dict[str, Any] | None:
    """Return a JSON object beside the shards, None if there is none.

    Raises:
        DamagedFile: it is no JSON object, or not the one that was written.
    """
    raw = store.read(name)
    if raw is None:
        return None
    try:
        content, check = read_object(raw)
    except ValueError as error:
        raise damaged(store, name, f"damaged: not valid JSON ({error})") from error
    if check == "damaged":
        raise damaged(store, name)
    return content


def is_code(config: Mapping[str, Any]) -> bool:
    """Return whether a run's steps are statements of code, by its flat or nested configuration."""
    return flat(config).get("split.by") in ("code", "function")


def _runs_at(place: str) -> list[tuple[str, RunKind]]:
    if "://" in place:
        return [(place.rstrip("/"), "labels")]
    folder = Path(place)
    if not folder.is_dir():
        fault = "is a file, must be a folder" if folder.exists() else "no such folder"
        raise ShardError(f"{place}: {fault}. Give the `out` of a job, e.g. runs/quickstart")
    kind = _kind(folder)
    if kind == "labels" and holds_opinions(Store(place)):  # which reports and viewers do not show
        raise no_labels(Store(place))
    if kind is not None:
        return [(str(folder), kind)]
    inside = [
        (str(child), kind)
        for child in sorted(folder.iterdir())
        if child.is_dir()
        and (kind := _kind(child)) is not None
        and not (kind == "labels" and holds_opinions(Store(str(child))))
    ]
    if not inside:
        raise ShardError(
            f"{place}: is not a run: it holds neither {MANIFEST} nor labels/*.parquet, "
            f"{BEST_OF_N} or {TRAINING}, nor folders that do. Give the `out` of `mclabel label`, "
            "`mclabel eval best-of-n`, `mclabel train`, `mclabel rl` or `mclabel quickstart`"
        )
    order: dict[RunKind, int] = {"labels": 0, "best_of_n": 1, "prm": 2, "rl": 3}
    return sorted(inside, key=lambda run: order[run[1]])


def _kind(folder: Path) -> RunKind | None:
    if (folder / MANIFEST).is_file() or any((folder / "labels").glob("*.parquet")):
        return "labels"
    if (folder / BEST_OF_N).is_file():
        return "best_of_n"
    if (folder / REINFORCED).is_file():
        return "rl"
    return "prm" if (folder / TRAINING).is_file() else None


def _short_names(locations: Sequence[str]) -> dict[str, str]:
    """Return as many last parts of each path as no other path ends in."""
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
