"""Runs that earlier releases have written, for tests that this one reads them."""

from __future__ import annotations

import tarfile
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
VERSIONS = (3, 4, 5, 6, 7)
"""Schemas of which there are runs; `data/make_fixtures.py` made them."""
RUNS = ("arith", "scripted", "balanced")


def unpack(version: int, name: str, folder: Path) -> Path:
    """The folder of a run of a schema, made in `folder`; beside its files it holds `read.json`."""
    with tarfile.open(FIXTURES / f"schema-{version}.tar.xz") as archive:
        members = [member for member in archive if member.name.split("/")[0] == name]
        archive.extractall(folder, members, filter="data")
    return folder / name
