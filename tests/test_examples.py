"""The examples run, on the bundled models."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = {
    "label_in_python.py": r"\d\.\d\d  .+\n(.*\n)+24 solutions, .+ tokens\nscores .+: 0\.\d",
    "select_and_train.py": r"turn 0:\n.*\n.*24 drawn(.*\n)+turn 1:\n(.*\n)+.*in \d+% of pairs",
    "own_checker.py": r"1\.5 h\. +right\n.+wrong\n.+unknown\n.+90 min -> right\n.+33 min -> wrong",
    "own_estimator.py": r"fixed.+0\.\d\d of first .+\nuntil both.+0\.\d\d of first errors found",
}
"""What each script's output must hold."""


def test_every_script_is_run_here() -> None:
    assert set(PRINTED) == {path.name for path in EXAMPLES.glob("*.py")}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRINTED)
def test_scripts_run(name: str, tmp_path: Path) -> None:
    """As a user runs them, from a folder of their own."""
    ended = subprocess.run(
        [sys.executable, EXAMPLES / name],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(PRINTED[name], ended.stdout), ended.stdout


@pytest.mark.slow
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells in turn, in a thread with a running event loop, as a kernel runs them."""
    cells = json.loads((EXAMPLES / "label.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    module = ModuleType("notebook_of_the_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    async def kernel() -> None:
        for number, source in enumerate(sources):
            exec(compile(source, f"cell {number}", "exec"), module.__dict__)

    asyncio.run(kernel())
    shown = module.Table(module.solutions[0])._repr_html_()
    assert shown.count("<tr") == len(module.solutions[0].steps)
    assert len(module.solutions) == module.labels.num_rows == 16
    assert {str(one.solution.outcome) for one in module.checked} <= {"right", "wrong", "truncated"}


def test_the_notebook_holds_no_outputs() -> None:
    for cell in json.loads((EXAMPLES / "label.ipynb").read_text())["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
