"""What tests could not run on is named at the end of the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEST = """
def test_on_public_data(public_data):
    pass

def test_that_runs():
    pass
"""


@pytest.mark.slow
def test_a_skip_is_named_with_its_reason_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    missing = {**os.environ, "MCLABEL_TEST_DATA": str(tmp_path / "data")}
    ended = subprocess.run(command, cwd=tmp_path, env=missing, capture_output=True, text=True)
    assert "NOT RUN" in ended.stdout, ended.stdout + ended.stderr
    assert f"1 tests: no public data sets at {tmp_path / 'data'}: set MCLABEL" in ended.stdout
    (tmp_path / "data").mkdir()
    ended = subprocess.run(command, cwd=tmp_path, env=missing, capture_output=True, text=True)
    assert "2 passed" in ended.stdout and "NOT RUN" not in ended.stdout
