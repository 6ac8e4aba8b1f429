"""What a process that runs sympy on a model's text may not do."""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Any


def watch_parent(host: int) -> None:
    """Die when the host does, by whatever way; on Linux only."""
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
