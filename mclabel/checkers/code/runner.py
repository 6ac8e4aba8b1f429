"""The first process in the box: it runs one program after another, each in a world of its own.

For each program it forks a keeper, which makes new namespaces of processes and mounts, with an
empty folder, and starts the program there as their first process. So a program sees no process,
file, limit or priority but its own, and everything is gone when it ends. Neither of the two runs
code of the program, and neither can be looked into.

On the socket to the caller, and between a program and its keeper: a kind (one byte), a length
(four), and the content. Standard library only.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import socket
import struct
import tempfile
import time
from contextlib import suppress
from typing import Any, NoReturn

from mclabel.checkers.code.fence import Fence, limit
from mclabel.checkers.code.programs import run_program

_HEADER = struct.Struct(">cI")
_CHUNK, _MAX_PIPE = 1 << 16, 1 << 20
_NEEDED = ("AS", "FSIZE", "NPROC", "NOFILE", "CORE", "CPU")
_PRELOADED = (
    "bisect", "copy", "hashlib", "io", "re", "statistics", "string",
)  # fmt: skip
"""Modules that programs often import: children find them loaded."""


def main(channel: socket.socket, fenced: bool) -> None:
    """Run what the caller sends until it is gone.

    Args:
        channel: to the caller.
        fenced: whether this is the first process of a box; else programs run without protection.
    """
    for name in _PRELOADED:
        __import__(name)
    fence = Fence() if fenced else None
    gc.freeze()  # so that collections in children do not copy the memory that they share
    _send(channel, b"H", {"ready": True})
    while (message := _receive(channel)) is not None:
        if message[0] != b"J":
            continue  # it belongs to a job that has ended
        if (keeper := os.fork()) == 0:
            try:
                ended = _keep(json.loads(message[1]), channel, fence)
                _send(channel, b"E", ended)
            except BaseException:  # the caller sees that the box has died
                os._exit(70)
            os._exit(0)
        if os.waitpid(keeper, 0)[1] != 0:
            return


def _keep(job: dict[str, Any], channel: socket.socket, fence: Fence | None) -> dict[str, Any]:
    """Run one program in a world of its own, and say how it ended."""
    folder = "/tmp" if fence is not None else tempfile.mkdtemp(prefix="mclabel-code-")
    to_child, from_child, output, trouble = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    if fence is not None:
        fence.leave()
    pid = os.fork()
    if pid == 0:
        _become(job, folder, fence, to_child[0], from_child[1], output[1], trouble[1])
    for descriptor in (to_child[0], from_child[1], output[1], trouble[1]):
        os.close(descriptor)
    watched = _Watched(pid, job, to_child[1], from_child[0], output[0], fence is not None)
    ended = watched.watch(channel)
    with suppress(ProcessLookupError):  # it may have ended
        (os.kill if fence is not None else os.killpg)(pid, signal.SIGKILL)
    os.waitpid(pid, 0)  # with the first process of a world, all others end
    if fence is None:
        shutil.rmtree(folder, ignore_errors=True)
    return {**ended, "why": "killed"} if os.read(trouble[0], 1) else ended


def _become(
    job: dict[str, Any], folder: str, fence: Fence | None, read: int, write: int, output: int,
    trouble: int,
) -> NoReturn:  # fmt: skip
    """Turn this child into the process of a program; it never returns."""
    try:
        if fence is not None:
            fence.enter(job["limits"]["FSIZE"])
        else:
            os.setsid()
        source = os.open(os.devnull, os.O_RDONLY)
        if job["stdin"] is not None:
            source = _input(job["stdin"], folder)
        sink = output if job["stdin"] is not None else os.open(os.devnull, os.O_WRONLY)
        silent = os.open(os.devnull, os.O_WRONLY)
        kept = (source, sink, silent, read, write, trouble)
        for number, descriptor in enumerate(kept, 100):
            os.dup2(descriptor, number)
        for number in range(len(kept)):
            os.dup2(number + 100, number)  # inheritable: 3 and 4 are the program's pipes
        trouble = len(kept) - 1
        os.closerange(len(kept), 1024)
        os.chdir(folder)
        limit(job["limits"], _NEEDED)
        if fence is not None:
            fence.shut()
        os.close(trouble)
    except BaseException:  # the machine's fault, so it must not look like the program's end
        os.write(trouble, b"!")
        os._exit(1)
    try:
        code = run_program(job)
    except BaseException:  # nothing of this process may run in a child
        os._exit(70)
    os._exit(code)


class _Watched:
    """A child, the time it may take, and its pipes."""

    def __init__(
        self,
        pid: int,
        job: dict[str, Any],
        to_child: int,
        from_child: int,
        output: int,
        is_fenced: bool,
    ) -> None:
        self._pid, self._time_s, self._is_fenced = pid, job["limits"]["time_s"], is_fenced
        self._max_bytes = job["limits"]["output_bytes"]
        self._waits = job["kind"] in ("calls", "tests")  # for an answer to each of its frames
        self._in, self._frames, self._output = to_child, from_child, output
        self._ended = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1
        os.set_blocking(to_child, False)
        self._to_child, self._to_caller, self._partial = bytearray(), bytearray(), bytearray()
        self._num_out = 0
        self._busy_s, self._since = 0.0, time.monotonic()
        self._is_busy = True
        self._open = {self._frames, self._output}

    def watch(self, channel: socket.socket) -> dict[str, Any]:
        """Carry what caller and child send each other until the child ends, or must."""
        channel.setblocking(False)
        incoming = bytearray()
        why: str | None = None
        try:
            while True:
                events = self._wait(channel)
                if self._to_caller and events.get(channel.fileno(), 0) & select.POLLOUT:
                    del self._to_caller[: channel.send(self._to_caller[:_CHUNK])]
                if events.get(channel.fileno(), 0) & (select.POLLIN | select.POLLHUP):
                    if not (found := channel.recv(_CHUNK)):
                        os._exit(0)  # the caller is gone, and the box goes with it
                    incoming += found
                    if self._take(incoming):
                        why = why or "asked"
                if events.get(self._in):
                    self._feed()
                for descriptor in (self._frames, self._output):
                    if events.get(descriptor):
                        self._collect(descriptor)
                why = why or self._fault()
                status = self._status()
                if why or status is not None:
                    return self._summary(why, status)
        finally:
            channel.setblocking(True)
            channel.sendall(self._to_caller)
            if incoming:  # the begin of a message, whose rest nobody else would understand
                if (left := _HEADER.size - len(incoming)) > 0:
                    incoming += _exactly(channel, left) or b""
                _exactly(channel, _HEADER.unpack_from(incoming)[1] + _HEADER.size - len(incoming))

    def _wait(self, channel: socket.socket) -> dict[int, int]:
        poll = select.poll()
        is_full = len(self._to_caller) > _CHUNK
        poll.register(channel, select.POLLIN | (select.POLLOUT if self._to_caller else 0))
        if self._to_child:
            poll.register(self._in, select.POLLOUT)
        if not is_full:
            for descriptor in self._open:
                poll.register(descriptor, select.POLLIN)
        if self._ended >= 0:
            poll.register(self._ended, select.POLLIN)
        left = self._time_s - self._wall() if self._is_busy else 1.0
        longest = 1.0 if self._ended >= 0 else 0.02
        return dict(poll.poll(1_000 * min(max(left, 0.01), longest)))

    def _wall(self) -> float:
        return self._busy_s + (time.monotonic() - self._since if self._is_busy else 0.0)

    def _take(self, incoming: bytearray) -> bool:
        """Take whole messages of the caller; returns whether it asks for an end."""
        while len(incoming) >= _HEADER.size:
            kind, size = _HEADER.unpack_from(incoming)
            if len(incoming) < _HEADER.size + size:
                return False
            content = bytes(incoming[_HEADER.size : _HEADER.size + size])
            del incoming[: _HEADER.size + size]
            if kind == b"K":
                return True
            self._to_child += content
            if not self._is_busy:
                self._is_busy, self._since = True, time.monotonic()
            self._feed()
        return False

    def _feed(self) -> None:
        try:
            del self._to_child[: os.write(self._in, self._to_child[:_CHUNK])]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # it reads no more
            self._to_child.clear()

    def _collect(self, descriptor: int) -> None:
        found = os.read(descriptor, _CHUNK)
        if not found:
            self._open.discard(descriptor)
        elif descriptor == self._output:
            self._num_out += len(found)
            self._to_caller += _HEADER.pack(b"O", len(found)) + found
        else:
            self._partial += found
            while len(self._partial) >= _HEADER.size:
                _, size = _HEADER.unpack_from(self._partial)
                if size > self._max_bytes:
                    self._num_out = self._max_bytes + 1
                    return
                if len(self._partial) < (whole := _HEADER.size + size):
                    return
                frame = self._partial[:whole]
                del self._partial[:whole]
                self._to_caller += _HEADER.pack(b"D", whole) + frame
                if self._waits:
                    self._busy_s, self._is_busy = self._wall(), False

    def _fault(self) -> str | None:
        if self._num_out > self._max_bytes:
            return "output"
        if self._wall() < self._time_s:
            return None
        return "timeout" if self._used() >= self._time_s else None

    def _used(self) -> float:
        """Seconds used: time that passed but for waiting for a core, or all cores' time if more."""
        return max(self._wall() - _delay_s(self._pid), _cpu_s() if self._is_fenced else 0.0)

    def _status(self) -> int | None:
        """The exit status, once the child has ended and its pipes are read."""
        found = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        for descriptor in (self._frames, self._output):  # what it wrote before it ended
            for _ in range(_MAX_PIPE // _CHUNK):  # others may write for ever
                if descriptor not in self._open or not select.select([descriptor], [], [], 0)[0]:
                    break
                self._collect(descriptor)
        return int(found.si_status) if found.si_code == os.CLD_EXITED else -int(found.si_status)

    def _summary(self, why: str | None, status: int | None) -> dict[str, Any]:
        why = self._fault() or why
        delay_s = _delay_s(self._pid)
        if why is None and status == -signal.SIGKILL:
            why = "timeout" if _seconds_of(self._pid) >= self._time_s else "killed"
        return {"why": why, "status": status, "wall_s": self._wall(), "delay_s": delay_s}


def _delay_s(pid: int) -> float:
    """Seconds that a process has waited for a core; 0 where the system does not count them."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _cpu_s() -> float:
    """Seconds of cores that all processes in the box but its first and this one have used."""
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    return sum(_seconds_of(int(name)) for name in names if int(name) not in (1, os.getpid()))


def _seconds_of(pid: int) -> float:
    """Seconds of cores that a process and its children that have ended have used."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0  # it has ended
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _input(text: str, folder: str) -> int:
    """A descriptor that reads a text, of a file that has no name."""
    path = os.path.join(folder, ".input")
    with open(path, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    descriptor = os.open(path, os.O_RDONLY)
    os.unlink(path)
    return descriptor


def _send(channel: socket.socket, kind: bytes, content: dict[str, Any]) -> None:
    text = json.dumps(content).encode()
    channel.sendall(_HEADER.pack(kind, len(text)) + text)


def _receive(channel: socket.socket) -> tuple[bytes, bytes] | None:
    header = _exactly(channel, _HEADER.size)
    if header is None:
        return None
    kind, size = _HEADER.unpack(header)
    content = _exactly(channel, size)
    return None if content is None else (kind, content)


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        if not (part := channel.recv(min(size - len(found), 1 << 20))):
            return None
        found += part
    return bytes(found)
