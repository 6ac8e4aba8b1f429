"""Work of a child process in a sandbox: it runs a program, or the tests of a program.

Program and tests are in different sandboxes. The tests use proxies of the program's objects
(`remote`), and the caller of both sandboxes forwards the requests of the proxies to the program's
process, which answers them. The module uses only the standard library, because it runs in the
sandbox.
"""

# Kinds of frames that a program's process sends: R the program is loaded, X it raised while
# loading, V a value, E an exception, C and G its own requests, O a value that cannot be sent, B a
# value that is too large, M a name that the program does not define. It receives D to describe the
# results of a function as text.
# Kinds of frames that the tests' process sends: C a request that runs the program's code, G a
# lookup of a name, P the tests passed, F a test failed, U the tests cannot be run.

from __future__ import annotations

import builtins
import collections
import functools
import heapq
import itertools
import json
import linecache
import math
import operator
import random
import re
import sys
import threading
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from mclabel.checkers.code.codec import decode, encode
from mclabel.checkers.code.frames import read_frame, write_frame
from mclabel.checkers.code.remote import Peer
from mclabel.checkers.code.testing import (
    MissingRequirement,
    TestFailed,
    allow_missing_modules,
    run_tests,
)

MAX_DESCRIPTION = 10_000
"""Maximum characters of the description of a function's result."""
_SITE_MODULES = (collections, functools, heapq, itertools, math, operator, typing)


def run_program(job: dict[str, Any]) -> int:
    """Run the program or the tests of a job.

    Args:
        job: description of the job: `kind` (a key of `_KINDS`), `limits`, and keys that depend on
            the kind.

    Returns:
        The exit code.
    """
    random.seed(0)
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # `site`, which defines them, is not loaded
    return _KINDS[job["kind"]](job)


def _answer_requests(job: dict[str, Any]) -> int:
    """Load a program, and answer requests of its tests until the pipe is closed."""
    names, limit = _load_program(job), job["limits"]["output_bytes"]
    if names is None:
        return 1
    peer = Peer(limit, find_global=lambda name: _find_global_or_method(names, name))
    write_frame(b"R", b"")
    while (frame := read_frame()) is not None:
        if frame[0] == b"D":
            name, arguments = decode(frame[1], limit)
            write_frame(b"V", encode(_describe_result(names, name, arguments), limit))
        else:
            peer.answer_request(frame[1])
    return 0


def _find_global_or_method(names: dict[str, Any], name: str) -> Any:
    """Return the value of a program's global name, or a method of its class `Solution`.

    Some programming sites require such a class instead of a function.

    Args:
        names: global names of the program with their values.
        name: name of the value or the method.
    """
    if name not in names and hasattr(names.get("Solution"), name):
        return lambda *args, **kwargs: getattr(names["Solution"](), name)(*args, **kwargs)
    return names[name]


def _load_program(job: dict[str, Any]) -> dict[str, Any] | None:
    """Run a program as a module.

    Return its global names with their values, or None if it raised an exception.
    """
    module = types.ModuleType("solution")
    names = vars(module)
    names["__builtins__"] = vars(builtins)
    if job["is_site"]:
        preloaded = {
            name: value for library in _SITE_MODULES for name, value in _list_public_names(library)
        }
        names["__builtins__"] = {**preloaded, **vars(builtins)}
    linecache.cache["<solution>"] = (len(job["code"]), None, job["code"].splitlines(True), "")
    sys.modules["solution"] = module
    try:
        exec(compile(job["code"], "<solution>", "exec"), names)
    except BaseException as error:
        write_frame(b"X", type(error).__name__.encode("utf-8", "replace")[:40])
        return None
    return names


def _list_public_names(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that `from module import *` and `import module` would define."""
    for name in getattr(module, "__all__", dir(module)):
        if not name.startswith("_"):
            yield name, getattr(module, name)
    yield module.__name__, module


def _describe_result(names: dict[str, Any], name: str, arguments: list[Any]) -> str:
    """Describe a function's result as a text that is equal for programs with equal behaviour."""
    try:
        function = _find_global_or_method(names, name)
    except KeyError:
        return "no_function"
    try:
        text = _describe_value(function(*arguments))
    except BaseException as error:
        text = type(error).__name__
    return text[:MAX_DESCRIPTION]


def _describe_value(value: Any, depth: int = 0) -> str:
    if depth > 50:
        return "…"
    kind = type(value)
    if kind is int:
        return str(value) if value.bit_length() < 10_000 else hex(value)
    if kind in (str, float, bool, bytes, complex, type(None)):
        return repr(value)
    if isinstance(value, dict):
        items = value.items()
        inner = [
            f"{_describe_value(k, depth + 1)}: {_describe_value(v, depth + 1)}" for k, v in items
        ]
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, set | frozenset):
        return "{" + ", ".join(sorted(_describe_value(item, depth + 1) for item in value)) + "}"
    if isinstance(value, list | tuple | collections.deque | Iterator):
        first = itertools.islice(value, 2_000)
        opening, closing = ("(", ")") if isinstance(value, tuple) else ("[", "]")
        text = opening + ", ".join(_describe_value(item, depth + 1) for item in first) + closing
        return text if isinstance(value, list | tuple) else f"{kind.__name__} {text}"
    return (
        kind.__name__
        if kind.__module__ == "solution"
        else re.sub(" at 0x[0-9a-f]+", "", repr(value))
    )


def _run_script(job: dict[str, Any]) -> int:
    """Run a whole program that reads standard input."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    try:
        exec(compile(job["code"], "<solution>", "exec"), names)
        _wait_for_threads()
    except SystemExit as error:
        _wait_for_threads()
        return 0 if error.code in (None, 0) else 1
    except BaseException as error:
        write_frame(b"X", type(error).__name__.encode("utf-8", "replace")[:40])
        return 1
    return 0


def _wait_for_threads() -> None:
    """Flush the output after waiting for all threads that are not daemons.

    An exiting interpreter does the same.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    sys.stdout.flush()


def _test_remotely(job: dict[str, Any]) -> int:
    """Run tests against a program in another sandbox, to which requests are sent."""
    peer = Peer(job["limits"]["output_bytes"], find_global=None)
    names: dict[str, Any] = {}
    exec(compile(job["before"], "<before>", "exec"), names)
    for name in job["names"]:
        names[name] = peer.fetch_global(name)
    for module in job["own_modules"]:
        sys.modules[module] = _RemoteModule(module, peer)
    allow_missing_modules()
    return _run_and_report_tests(job, names, peer)


class _RemoteModule(types.ModuleType):
    """Proxy of the program's module, which the tests import."""

    def __init__(self, name: str, peer: Peer) -> None:
        super().__init__(name)
        self._peer = peer

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._peer.fetch_global(name)


def _test_in_same_process(job: dict[str, Any]) -> int:
    """Run a program and then its tests in the same process."""
    names = _load_program(job)
    if names is None:
        return 1
    for module in job["own_modules"]:
        sys.modules[module] = sys.modules["solution"]
    return _run_and_report_tests(job, {**names, "__builtins__": builtins}, None)


def _run_and_report_tests(job: dict[str, Any], names: dict[str, Any], peer: Peer | None) -> int:
    try:
        run_tests(
            job,
            names,
            peer.trust_log.record_caught_exception if peer is not None else lambda error: None,
        )
    except MissingRequirement as error:
        write_frame(b"U", str(error).encode())
        return 1
    except TestFailed as failure:
        is_assertion = isinstance(failure.error, AssertionError)
        is_own = peer is not None and any(
            error is failure.error for error in peer.trust_log.unhandled
        )
        kind = type(failure.error).__name__
        outcome = {"failed": failure.label} if is_assertion and not is_own else {"raised": kind}
        write_frame(b"F", json.dumps(outcome).encode())
        return 1
    claims = b""
    if peer is not None:
        trust = peer.trust_log
        if trust.unhandled:
            write_frame(b"F", json.dumps({"raised": type(trust.unhandled[0]).__name__}).encode())
            return 1
        claims = b"claimed" if trust.is_claimed else b"weak" if trust.is_weak else b""
    write_frame(b"P", claims)
    return 0


_KINDS: dict[str, Callable[[dict[str, Any]], int]] = {
    "calls": _answer_requests,
    "script": _run_script,
    "tests": _test_remotely,
    "inside": _test_in_same_process,
}
