"""The examples of docs/extending-estimator.md work exactly as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store

PAGE = Path(__file__).parents[2] / "docs" / "extending-estimator.md"


def blocks(language: str) -> list[str]:
    """Return the page's code blocks in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page's files, each named by the first line of its block."""
    path = tmp_path_factory.mktemp("page")
    for block in blocks("python"):
        first, _, content = block.partition("\n")
        (path / first.removeprefix("# ")).write_text(content, encoding="utf-8")
    return path


def run(command: str, folder: Path) -> str:
    """Run a command in the folder by a shell, as a reader would, and return its output."""
    scripts = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "-ec", command],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(PAGE.parents[1]),
            "PATH": f"{scripts}:{os.environ['PATH']}",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_its_estimator_is_simulated(folder: Path) -> None:
    shown = run(blocks("bash")[0], folder)
    assert "thinned:Thinned stride=3" in shown and "bisect" in shown


@pytest.mark.slow
def test_its_estimator_labels(folder: Path) -> None:
    assert "thinned" not in os.listdir(folder)
    run(blocks("bash")[1], folder)
    rows = list(read_labels(Store(str(folder / "runs" / "thinned"))))
    assert len(rows) == 8
    for row in rows:
        assert {step.source for step in row.steps[:-1:3]} <= {"fixed"}
        assert row.steps[-1].source == "outcome"
