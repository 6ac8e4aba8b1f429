"""Handles Ctrl-C and SIGTERM: the first signal ends a command in order, a second one at once.

The first raises `Stopped` in the main thread, or calls a function where that would lose work
(`deferred`); afterwards the rest of the process has `LAST_S` seconds. A thread sees the second
one, so that it works while the main thread waits inside a library.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

SAME_S = 0.5
"""Seconds within which signals are one: a terminal and a wrapper may both pass on one Ctrl-C."""
LAST_S = 3.0
"""Seconds for threads that still compute, and for libraries' exit functions, after the end."""
REPEAT_S = 0.05
"""Seconds after which a signal is sent again where Python drops or delays what it raised."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_TRACKER = b"resource_tracker"
"""Name of multiprocessing's process that ends by itself after it has freed shared memory."""
_IMPORTS = "<frozen importlib._bootstrap>"
"""File of the functions that run an import."""
_SHOW_CURSOR = "\x1b[?25h"
"""To a terminal, of which a progress display may have hidden it."""
_SHARED = re.compile(r"/dev/shm/psm_\w+")


class Stopped(KeyboardInterrupt):
    """A signal has asked for the end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        self.message = (
            f"stopped by {self}: completed work is kept. Run the same command again to resume"
        )


class _State:
    """State of this process, as signal handlers are the process's own."""

    active = False
    number: int | None = None
    """The first signal, if one has come."""
    ask: Callable[[], None] | None = None
    importing_since: float | None = None
    """Time of the first signal, if it arrived during an import."""
    grace_s: float | None = None
    """Seconds that a command has after the first signal, if there is such a limit."""
    num_repeated = 0
    """Signals of our own (`_repeat`) that `_watch` has not seen yet."""


@contextmanager
def stop_signals() -> Iterator[None]:
    """Handle the signals meanwhile. In the main thread, else nothing happens."""
    if _State.active or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="signals", daemon=True).start()
    _State.active, _State.number, _State.ask = True, None, None
    hook, sys.unraisablehook = sys.unraisablehook, _repeat
    install()
    try:
        yield
    finally:
        if _State.number is None:
            _State.active = False
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            os.close(writer)
            sys.unraisablehook = hook
        else:  # the process is about to end, and a second one may come
            end_soon(128 + _State.number)


def signalled() -> Stopped | None:
    """Return the stop that a signal has asked for; None if no signal has come."""
    return Stopped(_State.number) if _State.active and _State.number is not None else None


def install() -> None:
    """Take the signals back from a library that has set handlers of its own (`ray.init`)."""
    if _State.active and threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, _handle)


@contextmanager
def deferred(ask: Callable[[], None]) -> Iterator[None]:
    """Let the first signal call `ask` in the main thread; raise `Stopped` at the end.

    Raises:
        Stopped: a signal came, meanwhile or before, and nothing else was raised.
    """
    _State.ask = ask
    try:
        if signalled() is not None:  # and what it raised was caught by a library
            ask()
        yield
    finally:
        _State.ask = None
    if (stopped := signalled()) is not None:
        raise stopped


@contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """End the process so many seconds after a signal at the latest, whatever it is doing.

    Also where a library handles the signal, and the event loop in which it would end hangs. Native
    code that keeps Python's lock is not interrupted.
    """
    before, _State.grace_s = _State.grace_s, seconds
    try:
        yield
    finally:
        _State.grace_s = before


def _handle(number: int, frame: FrameType | None) -> None:
    if _State.number is not None:
        return  # the thread has seen it as well
    codes = list(_running_code(frame))
    if _State.ask is None and any(code.co_filename == _IMPORTS for code in codes):
        _wait_for_import(number)
    elif _repeat.__code__ in codes:
        _send_again(number)
    else:
        _State.number = number
        if _State.ask is None:
            raise Stopped(number)
        _State.ask()


def _wait_for_import(number: int) -> None:
    """Raise after the import, since native code in one may abort the process; or end it here."""
    now = time.monotonic()
    _State.importing_since = _State.importing_since or now
    if now - _State.importing_since < LAST_S:
        _send_again(number)
        return
    if sys.stdout.isatty():
        sys.stdout.write(_SHOW_CURSOR)
    sys.stdout.flush()
    print(f"mclabel: {Stopped(number).message}", file=sys.stderr, flush=True)
    end_at_once(128 + number)


def _repeat(dropped: sys.UnraisableHookArgs) -> None:
    """Raise `Stopped` again where a callback has raised it, and Python has to drop it."""
    if not isinstance(dropped.exc_value, Stopped):
        sys.__unraisablehook__(dropped)
    elif _State.number is not None:
        number, _State.number = _State.number, None
        _send_again(number)


def _send_again(number: int) -> None:
    """Send a signal to the main thread, after what it runs now has returned."""
    _State.num_repeated += 1
    main = threading.main_thread().ident
    again = threading.Timer(REPEAT_S, signal.pthread_kill, [main, number])
    again.daemon = True
    again.start()


def _running_code(frame: FrameType | None) -> Iterator[CodeType]:
    """Yield the code of a frame and of its callers."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _watch(reader: int) -> None:
    """End the process at the second signal."""
    first: float | None = None
    is_ending = False
    while signals := os.read(reader, 1):
        if signals[0] in _SIGNALS and _State.grace_s is not None and not is_ending:
            is_ending = True
            end_soon(128 + signals[0], _State.grace_s)
        if signals[0] not in _SIGNALS or signal.getsignal(signals[0]) is not _handle:
            continue  # a library (uvicorn) handles it now, and may raise it again later
        if _State.num_repeated:
            _State.num_repeated -= 1
            continue
        if first is None:
            first = time.monotonic()
        elif time.monotonic() - first > SAME_S:
            end_at_once(128 + signals[0])
    os.close(reader)


def end_soon(exit_code: int, seconds: float = LAST_S) -> None:
    """End this process after some seconds, if it has not ended by itself by then."""
    last = threading.Timer(seconds, end_at_once, [exit_code])
    last.daemon = True
    last.start()


def end_at_once(exit_code: int) -> None:
    """End this process and all that it has started; the shared memory of these is freed."""
    kill_children()
    os._exit(exit_code)


def kill_children(memory: Iterable[Path] = ()) -> None:
    """Kill all that this process has started, and free the shared memory of these.

    Args:
        memory: shared memory that children which have ended since had mapped (`shared_memory`).
    """
    memory = {*memory, *shared_memory()}
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if _TRACKER not in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
    for path in memory:
        path.unlink(missing_ok=True)


def shared_memory() -> set[Path]:
    """Shared memory of multiprocessing that processes started by this one have mapped.

    Its owner removes it, unless it is killed: Ray kills the processes of a worker that ends, the
    one that watches over it (the resource tracker) among them.
    """
    paths = set()
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            paths |= {Path(name) for name in _SHARED.findall(_maps(pid))}
    return {path for path in paths if path.exists()}


def users_of(memory: Iterable[Path]) -> list[int]:
    """Processes that have mapped one of these files, as far as this user sees them."""
    names = {str(path) for path in memory}
    pids = []
    for folder in Path("/proc").glob("[0-9]*") if names else ():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            mapped = {line.split(maxsplit=5)[-1] for line in _maps(int(folder.name)).splitlines()}
            if not names.isdisjoint(mapped):
                pids.append(int(folder.name))
    return sorted(pids)


def free_orphaned(memory: Iterable[Path]) -> None:
    """Remove shared memory that no process started by this one has mapped any more."""
    for path in set(memory) - shared_memory():
        path.unlink(missing_ok=True)


def _maps(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text(errors="replace")


def _descendants(root: int) -> list[int]:
    """Processes that this one has started, and those that they have; none without /proc."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
    pids = [root]
    for parent in pids:  # grows meanwhile
        pids += [pid for pid, its in parents.items() if its == parent]
    return pids[1:]
