"""The adapters load with nothing but Python and stand-ins for the trainer's own packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("module", ["client", "tokens", "adapters.rewards", "adapters.openrlhf"])
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
