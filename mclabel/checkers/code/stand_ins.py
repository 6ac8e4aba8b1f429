"""References to what stays in another process, and the stand-ins that are used in its place.

A value that is no plain data is lent: it is kept here under a number. The other process makes a
function or an object of the same use from the reference. A class is described when it is sent for
the first time: its name, bases, methods and special methods. Standard library only.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from mclabel.checkers.code.codec import Malformed, Opaque, TooLarge, from_json, to_json
from mclabel.checkers.code.frames import end_with

MAX_OBJECTS = 200_000
"""Objects of one process that the other may refer to."""
_EXACT_ITEMS, _MAX_ITEMS = 64, 1_024
"""Items of an iterator that are fetched one by one, and largest number fetched at once behind."""
_SLOT = "_home_of_stand_in"
COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"}
_BINARY = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "matmul", "and", "or",
    "xor", "lshift", "rshift",
)  # fmt: skip
ARITHMETIC = {f"__{prefix}{name}__" for name in _BINARY for prefix in ("", "r", "i")}
_OTHERS = (
    "len", "length_hint", "iter", "next", "reversed", "contains", "getitem", "setitem", "delitem",
    "call", "enter", "exit", "hash", "bool", "str", "repr", "format", "int", "float", "complex",
    "index", "bytes", "round", "trunc", "floor", "ceil", "abs", "neg", "pos", "invert", "aiter",
    "anext", "aenter", "aexit", "fspath", "dir",
)  # fmt: skip
SPECIALS = frozenset(ARITHMETIC | COMPARISONS | {f"__{name}__" for name in _OTHERS})
"""Special methods that a stand-in may have."""
_HIDDEN = (
    types.ModuleType, types.FrameType, types.CodeType, types.TracebackType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
"""Types whose objects are never referred to."""
FUNCTIONS = (
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


class Home:
    """The number of an object that the other process has."""

    def __init__(self, number: int) -> None:
        self.number = number


class StandIn:
    """Base of the classes whose objects stand for objects of the other process."""

    __slots__ = (_SLOT,)


def _number_of(stand_in: StandIn) -> int:
    return int(object.__getattribute__(stand_in, _SLOT).number)


class Asker(Protocol):
    """Sends the requests of stand-ins."""

    def request(self, kind: bytes, operation: str, *parts: Any) -> Any:
        """Send a request and return its answer, or raise the exception that it ended with."""

    def called(
        self, operation: str, target: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Send a request that runs code of the other process."""

    def believed(self, own: Any, name: str, args: tuple[Any, ...], value: Any) -> Any:
        """Return what is believed of what a special method of the other process gave."""


class References:
    """What this process lends, and the stand-ins for what it was lent; a `Referrer`."""

    def __init__(self, asker: Asker, max_bytes: int, *, is_tests: bool) -> None:
        """Start with none.

        Args:
            asker: sends requests.
            max_bytes: of the text of one message.
            is_tests: whether this is the side of the tests, which trusts the other less.
        """
        self.asker, self._max_bytes, self._is_tests = asker, max_bytes, is_tests
        self._lent: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._described: set[int] = set()
        self._classes: dict[int, type] = {}
        self._functions: dict[int, Any] = {}
        self._objects: dict[int, Any] = {}
        self._homes: dict[int, Home] = {}
        self._buffers: dict[int, _Buffer] = {}
        self._is_building = False
        self._meta = _metaclass(self)
        self.was_used = False
        """Whether a reference was written or read since this was set to false."""

    def is_stand_in(self, value: Any) -> bool:
        """Whether a value stands for one of the other process."""
        return issubclass(type(value), StandIn) or id(value) in self._homes

    def refuse_derived(self) -> None:
        """End tests that derive a class from one of the program's."""
        if not self._is_building:
            end_with(b"U", "the tests derive a class from one of the program: set inside: true")

    def is_lent(self, value: Any) -> bool:
        """Whether a value was lent, or is an object of a class of ours that was."""
        kind = type(value)
        return id(value) in self._numbers or (is_own(kind) and id(kind) in self._numbers)

    def refer(self, value: Any) -> list[Any]:
        """Return a reference to a value; see `Referrer`."""
        self.was_used = True
        if type(value) is Home:
            return ["home", value.number]
        if issubclass(type(value), StandIn):
            return ["home", _number_of(value)]
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
        number = self.number(value)
        if inspect.isawaitable(value) and not hasattr(value, "add_done_callback"):
            return ["awaitable", number]
        if isinstance(value, FUNCTIONS) or (
            callable(value) and type(value).__module__ == "functools"
        ):
            return ["function", number, str(getattr(value, "__name__", "function"))]
        return ["object", number, self._class(type(value))]

    def _json(self, value: Any) -> Any:
        return to_json(value, self._max_bytes, self)

    def number(self, value: Any) -> int:
        """Lend a value; returns its number.

        Raises:
            TooLarge: too many are lent.
        """
        number = self._numbers.get(id(value))
        if number is None:
            if len(self._lent) >= MAX_OBJECTS:
                raise TooLarge("objects")
            number = self._numbers[id(value)] = len(self._lent)
            self._lent.append(value)  # which also keeps its id from being given again
        return number

    def _class(self, kind: type) -> list[Any]:
        """A reference to a class, which describes it when it is sent for the first time."""
        number = self.number(kind)
        if number in self._described:
            return ["class", number]
        self._described.add(number)
        is_exception = issubclass(kind, BaseException)
        bases = [
            base
            for base in kind.__bases__
            if (issubclass(base, BaseException) if is_exception else is_own(base))
        ]
        specials: dict[str, bool] = {}
        methods: set[str] = set()
        for each in kind.__mro__:
            if each is object or any(issubclass(base, each) for base in bases):
                continue
            for name, value in list(vars(each).items()):
                if name in SPECIALS:
                    specials.setdefault(name, value is not None)
                elif not name.startswith("__") and isinstance(value, FUNCTIONS):
                    methods.add(name)
        description = [[] if is_exception else sorted(specials.items()), sorted(methods)]
        sent = [self._json(base) for base in bases]
        is_iterator = "__next__" in specials and not is_own(kind)
        like = kind.__name__ if kind in _LIKE.values() else ""
        traits = [is_iterator, hasattr(kind, "__await__"), like]
        return ["described", number, kind.__name__, sent, *description, *traits]

    def resolve(self, reference: list[Any]) -> Any:
        """Return what a reference stands for; see `Referrer`."""
        self.was_used = True
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
            return self._awaitable(Home(first))
        if tag == "function":
            if first not in self._functions:
                self._functions[first] = self._function(Home(first), str(rest[0]))
            return self._functions[first]
        kind = from_json(rest[0], self)
        if first not in self._objects:
            self._objects[first] = self._object(kind, first)
        return self._objects[first]

    def _object(self, kind: type, number: int) -> Any:
        if not issubclass(kind, StandIn):
            raise Malformed("no class of stand-ins")
        found = object.__new__(kind)
        object.__setattr__(found, _SLOT, Home(number))
        return found

    def _function(self, home: Home, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.asker.called("call", home, "", args, kwargs)

        call.__name__ = call.__qualname__ = name
        self._homes[id(call)] = home
        return call

    async def _awaited(self, target: Any) -> Any:
        return self.asker.request(b"C", "await", target)

    def _awaitable(self, home: Home) -> Any:
        found = self._awaited(home)
        self._homes[id(found)] = home
        self._objects[-1 - home.number] = found  # keeps its id from being given again
        return found

    def _exception(self, kind: Any, args: list[Any], state: dict[str, Any]) -> BaseException:
        if not issubclass(kind, BaseException):
            raise Malformed("no exception")
        for each in kind.__mro__:
            try:
                error: BaseException = each(*args)
            except TypeError:  # it wants other arguments: the next of its bases may take these
                continue
            vars(error).update({name: one for name, one in state.items() if name.isidentifier()})
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
                if method.isidentifier() and not method.startswith(("__", _SLOT)):
                    content[method] = self._method_stand_in(method)
            for special, is_callable in specials:
                if special in SPECIALS:
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
            content |= {"__deepcopy__": lambda own, memo: self.asker.request(b"C", "deepcopy", own)}
            content |= {"__setattr__": self._whole("setattr")}
            content |= {"__delattr__": self._whole("delattr")}
            self._is_building = True
            try:
                made = self._meta(name, found or (StandIn,), content)
            finally:
                self._is_building = False
        self._homes[id(made)] = Home(number)
        return made

    def _whole(self, operation: str) -> Any:
        kind = b"C" if operation == "copy" else b"G"
        return lambda own, *parts: self.asker.request(kind, operation, own, *parts)

    def _method_stand_in(self, name: str) -> Any:
        def call(own: Any, *args: Any, **kwargs: Any) -> Any:
            return self.asker.called("method", own, name, args, kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def _special_stand_in(self, name: str) -> Any:
        def call(own: Any, *args: Any, **kwargs: Any) -> Any:
            value = self.asker.called("special", own, name, args, kwargs)
            return self.asker.believed(own, name, args, value) if self._is_tests else value

        return call

    def _next_item(self, own: Any) -> Any:
        number = _number_of(own)
        buffer = self._buffers.setdefault(number, _Buffer())
        if not buffer.items and not buffer.is_ended:
            items, buffer.is_ended = self.asker.request(b"C", "next", own, buffer.size())
            buffer.items.extend(items)
        if buffer.items:
            return buffer.items.popleft()
        raise StopIteration


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


def _metaclass(references: References) -> Any:
    """The class of all classes of stand-ins, so that classes, too, are used from afar."""

    class StandInType(type):
        def __new__(cls, *args: Any) -> Any:
            references.refuse_derived()
            return super().__new__(cls, *args)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return references.asker.called("call", cls, "", args, kwargs)

        def __getattr__(cls, name: str) -> Any:
            return references.asker.request(b"G", "getattr", cls, name)

        def __setattr__(cls, name: str, value: Any) -> None:
            references.asker.request(b"G", "setattr", cls, name, value)

        def __iter__(cls) -> Iterator[Any]:
            return iter(references.asker.called("special", cls, "__iter__", (), {}))

        def __getitem__(cls, key: Any) -> Any:
            return references.asker.called("special", cls, "__getitem__", (key,), {})

        def __contains__(cls, value: Any) -> bool:
            return bool(references.asker.called("special", cls, "__contains__", (value,), {}))

    return StandInType


def is_own(kind: type) -> bool:
    """Whether a class is of the program or of the tests, not of the standard library."""
    return kind.__module__ in ("solution", "__main__")


def _exception_class(name: str, bases: tuple[type, ...]) -> type:
    try:
        return type(name, bases, {"__module__": "solution"})
    except TypeError:  # bases that do not go together
        return type(name, bases[:1], {"__module__": "solution"})


_LIKE: Mapping[str, type] = {
    "generator": types.GeneratorType,
    "async_generator": types.AsyncGeneratorType,
}
"""Types of Python's own as which their stand-ins pass."""
