"""The first process in a sandbox, which runs programs one after another, isolated from each other.

For each program, this process forks a supervisor. The supervisor creates new namespaces, starts the
program as their first process, and forwards its messages. When the first process exits, the kernel
ends all other processes of the program. Neither this process nor the supervisor runs code of the
program. The module uses only the standard library.
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

from mclabel.checkers.code.isolation import ProgramIsolation, set_resource_limits
from mclabel.checkers.code.programs import run_program

_HEADER = struct.Struct(">cI")  # kind and length of a message or frame, before its content
_CHUNK, _MAX_PIPE = 1 << 16, 1 << 20
_NEEDED = ("AS", "FSIZE", "NPROC", "NOFILE", "CORE", "CPU")
_PRELOADED = (
    "bisect", "copy", "hashlib", "io", "re", "statistics", "string",
)  # fmt: skip
"""Modules that programs often import. They are loaded before the forks, so that children inherit
them."""


def main(channel: socket.socket, sandboxed: bool) -> None:
    """Run the jobs that the caller sends until the connection closes.

    Args:
        channel: socket to the caller.
        sandboxed: True if this is the first process of a sandbox. If False, programs run without
            protection.
    """
    for name in _PRELOADED:
        __import__(name)
    isolation = ProgramIsolation() if sandboxed else None
    gc.freeze()  # garbage collection in children would copy shared memory
    _send_message(channel, b"H", {"ready": True})
    while (message := _receive_message(channel)) is not None:
        if message[0] != b"J":
            continue  # a message for a job that has ended
        if (supervisor := os.fork()) == 0:
            try:
                ended = _run_in_namespaces(json.loads(message[1]), channel, isolation)
                _send_message(channel, b"E", ended)
            except BaseException:  # the caller sees that the sandbox has died
                os._exit(70)
            os._exit(0)
        if os.waitpid(supervisor, 0)[1] != 0:
            return


def _run_in_namespaces(
    job: dict[str, Any], channel: socket.socket, isolation: ProgramIsolation | None
) -> dict[str, Any]:
    """Run one program in its own namespaces, and return how it ended."""
    folder = "/tmp" if isolation is not None else tempfile.mkdtemp(prefix="mclabel-code-")
    to_child, from_child, output, setup_failure = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    if isolation is not None:
        isolation.unshare_namespaces()
    pid = os.fork()
    if pid == 0:
        _become_program(
            job, folder, isolation, to_child[0], from_child[1], output[1], setup_failure[1]
        )
    for descriptor in (to_child[0], from_child[1], output[1], setup_failure[1]):
        os.close(descriptor)
    watch = _SupervisedProgram(
        pid, job, to_child[1], from_child[0], output[0], isolation is not None
    )
    ended = watch.forward_until_end(channel)
    with suppress(ProcessLookupError):  # the program may have ended
        (os.kill if isolation is not None else os.killpg)(pid, signal.SIGKILL)
    os.waitpid(pid, 0)  # the first process of a namespace ends all others with it
    if isolation is None:
        shutil.rmtree(folder, ignore_errors=True)
    return {**ended, "why": "killed"} if os.read(setup_failure[0], 1) else ended


def _become_program(
    job: dict[str, Any], folder: str, isolation: ProgramIsolation | None, input_fd: int, output_fd:
        int,
    stdout_fd: int, setup_failure_fd: int,
) -> NoReturn:  # fmt: skip
    """Turn this child process into the process of a program. The function never returns.

    Args:
        job: description of the program and its limits.
        folder: only folder that the program can write to.
        isolation: isolates the program; None for no protection.
        input_fd: descriptor from which the program reads frames.
        output_fd: descriptor to which the program writes frames.
        stdout_fd: descriptor for the output of a program that reads standard input.
        setup_failure_fd: descriptor to which a failure before the program's start is written.
    """
    try:
        if isolation is not None:
            isolation.mount_private_folders(job["limits"]["FSIZE"])
        else:
            os.setsid()
        source = os.open(os.devnull, os.O_RDONLY)
        if job["stdin"] is not None:
            source = _open_input(job["stdin"], folder)
        sink = stdout_fd if job["stdin"] is not None else os.open(os.devnull, os.O_WRONLY)
        silent = os.open(os.devnull, os.O_WRONLY)
        kept = (source, sink, silent, input_fd, output_fd, setup_failure_fd)
        for number, descriptor in enumerate(kept, 100):
            os.dup2(descriptor, number)
        for number in range(len(kept)):
            os.dup2(number + 100, number)  # inheritable: 3 and 4 are the program's pipes
        setup_failure_fd = len(kept) - 1
        os.closerange(len(kept), 1024)
        os.chdir(folder)
        set_resource_limits(job["limits"], _NEEDED)
        if isolation is not None:
            isolation.drop_privileges()
        os.close(setup_failure_fd)
    except BaseException:  # a failed set-up must not look like the program's end
        os.write(setup_failure_fd, b"!")
        os._exit(1)
    try:
        code = run_program(job)
    except BaseException:  # the child must not go on with code of this process
        os._exit(70)
    os._exit(code)


class _SupervisedProgram:
    """The supervisor's record of a program: its process, its time limit and its pipes."""

    def __init__(
        self,
        pid: int,
        job: dict[str, Any],
        to_child: int,
        from_child: int,
        output: int,
        is_sandboxed: bool,
    ) -> None:
        self._pid, self._time_s, self._is_sandboxed = pid, job["limits"]["time_s"], is_sandboxed
        self._max_bytes = job["limits"]["output_bytes"]
        self._waits = job["kind"] in (
            "calls",
            "tests",
        )  # the child waits for an answer to each frame
        self._in, self._frames, self._output = to_child, from_child, output
        self._ended = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else -1
        os.set_blocking(to_child, False)
        self._to_child, self._to_caller, self._partial = bytearray(), bytearray(), bytearray()
        self._num_out = 0
        self._busy_s, self._since = 0.0, time.monotonic()
        self._is_busy = True
        self._open = {self._frames, self._output}

    def forward_until_end(self, channel: socket.socket) -> dict[str, Any]:
        """Forward messages between the caller and the program until it ends or exceeds a limit.

        Return how it ended: `why` (exceeded limit or None), `status`, `wall_s` and `delay_s`.
        """
        channel.setblocking(False)
        incoming = bytearray()
        reason: str | None = None
        try:
            while True:
                events = self._poll_channels(channel)
                if self._to_caller and events.get(channel.fileno(), 0) & select.POLLOUT:
                    del self._to_caller[: channel.send(self._to_caller[:_CHUNK])]
                if events.get(channel.fileno(), 0) & (select.POLLIN | select.POLLHUP):
                    if not (received := channel.recv(_CHUNK)):
                        os._exit(0)  # the caller has exited, and the sandbox with it
                    incoming += received
                    if self._process_messages(incoming):
                        reason = reason or "asked"
                if events.get(self._in):
                    self._write_to_child()
                for descriptor in (self._frames, self._output):
                    if events.get(descriptor):
                        self._read_from_child(descriptor)
                reason = reason or self._find_exceeded_limit()
                status = self._read_exit_status()
                if reason or status is not None:
                    return self._summarize_run(reason, status)
        finally:
            channel.setblocking(True)
            channel.sendall(self._to_caller)
            if incoming:  # discard the rest of a message, which the next job could not parse
                if (missing := _HEADER.size - len(incoming)) > 0:
                    incoming += _receive_exactly(channel, missing) or b""
                _receive_exactly(
                    channel, _HEADER.unpack_from(incoming)[1] + _HEADER.size - len(incoming)
                )

    def _poll_channels(self, channel: socket.socket) -> dict[int, int]:
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
        remaining_s = self._time_s - self._compute_busy_s() if self._is_busy else 1.0
        longest_s = 1.0 if self._ended >= 0 else 0.02
        return dict(poll.poll(1_000 * min(max(remaining_s, 0.01), longest_s)))

    def _compute_busy_s(self) -> float:
        return self._busy_s + (time.monotonic() - self._since if self._is_busy else 0.0)

    def _process_messages(self, incoming: bytearray) -> bool:
        """Process all complete messages of the caller, and remove them from `incoming`.

        Return True if one of them asks to end the program.
        """
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
            self._write_to_child()
        return False

    def _write_to_child(self) -> None:
        try:
            del self._to_child[: os.write(self._in, self._to_child[:_CHUNK])]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # the child has closed its input
            self._to_child.clear()

    def _read_from_child(self, descriptor: int) -> None:
        received = os.read(descriptor, _CHUNK)
        if not received:
            self._open.discard(descriptor)
        elif descriptor == self._output:
            self._num_out += len(received)
            self._to_caller += _HEADER.pack(b"O", len(received)) + received
        else:
            self._partial += received
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
                    self._busy_s, self._is_busy = self._compute_busy_s(), False

    def _find_exceeded_limit(self) -> str | None:
        if self._num_out > self._max_bytes:
            return "output"
        if self._compute_busy_s() < self._time_s:
            return None
        return "timeout" if self._compute_used_s() >= self._time_s else None

    def _compute_used_s(self) -> float:
        """Return the seconds that the program has used.

        This time is the wall time without the time spent waiting for a core, or the CPU time of all
        processes of the program if this is longer.
        """
        return max(
            self._compute_busy_s() - _read_core_delay_s(self._pid),
            _read_children_cpu_s() if self._is_sandboxed else 0.0,
        )

    def _read_exit_status(self) -> int | None:
        """Return the exit status once the child has ended and its pipes are empty; None before."""
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        for descriptor in (self._frames, self._output):  # output written before the end
            for _ in range(_MAX_PIPE // _CHUNK):  # bounded: other processes may write endlessly
                if descriptor not in self._open or not select.select([descriptor], [], [], 0)[0]:
                    break
                self._read_from_child(descriptor)
        return int(ended.si_status) if ended.si_code == os.CLD_EXITED else -int(ended.si_status)

    def _summarize_run(self, reason: str | None, status: int | None) -> dict[str, Any]:
        reason = self._find_exceeded_limit() or reason
        delay_s = _read_core_delay_s(self._pid)
        if reason is None and status == -signal.SIGKILL:
            reason = "timeout" if _read_process_cpu_s(self._pid) >= self._time_s else "killed"
        return {
            "why": reason,
            "status": status,
            "wall_s": self._compute_busy_s(),
            "delay_s": delay_s,
        }


def _read_core_delay_s(pid: int) -> float:
    """Return the seconds that a process has waited for a core.

    If the kernel does not count them, return 0.
    """
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _read_children_cpu_s() -> float:
    """Return the CPU seconds of all processes in the namespace but its first and this one."""
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    return sum(
        _read_process_cpu_s(int(name)) for name in names if int(name) not in (1, os.getpid())
    )


def _read_process_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and its exited children; 0 if the process has exited."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0  # the process has exited
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _open_input(text: str, folder: str) -> int:
    """Write a text to an unlinked file, and return a descriptor that reads it."""
    path = os.path.join(folder, ".input")
    with open(path, "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    descriptor = os.open(path, os.O_RDONLY)
    os.unlink(path)
    return descriptor


def _send_message(channel: socket.socket, kind: bytes, content: dict[str, Any]) -> None:
    text = json.dumps(content).encode()
    channel.sendall(_HEADER.pack(kind, len(text)) + text)


def _receive_message(channel: socket.socket) -> tuple[bytes, bytes] | None:
    header = _receive_exactly(channel, _HEADER.size)
    if header is None:
        return None
    kind, size = _HEADER.unpack(header)
    content = _receive_exactly(channel, size)
    return None if content is None else (kind, content)


def _receive_exactly(channel: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        if not (part := channel.recv(min(size - len(received), 1 << 20))):
            return None
        received += part
    return bytes(received)
