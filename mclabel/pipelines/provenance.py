"""A record beside results: which scorer made them, and which versions of the packages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mclabel.prm.scoring.manifest import scorer_fingerprint
from mclabel.work.versions import versions


def write_provenance(path: Path, **about: Any) -> None:
    """Write a record.

    Args:
        path: of its JSON file.
        **about: what made the results; no secrets. Whether code of a model was trusted
            (`trust_remote_code`) belongs to it.
    """
    content = {**about, "versions": versions()}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def weights_of(prm: str) -> str | None:
    """A hash of a PRM's weights; None if it is no folder but a name."""
    return scorer_fingerprint(prm) if Path(prm).is_dir() else None


def server_address(url: str) -> str:
    """The scheme, host and port of a URL, without the password that it may hold."""
    parts = urlsplit(url)
    return parts._replace(
        netloc=parts.netloc.rpartition("@")[2], path="", query="", fragment=""
    ).geturl()
