"""The manifest of an output: the configuration that a folder belongs to, created once.

It holds the whole semantic configuration for the record, its identity (the fields that differ from
their defaults), which decides whether a job may resume, and a random `id`. Priors of `posterior`
stand beside it in `priors/ID.json`, where ID is a hash of the content.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self, TypeVar

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.core.seeds import ID_LENGTH
from mclabel.core.settings import read_record
from mclabel.run.shards.digest import read_object, with_digest
from mclabel.run.shards.store import Store, damaged

T = TypeVar("T")

FORMAT = 1
"""The only format that is read."""
MANIFEST = "run.json"
"""The manifest of a labelling run."""


@dataclass(frozen=True, kw_only=True)
class Semantic:
    """Configuration on which the content of an output depends; JSON-serialisable."""

    identity: Mapping[str, Any]
    """The fields that are not at their defaults: compared, hashed into ids."""
    config: Mapping[str, Any]
    """All fields, for the record."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Return a configuration that is its own identity."""
        return cls(identity=config, config=config)

    def stamp(self) -> dict[str, Any]:
        """Return the part that every shard carries, from which a lost manifest can be rewritten."""
        return {"identity": self.identity, "config": self.config}


def claim(
    store: Store,
    name: str,
    semantic: Semantic,
    provenance: Mapping[str, Any],
    *,
    run: str | None = None,
) -> None:
    """Create the manifest, or check that the one there is of the same configuration.

    Args:
        store: the output's store.
        name: name of the manifest's file.
        semantic: the configuration that the output's content depends on.
        provenance: versions and the like, kept beside it and not compared.
        run: the `id` of a manifest that was lost; None draws one.

    Raises:
        ShardError: the output belongs to another configuration.
    """
    manifest = {
        "format": FORMAT,
        "id": run or secrets.token_hex(8),
        "identity": semantic.identity,
        "config": semantic.config,
        **provenance,
    }
    if store.create(name, manifest_bytes(manifest)):
        return
    there = read_claim(store, name)
    if there is not None and (changed := changed_fields(there, semantic)):
        raise other_configuration(store, there, semantic, changed)


def amend_claim(store: Store, name: str, manifest: Mapping[str, Any], semantic: Semantic) -> None:
    """Give a manifest that is there another configuration; its id and the rest stay.

    For an output without any content that depends on what has changed. Its plan, if it has one,
    was made for the former identity, which is kept as `plan_identity`.
    """
    content = {
        **manifest,
        "identity": semantic.identity,
        "config": semantic.config,
        "plan_identity": plan_identity(manifest),
    }
    store.replace(name, io.BytesIO(manifest_bytes(content)))


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """Return the file that holds a manifest, with its digest."""
    return json.dumps(with_digest(manifest), indent=1, sort_keys=True).encode()


def plan_identity(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the identity for which the plan of a run was made; ids of its blocks depend on it."""
    return manifest.get("plan_identity", manifest["identity"])  # type: ignore[no-any-return]


def changed_fields(manifest: Mapping[str, Any], semantic: Semantic) -> list[str]:
    """Return the keys in which the configuration of a manifest differs from another, in order."""
    theirs, ours = flat(manifest["identity"]), _flat_here(semantic.identity)
    return sorted(key for key in theirs | ours if theirs.get(key) != ours.get(key))


def other_configuration(
    store: Store, manifest: Mapping[str, Any], semantic: Semantic, changed: Sequence[str]
) -> ShardError:
    """Return the refusal of an output that belongs to another configuration.

    Args:
        store: the output's store.
        manifest: the output's manifest.
        semantic: the job's semantic configuration.
        changed: keys in which they differ.
    """
    all_theirs = flat(manifest["config"]) | flat(manifest["identity"])
    all_ours = _flat_here(semantic.config) | _flat_here(semantic.identity)
    lines = "\n".join(_difference(k, all_theirs.get(k), all_ours.get(k)) for k in changed)
    return ShardError(
        f"{store.location}: holds a run of another configuration:\n{lines}\n"
        "Choose another out=…, or restore these values to resume that run"
    )


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two whole configurations differ, a line each, with both values.

    A field that one of them lacks comes from another version of mclabel and is ignored, but for
    an engine's: of these only those are recorded that are not at their defaults.
    """
    theirs, ours = flat(there), _flat_here(here)
    compared = {key for key in theirs | ours if ".engine." in key} | (theirs.keys() & ours.keys())
    return [
        _difference(key, theirs.get(key), ours.get(key))
        for key in sorted(compared)
        if theirs.get(key) != ours.get(key)
    ]


def _difference(key: str, there: Any, here: Any) -> str:
    shown = ["not set" if value is None else repr(value) for value in (there, here)]
    return f"  {key}: {shown[0]} there, {shown[1]} here"


def claimed_config(store: Store, name: str) -> dict[str, Any] | None:
    """Return the semantic configuration of an output; None if it is not claimed.

    Raises:
        DamagedFile: the manifest is damaged, or none.
    """
    manifest = read_claim(store, name)
    return None if manifest is None else manifest["config"]


def read_claim(store: Store, name: str) -> dict[str, Any] | None:
    """Return the whole manifest: `format`, `config`, and what was kept beside it.

    Raises:
        DamagedFile: the manifest is damaged, or none, or of another format.
    """
    raw = store.read(name)
    if raw is None:
        return None
    try:
        manifest, check = read_object(raw)
        if check == "damaged":
            raise damaged(store, name)
        if manifest["format"] != FORMAT:
            raise DamagedFile(
                store.location,
                name,
                f"format {manifest['format']!r}; this mclabel reads format {FORMAT}",
                "Make the output again with this version, in another folder",
            )
        for key in ("identity", "config"):
            if not isinstance(manifest[key], dict):
                raise ValueError(f"{key} must be an object")
        if not isinstance(manifest.get("plan_identity", {}), dict):
            raise ValueError("plan_identity must be an object")
        if not isinstance(manifest["id"], str):
            raise ValueError("id must be a text")
    except (ValueError, KeyError) as error:
        fault = f"damaged, or not a manifest of mclabel ({error})"
        raise damaged(store, name, fault) from error
    if check == "none":
        raise damaged(store, name, "damaged, or rewritten by another program: it has no digest")
    return manifest


def read_record_file(
    store: Store, name: str, kind: type[T], *, ignore: Collection[str] = ()
) -> T | None:
    """Read a JSON file with a digest that holds one record; None if there is no such file.

    Args:
        store: the run's store.
        name: name of the file.
        kind: dataclass of the record.
        ignore: keys of the file that are not part of the record.

    Raises:
        DamagedFile: the file is damaged, or mclabel has not written it.
    """
    raw = store.read(name)
    if raw is None:
        return None
    try:
        content, check = read_object(raw)
        fields = {key: value for key, value in content.items() if key not in ignore}
        record = read_record(kind, fields)
    except ValueError as error:
        raise damaged(store, name, f"not what mclabel wrote ({error})") from error
    if check != "sound":
        raise damaged(store, name)
    return record


def run_id(store: Store) -> str | None:
    """Return the `id` of a run's manifest; None without one, or if it is damaged."""
    try:
        manifest = read_claim(store, MANIFEST)
    except DamagedFile:
        return None
    return None if manifest is None else manifest["id"]


def _flat_here(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat mapping, with the types that reading JSON returns."""
    return flat(json.loads(json.dumps(content)))


def flat(content: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    """Nested keys joined by dots."""
    result: dict[str, Any] = {}
    for key, item in content.items():
        if isinstance(item, Mapping):
            result |= flat(item, f"{parent}{key}.")
        else:
            result[f"{parent}{key}"] = item
    return result


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of the packages on which labels depend.

    Args:
        packages: packages of the engine, beside those of every job; missing ones are left out.
    """
    names = ("mclabel", "torch", "transformers", "ray", *packages)
    installed = {
        name: installed_version
        for name in names
        if (installed_version := _version(name)) is not None
    }
    return {**installed, "python": platform.python_version()}


@cache
def _version(package: str) -> str | None:
    """Return a package's version; cached, as its whole metadata, which can be long, is parsed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


PRIORS = "priors"


def priors_name(identity: str) -> str:
    """Return the file of priors with this id."""
    return f"{PRIORS}/{identity}.json"


def read_priors(store: Store, identity: str) -> bytes | None:
    """Return the content of the priors of this id; None if there are none.

    Raises:
        DamagedFile: the content is another one.
    """
    content = store.read(priors_name(identity))
    if content is not None and hashlib.sha256(content).hexdigest()[:ID_LENGTH] != identity:
        raise damaged(store, priors_name(identity))
    return content


@contextmanager
def making_use_of(store: Store, identity: str) -> Iterator[None]:
    """Blame the file of priors for what an estimator refuses while it reads them.

    Raises:
        DamagedFile: the estimator has raised a `ValueError`.
    """
    try:
        yield
    except ValueError as error:
        fault = f"not what mclabel wrote ({error})"
        raise damaged(store, priors_name(identity), fault) from error


def missing_priors(store: Store, identity: str) -> DamagedFile:
    """Return the error for labels that depend on missing priors."""
    return DamagedFile(
        store.location,
        priors_name(identity),
        "missing, though labels depend on it",
        "Restore it from a copy: without it these labels cannot be regraded",
    )
