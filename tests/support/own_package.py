"""A package with components for mclabel, installed by pip like a package of other authors."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main
from mclabel.core import components


def install_package(folder: Path, name: str, modules: Mapping[str, str], entry_points: str) -> Path:
    """Build a wheel and install it.

    Args:
        folder: folder for the wheel and the installation.
        name: name of the package.
        modules: texts of the package's files by path.
        entry_points: content of the wheel's `entry_points.txt`.

    Returns:
        The folder that must be added to Python's path.
    """
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = dict(modules) | {
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n"
        ),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": entry_points,
    }
    records = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(wheel)], check=True, timeout=120)
    return target


def write_module(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module that is importable during the test, and return its name."""
    name = f"own_{abs(hash(folder)) % 10**9}"
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    return name


def mclabel(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process that can import the modules of a folder."""
    path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "mclabel", *arguments],
        env=os.environ | {"PYTHONPATH": path},
        cwd=home,  # actors of an already running cluster search this folder
        capture_output=True,
        text=True,
        timeout=300,
    )


def mclabel_here(home: Path, *arguments: str) -> Result:
    """Run the command in this process, with the modules of a folder importable meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(home))
        components._find_entry_points.cache_clear()
        try:
            return CliRunner(env={"COLUMNS": "300"}).invoke(main, arguments)
        finally:
            components._find_entry_points.cache_clear()


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
