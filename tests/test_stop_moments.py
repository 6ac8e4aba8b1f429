"""A Ctrl-C at chosen moments ends a command with exit code 130 and one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HANG_S = 240
"""Seconds after which a command counts as hanging; the limit measures nothing else."""

HOOK = """
import os, signal, sys

def stop():
    os.kill(os.getpid(), signal.SIGINT)

class AtImport:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            act()

sys.meta_path.insert(0, AtImport())
"""

PLAIN = """
act = stop
"""

RAISED_INSIDE = """
def act():
    try:
        stop()
        sum(range(1000))
    except BaseException:
        os._exit(77)
"""

WITHOUT_END = """
def act():
    stop()
    while True:
        pass
"""

AT_CALL = """
def act():
    import mclabel.core.config.load as config
    load = config.load_config

    def load_config(*args, **kwargs):
        at_call()
        return load(*args, **kwargs)

    config.load_config = load_config
"""

PLAIN_CALL = """
at_call = stop
"""

IN_A_CALLBACK = """
class Collected:
    def __del__(self):
        stop()

def at_call():
    Collected()
"""

AS_ANOTHER_ERROR = """
def at_call():
    try:
        stop()
    except BaseException as error:
        raise RuntimeError("a library failed") from error
"""

CAUGHT = """
def at_call():
    try:
        stop()
    except BaseException:
        pass
"""

WHILE_LOADING = """
def act():
    import time
    from mclabel.engines.hf import HfEngine

    def load(self):
        stop()
        time.sleep(3600)

    HfEngine._load_decoder = load
"""


def _run_label(folder: Path, module: str, act: str) -> subprocess.CompletedProcess[str]:
    """Label one problem, and run `act` when a module is first imported."""
    (folder / "sitecustomize.py").write_text(HOOK.format(module=module) + act)
    (folder / "job.yaml").write_text("ray: {address: none}\n")
    words = ["problems.source=arith", "problems.limit=1", "policy.model=arith:policy"]
    words += ["estimator=outcome", "solutions.per_problem=1", "policy.max_tokens=8"]
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "mclabel", "label", "job.yaml", "out=run", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "act"),
    [
        pytest.param("mclabel.cli", PLAIN, id="before the command is imported"),
        pytest.param("pyarrow", PLAIN, id="while libraries are imported"),
        pytest.param("pyarrow", RAISED_INSIDE, id="not inside an import"),
        pytest.param("pyarrow", WITHOUT_END, id="in an import that does not end"),
        pytest.param("mclabel.cli.label", AT_CALL + PLAIN_CALL, id="between imports"),
        pytest.param("mclabel.cli.label", AT_CALL + IN_A_CALLBACK, id="in a callback"),
        pytest.param(
            "mclabel.cli.label",
            AT_CALL + AS_ANOTHER_ERROR,
            id="made another error",
        ),
        pytest.param("mclabel.cli.label", AT_CALL + CAUGHT, id="caught by a library"),
        pytest.param(
            "mclabel.engines.decoder",
            PLAIN,
            id="while the engine's code is imported",
        ),
        pytest.param(
            "mclabel.run.fleets",
            WHILE_LOADING,
            id="while the engine loads",
        ),
    ],
)
def test_ends_with_130_and_one_line(tmp_path: Path, module: str, act: str) -> None:
    done = _run_label(tmp_path, module, act)
    assert done.returncode == 130, done.stderr
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("mclabel: stopped by SIGINT: completed work is kept. Run the same")
    assert not list((tmp_path / "run" / "labels").rglob("*.parquet"))
