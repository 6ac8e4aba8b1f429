"""`import mclabel` is light: engines, torch and Ray load only where they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel.cli import main

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


def test_jobs_leave_alone_what_few_jobs_need() -> None:
    slow = ("torch", "ray", "vllm", "transformers", "datasets", "matplotlib", "scipy.stats")
    code = f"import sys, mclabel.jobs; print([m for m in {slow!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_a_run_with_nothing_left_to_do_loads_no_engine(tmp_path: Path) -> None:
    words = ["problems.source=arith", "problems.limit=1", "policy.model=arith:policy"]
    words += ["estimator=outcome", "solutions.per_problem=1", "policy.max_tokens=8"]
    (tmp_path / "job.yaml").write_text("ray: {address: none}\n")
    words = ["label", str(tmp_path / "job.yaml"), f"out={tmp_path / 'run'}", *words]
    assert CliRunner().invoke(main, words).exit_code == 0
    code = (
        "import sys\n"
        "from mclabel.cli import main\n"
        "main(sys.argv[1:], standalone_mode=False)\n"
        "engines = ('torch', 'transformers', 'ray', 'vllm')\n"
        "print([name for name in engines if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert "1 of 1 blocks were done before" in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
