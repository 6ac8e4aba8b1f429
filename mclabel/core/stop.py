"""Handles Ctrl-C and SIGTERM: the first signal ends a command in order, a second one at once.

The first signal raises `Stopped` in the main thread, or calls a function if raising would lose work
(`request_stop_on_signal`). Afterwards the process has `SHUTDOWN_S` seconds to end. A separate
thread handles the second signal, because the main thread may be waiting inside a library.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

REPEAT_IGNORED_S = 0.5
"""Seconds within which several signals count as one, because a terminal and a wrapper process may
both forward the same Ctrl-C."""
SHUTDOWN_S = 3.0
"""Seconds that other threads and exit functions of libraries have to end after the end of the
command."""
RESEND_S = 0.05
"""Seconds until a signal is sent again after Python has dropped or delayed its exception."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TRACKER = b"resource_tracker"
"""Name of multiprocessing's process that frees shared memory and then ends by itself."""
_IMPORTS = "<frozen importlib._bootstrap>"
"""File name, in stack frames, of the functions that run an import."""
_SHOW_CURSOR = "\x1b[?25h"
"""Escape sequence that shows the terminal's cursor, which a progress display may have hidden."""
_SHARED = re.compile(r"/dev/shm/psm_\w+")
"""Pattern of the files of multiprocessing's shared memory."""


class Stopped(KeyboardInterrupt):
    """The stop of a command that a signal has requested."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        self.message = (
            f"stopped by {self}: completed work is kept. Run the same command again to resume"
        )


class _StopState:
    """State of signal handling, which is global because a process has one set of handlers."""

    active = False
    """True if `handle_stop_signals` handles the signals."""
    number: int | None = None
    """Number of the first signal; None before a signal arrives."""
    on_first_signal: Callable[[], None] | None = None
    """Function that the first signal calls; None if the signal raises `Stopped`."""
    importing_since: float | None = None
    """Time of the first signal on the monotonic clock, in seconds, if it arrived during an import;
    else None."""
    grace_s: float | None = None
    """Seconds until the process must end after the first signal; None for no limit."""
    num_repeated = 0
    """Number of signals from `_send_signal_later` not yet received by `_end_at_second_signal`."""


@contextmanager
def handle_stop_signals() -> Iterator[None]:
    """Handle Ctrl-C and SIGTERM in this context. In other threads than the main one, and in a
    nested context, do nothing.
    """
    if _StopState.active or threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous_wakeup_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(
        target=_end_at_second_signal, args=(reader,), name="signals", daemon=True
    ).start()
    _StopState.active, _StopState.number, _StopState.on_first_signal = True, None, None
    previous_hook, sys.unraisablehook = sys.unraisablehook, _raise_stop_dropped_by_python
    reinstall_signal_handlers()
    try:
        yield
    finally:
        if _StopState.number is None:
            _StopState.active = False
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_wakeup_fd)
            os.close(writer)
            sys.unraisablehook = previous_hook
        else:  # the process is about to end, and a second signal may arrive
            end_process_after(128 + _StopState.number)


def get_requested_stop() -> Stopped | None:
    """Return the stop that a signal has requested; None if no signal has arrived."""
    return (
        Stopped(_StopState.number) if _StopState.active and _StopState.number is not None else None
    )


def reinstall_signal_handlers() -> None:
    """Set this module's signal handlers again after a library (`ray.init`) has replaced them by its
    own.
    """
    if _StopState.active and threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, _handle_signal)


@contextmanager
def request_stop_on_signal(request_stop: Callable[[], None]) -> Iterator[None]:
    """Let the first signal call a function; raise `Stopped` only at the end of the context.

    Args:
        request_stop: function that requests the end of the work, called in the main thread.

    Raises:
        Stopped: a signal arrived in or before this context, and no other error was raised.
    """
    _StopState.on_first_signal = request_stop
    try:
        if (
            get_requested_stop() is not None
        ):  # a library has caught the exception of an earlier signal
            request_stop()
        yield
    finally:
        _StopState.on_first_signal = None
    if (stopped := get_requested_stop()) is not None:
        raise stopped


@contextmanager
def end_process_within(seconds: float) -> Iterator[None]:
    """End the process at most `seconds` after a signal.

    The limit also holds if a library handles the signal and its event loop hangs. Native code that
    keeps Python's global lock cannot be interrupted.
    """
    previous_grace_s, _StopState.grace_s = _StopState.grace_s, seconds
    try:
        yield
    finally:
        _StopState.grace_s = previous_grace_s


def _handle_signal(number: int, frame: FrameType | None) -> None:
    if _StopState.number is not None:
        return  # the thread of `_end_at_second_signal` handles further signals
    codes = [running.f_code for running, _ in traceback.walk_stack(frame)]
    if _StopState.on_first_signal is None and any(code.co_filename == _IMPORTS for code in codes):
        _wait_for_import(number)
    elif _raise_stop_dropped_by_python.__code__ in codes:
        _send_signal_later(number)
    else:
        _StopState.number = number
        if _StopState.on_first_signal is None:
            raise Stopped(number)
        _StopState.on_first_signal()


def _wait_for_import(number: int) -> None:
    """Raise `Stopped` after the running import, or exit the process if it takes too long.

    An exception during the import of native code may abort the process.
    """
    now = time.monotonic()
    _StopState.importing_since = _StopState.importing_since or now
    if now - _StopState.importing_since < SHUTDOWN_S:
        _send_signal_later(number)
        return
    if sys.stdout.isatty():
        sys.stdout.write(_SHOW_CURSOR)
    sys.stdout.flush()
    print(f"mclabel: {Stopped(number).message}", file=sys.stderr, flush=True)
    end_process_at_once(128 + number)


def _raise_stop_dropped_by_python(dropped: sys.UnraisableHookArgs) -> None:
    """Raise `Stopped` again if it was raised in a callback from which Python drops exceptions.
    Installed as `sys.unraisablehook`.
    """
    if not isinstance(dropped.exc_value, Stopped):
        sys.__unraisablehook__(dropped)
    elif _StopState.number is not None:
        number, _StopState.number = _StopState.number, None
        _send_signal_later(number)


def _send_signal_later(number: int) -> None:
    """Send a signal to the main thread again, after `RESEND_S` seconds."""
    _StopState.num_repeated += 1
    timer = threading.Timer(RESEND_S, signal.pthread_kill, [threading.main_thread().ident, number])
    timer.daemon = True
    timer.start()


def _end_at_second_signal(reader: int) -> None:
    """Wait for signals, and exit the process at the second one.

    If a context of `end_process_within` is active, the process also ends some seconds after the
    first signal.

    Args:
        reader: descriptor of a pipe to which the interpreter writes the number of each signal.
    """
    first_signal_time: float | None = None
    is_ending = False
    while signals := os.read(reader, 1):
        if signals[0] in _SIGNALS and _StopState.grace_s is not None and not is_ending:
            is_ending = True
            end_process_after(128 + signals[0], _StopState.grace_s)
        if signals[0] not in _SIGNALS or signal.getsignal(signals[0]) is not _handle_signal:
            continue  # a library (uvicorn) handles this signal now, and may raise it again later
        if _StopState.num_repeated:
            _StopState.num_repeated -= 1
            continue
        if first_signal_time is None:
            first_signal_time = time.monotonic()
        elif time.monotonic() - first_signal_time > REPEAT_IGNORED_S:
            end_process_at_once(128 + signals[0])
    os.close(reader)


def end_process_after(exit_code: int, seconds: float = SHUTDOWN_S) -> None:
    """End this process after some seconds, unless it ends by itself before."""
    timer = threading.Timer(seconds, end_process_at_once, [exit_code])
    timer.daemon = True
    timer.start()


def end_process_at_once(exit_code: int) -> None:
    """End this process and all of its descendants, and free their shared memory."""
    kill_descendants()
    os._exit(exit_code)


def kill_descendants(memory_files: Iterable[Path] = ()) -> None:
    """Kill all descendants of this process, and free their shared memory.

    Args:
        memory_files: files from an earlier call of `list_shared_memory_files`. Their processes may
            have ended since.
    """
    memory_files = {*memory_files, *list_shared_memory_files()}
    for pid in _list_descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if _TRACKER not in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    for path in memory_files:
        path.unlink(missing_ok=True)


def list_shared_memory_files() -> set[Path]:
    """Return the files of multiprocessing's shared memory that descendants of this process map.

    The owner of shared memory removes it, unless the owner is killed. If a Ray worker exits, Ray
    kills its processes, including the resource tracker that would free the memory.
    """
    paths = set()
    for pid in _list_descendants(os.getpid()):
        with contextlib.suppress(OSError):
            paths |= {Path(name) for name in _SHARED.findall(_read_memory_maps(pid))}
    return {path for path in paths if path.exists()}


def list_processes_mapping_files(memory_files: Iterable[Path]) -> list[int]:
    """Return the ids of the processes that map one of these files, as far as this user may see."""
    names = {str(path) for path in memory_files}
    pids = []
    for folder in Path("/proc").glob("[0-9]*") if names else ():
        with contextlib.suppress(OSError):  # the process has exited or belongs to another user
            mapped = {
                line.split(maxsplit=5)[-1]
                for line in _read_memory_maps(int(folder.name)).splitlines()
            }
            if not names.isdisjoint(mapped):
                pids.append(int(folder.name))
    return sorted(pids)


def delete_orphaned_shared_memory(memory_files: Iterable[Path]) -> None:
    """Remove the files of shared memory that no descendant of this process maps any more."""
    for path in set(memory_files) - list_shared_memory_files():
        path.unlink(missing_ok=True)


def _read_memory_maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text(errors="replace")


def _list_descendants(root: int) -> list[int]:
    """Return the process ids of all descendants of a process; an empty list on systems without
    /proc.
    """
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
    pids = [root]
    for parent in pids:  # the list grows during the loop
        pids += [pid for pid, parent_of_pid in parents.items() if parent_of_pid == parent]
    return pids[1:]
