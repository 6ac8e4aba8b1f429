"""The claim of an output: the configuration that a folder belongs to, created once.

A manifest holds the whole semantic configuration, for the record, and its identity: the fields
that differ from their defaults. Running a job again with the same identity resumes it; another one
is refused. The manifest's `id` is random: it distinguishes outputs of one configuration, wherever
they are moved.

Priors of `posterior` on which labels depend stand beside it, in `priors/ID.json`; ID is a hash of
the content.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.core.seeds import ID_LENGTH
from mclabel.run.shards.digest import read_object, with_digest
from mclabel.run.shards.store import Store, damaged

FORMAT = 1
"""The only format that is read."""
MANIFEST = "run.json"
"""The manifest of a labelling run."""


@dataclass(frozen=True, kw_only=True)
class Semantic:
    """What the content of an output depends on; JSON-serialisable."""

    identity: Mapping[str, Any]
    """The fields that are not at their defaults: compared, hashed into ids."""
    config: Mapping[str, Any]
    """All fields, for the record."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Of a configuration that is its own identity."""
        return cls(identity=config, config=config)

    def stamp(self) -> dict[str, Any]:
        """The part that every shard carries, so that a lost manifest can be written again."""
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
        store: of the output.
        name: of the manifest's file.
        semantic: what the content of the output depends on.
        provenance: versions and the like, kept beside it and not compared.
        run: the `id` of a manifest that was lost; None draws one.

    Raises:
        ShardError: the output belongs to another configuration.
    """
    manifest = with_digest(
        {
            "format": FORMAT,
            "id": run or secrets.token_hex(8),
            "identity": semantic.identity,
            "config": semantic.config,
            **provenance,
        }
    )
    if store.create(name, json.dumps(manifest, indent=1, sort_keys=True).encode()):
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
    store.replace(
        name, io.BytesIO(json.dumps(with_digest(content), indent=1, sort_keys=True).encode())
    )


def plan_identity(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """The identity for which the plan of a run was made: ids of its blocks follow from it."""
    identity: Mapping[str, Any] = manifest.get("plan_identity", manifest["identity"])
    return identity


def changed_fields(manifest: Mapping[str, Any], semantic: Semantic) -> list[str]:
    """Keys in which the configuration of a manifest differs from another, in order."""
    theirs, ours = flat(manifest["identity"]), _flat_here(semantic.identity)
    return sorted(key for key in theirs | ours if theirs.get(key) != ours.get(key))


def other_configuration(
    store: Store, manifest: Mapping[str, Any], semantic: Semantic, changed: Sequence[str]
) -> ShardError:
    """The refusal of an output that belongs to another configuration.

    Args:
        store: of the output.
        manifest: of the output.
        semantic: of the job.
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
    """Fields in which two whole configurations differ, a line each, with both values.

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
    """The semantic configuration that an output belongs to; None of one that is not claimed.

    Raises:
        DamagedFile: the manifest is damaged, or none.
    """
    manifest = read_claim(store, name)
    config: dict[str, Any] | None = None if manifest is None else manifest["config"]
    return config


def read_claim(store: Store, name: str) -> dict[str, Any] | None:
    """The whole manifest: `format`, `config`, and what was kept beside it.

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


def run_id(store: Store) -> str | None:
    """The `id` of a run's manifest; None without one, or if it is damaged."""
    try:
        manifest = read_claim(store, MANIFEST)
    except DamagedFile:
        return None
    return None if manifest is None else manifest["id"]


def _flat_here(content: Mapping[str, Any]) -> dict[str, Any]:
    """The flat mapping, with the types that reading JSON returns."""
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
    """Versions of what decides about labels.

    Args:
        packages: of the engine, beside those of every job; what is not installed is left out.
    """
    installed = [name for name in packages if _is_installed(name)]
    return {
        **{
            name: _version(name) for name in ("mclabel", "torch", "transformers", "ray", *installed)
        },
        "python": platform.python_version(),
    }


@cache
def _version(package: str) -> str:
    """Of an installed package; its metadata can be long, and is parsed as a whole."""
    return version(package)


def _is_installed(package: str) -> bool:
    try:
        _version(package)
    except PackageNotFoundError:
        return False
    return True


PRIORS = "priors"


def priors_name(identity: str) -> str:
    """The file of priors with this id."""
    return f"{PRIORS}/{identity}.json"


def read_priors(store: Store, identity: str) -> bytes | None:
    """What was written as the priors of this id; None if there are none.

    Raises:
        DamagedFile: the content is another one.
    """
    content = store.read(priors_name(identity))
    if content is not None and hashlib.sha256(content).hexdigest()[:ID_LENGTH] != identity:
        raise damaged(store, priors_name(identity))
    return content


@contextmanager
def making_use_of(store: Store, identity: str) -> Iterator[None]:
    """Where an estimator reads priors: what it refuses is said to be this file.

    Raises:
        DamagedFile: the estimator has raised a `ValueError`.
    """
    try:
        yield
    except ValueError as error:
        fault = f"not what mclabel wrote ({error})"
        raise damaged(store, priors_name(identity), fault) from error


def missing_priors(store: Store, identity: str) -> DamagedFile:
    """The error for labels that depend on missing priors."""
    return DamagedFile(
        store.location,
        priors_name(identity),
        "missing, though labels depend on it",
        "Restore it from a copy: without it these labels cannot be regraded",
    )
