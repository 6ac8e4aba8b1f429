"""The manifest of an output: a file, created once, that stores the output's configuration.

It holds the complete semantic configuration (the settings on which results depend) for reference, a
random `id`, and the identity: the fields that differ from their defaults. A job may resume an
output only if the identities are equal. The module also reads priors of the `posterior` estimator,
which are stored beside the manifest in `priors/ID.json`, where ID is a hash of the content.
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
from mclabel.run.shards.digest import add_digest, parse_checked_object
from mclabel.run.shards.store import Store, make_damaged_file_error

T = TypeVar("T")

FORMAT = 1
"""Version of the manifest's format; no other version can be read."""
MANIFEST = "run.json"
"""Name of the manifest's file in a run."""


@dataclass(frozen=True, kw_only=True)
class SemanticConfig:
    """Configuration on which the content of an output depends; JSON-serialisable."""

    identity: Mapping[str, Any]
    """Fields that differ from their defaults. They are compared when a job resumes, and hashed into
    ids."""
    config: Mapping[str, Any]
    """All fields, for reference."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return a `SemanticConfig` whose identity is the whole configuration."""
        return cls(identity=config, config=config)

    def as_shard_metadata(self) -> dict[str, Any]:
        """Return the entries that every shard stores, from which a lost manifest can be
        restored.
        """
        return {"identity": self.identity, "config": self.config}


def claim_manifest(
    store: Store,
    name: str,
    semantic: SemanticConfig,
    provenance: Mapping[str, Any],
    *,
    restored_id: str | None = None,
) -> None:
    """Create the manifest, or check that the existing manifest has the same configuration.

    Args:
        store: the output's store.
        name: name of the manifest's file.
        semantic: configuration on which the output's content depends.
        provenance: further entries such as software versions, which are stored but not compared.
        restored_id: the `id` of a lost manifest that is restored; None draws a new one.

    Raises:
        ShardError: the output belongs to another configuration.
    """
    manifest = {
        "format": FORMAT,
        "id": restored_id or secrets.token_hex(8),
        "identity": semantic.identity,
        "config": semantic.config,
        **provenance,
    }
    if store.create(name, encode_manifest(manifest)):
        return
    existing = read_manifest(store, name)
    if existing is not None and (changed := find_changed_fields(existing, semantic)):
        raise make_other_configuration_error(store, existing, semantic, changed)


def replace_configuration(
    store: Store, name: str, manifest: Mapping[str, Any], semantic: SemanticConfig
) -> None:
    """Replace the configuration in an existing manifest, and keep its id and its other entries.

    It must be used only if no content of the output depends on the changed fields. The ids of
    planned blocks depend on the former identity, which is kept as `plan_identity`.

    Args:
        store: the output's store.
        name: name of the manifest's file.
        manifest: the existing manifest.
        semantic: the new configuration.
    """
    content = {
        **manifest,
        "identity": semantic.identity,
        "config": semantic.config,
        "plan_identity": get_plan_identity(manifest),
    }
    store.replace(name, io.BytesIO(encode_manifest(content)))


def encode_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return a manifest as the bytes of its file, with a digest."""
    return json.dumps(add_digest(manifest), indent=1, sort_keys=True).encode()


def get_plan_identity(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the identity for which a run's plan was made, from which the ids of blocks are
    computed.
    """
    return manifest.get("plan_identity", manifest["identity"])  # type: ignore[no-any-return]


def find_changed_fields(manifest: Mapping[str, Any], semantic: SemanticConfig) -> list[str]:
    """Return the sorted keys in which a manifest's identity differs from that of another job."""
    theirs, ours = flatten_config(manifest["identity"]), _flatten_as_json(semantic.identity)
    return sorted(key for key in theirs | ours if theirs.get(key) != ours.get(key))


def make_other_configuration_error(
    store: Store, manifest: Mapping[str, Any], semantic: SemanticConfig, changed: Sequence[str]
) -> ShardError:
    """Return the error for an output that belongs to another configuration.

    Args:
        store: the output's store.
        manifest: the output's manifest.
        semantic: the job's semantic configuration.
        changed: keys in which the two configurations differ.
    """
    all_theirs = flatten_config(manifest["config"]) | flatten_config(manifest["identity"])
    all_ours = _flatten_as_json(semantic.config) | _flatten_as_json(semantic.identity)
    lines = "\n".join(_describe_difference(k, all_theirs.get(k), all_ours.get(k)) for k in changed)
    return ShardError(
        f"{store.location}: holds a run of another configuration:\n{lines}\n"
        "Choose another out=…, or restore these values to resume that run"
    )


def describe_differences(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return a line for each field in which two complete configurations differ.

    A line contains the name of the field and both values.

    A field that only one configuration has comes from another version of mclabel, and is ignored.
    Fields of engines are an exception, as they are recorded only if they differ from their
    defaults.

    Args:
        recorded: configuration stored in an output.
        current: configuration of the job.
    """
    theirs, ours = flatten_config(recorded), _flatten_as_json(current)
    compared = {key for key in theirs | ours if ".engine." in key} | (theirs.keys() & ours.keys())
    return [
        _describe_difference(key, theirs.get(key), ours.get(key))
        for key in sorted(compared)
        if theirs.get(key) != ours.get(key)
    ]


def _describe_difference(key: str, recorded: Any, current: Any) -> str:
    shown = ["not set" if value is None else repr(value) for value in (recorded, current)]
    return f"  {key}: {shown[0]} there, {shown[1]} here"


def read_manifest_config(store: Store, name: str) -> dict[str, Any] | None:
    """Return the semantic configuration of an output; None if the output has no manifest.

    Raises:
        DamagedFile: the manifest is damaged, or the file is not a manifest.
    """
    manifest = read_manifest(store, name)
    return None if manifest is None else manifest["config"]


def read_manifest(store: Store, name: str) -> dict[str, Any] | None:
    """Return all entries of an output's manifest; None if the output has no manifest.

    Raises:
        DamagedFile: the manifest is damaged, has another format, or the file is not a manifest.
    """
    raw = store.read(name)
    if raw is None:
        return None
    try:
        manifest, check = parse_checked_object(raw)
        if check == "damaged":
            raise make_damaged_file_error(store, name)
        if manifest["format"] != FORMAT:
            raise DamagedFile(
                store.location,
                name,
                f"format {manifest['format']!r}; this mclabel reads format {FORMAT}",
                "Make the output again with this version, in another folder",
            )
        for key in ("identity", "config"):
            if not isinstance(manifest[key], dict):
                raise ValueError(f"{key} must be a JSON object")
        if not isinstance(manifest.get("plan_identity", {}), dict):
            raise ValueError("plan_identity must be a JSON object")
        if not isinstance(manifest["id"], str):
            raise ValueError("id must be a string")
    except (ValueError, KeyError) as error:
        fault = f"damaged, or not a manifest of mclabel ({error})"
        raise make_damaged_file_error(store, name, fault) from error
    if check == "none":
        raise make_damaged_file_error(
            store, name, "damaged, or rewritten by another program: it has no digest"
        )
    return manifest


def read_record_file(
    store: Store, name: str, record_type: type[T], *, ignore: Collection[str] = ()
) -> T | None:
    """Read a JSON file that stores one record and its digest; return None if the file does not
    exist.

    Args:
        store: the run's store.
        name: name of the file.
        record_type: dataclass of the record.
        ignore: keys of the file that are not fields of the record.

    Raises:
        DamagedFile: the file is damaged, or was not written by mclabel.
    """
    raw = store.read(name)
    if raw is None:
        return None
    try:
        content, check = parse_checked_object(raw)
        fields = {key: value for key, value in content.items() if key not in ignore}
        record = read_record(record_type, fields)
    except ValueError as error:
        raise make_damaged_file_error(store, name, f"not what mclabel wrote ({error})") from error
    if check != "sound":
        raise make_damaged_file_error(store, name)
    return record


def read_run_id(store: Store) -> str | None:
    """Return the `id` of a run's manifest; None if the manifest is missing or damaged."""
    try:
        manifest = read_manifest(store, MANIFEST)
    except DamagedFile:
        return None
    return None if manifest is None else manifest["id"]


def _flatten_as_json(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `flatten_config` of a mapping after its values were converted to JSON and back."""
    return flatten_config(json.loads(json.dumps(config)))


def flatten_config(config: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    """Return a flat mapping, with nested keys joined by dots.

    Args:
        config: mapping that can contain mappings.
        parent: prefix of all keys.
    """
    result: dict[str, Any] = {}
    for key, item in config.items():
        if isinstance(item, Mapping):
            result |= flatten_config(item, f"{parent}{key}.")
        else:
            result[f"{parent}{key}"] = item
    return result


def collect_package_versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return the version of each installed package on which labels depend, and of Python.

    Args:
        packages: names of further packages, on which the engine depends. Packages that are not
            installed are left out.
    """
    names = ("mclabel", "torch", "transformers", "ray", *packages)
    installed = {
        name: installed_version
        for name in names
        if (installed_version := _find_version(name)) is not None
    }
    return {**installed, "python": platform.python_version()}


@cache
def _find_version(package: str) -> str | None:
    """Return a package's version, or None if it is not installed.

    The result is cached, because `importlib.metadata.version` parses all metadata of the package,
    which can be long.
    """
    try:
        return version(package)
    except PackageNotFoundError:
        return None


PRIORS = "priors"


def make_priors_file_name(identity: str) -> str:
    """Return the name of the file that stores the priors with this id."""
    return f"{PRIORS}/{identity}.json"


def read_priors(store: Store, identity: str) -> bytes | None:
    """Return the content of the priors with this id; None if the file does not exist.

    Raises:
        DamagedFile: the content does not match the id, which is its hash.
    """
    content = store.read(make_priors_file_name(identity))
    if content is not None and hashlib.sha256(content).hexdigest()[:ID_LENGTH] != identity:
        raise make_damaged_file_error(store, make_priors_file_name(identity))
    return content


@contextmanager
def report_value_errors_as_damaged_priors(store: Store, identity: str) -> Iterator[None]:
    """Report a `ValueError` raised in the context as damage of the file of priors.

    Args:
        store: the run's store.
        identity: id of the priors that an estimator reads in the context.

    Raises:
        DamagedFile: a `ValueError` was raised in the context.
    """
    try:
        yield
    except ValueError as error:
        fault = f"not what mclabel wrote ({error})"
        raise make_damaged_file_error(store, make_priors_file_name(identity), fault) from error


def make_missing_priors_error(store: Store, identity: str) -> DamagedFile:
    """Return the error for labels that depend on missing priors."""
    return DamagedFile(
        store.location,
        make_priors_file_name(identity),
        "missing, though labels depend on it",
        "Restore it from a copy. Without this file, these labels cannot be regraded",
    )
