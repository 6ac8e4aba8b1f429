"""The process that forks a child for every question: sympy is loaded here once.

Run as `python -m mclabel.answers.workers.host FD BYTES`, by the pool. A fork server of our own
rather than that of `multiprocessing`, because that one imports the caller's main module into every
worker, refuses to start from daemonic processes, and is shared with whatever else the caller's
program does.

A child begins in the state in which the host was when it had warmed up, whatever was asked before,
so that an answer and what it costs depend on the question alone: `attempt` says how the cost is
bounded. Questions come as JSON, one a line, and so do results; when the socket closes, since its
owner closed it or died by whatever way, all children are killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mclabel.answers.workers.attempt import attempt

MAX_MESSAGE = 1 << 16


@dataclass(slots=True)
class _Child:
    """A process at work on one question."""

    question: int
    pid: int
    output: bytearray = field(default_factory=bytearray)


def main(argv: Sequence[str]) -> None:
    """Serve until the control socket closes.

    Args:
        argv: the file descriptor of the control socket, and the children's memory limit in bytes;
            without them, only try whether a host can start here.
    """
    if not argv:
        _warm_up()
        print("the answer checker's workers can start here")
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _warm_up()
    memory = int(argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with socket.socket(fileno=int(argv[0])) as control:
        _Host(control, memory).serve()


def _warm_up() -> None:
    """Import the modules that decide, and run once the code that builds their tables on first
    use.
    """
    from mclabel.answers.workers.attempt import settle_chance
    from mclabel.answers.workers.equivalence import decide

    settle_chance()
    for answer, gold in (
        ("\\sin^{-1} x", "\\arcsin x"),
        ("\\sin^2 x", "1-\\cos^2 x"),
        ("\\sin 2x", "2\\sin x\\cos x"),
        ("\\sin^{3/2} x", "\\sqrt{1-\\cos^2 x}"),
        ("|x|<3", "x^2<9"),
        ("\\int_0^1 x^2 dx", "1/2"),
        ("\\int_0^{π} \\sin x dx", "π"),
        ("\\int_{-∞}^{∞} e^{-x^2} dx", "1"),
        ("\\int_0^1 \\frac{1}{1+x^2} dx", "1"),
        ("\\int_0^∞ \\frac{\\sin x}{x} dx", "1"),
        ("\\sum_{k=0}^{n} \\binom{n}{k}", "3^n"),
        ("\\sum_{n=1}^{∞} \\frac{1}{n^3}", "1"),
        ("\\lim_{x \\to 0} \\frac{\\sin x}{x}", "2"),
    ):
        decide(answer, gold, units_optional=True)
    gc.collect()
    gc.freeze()  # a child's collections leave the pages that it shares with the host alone


class _Host:
    """Forks a child for each question and passes on what it finds."""

    def __init__(self, control: socket.socket, memory: int) -> None:
        self._control = control
        self._memory = memory
        self._pid = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._children: dict[int, _Child] = {}
        """Children by the descriptor to which each writes its result."""
        self._open = True

    def serve(self) -> None:
        """Serve until the control socket closes."""
        self._send_result({"host": self._pid})
        buffer = bytearray()
        try:
            while self._open:
                for key, _ in self._selector.select():
                    if key.fd == self._control.fileno():
                        self._receive_questions(buffer)
                    elif key.fd in self._children:
                        self._read_child(key.fd)
        finally:
            for child in self._children.values():
                _kill_process(child.pid)

    def _receive_questions(self, buffer: bytearray) -> None:
        data = self._control.recv(MAX_MESSAGE)
        if not data:
            self._open = False
        buffer += data
        while (end := buffer.find(b"\n")) >= 0:
            message = json.loads(buffer[:end])
            del buffer[: end + 1]
            if "kill" in message:
                for child in self._children.values():
                    if child.question == message["kill"]:
                        _kill_process(child.pid)
            else:
                self._fork_child(message)

    def _fork_child(self, question: dict[str, Any]) -> None:
        ours, theirs = os.pipe()
        try:
            pid = os.fork()
        except OSError:  # no process to be had: the pool asks again
            os.close(ours)
            os.close(theirs)
            self._send_result({"id": question["id"], "died": 0})
            return
        if pid:
            os.close(theirs)
            self._children[ours] = _Child(question["id"], pid)
            self._selector.register(ours, selectors.EVENT_READ)
            return
        self._control.close()
        try:
            watch_parent(self._pid)
            confine(self._memory)
            attempt(question, theirs)
        finally:
            os._exit(0)

    def _read_child(self, descriptor: int) -> None:
        """Read a child's pipe; at its end the child has ended, too."""
        child = self._children[descriptor]
        data = os.read(descriptor, MAX_MESSAGE)
        if data:
            child.output += data
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        del self._children[descriptor]
        _, status = os.waitpid(child.pid, 0)
        reply = json.loads(child.output) if child.output.endswith(b"\n") else {}
        if not reply:
            reply = {"died": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}
        self._send_result({"id": child.question, **reply})

    def _send_result(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(json.dumps(message).encode() + b"\n")


def _kill_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def watch_parent(host: int) -> None:
    """Let the process die when the host ends for any reason; on Linux only."""
    if sys.platform != "linux":
        return
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != host:
        os._exit(0)


def confine(memory: int) -> None:
    """Limit the memory, and close the ways to code, files, processes and the network."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    sys.dont_write_bytecode = True
    sys.addaudithook(refuse)


_REFUSED = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.remove", "os.rename",
    "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate",
    "os.putenv", "os.kill", "subprocess.Popen", "socket.connect", "socket.bind", "ctypes.",
    "shutil.", "pty.", "code.__new__",
)  # fmt: skip


_CODE_WRITERS = frozenset(("sympy.polys.monomials", "collections", "dataclasses"))
"""Modules that write code from numbers and from names of their own."""


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse, as an audit hook, to compile text, to write files and to start processes."""
    if event == "compile":
        module = sys._getframe(1).f_globals.get("__name__")
        if str(arguments[1]).startswith("<") and module not in _CODE_WRITERS:
            raise PermissionError(f"a worker compiles no text, also not for {module}")
    elif event == "open":
        mode, flags = arguments[1], arguments[2]
        if (isinstance(mode, str) and set(mode) & set("wax+")) or (
            isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        ):
            raise PermissionError("a worker writes no file")
    elif event.startswith(_REFUSED):
        raise PermissionError(f"a worker does no {event}")


if __name__ == "__main__":
    main(sys.argv[1:])
