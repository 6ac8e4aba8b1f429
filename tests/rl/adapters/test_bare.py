"""The adapters load with nothing but Python and stand-ins for the trainer's own packages."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("module", ["client", "adapters.rewards", "adapters.openrlhf"])
def test_loads_with_nothing_but_python(module: str) -> None:
    code = (
        "import sys\n"
        f"import mclabel.rl.{module}\n"
        "others = {name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(name for name in others if not name.startswith('_')))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"sys = __import__('sys'); "
         f"sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True, text=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['mclabel']"


@pytest.mark.parametrize("name", ["rewards", "trl", "verl", "skyrl", "openrlhf"])
def test_adapters_use_no_other_room(name: str) -> None:
    """Trainers' environments have mclabel without what it needs."""
    tree = ast.parse((ROOT / f"mclabel/rl/adapters/{name}.py").read_text(encoding="utf-8"))
    used = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {module for module in used if module and module.startswith("mclabel")}
    allowed = {"mclabel.rl.client", "mclabel.rl.adapters.rewards"}
    assert ours and ours <= allowed
