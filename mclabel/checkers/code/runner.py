"""The first process in the box: it runs one program after another, each in a fresh child.

It holds no tests and no expected values, runs no program itself, and cannot be looked into. A
child has its own pipes and nothing else. After each, everything else in the box is killed and the
folder emptied; the box reports `clean: false` where that failed, and is thrown away.

On the socket to the caller, and between a child and this process: a kind (one byte), a length
(four), and the content. Standard library only.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import stat
import struct
import time
from typing import Any, NoReturn

from mclabel.checkers.code.fence import install, limit, prepare, program_filter
from mclabel.checkers.code.programs import run_program

_HEADER = struct.Struct(">cI")
_CHUNK, _MAX_PIPE = 1 << 16, 1 << 20
_NEEDED = ("AS", "FSIZE", "NPROC", "NOFILE", "CORE", "CPU")
_PRELOADED = (
    "bisect", "collections", "copy", "datetime", "functools", "hashlib", "heapq", "io",
    "itertools", "math", "operator", "random", "re", "statistics", "string", "types", "typing",
)  # fmt: skip
"""Modules that programs often import: children find them loaded."""


def main(channel: socket.socket, folder: str, fenced: bool) -> None:
    """Run what the caller sends until it is gone.

    Args:
        channel: to the caller.
        folder: the only one that programs can write to.
        fenced: whether this is the first process of a box; else no filter is set.
    """
    for name in _PRELOADED:
        __import__(name)
    Zygote(channel, folder, fenced).serve()


class Zygote:
    """Forks a child for each job."""

    def __init__(self, channel: socket.socket, folder: str, fenced: bool) -> None:
        """Close this process to others."""
        self._channel, self._folder = channel, folder
        self._is_first = fenced and os.getpid() == 1
        self._filter = program_filter() if fenced else None
        self._libc = prepare() if fenced else None

    def serve(self) -> None:
        """Take jobs until the channel closes."""
        _send(self._channel, b"H", {"ready": True})
        while (message := _receive(self._channel)) is not None:
            kind, content = message
            if kind == b"J":  # what else comes belongs to a job that has ended
                ended = self._run(json.loads(content))
                del message, content
                _send(self._channel, b"E", ended)

    def _run(self, job: dict[str, Any]) -> dict[str, Any]:
        to_child, from_child, output = os.pipe(), os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become(job, to_child[0], from_child[1], output[1])
        for descriptor in (to_child[0], from_child[1], output[1]):
            os.close(descriptor)
        watched = _Watched(pid, job, to_child[1], from_child[0], output[0])
        try:
            ended = watched.watch(self._channel)
        finally:
            self._kill(pid)
            watched.close()
        ended["clean"] = _emptied(self._folder)
        return ended

    def _become(self, job: dict[str, Any], read: int, write: int, output: int) -> NoReturn:
        """Turn this child into the process of a program; it never returns."""
        try:
            os.setsid()
            limits = job["limits"]
            source = os.open(os.devnull, os.O_RDONLY)
            if job["stdin"] is not None:
                source = _input(job["stdin"], self._folder)
            sink = output if job["stdin"] is not None else os.open(os.devnull, os.O_WRONLY)
            silent = os.open(os.devnull, os.O_WRONLY)
            for number, descriptor in enumerate((source, sink, silent, read, write), 100):
                os.dup2(descriptor, number)
            for number in range(5):
                os.dup2(number + 100, number)  # inheritable: 3 and 4 are the program's pipes
            os.closerange(5, 1024)
            os.chdir(self._folder)
            limit(limits, _NEEDED)
            if self._libc is not None and self._filter is not None:
                install(self._libc, self._filter)
        except BaseException:  # the machine's fault, so it must not look like the program's end
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            code = run_program(job)
        except BaseException:  # nothing of this process may run in a child
            os._exit(70)
        os._exit(code)

    def _kill(self, pid: int) -> None:
        """Kill all processes but this one, and wait for them."""
        while True:
            try:
                if self._is_first:
                    os.kill(-1, signal.SIGKILL)
                else:
                    os.killpg(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass  # none is left
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


class _Watched:
    """A child, the time it may take, and its pipes."""

    def __init__(
        self, pid: int, job: dict[str, Any], to_child: int, from_child: int, output: int
    ) -> None:
        self._pid, self._time_s = pid, job["limits"]["time_s"]
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

    def close(self) -> None:
        """Close what is left open."""
        for descriptor in (self._in, self._frames, self._output, self._ended):
            if descriptor >= 0:
                os.close(descriptor)

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
                        why = "asked"
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
            while self._to_caller:
                del self._to_caller[: channel.send(self._to_caller[:_CHUNK])]

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
        return max(self._wall() - _delay_s(self._pid), _cpu_s())

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
            usage = os.wait4(self._pid, 0)[2]
            used = usage.ru_utime + usage.ru_stime
            why = "timeout" if used >= self._time_s else "killed"  # else not by a limit of ours
        return {"why": why, "status": status, "wall_s": self._wall(), "delay_s": delay_s}


def _delay_s(pid: int) -> float:
    """Seconds that a process has waited for a core; 0 where the system does not count them."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _cpu_s() -> float:
    """Seconds of cores that all processes in the box but the first have used."""
    if os.getpid() != 1:
        return 0.0
    total = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it has ended
            total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def _input(text: str, folder: str) -> int:
    """A descriptor that reads a text, of a file that has no name."""
    path = os.path.join(folder, ".input")
    with open(path, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    descriptor = os.open(path, os.O_RDONLY)
    os.unlink(path)
    return descriptor


def _emptied(folder: str) -> bool:
    try:
        os.chmod(folder, 0o700)
        for entry in list(os.scandir(folder)):
            if entry.is_dir(follow_symlinks=False):
                for place, _, _ in os.walk(entry.path):
                    os.chmod(place, stat.S_IRWXU)
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
        return not os.listdir(folder)
    except (OSError, RecursionError):
        return False


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
