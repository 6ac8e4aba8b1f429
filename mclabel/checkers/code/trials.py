"""One solution against the tests of one problem, in boxes.

The tests and the solution are in different boxes and never meet: a call of the one is carried to
the other here, without being read. What decides is the message of the tests' process alone.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from mclabel.checkers.code.boxes import Box, BoxFailed
from mclabel.checkers.code.codec import Malformed, decode, encode
from mclabel.checkers.code.golds import Gold

_HEADER = struct.Struct(">cI")
PATIENCE, PATIENCE_S = 4, 20
"""A program's time times the first and with the second is the machine's, not the program's."""
CLEAN_S = 10
"""Seconds in which a box must be clean again."""
MAX_CALLS = 1_000_000
_MODULE = "solution"


class GoldFails(Exception):
    """Tests that cannot be run, whatever the solution."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one program may use."""

    time_s: float
    memory_mib: int
    disk_mib: int
    output_kib: int

    @property
    def output_bytes(self) -> int:
        """Largest value that a program may give."""
        return self.output_kib << 10

    def job(self) -> dict[str, Any]:
        """As a box takes them."""
        return {
            "time_s": self.time_s,
            "output_bytes": self.output_bytes,
            "AS": self.memory_mib << 20,
            "FSIZE": self.disk_mib << 20,
            "NPROC": 32,
            "NOFILE": 64,
            "CORE": 0,
            "CPU": int(self.time_s) + 2,
        }


class Pair:
    """The two boxes of one grading at a time; they start when they are needed."""

    def __init__(self, start: Callable[[], Box], limits: Limits) -> None:
        """Start nothing yet.

        Args:
            start: starts a box.
            limits: of each program.
        """
        self._start, self._limits = start, limits
        self._boxes: dict[str, Box] = {}

    def close(self) -> None:
        """End the boxes."""
        while self._boxes:
            self._boxes.popitem()[1].close()

    def run(self, gold: Gold, code: str) -> str:
        """Run a solution against tests.

        Returns:
            `passed`, or why it did not pass.

        Raises:
            BoxFailed: the machine failed, not the program.
            GoldFails: the tests did.
        """
        deadline = time.monotonic() + PATIENCE_S + PATIENCE * self._limits.time_s
        try:
            if gold.scripts:
                return self._scripts(gold, code)
            if gold.inside:
                return self._inside(gold, code, deadline)
            return self._split(gold, code, deadline)
        except BaseException:
            self.close()  # what they were doing is unknown
            raise

    def behaviour(self, gold: Gold, code: str) -> str:
        """What a solution gives for the gold's examples: a text, equal where it behaves alike.

        Raises:
            BoxFailed: the machine failed, not the program.
        """
        deadline = time.monotonic() + PATIENCE_S + PATIENCE * self._limits.time_s
        job = self._job("solution", "calls", code=code)
        try:
            kind, content = job.frame(deadline)
            if kind != b"R":
                return _of_solution(kind, content)
            said: list[str] = []
            for arguments in gold.examples:
                job.send(b"C", encode([gold.names[0], [*arguments], {}], self._limits.output_bytes))
                kind, content = job.frame(deadline)
                if kind not in (b"V", b"E"):
                    return "; ".join([*said, _of_solution(kind, content)])
                said.append(_told(kind, content, self._limits.output_bytes))
            return "; ".join(said)
        except BaseException:
            self.close()
            raise
        finally:
            job.stop()

    def _scripts(self, gold: Gold, code: str) -> str:
        for index, (given, wanted) in enumerate(gold.scripts):
            deadline = time.monotonic() + PATIENCE_S + PATIENCE * self._limits.time_s
            job = self._job("solution", "script", code=code, stdin=given)
            output, raised = bytearray(), None
            while (message := job.receive(deadline))[0] != b"E":
                if message[0] == b"O":
                    output += message[1]
                elif message[1][:1] == b"X":
                    raised = f"raised:{_word(message[1][_HEADER.size :])}"
            ended = job.ended
            assert ended is not None
            if ended["why"] or ended["status"] != 0:
                return _named(raised) if raised and not ended["why"] else _reason(ended)
            if _lines(output.decode("utf-8", "replace")) != _lines(wanted):
                return f"test_failed:{index}"
        return "passed"

    def _inside(self, gold: Gold, code: str, deadline: float) -> str:
        job = self._job("solution", "inside", code=code, **_tests(gold))
        kind, content = job.frame(deadline)
        job.stop()
        return _verdict(kind, content, gold) if kind else _reason(content)

    def _split(self, gold: Gold, code: str, deadline: float) -> str:
        solution = self._job("solution", "calls", code=code)
        tests = self._job("tests", "tests", **_tests(gold))
        try:
            kind, content = solution.frame(deadline)
            if kind != b"R":
                return _of_solution(kind, content)
            for _ in range(MAX_CALLS):
                kind, content = tests.frame(deadline)
                if kind != b"C":
                    return _verdict(kind, content, gold) if kind else _reason(content)
                solution.send(b"C", content)
                kind, content = solution.frame(deadline)
                if kind not in (b"V", b"E"):
                    return _of_solution(kind, content)
                tests.send(kind, content)
            raise GoldFails("more calls than may be")
        finally:
            for job in (solution, tests):
                job.stop()

    def _job(self, place: str, kind: str, **content: Any) -> _Job:
        job = {"kind": kind, "name": _MODULE, "stdin": None, "limits": self._limits.job()}
        if place not in self._boxes:
            self._boxes[place] = self._start()
        return _Job(self._boxes[place], {**job, **content}, partial(self._drop, place))

    def _drop(self, place: str) -> None:
        if (box := self._boxes.pop(place, None)) is not None:
            box.close()


class _Job:
    """One program in a box."""

    def __init__(self, box: Box, job: dict[str, Any], drop: Callable[[], None]) -> None:
        self._box, self._drop = box, drop
        self.ended: dict[str, Any] | None = None
        box.send(b"J", json.dumps(job).encode())

    def receive(self, deadline: float) -> tuple[bytes, bytes]:
        """The next message of the box; behind `E` there is none."""
        kind, content = self._box.receive(deadline)
        if kind == b"E":
            self.ended = json.loads(content)
            if not self.ended["clean"]:
                self._drop()
            if self.ended["why"] == "killed":
                raise BoxFailed("a program could not be started, or was killed from outside")
        return kind, content

    def frame(self, deadline: float) -> tuple[bytes, Any]:
        """The program's next frame; without one its end, as an empty kind."""
        if self.ended is None:
            kind, content = self.receive(deadline)
            if kind != b"E":
                return content[:1], content[_HEADER.size :]
        return b"", self.ended

    def send(self, kind: bytes, content: bytes) -> None:
        """Send the program a frame."""
        if self.ended is None:
            self._box.send(b"D", _HEADER.pack(kind, len(content)) + content)

    def stop(self) -> None:
        """End the program, and wait until the box is clean; else the box is thrown away."""
        deadline = time.monotonic() + CLEAN_S
        try:
            if self.ended is None:
                self._box.send(b"K", b"")
            while self.ended is None:
                self.receive(deadline)
        except BoxFailed:  # what the program did is known by now
            self._drop()


def _tests(gold: Gold) -> dict[str, Any]:
    return {
        "tests": gold.tests,
        "setup": gold.setup,
        "check": gold.check,
        "before": gold.before,
        "names": gold.names,
        "modules": gold.modules,
    }


def _verdict(kind: bytes, content: bytes, gold: Gold) -> str:
    """The reason that the tests' process gives."""
    if kind == b"P":
        return "passed"
    if gold.inside and kind != b"F":
        return _of_solution(kind, content)
    if kind == b"U":
        text = content.decode("utf-8", "replace")
        raise GoldFails(
            f"a test passes a value that cannot be sent ({text}): set inside: true, or a "
            "larger checker.output_kib"
        )
    found: dict[str, Any] = {}
    with suppress(ValueError):
        found = json.loads(content)
    if "failed" in found:
        return f"test_failed:{int(found['failed'])}"
    if not found.get("called", True):
        raise GoldFails(f"the tests raise {found['raised']} before they call the solution")
    return _named(f"raised:{_word(str(found.get('raised', '')).encode())}")


def _of_solution(kind: bytes, content: Any) -> str:
    """The reason if the solution gave neither a value nor an exception."""
    if not kind:
        return _reason(content)
    if kind == b"X":
        return _named(f"raised:{_word(content)}")
    return {b"O": "opaque_result", b"B": "output", b"M": "no_function"}.get(kind, "protocol")


def _reason(ended: dict[str, Any]) -> str:
    if ended["why"]:
        return str(ended["why"])
    status = ended["status"]
    return f"signal:{-status}" if status < 0 else "exited"


def _told(kind: bytes, content: bytes, max_bytes: int) -> str:
    """A value or an exception as text."""
    try:
        found = decode(content, max_bytes)
        return repr(found[0]) if kind == b"V" else str(found[0][0])
    except (Malformed, LookupError, TypeError):  # the solution wrote it itself
        return "protocol"


def _named(reason: str) -> str:
    return {"raised:MemoryError": "memory", "raised:SyntaxError": "syntax_error"}.get(
        reason, reason
    )


def _word(name: bytes) -> str:
    text = name.decode("ascii", "replace")
    return text if text.isidentifier() and len(text) <= 40 else "Exception"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().split("\n")]
