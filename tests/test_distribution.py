"""Files of a release: a wheel with the package and its files, and nothing else."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, BUILT_BY = SETTINGS["project"], SETTINGS["build-system"]["requires"]


def run_process(*command: object, cwd: Path, **variables: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def list_tracked(*folders: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return listed.stdout.strip("\0").split("\0")


def read_members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_wheel_and_sdist_hold_every_file_and_nothing_else(tmp_path: Path) -> None:
    """The declared backend, which pip downloads, builds both from the tracked files."""
    source, tools, built = tmp_path / "source", tmp_path / "tools", tmp_path / "built"
    for name in list_tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name)
    run_process("pip", "install", "-q", "--target", tools, *BUILT_BY, cwd=tmp_path)
    run_process("hatchling", "build", "-d", built, cwd=source, PYTHONPATH=str(tools))
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    run_process(
        "pip",
        "wheel",
        *("-q", "--no-deps", "--no-build-isolation"),
        *("-w", tmp_path / "again", sdist),
        cwd=tmp_path,
        PYTHONPATH=str(tools),
    )
    (rebuilt,) = (tmp_path / "again").glob("*.whl")

    wheel_files = read_members(wheel)
    package = {name: name for name in list_tracked("mclabel")}
    package |= {f"mclabel/{name}": name for name in list_tracked("configs", "docs")}
    assert {name for name in wheel_files if ".dist-info/" not in name} == set(package)
    assert all(wheel_files[name] == (ROOT / place).read_bytes() for name, place in package.items())
    assert "mclabel/py.typed" in package
    assert read_members(rebuilt) == wheel_files, "the sdist lacks or changes a file"

    info = f"mclabel-{PROJECT['version']}.dist-info"
    assert wheel_files[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    metadata = email.message_from_bytes(wheel_files[f"{info}/METADATA"])
    assert metadata["Version"] == PROJECT["version"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert "# mclabel" in description and "pip install 'mclabel[run]'" in description
    assert not [link for link in links if not link.startswith(("https://", "#"))], "lead nowhere"
    assert set(PROJECT["optional-dependencies"]) == set(metadata.get_all("Provides-Extra", []))
