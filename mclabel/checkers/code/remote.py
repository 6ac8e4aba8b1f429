"""Remote calls between a program and its tests, which use each other's objects through proxies.

Plain data is sent by value (`codec`). Every other object stays in its process and is used through
`proxies`, so tests and expected values never reach the program's process. `trust` records results
that the program's own code decided. The module uses only the standard library, because it also runs
inside the sandbox.
"""

from __future__ import annotations

import asyncio
import copy
import os
import types
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from mclabel.checkers.code.codec import Malformed, NotReferable, TooLarge, decode, encode
from mclabel.checkers.code.frames import read_frame, write_frame, write_frame_and_exit
from mclabel.checkers.code.proxies import FUNCTIONS, SPECIALS, References
from mclabel.checkers.code.trust import TrustLog


class Peer:
    """One end of the connection between a program and its tests."""

    def __init__(self, max_bytes: int, *, find_global: Callable[[str], Any] | None) -> None:
        """Create one end of the connection.

        Args:
            max_bytes: maximum bytes of one message.
            find_global: returns the value of a global name of the program, or raises `LookupError`.
                None for the peer of the tests, which restricts the use of the objects that it
                lends.
        """
        self._max_bytes, self._find_global = max_bytes, find_global
        self._is_tests = find_global is None
        self.references = References(self, max_bytes, is_tests=find_global is None)
        self._pending_errors: dict[int, BaseException] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.trust_log = TrustLog(self, self.references)

    def fetch_global(self, name: str) -> Any:
        """Return the value of a global name of the program: plain data or a proxy."""
        return self.request(b"G", "global", name)

    def request_call(
        self, operation: str, target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Send a request that calls a function or method of the other process.

        Args:
            operation: `call`, `method`, or `special` for a special method.
            target: proxy of the function or object.
            name: name of the method; empty if `target` itself is called.
            args: positional arguments of the call.
            kwargs: keyword arguments of the call.
        """
        return self.request(b"C", operation, target, name, list(args), kwargs)

    def request(self, kind: bytes, operation: str, *parts: Any) -> Any:
        """Send a request, and answer requests of the other process until the result arrives.

        If the other process reports an exception, raise it.

        Args:
            kind: `C` for a request that may run code of the program or the tests, else `G`.
            operation: name of the operation, a key of `_OPERATIONS`.
            parts: operands of the operation.
        """
        try:
            content = encode([operation, *parts], self._max_bytes, self.references)
        except NotReferable as opaque:
            self._exit_because_unsendable(str(opaque)[:40])
        except TooLarge:
            self._exit_because_unsendable("too large")
        write_frame(kind, content)
        while (frame := read_frame()) is not None:
            if frame[0] in (b"C", b"G"):
                self.answer_request(frame[1])
            else:
                return self._decode_answer(operation, parts, *frame)
        os._exit(1)

    def _exit_because_unsendable(self, reason: str) -> NoReturn:
        if not self._is_tests:
            write_frame_and_exit(b"O", reason)
        remedy = "set inside: true"
        write_frame_and_exit(
            b"U", f"the tests pass a value that cannot be sent ({reason}): {remedy}"
        )

    def _decode_answer(
        self, operation: str, parts: tuple[Any, ...], kind: bytes, content: bytes
    ) -> Any:
        try:
            value, *changed = decode(content, self._max_bytes, self.references)
            if changed:
                args, kwargs = changed[0]
                _update_in_place(parts[2], args)
                _update_in_place(parts[3], kwargs)
            if kind == b"V":
                return value
            if not isinstance(value, BaseException):
                raise Malformed("not an exception")
        except (Malformed, ValueError, TypeError, LookupError):
            self._exit_because_malformed()
        if not _ends_protocol(operation, parts, value):
            self.trust_log.unhandled.append(value)
        raise value

    def _exit_because_malformed(self) -> NoReturn:
        if self._is_tests:
            write_frame_and_exit(b"F", '{"raised": "Malformed"}')
        os._exit(1)

    def answer_request(self, content: bytes) -> None:
        """Answer a request of the other process."""
        self.references.was_used = False
        try:
            operation, *parts = decode(content, self._max_bytes, self.references)
            answer = _OPERATIONS[operation]
        except (Malformed, ValueError, TypeError, KeyError):
            self._exit_because_malformed()
        before = None
        try:
            if self._is_tests:
                self._check_permitted(operation, *parts[:2])
            if len(parts) == 4:
                before = self._encode_value(parts[2:]) if self.references.was_used else content
            result: list[Any] = [answer(self, *parts)]
            kind = b"V"
        except _NameNotDefined:
            write_frame_and_exit(b"M", "")
        except BaseException as error:
            result, kind = [error], b"E"
        try:
            if before is not None:
                after = self._encode_value(
                    parts[2:] if before is not content else [operation, *parts]
                )
                result += [parts[2:]] if after != before else []
            text = self._encode_value(result)
        except NotReferable as opaque:
            self._exit_because_unsendable(str(opaque)[:40])
        except (TooLarge, MemoryError, RecursionError):
            self._exit_because_unsendable("too large") if self._is_tests else write_frame_and_exit(
                b"B", ""
            )
        write_frame(kind, text)

    def _check_permitted(self, operation: str, target: Any, name: Any = "") -> None:
        """Refuse requests that a program may not send to the process of its tests.

        A program may use the objects that the tests lend. It may neither inspect them nor create
        other objects in the tests' process: an instance of a class of the tests could claim to be
        equal to their values.

        Raises:
            AttributeError: the request is not allowed.
        """
        is_closed = isinstance(target, (*FUNCTIONS, types.GeneratorType, types.CoroutineType))
        is_use = operation in ("call", "next", "await", "copy", "deepcopy") or (
            operation == "special" and name in SPECIALS and not is_closed
        )
        is_public = isinstance(name, str) and not name.startswith("_") and not is_closed
        if not self.references.is_lent(target) or not (is_use or is_public):
            raise AttributeError(
                "the program may only call the objects of its tests, or use their public attributes"
            )

    def _encode_value(self, value: Any) -> bytes:
        return encode(value, self._max_bytes, self.references)

    def _look_up_global(self, name: str) -> Any:
        try:
            assert self._find_global is not None
            return self._find_global(name)
        except LookupError as error:
            raise _NameNotDefined from error

    def _take_next_items(self, target: Any, count: int) -> Any:
        """Return a list of up to `count` items of an iterator, and True if it has ended."""
        if (pending_error := self._pending_errors.pop(id(target), None)) is not None:
            raise pending_error
        items: list[Any] = []
        for _ in range(count):
            try:
                items.append(next(target))
            except StopIteration:
                return [items, True]
            except BaseException as error:
                if not items:
                    raise
                self._pending_errors[id(target)] = error
                break
        return [items, False]

    def _await_value(self, target: Any) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def await_target() -> Any:
            return await target

        return self._loop.run_until_complete(await_target())

    def choose_trusted_result(
        self, proxy: Any, name: str, args: tuple[Any, ...], value: Any
    ) -> Any:
        """Return a result that the tests may trust for a special method of the program.

        Args:
            proxy: proxy of the program's object.
            name: name of the special method.
            args: positional arguments that the tests passed.
            value: result that the program's code returned.
        """
        return self.trust_log.choose_trusted_result(proxy, name, args, value)


class _NameNotDefined(Exception):
    """The program does not define a requested name."""


def _ends_protocol(operation: str, parts: tuple[Any, ...], error: BaseException) -> bool:
    """Return whether an exception is the regular end of a Python protocol, such as iteration."""
    name = parts[1] if len(parts) > 1 else ""
    return (
        (operation == "getattr" and isinstance(error, AttributeError))
        or (name == "__next__" and isinstance(error, StopIteration))
        or (name == "__getitem__" and isinstance(error, IndexError))
        or (operation == "await" and isinstance(error, StopAsyncIteration))
    )


def _update_in_place(old: Any, new: Any) -> None:
    """Change a container in place to its new content, which the other process has sent.

    Args:
        old: container of this process.
        new: the container after the other process has changed it.
    """
    if type(old) is not type(new):
        return
    if isinstance(old, list):
        merged = [_merge_changes(*pair) for pair in zip(old, new, strict=False)] + list(
            new[len(old) :]
        )
        old[:] = merged
    elif isinstance(old, dict):
        merged_items = {key: _merge_changes(old.get(key), value) for key, value in new.items()}
        old.clear()
        old.update(merged_items)
    elif isinstance(old, tuple):
        for pair in zip(old, new, strict=False):
            _update_in_place(*pair)
    elif isinstance(old, set):
        old.clear()
        old |= new
    elif isinstance(old, deque | bytearray):
        old.clear()
        old.extend(new)


def _merge_changes(old: Any, new: Any) -> Any:
    if type(old) is type(new) and isinstance(old, list | dict | set | deque | bytearray):
        _update_in_place(old, new)
        return old
    return new


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "global": Peer._look_up_global,
    "next": Peer._take_next_items,
    "await": Peer._await_value,
    "call": lambda _, target, name, args, kwargs: target(*args, **kwargs),
    "method": lambda _, target, name, args, kwargs: getattr(target, name)(*args, **kwargs),
    "special": lambda _, target, name, args, kwargs: getattr(type(target), name)(
        target, *args, **kwargs
    ),
    "getattr": lambda _, target, name: getattr(target, name),
    "setattr": lambda _, target, name, value: setattr(target, name, value),
    "delattr": lambda _, target, name: delattr(target, name),
    "copy": lambda _, target: copy.copy(target),
    "deepcopy": lambda _, target: copy.deepcopy(target),
}
"""Function that answers each kind of request. Its first argument is the peer that serves the
request."""
