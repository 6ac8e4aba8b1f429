"""Versions of the packages that decide about labels."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Versions of what decides about labels.

    Args:
        packages: of the engine, beside those of every job; what is not installed is left out.
    """
    installed = [name for name in packages if _is_installed(name)]
    return {
        **{
            name: _version(name) for name in ("mclabel", "torch", "transformers", "ray", *installed)
        },
        "python": platform.python_version(),
    }


@cache
def _version(package: str) -> str:
    """Of an installed package; its metadata can be long, and is parsed as a whole."""
    return version(package)


def _is_installed(package: str) -> bool:
    try:
        _version(package)
    except PackageNotFoundError:
        return False
    return True
