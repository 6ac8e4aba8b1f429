"""What a child in the box does: it runs a solution and answers calls, or runs tests and makes them.

The two are in different boxes. Where a test calls the solution, the name stands for a proxy: the
arguments go to the caller of both, who hands them on, and what comes back is a value, or an
exception of Python's own. Standard library only.

Frames of a solution: `R` it is loaded, `X` it raised while it was loaded, `V` value, `E` exception,
`O` a value that is no data, `B` one that is too large, `M` there is no such function. Frames of
tests: `C` a call, `P` passed, `F` failed, `U` an argument that cannot be sent.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import linecache
import os
import random
import struct
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from mclabel.checkers.code.codec import Malformed, Opaque, TooLarge, decode, encode

_HEADER = struct.Struct(">cI")
_READ, _WRITE = 3, 4
_TESTS = "<tests>"


def run_program(job: dict[str, Any]) -> int:
    """Run a job's program; returns the exit code.

    Args:
        job: `kind`, `limits`, and what the kind needs.
    """
    random.seed(0)
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # else of `site`, which is not loaded
    return _KINDS[job["kind"]](job)


def _answer_calls(job: dict[str, Any]) -> int:
    """Load a solution, and call its functions as asked until nobody asks."""
    names, limit = _loaded(job), job["limits"]["output_bytes"]
    if names is None:
        return 1
    _write(b"R", b"")
    while (message := _read()) is not None:
        name, args, kwargs = decode(message[1], limit)
        function = _function(names, name)
        if function is None:
            _write(b"M", b"")
            return 1
        try:
            found = ["V", function(*args, **kwargs)]
        except BaseException as error:
            found = ["E", *_described(error)]
        try:
            content = encode(found[1:], limit)
            if encode([name, args, kwargs], limit) != message[1]:
                content = encode([*found[1:], [args, kwargs]], limit)
        except Opaque as opaque:
            _write(b"O", str(opaque).encode("utf-8", "replace")[:40])
            return 1
        except (TooLarge, MemoryError, RecursionError):
            _write(b"B", b"")
            return 1
        except BaseException as error:  # of an iterator that is read only now
            content, found[0] = encode(_described(error), limit), "E"
        _write(found[0].encode(), content)
    return 0


def _function(names: dict[str, Any], name: str) -> Any:
    """A function of a solution, or a method of its class `Solution`, as some sites ask for."""
    if name in names or "Solution" not in names:
        return names.get(name)
    try:
        return getattr(names["Solution"](), name, None)
    except BaseException:
        return None


def _loaded(job: dict[str, Any]) -> dict[str, Any] | None:
    """Run a solution's module; its names, or None if it raised."""
    names: dict[str, Any] = {"__name__": job["name"], "__builtins__": builtins}
    linecache.cache["<solution>"] = (len(job["code"]), None, job["code"].splitlines(True), "")
    try:
        exec(compile(job["code"], "<solution>", "exec"), names)
    except BaseException as error:
        _write(b"X", type(error).__name__.encode("utf-8", "replace")[:40])
        return None
    return names


def _described(error: BaseException) -> list[Any]:
    """The names of an exception's classes that are Python's own, and its arguments as data."""
    classes = [
        one.__name__ for one in type(error).__mro__ if vars(builtins).get(one.__name__) is one
    ]
    try:
        arguments = list(error.args)
        encode(arguments, 10_000)
    except Exception:
        arguments = []
    return [classes, arguments]


def _run_script(job: dict[str, Any]) -> int:
    """Run a whole program on its standard input."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    try:
        exec(compile(job["code"], "<solution>", "exec"), names)
        sys.stdout.flush()
    except SystemExit as error:
        sys.stdout.flush()
        return 0 if error.code in (None, 0) else 1
    except BaseException as error:
        _write(b"X", type(error).__name__.encode("utf-8", "replace")[:40])
        return 1
    return 0


def _run_tests(job: dict[str, Any]) -> int:
    """Run tests whose calls of the solution are sent out."""
    calls = _Calls(job["limits"]["output_bytes"])
    names: dict[str, Any] = {"__name__": "tests"}
    proxies = {name: calls.proxy(name) for name in job["names"]}
    return _tested(job, names, proxies, calls)


def _run_inside(job: dict[str, Any]) -> int:
    """Run a solution, then its tests on it in the same process."""
    names = _loaded(job)
    if names is None:
        return 1
    return _tested(job, names, {}, None)


def _tested(
    job: dict[str, Any], names: dict[str, Any], proxies: dict[str, Any], calls: _Calls | None
) -> int:
    index: int | None = None
    try:
        for module in job["modules"]:
            names.setdefault(module, importlib.import_module(module))
        if calls is not None:
            exec(compile(job["before"], "<before>", "exec"), names)
        names.update(proxies)
        exec(compile(job["setup"], "<setup>", "exec"), names)
        for number, test in enumerate(job["tests"]):
            index = number
            exec(compile(test, _TESTS, "exec"), names)
        if job["check"]:
            index = None
            names["check"](names[job["check"]])
    except BaseException as error:
        _write(b"F", json.dumps(_failure(error, index, job, calls)).encode())
        return 1
    _write(b"P", b"")
    return 0


def _failure(
    error: BaseException, index: int | None, job: dict[str, Any], calls: _Calls | None
) -> dict[str, Any]:
    """What a failed test says: which it was, or what was raised, and whether it was called yet."""
    kind = type(error).__name__
    if calls is not None and calls.raised is error:
        return {"raised": kind, "called": True}
    called = calls is None or calls.number > 0
    if not isinstance(error, AssertionError):
        return {"raised": kind, "called": called}
    if index is None:
        lines = [
            node.lineno
            for node in ast.walk(ast.parse(job["setup"]))
            if isinstance(node, ast.Assert)
        ]
        place, trace = 0, error.__traceback__
        while trace is not None:
            place = trace.tb_lineno if trace.tb_frame.f_code.co_filename == "<setup>" else place
            trace = trace.tb_next
        index = sum(line < place for line in sorted(lines))
    return {"failed": index, "called": called}


class _Calls:
    """Calls of the solution, which is elsewhere."""

    def __init__(self, limit: int) -> None:
        self.number = 0
        self.raised: BaseException | None = None
        self._limit = limit

    def proxy(self, name: str) -> Callable[..., Any]:
        """A function that stands for one of the solution's."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(name, list(args), kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def _call(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        self.number += 1
        try:
            _write(b"C", encode([name, args, kwargs], self._limit))
        except Opaque as opaque:
            _end(b"U", str(opaque)[:40])
        except TooLarge:
            _end(b"U", "too large")
        message = _read()
        if message is None:
            os._exit(1)
        kind, content = message
        try:
            found = decode(content, self._limit)
            if kind == b"E":
                classes, arguments, *changed = found
                error = _exception(classes, arguments)
            else:
                value, *changed = found
            if changed:
                ((new_args, new_kwargs),) = changed
                _update(args, new_args)
                _update(kwargs, new_kwargs)
        except (Malformed, ValueError, TypeError):
            _end(b"F", json.dumps({"raised": "Malformed", "called": True}))
        if kind == b"E":
            self.raised = error
            raise error
        return value


def _exception(classes: list[str], arguments: list[Any]) -> BaseException:
    for name in classes:
        kind = vars(builtins).get(name)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            try:
                return kind(*arguments)
            except TypeError:
                continue
    return RuntimeError()


def _update(old: Any, new: Any) -> None:
    """Make containers what the solution has made of them, in place."""
    if type(old) is not type(new):
        return
    if isinstance(old, list):
        merged = [_merged(*pair) for pair in zip(old, new, strict=False)] + list(new[len(old) :])
        old[:] = merged
    elif isinstance(old, dict):
        merged_items = {key: _merged(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(merged_items)
    elif isinstance(old, tuple):
        for pair in zip(old, new, strict=False):
            _update(*pair)
    elif isinstance(old, set):
        old.clear()
        old |= new
    elif isinstance(old, deque | bytearray):
        old.clear()
        old.extend(new)


def _merged(old: Any, new: Any) -> Any:
    if type(old) is type(new) and isinstance(old, list | dict | set | deque | bytearray):
        _update(old, new)
        return old
    return new


def _end(kind: bytes, text: str) -> NoReturn:
    _write(kind, text.encode("utf-8", "replace"))
    os._exit(1)


def _write(kind: bytes, content: bytes) -> None:
    left = memoryview(_HEADER.pack(kind, len(content)) + content)
    while left:
        left = left[os.write(_WRITE, left) :]


def _read() -> tuple[bytes, bytes] | None:
    header = _exactly(_HEADER.size)
    if header is None:
        return None
    kind, size = _HEADER.unpack(header)
    content = _exactly(size)
    return None if content is None else (kind, content)


def _exactly(size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        if not (part := os.read(_READ, size - len(found))):
            return None
        found += part
    return bytes(found)


_KINDS: dict[str, Callable[[dict[str, Any]], int]] = {
    "calls": _answer_calls,
    "script": _run_script,
    "tests": _run_tests,
    "inside": _run_inside,
}
