"""What a child process that fails has printed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mclabel.engines.vllm_start import OutputTail

PROGRAM = """
import sys
print("(EngineCore pid=1) INFO loading", flush=True)
print("(Worker pid=2) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to", file=sys.stderr)
print("RuntimeError: Engine core initialization failed", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def test_the_first_error_of_a_child_is_its_reason(capfd: pytest.CaptureFixture[str]) -> None:
    output = OutputTail()
    with pytest.raises(subprocess.CalledProcessError), output:
        subprocess.run([sys.executable, "-c", PROGRAM, "3"], check=True)
    assert output.reason == "torch.OutOfMemoryError: CUDA out of memory. Tried to"
    assert "INFO loading" in capfd.readouterr().err
    print("afterwards", flush=True)
    assert capfd.readouterr().out == "afterwards\n"


def test_children_that_live_on_are_copied_and_need_no_reader(
    capfd: pytest.CaptureFixture[str],
) -> None:
    output = OutputTail()
    with output:
        child = subprocess.Popen(
            [sys.executable, "-c", "input(); print('x' * 300_000); print('ValueError: late')"],
            stdin=subprocess.PIPE,
        )
    child.communicate(b"\n", timeout=60)
    assert child.returncode == 0
    assert output._copying is not None
    output._copying.join(60)
    assert output.reason == "ValueError: late"
    assert len(capfd.readouterr().err) > 300_000


def test_lines_may_be_kept_from_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """Line by line, however they come; the reason is found in what was not shown, too."""
    lines = ["INFO a\r\n", "b\r", "INFO KeyError: c\n", "\n", "d"]
    program = "import sys, time\nfor x in " + repr("".join(lines)) + ":\n"
    program += "    sys.stdout.write(x); sys.stdout.flush(); time.sleep(0.01)"  # in pieces
    output = OutputTail(lambda line: not line.startswith("INFO"))
    with output:
        subprocess.run([sys.executable, "-c", program], check=True)
    assert output._copying is not None
    output._copying.join(60)
    shown = capfd.readouterr()
    assert shown.out + shown.err == "b\r\nd" and output.reason == "KeyError: c"


def test_a_terminal_stays_one_for_this_process() -> None:
    """A progress bar goes on while an engine starts: it moves on terminals alone."""
    program = "import os, sys\nfrom mclabel.engines.vllm_start import OutputTail\n"
    program += "with OutputTail():\n"
    program += "    print('shown', sys.stdout.isatty(), sys.stderr.isatty(), os.isatty(1))\n"
    program += "print('after', sys.stdout is sys.__stdout__)"
    master, terminal = os.openpty()
    command = [sys.executable, "-c", program]
    subprocess.run(command, stdout=terminal, stderr=terminal, check=True)
    os.close(terminal)
    assert os.read(master, 1000).split() == b"shown True True False after True".split()
    os.close(master)
