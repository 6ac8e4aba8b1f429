"""The process that forks workers: sympy is loaded here once, each worker is a fork of it.

Run as `python -m mclabel.answers.host FD`, by the pool. A fork server of our own rather than that
of `multiprocessing`, because that one imports the caller's main module into every worker, refuses
to start from daemonic processes, and is shared with whatever else the caller's program does.

On the control socket come `F` with a socket for a new worker, and `K<pid>` to kill one. When the
socket closes, since its owner closed it or died by whatever way, all workers are killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 1 << 16
_REAP_S = 1.0


def main(argv: Sequence[str]) -> None:
    """Serve until the control socket closes.

    Args:
        argv: the file descriptor of the control socket, and the workers' memory limit in bytes;
            without them, only try whether a host can start here.
    """
    if not argv:
        _warm_up()
        print("the answer checker's workers can start here")
        return
    control = socket.socket(fileno=int(argv[0]))
    memory = int(argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _warm_up()
    workers: set[int] = set()
    try:
        while _serve_once(control, workers, memory):
            pass
    finally:
        for pid in workers:
            _kill(pid)


def _warm_up() -> None:
    """Import, and run once what builds its tables on first use."""
    from mclabel.answers.equivalence import decide
    from mclabel.answers.rules import DEFAULT_RULES

    for answer, gold in (
        ("\\sin^{-1} x", "\\arcsin x"),
        ("\\sin^2 x", "1-\\cos^2 x"),
        ("\\sin 2x", "2\\sin x\\cos x"),
        ("|x|<3", "x^2<9"),
    ):
        decide(answer, gold, DEFAULT_RULES)


def _serve_once(control: socket.socket, workers: set[int], memory: int) -> bool:
    """One message; False at the end."""
    ready, _, _ = select.select([control], [], [], _REAP_S)
    _reap(workers)
    if not ready:
        return True
    message, descriptors, _, _ = socket.recv_fds(control, 64, 1)
    if not message:
        return False
    for order in message.decode("ascii").split("\n"):
        if order == "F" and descriptors:
            workers.add(_fork(socket.socket(fileno=descriptors.pop()), control, memory))
        elif order.startswith("K") and int(order[1:]) in workers:
            _kill(int(order[1:]))
    return True


def _reap(workers: set[int]) -> None:
    for pid in tuple(workers):
        done, _ = os.waitpid(pid, os.WNOHANG)
        if done:
            workers.discard(pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _fork(channel: socket.socket, control: socket.socket, memory: int) -> int:
    host = os.getpid()
    pid = os.fork()
    if pid:
        channel.close()
        return pid
    control.close()
    try:
        _confine(memory, host)
        _work(channel)
    finally:
        os._exit(0)


def _confine(memory: int, host: int) -> None:
    """Limits on memory, files and life, and no way to code, files, processes or the network."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != host:
            os._exit(0)
    sys.dont_write_bytecode = True
    sys.addaudithook(_refuse)


_REFUSED = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.remove", "os.rename",
    "os.rmdir", "os.mkdir", "os.chmod", "os.chown", "os.link", "os.symlink", "os.truncate",
    "os.putenv", "os.kill", "subprocess.Popen", "socket.connect", "socket.bind", "ctypes.",
    "shutil.", "pty.", "code.__new__",
)  # fmt: skip


_CODE_WRITERS = frozenset(("sympy.polys.monomials", "collections", "dataclasses"))
"""Modules that write code from numbers and from names of their own."""


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: no text becomes code, nothing is opened for writing, nothing started."""
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


def _work(channel: socket.socket) -> None:
    """Answer one question a line until the channel closes."""
    from mclabel.answers.rules import GradeRules

    file = channel.makefile("rwb")
    file.write(b'{"pid": %d}\n' % os.getpid())
    file.flush()
    for line in file:
        question = json.loads(line)
        rules = GradeRules(**question["rules"])
        file.write(json.dumps(_answer(question, rules)).encode() + b"\n")
        file.flush()


def _answer(question: dict[str, Any], rules: Any) -> dict[str, Any]:
    from mclabel.answers.equivalence import decide, parses

    try:
        if "answer" not in question:
            return {"same": parses(question["gold"]), "reason": "parsed"}
        same = decide(question["answer"], question["gold"], rules)
    except MemoryError:
        os._exit(3)  # what is left of the heap is not worth trusting; the pool starts another
    except Exception as error:  # sympy raises all kinds on formulas it cannot handle
        return {"same": None, "reason": f"sympy_{type(error).__name__}"}
    return {"same": same, "reason": "undecided" if same is None else "decided"}


if __name__ == "__main__":
    main(sys.argv[1:])
