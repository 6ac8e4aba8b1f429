"""References to objects of another process, and proxies that stand for these objects.

The two processes run a program and its tests. A value that is not plain data is lent: its process
keeps it under a number and sends a reference with this number. The other process creates a proxy
function or object from the reference. When a class is first sent, the reference contains its name,
bases and methods. The module uses only the standard library.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from mclabel.checkers.code.codec import (
    Malformed,
    NotReferable,
    TooLarge,
    decode_json_value,
    encode_json_value,
)
from mclabel.checkers.code.frames import write_frame_and_exit

MAX_OBJECTS = 200_000
"""Maximum number of objects that one process lends to the other."""
_EXACT_ITEMS, _MAX_ITEMS = 64, 1_024
"""Number of items at the beginning of an iterator that are fetched one by one, and maximum number
of items in each later batch."""
_SLOT = "_remote_id_of_proxy"
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
"""Special methods that a proxy may have."""
_HIDDEN = (
    types.ModuleType, types.FrameType, types.CodeType, types.TracebackType,
    types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
"""Types whose objects are never lent."""
FUNCTIONS = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
    types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
_CONSTANTS: Mapping[str, Any] = {"NotImplemented": NotImplemented, "Ellipsis": Ellipsis}
_PYTHON: Mapping[str, Any] = {
    **{name: value for name, value in vars(builtins).items() if not name.startswith("_")},
    **_CONSTANTS,
}
"""Built-in functions, types and constants, which both processes have."""
_NAMES = {id(value): name for name, value in _PYTHON.items() if callable(value)}
_NAMES |= {id(value): name for name, value in _CONSTANTS.items()}


class RemoteId:
    """Number under which the other process has lent an object to this process."""

    def __init__(self, number: int) -> None:
        self.number = number


class Proxy:
    """Base class of proxies for objects of the other process."""

    __slots__ = (_SLOT,)


def _get_remote_number(proxy: Proxy) -> int:
    return int(object.__getattribute__(proxy, _SLOT).number)


class RequestSender(Protocol):
    """Sender of the requests of proxies to the other process."""

    def request(self, kind: bytes, operation: str, *parts: Any) -> Any:
        """Send a request, and return its result.

        If the other process reports an exception, raise it.

        Args:
            kind: `C` for a request that may run code of the program or the tests, else `G`.
            operation: name of the operation, such as `getattr`.
            parts: operands of the operation.
        """

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

    def choose_trusted_result(
        self, proxy: Any, name: str, args: tuple[Any, ...], value: Any
    ) -> Any:
        """Return a result that the tests may trust for a special method of the program.

        A program could make its objects equal to any value.

        Args:
            proxy: proxy of the program's object.
            name: name of the special method.
            args: positional arguments that the tests passed.
            value: result that the program's code returned.
        """


class References:
    """The objects that this process has lent, and the proxies of the other process's objects.

    The class implements the protocol `Referrer`.
    """

    def __init__(self, sender: RequestSender, max_bytes: int, *, is_tests: bool) -> None:
        """Create an empty collection of references.

        Args:
            sender: sends requests to the other process.
            max_bytes: maximum bytes of one message.
            is_tests: True in the process of the tests, which does not trust the program's process.
        """
        self.sender, self._max_bytes, self._is_tests = sender, max_bytes, is_tests
        self._lent: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._described: set[int] = set()
        self._classes: dict[int, type] = {}
        self._functions: dict[int, Any] = {}
        self._objects: dict[int, Any] = {}
        self._remote_ids: dict[int, RemoteId] = {}
        self._buffers: dict[int, _ItemBuffer] = {}
        self._is_building = False
        self._meta = _make_metaclass(self)
        self.was_used = False
        """True if a reference was written or read since the flag was last cleared."""

    def is_proxy(self, value: Any) -> bool:
        """Return whether a value is a proxy."""
        return issubclass(type(value), Proxy) or id(value) in self._remote_ids

    def refuse_derived_class(self) -> None:
        """End the tests with a message, unless `References` itself is creating a proxy class.

        Tests that derive a class from a class of the program cannot run in another process.
        """
        if not self._is_building:
            write_frame_and_exit(
                b"U", "the tests derive a class from a class of the program: set inside: true"
            )

    def is_lent(self, value: Any) -> bool:
        """Return whether a value must be sent as a reference, although it may be plain data.

        That is so if it was lent before, or if its class was lent and is not of the standard
        library.
        """
        kind = type(value)
        return id(value) in self._numbers or (
            is_user_defined_class(kind) and id(kind) in self._numbers
        )

    def make_reference(self, value: Any) -> list[Any]:
        """Return a reference to a value, as a JSON list that begins with a tag.

        Raises:
            NotReferable: references to the value are not allowed.
        """
        self.was_used = True
        if type(value) is RemoteId:
            return ["home", value.number]
        if issubclass(type(value), Proxy):
            return ["home", _get_remote_number(value)]
        if (remote_id := self._remote_ids.get(id(value))) is not None:
            return ["home", remote_id.number]
        if isinstance(value, BaseException):
            state = [list(value.args), dict(vars(value))]
            try:
                encoded_state = self._encode_with_references(state)
            except (NotReferable, TooLarge):
                encoded_state = self._encode_with_references([[], {}])
            return ["exception", self._encode_with_references(type(value)), encoded_state]
        name = _NAMES.get(id(value))
        if name and (self._is_tests or isinstance(value, type) or name in _CONSTANTS):
            return ["python", name]
        if isinstance(value, type):
            return self._make_class_reference(value)
        if isinstance(value, _HIDDEN):
            raise NotReferable(type(value).__name__)
        number = self.lend_object(value)
        if inspect.isawaitable(value) and not hasattr(value, "add_done_callback"):
            return ["awaitable", number]
        if isinstance(value, FUNCTIONS) or (
            callable(value) and type(value).__module__ == "functools"
        ):
            return ["function", number, str(getattr(value, "__name__", "function"))]
        return ["object", number, self._make_class_reference(type(value))]

    def _encode_with_references(self, value: Any) -> Any:
        return encode_json_value(value, self._max_bytes, self)

    def lend_object(self, value: Any) -> int:
        """Lend a value and return its number.

        Raises:
            TooLarge: too many objects are lent.
        """
        number = self._numbers.get(id(value))
        if number is None:
            if len(self._lent) >= MAX_OBJECTS:
                raise TooLarge("objects")
            number = self._numbers[id(value)] = len(self._lent)
            self._lent.append(value)  # also prevents Python from reusing the id of the value
        return number

    def _make_class_reference(self, kind: type) -> list[Any]:
        """Return a reference to a class. The first one also describes the class."""
        number = self.lend_object(kind)
        if number in self._described:
            return ["class", number]
        self._described.add(number)
        is_exception = issubclass(kind, BaseException)
        bases = [
            base
            for base in kind.__bases__
            if (issubclass(base, BaseException) if is_exception else is_user_defined_class(base))
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
        sent = [self._encode_with_references(base) for base in bases]
        is_iterator = "__next__" in specials and not is_user_defined_class(kind)
        like = kind.__name__ if kind in _LIKE.values() else ""
        traits = [is_iterator, hasattr(kind, "__await__"), like]
        return ["described", number, kind.__name__, sent, *description, *traits]

    def resolve_reference(self, reference: list[Any]) -> Any:
        """Return the value for which a received reference stands, or a proxy of it.

        Raises:
            Malformed: the reference is invalid.
        """
        self.was_used = True
        tag, first, *rest = reference
        if tag == "python":
            if self._is_tests and not isinstance(_PYTHON.get(first), type):
                return _CONSTANTS[first]
            return _PYTHON[first]
        if tag == "exception":
            return self._make_exception(
                decode_json_value(first, self), *decode_json_value(rest[0], self)
            )
        if not isinstance(first, int) or isinstance(first, bool) or first < 0:
            raise Malformed("the number of an object must be an integer from 0")
        if tag == "home":
            return self._lent[first]
        if tag == "class":
            return self._classes[first]
        if tag == "described":
            return self._classes.setdefault(first, self._make_proxy_class(first, *rest))
        if tag == "awaitable":
            return self._make_awaitable_proxy(RemoteId(first))
        if tag == "function":
            if first not in self._functions:
                self._functions[first] = self._make_function_proxy(RemoteId(first), str(rest[0]))
            return self._functions[first]
        kind = decode_json_value(rest[0], self)
        if first not in self._objects:
            self._objects[first] = self._make_object_proxy(kind, first)
        return self._objects[first]

    def _make_object_proxy(self, kind: type, number: int) -> Any:
        if not issubclass(kind, Proxy):
            raise Malformed("not a proxy class")
        proxy = object.__new__(kind)
        object.__setattr__(proxy, _SLOT, RemoteId(number))
        return proxy

    def _make_function_proxy(self, remote_id: RemoteId, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.sender.request_call("call", remote_id, "", args, kwargs)

        call.__name__ = call.__qualname__ = name
        self._remote_ids[id(call)] = remote_id
        return call

    async def _await_remotely(self, target: Any) -> Any:
        return self.sender.request(b"C", "await", target)

    def _make_awaitable_proxy(self, remote_id: RemoteId) -> Any:
        coroutine = self._await_remotely(remote_id)
        self._remote_ids[id(coroutine)] = remote_id
        self._objects[-1 - remote_id.number] = (
            coroutine  # prevents Python from reusing the id of the coroutine
        )
        return coroutine

    def _make_exception(self, kind: Any, args: list[Any], state: dict[str, Any]) -> BaseException:
        if not issubclass(kind, BaseException):
            raise Malformed("not an exception")
        for each in kind.__mro__:
            try:
                error: BaseException = each(*args)
            except TypeError:  # a base class may accept these arguments
                continue
            vars(error).update(
                {name: value for name, value in state.items() if name.isidentifier()}
            )
            return error
        return RuntimeError(*args)

    def _make_proxy_class(
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
        base_classes = tuple(decode_json_value(base, self) for base in bases)
        if any(issubclass(base, BaseException) for base in base_classes):
            made = _make_exception_class(name, base_classes)
        else:
            content: dict[str, Any] = {"__slots__": (), "__module__": "solution"}
            for method in methods:
                if method.isidentifier() and not method.startswith(("__", _SLOT)):
                    content[method] = self._make_method_proxy(method)
            for special, is_callable in specials:
                if special in SPECIALS:
                    content[special] = self._make_special_proxy(special) if is_callable else None
            if "__eq__" in content:
                content.setdefault("__hash__", None)
            if is_awaitable:
                content["__await__"] = lambda own: self._await_remotely(own).__await__()
            if is_iterator:
                content |= {
                    "__iter__": lambda own: own,
                    "__next__": lambda own: self._fetch_next_item(own),
                }
            if like in _LIKE:
                content["__class__"] = property(lambda own: _LIKE[like])
            content |= {
                "__copy__": self._make_request_method("copy"),
                "__getattr__": self._make_request_method("getattr"),
            }
            content |= {
                "__deepcopy__": lambda own, memo: self.sender.request(b"C", "deepcopy", own)
            }
            content |= {"__setattr__": self._make_request_method("setattr")}
            content |= {"__delattr__": self._make_request_method("delattr")}
            self._is_building = True
            try:
                made = self._meta(name, base_classes or (Proxy,), content)
            finally:
                self._is_building = False
        self._remote_ids[id(made)] = RemoteId(number)
        return made

    def _make_request_method(self, operation: str) -> Any:
        kind = b"C" if operation == "copy" else b"G"
        return lambda own, *parts: self.sender.request(kind, operation, own, *parts)

    def _make_method_proxy(self, name: str) -> Any:
        def call(own: Any, *args: Any, **kwargs: Any) -> Any:
            return self.sender.request_call("method", own, name, args, kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def _make_special_proxy(self, name: str) -> Any:
        def call(own: Any, *args: Any, **kwargs: Any) -> Any:
            value = self.sender.request_call("special", own, name, args, kwargs)
            return (
                self.sender.choose_trusted_result(own, name, args, value)
                if self._is_tests
                else value
            )

        return call

    def _fetch_next_item(self, own: Any) -> Any:
        buffer = self._buffers.setdefault(_get_remote_number(own), _ItemBuffer())
        if not buffer.items and not buffer.is_ended:
            items, buffer.is_ended = self.sender.request(
                b"C", "next", own, buffer.choose_next_batch_size()
            )
            buffer.items.extend(items)
        if buffer.items:
            return buffer.items.popleft()
        raise StopIteration


class _ItemBuffer:
    """Items of the other process's iterator that were fetched before this process uses them."""

    def __init__(self) -> None:
        self.items: deque[Any] = deque()
        self.is_ended = False
        self._num_fetched = 0

    def choose_next_batch_size(self) -> int:
        """Return the number of items to fetch from the iterator in the next request.

        The first items are fetched one by one. So an iterator does not advance beyond the items
        that are used if only a few are used. Later batches become larger.
        """
        size = 1 if self._num_fetched < _EXACT_ITEMS else min(self._num_fetched, _MAX_ITEMS)
        self._num_fetched += size
        return size


def _make_metaclass(references: References) -> Any:
    """Return the metaclass of proxy classes, which forwards operations on the classes themselves.

    Args:
        references: references of this process, whose sender forwards the operations.
    """

    class ProxyType(type):
        def __new__(cls, *args: Any) -> Any:
            references.refuse_derived_class()
            return super().__new__(cls, *args)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return references.sender.request_call("call", cls, "", args, kwargs)

        def __getattr__(cls, name: str) -> Any:
            return references.sender.request(b"G", "getattr", cls, name)

        def __setattr__(cls, name: str, value: Any) -> None:
            references.sender.request(b"G", "setattr", cls, name, value)

        def __iter__(cls) -> Iterator[Any]:
            return iter(references.sender.request_call("special", cls, "__iter__", (), {}))

        def __getitem__(cls, key: Any) -> Any:
            return references.sender.request_call("special", cls, "__getitem__", (key,), {})

        def __contains__(cls, value: Any) -> bool:
            return bool(
                references.sender.request_call("special", cls, "__contains__", (value,), {})
            )

    return ProxyType


def is_user_defined_class(kind: type) -> bool:
    """Return whether the program or the tests, rather than the standard library, define a class."""
    return kind.__module__ in ("solution", "__main__")


def _make_exception_class(name: str, bases: tuple[type, ...]) -> type:
    try:
        return type(name, bases, {"__module__": "solution"})
    except TypeError:  # incompatible bases
        return type(name, bases[:1], {"__module__": "solution"})


_LIKE: Mapping[str, type] = {
    "generator": types.GeneratorType,
    "async_generator": types.AsyncGeneratorType,
}
"""Built-in types of generators, by name. A proxy of a generator reports the type as its class."""
