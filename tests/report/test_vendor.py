"""Third-party JavaScript in the package equals its release and includes its licences."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import mclabel

FOLDERS = (
    Path(mclabel.__file__).parent / "show" / "static" / "vendor",
    Path(__file__).parent / "vendor",
)


@pytest.mark.parametrize("folder", FOLDERS, ids=["package", "tests"])
def test_files_are_those_of_the_checksums(folder: Path) -> None:
    listed = {
        name: digest
        for digest, name in (
            line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()
        )
    }
    present = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    del present["SHA256SUMS"]
    assert listed.keys() == present.keys()
    for name, path in present.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == listed[name], name
    assert all(
        f"{package}/LICENSE" in listed for package in {name.split("/")[0] for name in listed}
    )
