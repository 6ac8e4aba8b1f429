"""A package of somebody else's with components for mclabel, installed by pip."""

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
        folder: for the wheel and the installation.
        name: of the package.
        modules: texts of files by path.
        entry_points: content of the wheel's `entry_points.txt`.

    Returns:
        The folder that is to stand on Python's path.
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


def mclabel(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which finds the modules of a folder."""
    path = os.pathsep.join([str(home), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "mclabel", *arguments],
        env=os.environ | {"PYTHONPATH": path},
        cwd=home,  # where actors of a cluster that runs already look
        capture_output=True,
        text=True,
        timeout=300,
    )


def mclabel_here(home: Path, *arguments: str) -> Result:
    """The command in this process, which finds the modules of a folder meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(home))
        components._added.cache_clear()
        try:
            return CliRunner(env={"COLUMNS": "300"}).invoke(main, arguments)
        finally:
            components._added.cache_clear()


def _digest(text: str) -> str:
    raw = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
