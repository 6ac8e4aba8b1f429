"""Runs one program against the tests of one problem in sandboxes.

Normally, tests and program are in different sandboxes. This module forwards requests between the
two sandboxes without reading them. Only the message of the tests' process decides the verdict. A
gold is the set of tests of one problem.
"""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from mclabel.checkers.code.codec import encode
from mclabel.checkers.code.golds import Gold
from mclabel.checkers.code.sandboxes import Sandbox, SandboxFailed

_HEADER = struct.Struct(">cI")
PATIENCE, PATIENCE_S = 4, 20
"""The sandbox counts as failed after this factor times the program's time limit, plus these
seconds."""
CLEAN_S = 10
"""Seconds within which a killed program must end."""
MAX_CALLS = 1_000_000
"""Maximum number of requests between the tests and the program."""
_NULL = """
class _Null:
    def __call__(self, *args, **kwargs):
        {does}
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Null()
    def _act(self, *args):
        {does}
    __len__ = __iter__ = __getitem__ = __index__ = __float__ = __int__ = __add__ = _act
    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __lt__ = __gt__ = __le__ = __ge__ = _act
"""
_DOES = ("raise NotImplementedError", "return _Null()")
_CARRIED = (b"C", b"G", b"V", b"E")
"""Kinds of frames that are forwarded between tests and program."""
_SITE = re.compile(r"^class Solution\b", re.MULTILINE)
"""Pattern of the class that some programming sites require. They import common modules for the
program."""
_NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
NEVER_CALLED = "the tests never call the program"
PASSED, WEAK, CLAIMED = "passed", "weak", "claimed"
"""Results of passed tests. `PASSED` is certain. `WEAK` depends on comparisons of two objects of the
program by the program's own code. `CLAIMED` depends on such a comparison of an object of the
program with a value of the tests."""


class UnrunnableTestsError(Exception):
    """The tests of a problem cannot be run with any program."""


MAX_FILES = 16 << 20
"""Maximum size in bytes of the folder in memory, the only folder that a program can write to."""
TOLERANCE = 1e-6
"""Largest accepted absolute or relative difference from an expected decimal number. It is larger
than rounding errors and smaller than the error of a wrong formula."""
MAX_OUTPUT = 1 << 20
"""Maximum bytes of a function's result and of a program's output."""


@dataclass(frozen=True, kw_only=True)
class ProgramLimits:
    """Limits of one program that runs in a sandbox."""

    time_s: float
    """Time limit in seconds for all tests, or for each run of a program that reads input."""
    memory_mib: int
    """Memory of each process of the program in MiB."""

    def to_sandbox_limits(self) -> dict[str, Any]:
        """Return the limits in the form that a sandbox expects: `RLIMIT_` names and other keys."""
        return {
            "time_s": self.time_s,
            "output_bytes": MAX_OUTPUT,
            "AS": self.memory_mib << 20,
            "FSIZE": MAX_FILES,
            "NPROC": 32,
            "NOFILE": 64,
            "CORE": 0,
            "CPU": int(self.time_s) + 2,
        }


class SandboxPair:
    """A sandbox for a program and a sandbox for its tests. They grade one program at a time.

    The sandboxes are started on first use.
    """

    def __init__(self, start: Callable[[], Sandbox], limits: ProgramLimits) -> None:
        """Create a pair whose sandboxes are not started.

        Args:
            start: starts a sandbox.
            limits: limits of each program.
        """
        self._start, self._limits = start, limits
        self._sandboxes: dict[str, Sandbox] = {}

    def close(self) -> None:
        """End the sandboxes."""
        while self._sandboxes:
            self._sandboxes.popitem()[1].close()

    def test_program(self, gold: Gold, code: str) -> str:
        """Run a program against tests.

        Returns:
            `PASSED`, `WEAK` or `CLAIMED` if the program passes, otherwise the reason why it does
            not.

        Raises:
            SandboxFailed: the sandbox failed, not the program.
            UnrunnableTestsError: the tests cannot be run with any program.
        """
        deadline = time.monotonic() + PATIENCE_S + PATIENCE * self._limits.time_s
        try:
            if gold.script_runs:
                return self._run_scripts(gold, code)
            if gold.shares_process:
                return self._test_inside_program_process(gold, code, deadline)
            return self._test_in_two_processes(gold, code, deadline)
        except BaseException:
            self.close()  # the state of the sandboxes is unknown
            raise

    def describe_behaviour(self, gold: Gold, code: str) -> str:
        """Describe a program's results on the gold's examples.

        The text is equal for programs with equal behaviour. It is written inside the sandbox,
        within the program's limits.

        Raises:
            SandboxFailed: the sandbox failed, not the program.
        """
        deadline = time.monotonic() + PATIENCE_S + PATIENCE * self._limits.time_s
        job = self._start_sandbox_job("solution", "calls", code=code)
        try:
            kind, content = job.receive_frame(deadline)
            if kind != b"R":
                return _explain_program_failure(kind, content)
            results: list[str] = []
            for arguments in gold.examples:
                job.send(b"D", encode([gold.tested_names[0], [*arguments]], MAX_OUTPUT))
                kind, content = job.receive_frame(deadline)
                if kind != b"V":
                    return "; ".join([*results, _explain_program_failure(kind, content)])
                results.append(_decode_text(content))
            return "; ".join(results)
        except BaseException:
            self.close()
            raise
        finally:
            job.stop()

    def _run_scripts(self, gold: Gold, code: str) -> str:
        for index, (stdin, expected_output) in enumerate(gold.script_runs):
            deadline = time.monotonic() + PATIENCE_S + PATIENCE * self._limits.time_s
            job = self._start_sandbox_job("solution", "script", code=code, stdin=stdin)
            output, raised = bytearray(), None
            while (message := job.receive(deadline))[0] != b"E":
                if message[0] == b"O":
                    output += message[1]
                elif message[1][:1] == b"X":
                    raised = f"raised:{_sanitize_error_name(message[1][_HEADER.size :])}"
            end = job.ended
            assert end is not None
            if end["why"] or end["status"] != 0:
                return (
                    _canonicalize_reason(raised)
                    if raised and not end["why"]
                    else _explain_program_end(end)
                )
            if not _outputs_match(output.decode("utf-8", "replace"), expected_output, TOLERANCE):
                return f"test_failed:{index}"
        return PASSED

    def _test_inside_program_process(self, gold: Gold, code: str, deadline: float) -> str:
        job = self._start_sandbox_job(
            "solution", "inside", code=code, **self._build_tests_job(gold)
        )
        kind, content = job.receive_frame(deadline)
        job.stop()
        return (
            _describe_test_outcome(kind, content)
            if kind in (b"P", b"F", b"U")
            else _explain_program_failure(kind, content)
        )

    def _test_in_two_processes(self, gold: Gold, code: str, deadline: float) -> str:
        program = self._start_sandbox_job("solution", "calls", code=code)
        tests = self._start_sandbox_job("tests", "tests", **self._build_tests_job(gold))
        was_called = False
        try:
            kind, content = program.receive_frame(deadline)
            if kind != b"R":
                return _explain_program_failure(kind, content)
            for _ in range(MAX_CALLS):
                for sender, receiver in ((tests, program), (program, tests)):
                    kind, content = sender.receive_frame(deadline)
                    if kind not in _CARRIED:
                        break
                    was_called = was_called or kind == b"C"
                    receiver.send(kind, content)
                else:
                    continue
                if sender is program:
                    return _explain_program_failure(kind, content)
                result = (
                    _describe_test_outcome(kind, content) if kind else _explain_program_end(content)
                )
                if not was_called:
                    raise UnrunnableTestsError(_explain_unusable_tests(result))
                return result
            raise UnrunnableTestsError(
                f"the tests make more than {MAX_CALLS:,} requests to the program"
            )
        finally:
            for job in (program, tests):
                job.stop()

    def _build_tests_job(self, gold: Gold) -> dict[str, Any]:
        return {
            "tests": gold.tests,
            "setup": gold.setup,
            "check": gold.checked_expression,
            "before": gold.test_context,
            "names": gold.tested_names,
            "modules": gold.modules,
            "own_modules": gold.own_modules,
            "calls": gold.calls,
            "is_wrapped": gold.is_wrapped,
            "tolerance": TOLERANCE,
        }

    def _start_sandbox_job(self, sandbox_name: str, kind: str, **content: Any) -> _SandboxJob:
        is_site = _SITE.search(content.get("code", "")) is not None
        job = {
            "kind": kind,
            "is_site": is_site,
            "stdin": None,
            "limits": self._limits.to_sandbox_limits(),
        }
        if sandbox_name not in self._sandboxes:
            self._sandboxes[sandbox_name] = self._start()
        return _SandboxJob(
            self._sandboxes[sandbox_name],
            {**job, **content},
            partial(self._discard_sandbox, sandbox_name),
        )

    def _discard_sandbox(self, sandbox_name: str) -> None:
        if (sandbox := self._sandboxes.pop(sandbox_name, None)) is not None:
            sandbox.close()


class _SandboxJob:
    """One program in a sandbox."""

    def __init__(
        self, sandbox: Sandbox, job: dict[str, Any], discard_sandbox: Callable[[], None]
    ) -> None:
        self._sandbox, self._discard_sandbox = sandbox, discard_sandbox
        self.ended: dict[str, Any] | None = None
        sandbox.send(b"J", json.dumps(job).encode())

    def receive(self, deadline: float) -> tuple[bytes, bytes]:
        """Return the kind and the content of the next message of the sandbox.

        The last message has the kind `E`, and its content says how the program ended.

        Args:
            deadline: time in seconds of `time.monotonic`.
        """
        kind, content = self._sandbox.receive(deadline)
        if kind == b"E":
            self.ended = json.loads(content)
            if self.ended["why"] == "killed":
                raise SandboxFailed("the program could not be started, or was killed from outside")
        return kind, content

    def receive_frame(self, deadline: float) -> tuple[bytes, Any]:
        """Return the kind and the content of the program's next frame.

        If the program has ended, the kind is empty and the content is a mapping with `why`,
        `status`, `wall_s` and `delay_s`.

        Args:
            deadline: time in seconds of `time.monotonic`.
        """
        if self.ended is None:
            kind, content = self.receive(deadline)
            if kind != b"E":
                return content[:1], content[_HEADER.size :]
        return b"", self.ended

    def send(self, kind: bytes, content: bytes) -> None:
        """Send a frame to the program."""
        if self.ended is None:
            self._sandbox.send(b"D", _HEADER.pack(kind, len(content)) + content)

    def stop(self) -> None:
        """End the program and wait until it has ended.

        If it does not end within `CLEAN_S` seconds, discard the sandbox.
        """
        deadline = time.monotonic() + CLEAN_S
        try:
            if self.ended is None:
                self._sandbox.send(b"K", b"")
            while self.ended is None:
                self.receive(deadline)
        except SandboxFailed:  # the program's result was already received
            self._discard_sandbox()


def make_null_programs(gold: Gold) -> list[str]:
    """Return two programs that compute nothing.

    All calls of the first raise an exception, and all calls of the second return empty objects.

    Args:
        gold: the gold whose names the programs define.
    """
    names = {*gold.tested_names, *gold.imported_names} - {"*"}
    errors = {name for name in names if name.endswith(("Error", "Exception", "Warning"))}
    lines = [f"{name} = _Null()" for name in sorted(names - errors)]
    lines += [f"class {name}(Exception): pass" for name in sorted(errors)]
    return ["\n".join([_NULL.format(does=does), *lines]) for does in _DOES]


def _describe_test_outcome(kind: bytes, content: bytes) -> str:
    """Return the result of the tests from the last message of their process."""
    if kind == b"P":
        return content.decode() or PASSED
    if kind == b"U":
        raise UnrunnableTestsError(content.decode("utf-8", "replace"))
    report: dict[str, Any] = {}
    with suppress(ValueError):
        report = json.loads(content)
    if "failed" in report:
        return f"test_failed:{report['failed']}"
    return _canonicalize_reason(
        f"raised:{_sanitize_error_name(str(report.get('raised', '')).encode())}"
    )


def _explain_unusable_tests(result: str) -> str:
    """Return the reason why tests that ended before any call of the program cannot be used."""
    if result in (PASSED, WEAK, CLAIMED):
        return NEVER_CALLED
    kind, _, detail = result.partition(":")
    ended = {"raised": f"raise {detail}", "test_failed": "fail", "timeout": "take too long"}
    return f"the tests {ended.get(kind, f'end ({result})')} before they call the program"


def _explain_program_failure(kind: bytes, content: Any) -> str:
    """Return the reason why a program failed that sent neither a value nor an exception.

    Args:
        kind: kind of the program's last frame; empty if the program has ended.
        content: content of the frame, or the mapping that says how the program ended.
    """
    if not kind:
        return _explain_program_end(content)
    if kind == b"X":
        return _canonicalize_reason(f"raised:{_sanitize_error_name(content)}")
    return {b"O": "opaque_result", b"B": "output", b"M": "no_function"}.get(kind, "protocol")


def _explain_program_end(ended: dict[str, Any]) -> str:
    if ended["why"]:
        return str(ended["why"])
    status = ended["status"]
    return f"signal:{-status}" if status < 0 else "exited"


def _decode_text(content: bytes) -> str:
    """Return the text in a frame; `protocol` if the program has forged an invalid one."""
    try:
        text = json.loads(content)
    except (ValueError, RecursionError):
        return "protocol"
    return text if isinstance(text, str) else "protocol"


def _canonicalize_reason(reason: str) -> str:
    return {"raised:MemoryError": "memory", "raised:SyntaxError": "syntax_error"}.get(
        reason, reason
    )


def _sanitize_error_name(raw_name: bytes) -> str:
    text = raw_name.decode("ascii", "replace")
    return text if text.isidentifier() and len(text) <= 40 else "Exception"


def _outputs_match(printed: str, wanted: str, tolerance: float) -> bool:
    """Return whether two outputs have the same lines.

    White space at the ends of lines, and small differences of decimal numbers, do not count.

    Args:
        printed: output of the program.
        wanted: expected output.
        tolerance: largest absolute or relative difference from an expected decimal number.
    """
    lines, wanted_lines = _split_output_lines(printed), _split_output_lines(wanted)
    if lines == wanted_lines:
        return True
    if len(lines) != len(wanted_lines):
        return False
    pairs = zip(lines, wanted_lines, strict=True)
    return all(
        line == wanted_line or _words_match_nearly(line.split(), wanted_line.split(), tolerance)
        for line, wanted_line in pairs
    )


def _words_match_nearly(words: list[str], wanted: list[str], tolerance: float) -> bool:
    if len(words) != len(wanted):
        return False
    for word, other in zip(words, wanted, strict=True):
        if word == other:
            continue
        if (
            not (_NUMBER.fullmatch(word) and _NUMBER.fullmatch(other))
            or other.lstrip("-").isdigit()
        ):
            return False
        number = float(other)
        if not abs(float(word) - number) <= tolerance * max(1.0, abs(number)):
            return False
    return True


def _split_output_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]
