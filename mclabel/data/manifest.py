"""The claim of an output: the semantic configuration that a folder belongs to, created once.

Running a job again with the same configuration resumes it; another configuration is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mclabel.data.store import Store
from mclabel.errors import ShardError

FORMAT = 2


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
    manifest = {"format": FORMAT, "config": semantic, **provenance}
    if not store.create(name, json.dumps(manifest, indent=1, sort_keys=True).encode()):
        check_claim(store, name, semantic)


def check_claim(store: Store, name: str, semantic: Mapping[str, Any]) -> None:
    """Refuse an output that belongs to another configuration.

    Raises:
        ShardError: names every difference.
    """
    raw = store.read(name)
    if raw is None:
        return
    try:
        manifest = json.loads(raw)
        theirs = _flat(manifest["config"])
    except (ValueError, KeyError, TypeError) as error:
        raise ShardError(f"{store.location}/{name}: not a manifest of mclabel: {error}") from error
    if manifest.get("format") != FORMAT:
        raise ShardError(
            f"{store.location}: was begun by another version of mclabel (manifest format "
            f"{manifest.get('format')!r}, this one writes {FORMAT}). It can be read, not resumed: "
            "choose another out=…, or go on with the version that began it"
        )
    ours = _flat(json.loads(json.dumps(semantic)))
    changed = sorted(key for key in theirs | ours if theirs.get(key) != ours.get(key))
    if changed:
        lines = "\n".join(f"  {k}: {theirs.get(k)!r} there, {ours.get(k)!r} here" for k in changed)
        raise ShardError(
            f"{store.location}: holds a run of another configuration:\n{lines}\n"
            "Choose another out=…, or restore these values to resume that run"
        )


def _flat(content: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, item in content.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{parent}{key}.")
        else:
            flat[f"{parent}{key}"] = item
    return flat
