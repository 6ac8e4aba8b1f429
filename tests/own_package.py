"""A package of somebody else's with components for mclabel, installed by pip."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

NAME = "own_components"


def install_package(
    folder: Path, modules: Mapping[str, Path], entry_points: Mapping[str, Mapping[str, str]]
) -> Path:
    """Build a wheel and install it by pip.

    Args:
        folder: for the wheel and the installation.
        modules: files by module name.
        entry_points: by group, name and `module:object`.

    Returns:
        The folder that is to stand on Python's path.
    """
    wheel = folder / f"{NAME}-1.0-py3-none-any.whl"
    info = f"{NAME}-1.0.dist-info"
    groups = "".join(
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
        for group, points in entry_points.items()
    )
    files = {f"{name}.py": path.read_text(encoding="utf-8") for name, path in modules.items()}
    files |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": groups,
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)
    target = folder / "installed"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*command, "--target", str(target), str(wheel)], check=True)
    return target
