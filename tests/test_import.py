"""`import mclabel` is light: engines, torch and Ray load only where they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "ray", "vllm", "transformers", "datasets", "pyarrow", "pydantic", "matplotlib"),
    *("duckdb", "starlette", "uvicorn"),
)


@pytest.mark.parametrize("module", ["mclabel", "mclabel.cli"])
def test_import_leaves_heavy_modules_alone(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
