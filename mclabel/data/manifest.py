"""The claim of an output: the semantic configuration that a folder belongs to, created once.

Running a job again with the same configuration resumes it; another configuration is refused. Its
`id` is random: it tells outputs of one configuration from each other, wherever they are moved.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from mclabel.data.damage import damaged
from mclabel.data.digest import read_object, with_digest
from mclabel.data.store import Store
from mclabel.errors import ShardError

FORMAT = 2
"""Manifests of format 1 carry no digest."""


def claim(
    store: Store, name: str, semantic: Mapping[str, Any], provenance: Mapping[str, Any]
) -> None:
    """Create the manifest, or check that the one there is of the same configuration.

    Args:
        store: of the output.
        name: of the manifest's file.
        semantic: what the content of the output depends on, JSON-serialisable.
        provenance: versions and the like, kept beside it and not compared.

    Raises:
        ShardError: the output belongs to another configuration.
    """
    identity = secrets.token_hex(8)
    manifest = with_digest({"format": FORMAT, "id": identity, "config": semantic, **provenance})
    if not store.create(name, json.dumps(manifest, indent=1, sort_keys=True).encode()):
        check_claim(store, name, semantic)


def check_claim(store: Store, name: str, semantic: Mapping[str, Any]) -> None:
    """Refuse an output that belongs to another configuration.

    Raises:
        ShardError: names every difference.
    """
    manifest = read_claim(store, name)
    if manifest is None:
        return
    if manifest["format"] != FORMAT:
        raise ShardError(
            f"{store.location}: was begun by another version of mclabel (manifest format "
            f"{manifest['format']!r}, this one writes {FORMAT}). It can be read, not resumed: "
            "choose another out=…, or go on with the version that began it"
        )
    theirs = _flat(manifest["config"])
    ours = _flat(json.loads(json.dumps(semantic)))
    changed = sorted(key for key in theirs | ours if theirs.get(key) != ours.get(key))
    if changed:
        lines = "\n".join(f"  {k}: {theirs.get(k)!r} there, {ours.get(k)!r} here" for k in changed)
        raise ShardError(
            f"{store.location}: holds a run of another configuration:\n{lines}\n"
            "Choose another out=…, or restore these values to resume that run"
        )


def claimed_config(store: Store, name: str) -> dict[str, Any] | None:
    """The semantic configuration that an output belongs to; None if nobody has claimed it.

    Raises:
        DamagedFile: the manifest is damaged, or none.
    """
    manifest = read_claim(store, name)
    config: dict[str, Any] | None = None if manifest is None else manifest["config"]
    return config


def read_claim(store: Store, name: str) -> dict[str, Any] | None:
    """The whole manifest: `format`, `config`, and what was kept beside it.

    Raises:
        DamagedFile: the manifest is damaged, or none.
    """
    raw = store.read(name)
    if raw is None:
        return None
    try:
        manifest, check = read_object(raw)
        if not isinstance(manifest["config"], dict) or not isinstance(manifest["format"], int):
            raise ValueError("config must be an object, format a number")
    except (ValueError, KeyError) as error:
        fault = f"damaged, or not a manifest of mclabel ({error})"
        raise damaged(store, name, fault) from error
    if check == "damaged" or (check == "none" and manifest["format"] != 1):
        raise damaged(store, name)
    return manifest


def _flat(content: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in content.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{parent}{key}.")
        else:
            flat[f"{parent}{key}"] = item
    return flat
