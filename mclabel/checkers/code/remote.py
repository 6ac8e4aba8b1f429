"""Objects of one process that another uses: a program's for its tests, and tests' for the program.

Plain data travels by value (`codec`). Everything else stays where it was made and is referred to by
number. The other process has a stand-in of it: a function that calls, or an object of a class
with the same name, bases and special methods, each of which is a request. Only the process that
answers a request runs the code behind it, so tests and expected values never meet the program.

A program may claim anything of its own objects. So the tests' side notes each comparison that code
of the program has decided, and exceptions of the program that no handler of the tests has caught.
Standard library only: the module also runs inside the box.
"""

from __future__ import annotations

import asyncio
import builtins
import copy
import inspect
import os
import random
import struct
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from mclabel.checkers.code.codec import (
    Malformed,
    Opaque,
    TooLarge,
    decode,
    encode,
    from_json,
    to_json,
)

_HEADER = struct.Struct(">cI")
_READ, _WRITE = 3, 4
MAX_OBJECTS = 200_000
"""Objects of one process that the other may refer to."""
_EXACT_ITEMS, _MAX_ITEMS = 64, 1_024
"""Items of an iterator that are fetched one by one, and largest number fetched at once behind."""
_COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or",
    "xor", "lshift", "rshift",
)  # fmt: skip
_OTHERS = (
    "len", "length_hint", "iter", "next", "reversed", "contains", "getitem", "setitem", "delitem",
    "call", "enter", "exit", "hash", "bool", "str", "repr", "format", "int", "float", "complex",
    "index", "bytes", "round", "trunc", "floor", "ceil", "abs", "neg", "pos", "invert", "aiter",
    "anext", "aenter", "aexit", "fspath", "dir",
)  # fmt: skip
_SPECIALS = frozenset(
    {f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i")}
    | _COMPARISONS
    | {f"__{name}__" for name in _OTHERS}
)
"""Special methods that a stand-in may have."""
_HIDDEN = (
    types.ModuleType, types.FrameType, types.CodeType, types.TracebackType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
"""Types whose objects are never referred to."""
_FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
_CONSTANTS: Mapping[str, Any] = {"NotImplemented": NotImplemented, "Ellipsis": Ellipsis}
_PYTHON: Mapping[str, Any] = {
    **{name: value for name, value in vars(builtins).items() if not name.startswith("_")},
    **_CONSTANTS,
}
"""Functions, types and constants of Python's own that both processes have."""
_NAMES = {id(value): name for name, value in _PYTHON.items() if callable(value)}
_NAMES |= {id(value): name for name, value in _CONSTANTS.items()}


def write_frame(kind: bytes, content: bytes) -> None:
    """Write a frame to the process above: its kind, its length and its content."""
    left = memoryview(_HEADER.pack(kind, len(content)) + content)
    while left:
        left = left[os.write(_WRITE, left) :]


def read_frame() -> tuple[bytes, bytes] | None:
    """Read the next frame; None if there will be none."""
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


def end_with(kind: bytes, text: str) -> NoReturn:
    """Write a last frame and end the process at once."""
    write_frame(kind, text.encode("utf-8", "replace"))
    os._exit(1)


class _Home:
    """The number of an object that the other process has."""

    def __init__(self, number: int) -> None:
        self.number = number


class StandIn:
    """Base of the classes whose objects stand for objects of the other process."""

    __slots__ = ("_home_of_stand_in",)


class Peer:
    """One end of the connection between a program and its tests."""

    def __init__(self, max_bytes: int, *, find_global: Callable[[str], Any] | None) -> None:
        """Start with no references.

        Args:
            max_bytes: of the text of one message.
            find_global: returns the program's value of a name, or raises `LookupError`; None on the
                side of the tests, which guards what it lends.
        """
        self._max_bytes, self._find_global = max_bytes, find_global
        self._is_tests = find_global is None
        self._lent: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._described: set[int] = set()
        self._classes: dict[int, type] = {}
        self._functions: dict[int, Any] = {}
        self._objects: dict[int, Any] = {}
        self._homes: dict[int, _Home] = {}
        self._buffers: dict[int, _Buffer] = {}
        self._late: dict[int, BaseException] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._has_references = False
        self._is_building = False
        self._meta = _metaclass(self)
        self.unhandled: list[BaseException] = []
        """Exceptions of the other process that nothing is known to have caught."""
        self.is_weak = False
        """Whether two objects of the program were compared by its own code."""
        self.is_claimed = False
        """Whether code of the program compared an object of its own with a value of the tests."""

    # Requests ---------------------------------------------------------------------------------

    def fetch(self, name: str) -> Any:
        """Return a stand-in for a name of the program, or its value if it is plain data."""
        return self._request(b"G", "global", name)

    def call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function or class of the other process."""
        return self._called("call", target, "", args, kwargs)

    def _called(
        self, operation: str, target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        given = list(args)
        return self._request(b"C", operation, target, name, given, kwargs)

    def _request(self, kind: bytes, operation: str, *parts: Any) -> Any:
        try:
            content = encode([operation, *parts], self._max_bytes, self)
        except Opaque as opaque:
            self._unsendable(str(opaque)[:40])
        except TooLarge:
            self._unsendable("too large")
        write_frame(kind, content)
        while (frame := read_frame()) is not None:
            if frame[0] in (b"C", b"G"):
                self.serve(frame[1])
            else:
                return self._answered(operation, parts, *frame)
        os._exit(1)

    def _unsendable(self, what: str) -> NoReturn:
        if not self._is_tests:
            end_with(b"O", what)
        remedy = "set inside: true, or a larger checker.output_kib"
        end_with(b"U", f"the tests pass a value that cannot be sent ({what}): {remedy}")

    def _answered(self, operation: str, parts: tuple[Any, ...], kind: bytes, content: bytes) -> Any:
        try:
            value, *changed = decode(content, self._max_bytes, self)
            if changed:
                args, kwargs = changed[0]
                _update(parts[2], args)
                _update(parts[3], kwargs)
            if kind == b"V":
                return value
            if not isinstance(value, BaseException):
                raise Malformed("no exception")
        except (Malformed, ValueError, TypeError, LookupError):
            self._malformed()
        if not _ends_protocol(operation, parts, value):
            self.unhandled.append(value)
        raise value

    def _malformed(self) -> NoReturn:
        if self._is_tests:
            end_with(b"F", '{"raised": "Malformed"}')
        os._exit(1)

    def handled(self, error: BaseException | None) -> None:
        """Note that a handler of the tests has caught an exception, and with it its causes."""
        left, seen = [error], set[int]()
        while left:
            if (one := left.pop()) is not None and id(one) not in seen:
                seen.add(id(one))
                left += [one.__context__, one.__cause__]
        self.unhandled = [one for one in self.unhandled if id(one) not in seen]

    # Answers ----------------------------------------------------------------------------------

    def serve(self, content: bytes) -> None:
        """Answer a request of the other process."""
        self._has_references = False
        try:
            operation, *parts = decode(content, self._max_bytes, self)
            answer = _OPERATIONS[operation]
        except (Malformed, ValueError, TypeError, KeyError):
            self._malformed()
        before = None
        try:
            if self._is_tests:
                _permit(operation, *parts[:2])
            if len(parts) == 4:
                before = self._text(parts[2:]) if self._has_references else content
            found: list[Any] = [answer(self, *parts)]
            kind = b"V"
        except _NoGlobal:
            end_with(b"M", "")
        except BaseException as error:
            found, kind = [error], b"E"
        try:
            if before is not None:
                after = self._text(parts[2:] if before is not content else [operation, *parts])
                found += [parts[2:]] if after != before else []
            text = self._text(found)
        except Opaque as opaque:
            self._unsendable(str(opaque)[:40])
        except (TooLarge, MemoryError, RecursionError):
            self._unsendable("too large") if self._is_tests else end_with(b"B", "")
        write_frame(kind, text)

    def _text(self, value: Any) -> bytes:
        return encode(value, self._max_bytes, self)

    def _global(self, name: str) -> Any:
        try:
            assert self._find_global is not None
            return self._find_global(name)
        except LookupError as error:
            raise _NoGlobal from error

    def _call(self, target: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        made = target(*args, **kwargs)
        if isinstance(target, type) and type(made) is target and _is_own(target):
            self._number(made)  # from now on referred to, also if it is a list or a number
        return made

    def _method(self, target: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return getattr(target, name)(*args, **kwargs)

    def _special(self, target: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return getattr(type(target), name)(target, *args, **kwargs)

    def _next(self, target: Any, count: int) -> Any:
        """Items of an iterator, and whether it has ended."""
        if (late := self._late.pop(id(target), None)) is not None:
            raise late
        items: list[Any] = []
        for _ in range(count):
            try:
                items.append(next(target))
            except StopIteration:
                return [items, True]
            except BaseException as error:
                if not items:
                    raise
                self._late[id(target)] = error
                break
        return [items, False]

    def _await(self, target: Any) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()

        async def awaited() -> Any:
            return await target

        return self._loop.run_until_complete(awaited())

    def _getattr(self, target: Any, name: str) -> Any:
        return getattr(target, name)

    def _setattr(self, target: Any, name: str, value: Any) -> None:
        setattr(target, name, value)

    def _delattr(self, target: Any, name: str) -> None:
        delattr(target, name)

    def _copy(self, target: Any) -> Any:
        return copy.copy(target)

    def _deepcopy(self, target: Any) -> Any:
        return copy.deepcopy(target)

    # References -------------------------------------------------------------------------------

    def is_lent(self, value: Any) -> bool:
        """Whether a value is an object of a class that the other process has called."""
        return id(value) in self._numbers

    def refer(self, value: Any) -> list[Any]:
        """Return a reference to a value; see `Referrer`."""
        self._has_references = True
        if type(value) is _Home:
            return ["home", value.number]
        if issubclass(type(value), StandIn):
            return ["home", object.__getattribute__(value, "_home_of_stand_in").number]
        if (home := self._homes.get(id(value))) is not None:
            return ["home", home.number]
        if isinstance(value, BaseException):
            state = [list(value.args), dict(vars(value))]
            try:
                sent = self._json(state)
            except (Opaque, TooLarge):
                sent = self._json([[], {}])
            return ["exception", self._json(type(value)), sent]
        name = _NAMES.get(id(value))
        if name and (self._is_tests or isinstance(value, type) or name in _CONSTANTS):
            return ["python", name]
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, _HIDDEN):
            raise Opaque(type(value).__name__)
        number = self._number(value)
        if inspect.isawaitable(value) and not hasattr(value, "add_done_callback"):
            return ["awaitable", number]
        if isinstance(value, _FUNCTIONS) or (
            callable(value) and type(value).__module__ == "functools"
        ):
            return ["function", number, str(getattr(value, "__name__", "function"))]
        return ["object", number, self._class(type(value))]

    def _json(self, value: Any) -> Any:
        return to_json(value, self._max_bytes, self)

    def _number(self, value: Any) -> int:
        number = self._numbers.get(id(value))
        if number is None:
            if len(self._lent) >= MAX_OBJECTS:
                raise TooLarge("objects")
            number = self._numbers[id(value)] = len(self._lent)
            self._lent.append(value)  # which also keeps its id from being given again
        return number

    def _class(self, kind: type) -> list[Any]:
        """A reference to a class, which describes it when it is sent for the first time."""
        number = self._number(kind)
        if number in self._described:
            return ["class", number]
        self._described.add(number)
        is_exception = issubclass(kind, BaseException)
        bases = [
            base
            for base in kind.__bases__
            if (issubclass(base, BaseException) if is_exception else _is_own(base))
        ]
        specials: dict[str, bool] = {}
        methods: set[str] = set()
        for each in kind.__mro__:
            if each is object or any(issubclass(base, each) for base in bases):
                continue
            for name, value in list(vars(each).items()):
                if name in _SPECIALS:
                    specials.setdefault(name, value is not None)
                elif not name.startswith("__") and isinstance(value, _FUNCTIONS):
                    methods.add(name)
        description = [[] if is_exception else sorted(specials.items()), sorted(methods)]
        sent = [self._json(base) for base in bases]
        is_iterator = "__next__" in specials and not _is_own(kind)
        like = kind.__name__ if kind in _LIKE.values() else ""
        traits = [is_iterator, hasattr(kind, "__await__"), like]
        return ["described", number, kind.__name__, sent, *description, *traits]

    def resolve(self, reference: list[Any]) -> Any:
        """Return what a reference stands for; see `Referrer`."""
        self._has_references = True
        tag, first, *rest = reference
        if tag == "python":
            if self._is_tests and not isinstance(_PYTHON.get(first), type):
                return _CONSTANTS[first]
            return _PYTHON[first]
        if tag == "exception":
            return self._exception(from_json(first, self), *from_json(rest[0], self))
        if not isinstance(first, int) or isinstance(first, bool) or first < 0:
            raise Malformed("no number")
        if tag == "home":
            return self._lent[first]
        if tag == "class":
            return self._classes[first]
        if tag == "described":
            return self._classes.setdefault(first, self._described_class(first, *rest))
        if tag == "awaitable":
            return self._awaitable(_Home(first))
        if tag == "function":
            if first not in self._functions:
                self._functions[first] = self._function(_Home(first), str(rest[0]))
            return self._functions[first]
        kind = from_json(rest[0], self)
        if first not in self._objects:
            self._objects[first] = self._object(kind, first)
        return self._objects[first]

    def _object(self, kind: type, number: int) -> Any:
        if not issubclass(kind, StandIn):
            raise Malformed("no class of stand-ins")
        found = object.__new__(kind)
        object.__setattr__(found, "_home_of_stand_in", _Home(number))
        return found

    def _function(self, home: _Home, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.call(home, args, kwargs)

        call.__name__ = call.__qualname__ = name
        self._homes[id(call)] = home
        return call

    async def _awaited(self, target: Any) -> Any:
        return self._request(b"C", "await", target)

    def _awaitable(self, home: _Home) -> Any:
        found = self._awaited(home)
        self._homes[id(found)] = home
        self._objects[-1 - home.number] = found  # keeps its id from being given again
        return found

    def _exception(self, kind: Any, args: list[Any], state: dict[str, Any]) -> BaseException:
        for each in kind.__mro__:
            try:
                error = each(*args)
            except TypeError:
                continue
            if isinstance(error, BaseException):
                vars(error).update(
                    {name: value for name, value in state.items() if name.isidentifier()}
                )
                return error
        return RuntimeError(*args)

    def _described_class(
        self,
        number: int,
        name: str,
        bases: list[Any],
        specials: list[Any],
        methods: list[str],
        is_iterator: bool,
        is_awaitable: bool,
        like: str,
    ) -> type:
        name = name if name.isidentifier() else "Object"
        found = tuple(from_json(base, self) for base in bases)
        if any(issubclass(base, BaseException) for base in found):
            made = _exception_class(name, found)
        else:
            content: dict[str, Any] = {"__slots__": (), "__module__": "solution"}
            for method in methods:
                if method.isidentifier() and not method.startswith("__"):
                    content[method] = self._method_stand_in(method)
            for special, is_callable in specials:
                if special in _SPECIALS:
                    content[special] = self._special_stand_in(special) if is_callable else None
            if "__eq__" in content:
                content.setdefault("__hash__", None)
            if is_awaitable:
                content["__await__"] = lambda own: self._awaited(own).__await__()
            if is_iterator:
                content |= {
                    "__iter__": lambda own: own,
                    "__next__": lambda own: self._next_item(own),
                }
            if like in _LIKE:
                content["__class__"] = property(lambda own: _LIKE[like])
            content |= {"__copy__": self._whole("copy"), "__getattr__": self._whole("getattr")}
            content |= {"__deepcopy__": lambda own, memo: self._request(b"C", "deepcopy", own)}
            content |= {"__setattr__": self._whole("setattr")}
            content |= {"__delattr__": self._whole("delattr")}
            self._is_building = True
            try:
                made = self._meta(name, found or (StandIn,), content)
            finally:
                self._is_building = False
        self._homes[id(made)] = _Home(number)
        return made

    def _whole(self, operation: str) -> Any:
        kind = b"C" if operation == "copy" else b"G"
        return lambda own, *parts: self._request(kind, operation, own, *parts)

    def _method_stand_in(self, name: str) -> Any:
        def call(own: Any, *args: Any, **kwargs: Any) -> Any:
            return self._called("method", own, name, args, kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def _special_stand_in(self, name: str) -> Any:
        def call(own: Any, *args: Any, **kwargs: Any) -> Any:
            value = self._called("special", own, name, args, kwargs)
            if self._is_tests and args and name in _COMPARISONS | {"__contains__"}:
                return self._compared(own, name, args[0], value)
            return value

        return call

    def _next_item(self, own: Any) -> Any:
        number = object.__getattribute__(own, "_home_of_stand_in").number
        buffer = self._buffers.setdefault(number, _Buffer())
        if not buffer.items and not buffer.is_ended:
            items, buffer.is_ended = self._request(b"C", "next", own, buffer.size())
            buffer.items.extend(items)
        if buffer.items:
            return buffer.items.popleft()
        raise StopIteration

    # What the tests may believe ---------------------------------------------------------------

    def _compared(self, own: Any, name: str, other: Any, value: Any) -> Any:
        """Return the outcome of a comparison that code of the program has decided.

        What is equal to everything, or contains everything, is not believed. Everything else that
        it says of its objects among each other is noted as weak, of values of the tests as a claim.
        """
        if value is NotImplemented:
            return value
        value = bool(value)
        says_same = value is (name != "__ne__")
        if name in ("__eq__", "__ne__", "__contains__") and own is not other:
            if not says_same:
                return value
            if self._is_said_of(own, name, _decoy(other)) is (name != "__ne__"):
                return not value
        if own is not other:
            self.is_weak = True
            if name != "__contains__" and not self._is_stand_in(other):
                self.is_claimed = True
        return value

    def _is_said_of(self, own: Any, name: str, other: Any) -> bool | None:
        """What code of the program says of a value that it cannot have expected."""
        try:
            value = self._called("special", own, name, (other,), {})
            return None if value is NotImplemented else bool(value)
        except Exception as error:  # such as for an attribute that the value lacks
            self.handled(error)
            return None

    def _is_stand_in(self, value: Any) -> bool:
        return issubclass(type(value), StandIn) or id(value) in self._homes

    def refuse_derived(self) -> None:
        """End tests that derive a class from one of the program's."""
        if not self._is_building:
            end_with(b"U", "the tests derive a class from one of the program: set inside: true")


class _Buffer:
    """Items of an iterator that were fetched ahead."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.is_ended = False
        self._num_fetched = 0

    def size(self) -> int:
        """Number of items to fetch: one by one at first, so that short uses are exact."""
        size = 1 if self._num_fetched < _EXACT_ITEMS else min(self._num_fetched, _MAX_ITEMS)
        self._num_fetched += size
        return size


class _NoGlobal(Exception):
    """The program does not define a name."""


def _metaclass(peer: Peer) -> Any:
    """The class of a peer's classes of stand-ins, so that classes, too, are used from afar."""

    class StandInType(type):
        def __new__(cls, *args: Any) -> Any:
            peer.refuse_derived()
            return super().__new__(cls, *args)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return peer.call(cls, args, kwargs)

        def __getattr__(cls, name: str) -> Any:
            return peer._request(b"G", "getattr", cls, name)

        def __setattr__(cls, name: str, value: Any) -> None:
            peer._request(b"G", "setattr", cls, name, value)

        def __iter__(cls) -> Iterator[Any]:
            return iter(peer._called("special", cls, "__iter__", (), {}))

        def __getitem__(cls, key: Any) -> Any:
            return peer._called("special", cls, "__getitem__", (key,), {})

        def __contains__(cls, value: Any) -> bool:
            return bool(peer._called("special", cls, "__contains__", (value,), {}))

    return StandInType


def _permit(operation: str, target: Any, name: Any = "") -> None:
    """Refuse what a program may not do with objects of its tests: look into them.

    Raises:
        AttributeError: it asks for what leads to the tests' own names and values.
    """
    if operation in ("call", "next", "await", "copy", "deepcopy"):
        return
    if operation == "special" and name in _SPECIALS and not isinstance(target, _FUNCTIONS):
        return
    is_closed = isinstance(target, (*_FUNCTIONS, types.GeneratorType, types.CoroutineType))
    if operation == "global" or is_closed or not isinstance(name, str) or name.startswith("_"):
        raise AttributeError("not shown to the program")


def _is_own(kind: type) -> bool:
    """Whether a class is of the program or of the tests, not of the standard library."""
    return kind.__module__ in ("solution", "__main__")


def _ends_protocol(operation: str, parts: tuple[Any, ...], error: BaseException) -> bool:
    """Whether an exception is how Python's protocols say that there is nothing more."""
    name = parts[1] if len(parts) > 1 else ""
    return (
        (operation == "getattr" and isinstance(error, AttributeError))
        or (name == "__next__" and isinstance(error, StopIteration))
        or (name == "__getitem__" and isinstance(error, IndexError))
        or (operation == "await" and isinstance(error, StopAsyncIteration))
    )


def _exception_class(name: str, bases: tuple[type, ...]) -> type:
    try:
        return type(name, bases, {"__module__": "solution"})
    except TypeError:  # bases that do not go together
        return type(name, bases[:1], {"__module__": "solution"})


def _decoy(value: Any) -> Any:
    """A value of the same type that nobody could expect."""
    number = random.SystemRandom().getrandbits(40)
    if isinstance(value, bool):
        return f"{number:x}"
    if isinstance(value, int | float):
        return value + number + 1_000_003
    if isinstance(value, list | tuple):
        return type(value)([*value, number])
    return f"{number:x}"


def _update(old: Any, new: Any) -> None:
    """Make containers what the other process has made of them, in place."""
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


_LIKE: Mapping[str, type] = {
    "generator": types.GeneratorType,
    "async_generator": types.AsyncGeneratorType,
}
"""Types of Python's own as which their stand-ins pass."""
_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "global": Peer._global,
    "call": Peer._call,
    "method": Peer._method,
    "special": Peer._special,
    "next": Peer._next,
    "await": Peer._await,
    "getattr": Peer._getattr,
    "setattr": Peer._setattr,
    "delattr": Peer._delattr,
    "copy": Peer._copy,
    "deepcopy": Peer._deepcopy,
}
