"""The host process, which loads sympy once and forks a child for every question.

The pool starts it as `python -m mclabel.answers.workers.host FD BYTES`. `FD` is the descriptor of
the control socket, and `BYTES` is the memory limit of a child. The fork server of `multiprocessing`
is not used for three reasons: it imports the caller's main module into every worker, it cannot
start from daemonic processes, and other parts of the caller's program may use it.

Every child starts from the state of the host after its warm-up. The reply to a question and its
cost therefore do not depend on earlier questions. `run_attempt` explains how the cost is bounded.
Questions and results are lines of JSON. When the socket closes, because its owner closed it or
died, the host kills all children.
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

from mclabel.answers.workers.attempt import run_attempt

MAX_MESSAGE = 1 << 16
"""Maximum bytes that are received at once; a question has at most half as many characters."""


@dataclass(slots=True)
class _ChildProcess:
    """A forked process that works on one question."""

    question_id: int
    """Id of the question."""
    pid: int
    output: bytearray = field(default_factory=bytearray)
    """Bytes of the result that have been received."""


def main(argv: Sequence[str]) -> None:
    """Run the host process: answer the pool's questions until the control socket closes.

    Args:
        argv: the file descriptor of the control socket, and the memory limit of a child in bytes.
            If empty, the function only tests whether a host can start on this machine.
    """
    if not argv:
        _warm_up_sympy()
        print("the answer checker's workers can start here")
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _warm_up_sympy()
    memory = int(argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with socket.socket(fileno=int(argv[0])) as control:
        _Host(control, memory).serve()


def _warm_up_sympy() -> None:
    """Import sympy and compare sample formulas, so that tables that are built on first use exist
    before the first fork.
    """
    from mclabel.answers.workers.attempt import seed_random_generators
    from mclabel.answers.workers.equivalence import decide_equivalence

    seed_random_generators()
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
        decide_equivalence(answer, gold, units_optional=True)
    gc.collect()
    gc.freeze()  # garbage collection in a child then does not copy pages shared with the host


class _Host:
    """Forks a child process for each question and sends its result to the pool."""

    def __init__(self, control: socket.socket, memory_bytes: int) -> None:
        self._control = control
        self._memory = memory_bytes
        self._pid = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._children: dict[int, _ChildProcess] = {}
        """Running children by the file descriptor from which the host reads their results."""
        self._open = True

    def serve(self) -> None:
        """Process questions and results until the control socket closes."""
        self._send_result({"host": self._pid})
        buffer = bytearray()
        try:
            while self._open:
                for key, _ in self._selector.select():
                    if key.fd == self._control.fileno():
                        self._receive_questions(buffer)
                    elif key.fd in self._children:
                        self._receive_child_output(key.fd)
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
                    if child.question_id == message["kill"]:
                        _kill_process(child.pid)
            else:
                self._fork_child(message)

    def _fork_child(self, question: dict[str, Any]) -> None:
        ours, theirs = os.pipe()
        try:
            pid = os.fork()
        except OSError:  # no process could be created; the pool retries the question
            os.close(ours)
            os.close(theirs)
            self._send_result({"id": question["id"], "died": 0})
            return
        if pid:
            os.close(theirs)
            self._children[ours] = _ChildProcess(question["id"], pid)
            self._selector.register(ours, selectors.EVENT_READ)
            return
        self._control.close()
        try:
            watch_parent(self._pid)
            restrict_process(self._memory)
            run_attempt(question, theirs)
        finally:
            os._exit(0)

    def _receive_child_output(self, descriptor: int) -> None:
        """Read from a child's pipe. If the pipe is closed, send the child's result to the pool."""
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
        self._send_result({"id": child.question_id, **reply})

    def _send_result(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.sendall(json.dumps(message).encode() + b"\n")


def _kill_process(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def watch_parent(host_pid: int) -> None:
    """Make the kernel kill this process when the host ends for any reason (Linux only).

    Args:
        host_pid: process id of the host.
    """
    if sys.platform != "linux":
        return
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != host_pid:
        os._exit(0)


def restrict_process(memory_bytes: int) -> None:
    """Limit the memory of this process, and forbid code, file writes, processes and the network.

    Args:
        memory_bytes: maximum address space in bytes.
    """
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    sys.dont_write_bytecode = True
    sys.addaudithook(refuse_forbidden_event)


_REFUSED = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.remove", "os.rename",
    "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate",
    "os.putenv", "os.kill", "subprocess.Popen", "socket.connect", "socket.bind", "ctypes.",
    "shutil.", "pty.", "code.__new__",
)  # fmt: skip


_CODE_WRITERS = frozenset(("sympy.polys.monomials", "collections", "dataclasses"))
"""Modules that may compile code, because they generate it from numbers and their own names."""


def refuse_forbidden_event(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook that raises `PermissionError` if the process compiles text, writes files, starts
    processes or opens connections.
    """
    if event == "compile":
        module = sys._getframe(1).f_globals.get("__name__")
        if str(arguments[1]).startswith("<") and module not in _CODE_WRITERS:
            raise PermissionError(f"a worker must not compile text; module {module} tried to")
    elif event == "open":
        mode, flags = arguments[1], arguments[2]
        if (isinstance(mode, str) and set(mode) & set("wax+")) or (
            isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        ):
            raise PermissionError("a worker must not open a file for writing")
    elif event.startswith(_REFUSED):
        raise PermissionError(f"a worker must not call {event}")


if __name__ == "__main__":
    main(sys.argv[1:])
