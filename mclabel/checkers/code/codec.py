"""Encodes typed values as JSON text for pipes between processes that do not trust each other.

Plain values are numbers, texts, containers and a few more types of the standard library. Decoding
never uses pickle and builds only plain values. A value of a subclass is sent as its nearest plain
base class, so its `__eq__` is not sent. A `Referrer` handles all other values. The module uses only
the standard library, because it also runs inside the sandbox (box).
"""

from __future__ import annotations

import datetime
import json
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol

MAX_DEPTH = 100
"""Maximum nesting depth of containers."""
MAX_ITEMS = 1_000_000
"""Maximum number of values in one text, including those in containers."""


class NotReferable(Exception):
    """A value that is not plain data cannot be sent as a reference either."""


class TooLarge(Exception):
    """A value exceeds the limit on depth, items or bytes."""


class Malformed(Exception):
    """A received text cannot have been written by `encode`."""


class Referrer(Protocol):
    """Writes and reads references, which stand for values that are not plain data."""

    def make_reference(self, value: Any) -> list[Any]:
        """Return a reference to a value, as a JSON list that begins with a tag from `REFERENCES`.

        Raises:
            Opaque: references to the value are not allowed.
        """

    def is_lent(self, value: Any) -> bool:
        """Return whether a value is sent as a reference although it is plain data."""

    def resolve_reference(self, reference: list[Any]) -> Any:
        """Return the value for which a received reference stands.

        Args:
            reference: JSON list that begins with a tag from `REFERENCES`.

        Raises:
            Malformed: the reference is invalid.
        """


REFERENCES = frozenset(
    {"awaitable", "class", "described", "exception", "function", "home", "object", "python"}
)
"""Tags that references begin with."""


def encode(value: object, max_bytes: int, referrer: Referrer | None = None) -> bytes:
    """Encode a value as JSON text.

    Args:
        value: value of a plain type or of a subclass.
        max_bytes: maximum length of the text in bytes.
        referrer: writes references to all other values; None if every value must be plain.

    Raises:
        Opaque: the value, or a value inside it, is not plain and cannot be sent as a reference.
        TooLarge: the value exceeds a limit or contains itself.
    """
    text = json.dumps(to_json(value, max_bytes, referrer), separators=(",", ":"))
    if len(text) > max_bytes:
        raise TooLarge("bytes")
    return text.encode("ascii")


def to_json(value: object, max_bytes: int, referrer: Referrer | None) -> Any:
    """Return the JSON value that `encode` writes as text.

    The arguments and errors are those of `encode`.
    """
    try:
        return _Writer(max_bytes, referrer).to_json_form(value, 0)
    except RecursionError as error:
        raise TooLarge("depth") from error


def decode(text: bytes, max_bytes: int, referrer: Referrer | None = None) -> Any:
    """Decode a value that `encode` wrote. The sender is not trusted.

    Args:
        text: the JSON text.
        max_bytes: maximum length of the text in bytes.
        referrer: resolves references; None if references are not allowed.

    Raises:
        Malformed: `encode` cannot have written the text.
    """
    if len(text) > max_bytes:
        raise Malformed("too long")
    try:
        return from_json(json.loads(text), referrer)
    except Malformed:
        raise
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise Malformed(type(error).__name__) from error


class _Writer:
    """Writer of one text, which counts items and bytes against their limits."""

    def __init__(self, max_bytes: int, referrer: Referrer | None) -> None:
        self._items, self._bytes, self._referrer = MAX_ITEMS, max_bytes, referrer

    def to_json_form(self, value: Any, depth: int) -> Any:
        """Return the JSON form of a value: itself, or a list that begins with a tag."""
        self._items -= 1
        if self._items < 0 or depth > MAX_DEPTH:
            raise TooLarge("items" if self._items < 0 else "depth")
        if self._referrer is not None and self._referrer.is_lent(value):
            return self._referrer.make_reference(value)
        for base in type(value).__mro__:
            if (write := _WRITERS.get(base)) is not None:
                return write(self, value, depth)
        if self._referrer is not None:
            return self._referrer.make_reference(value)
        raise NotReferable(type(value).__name__)

    def to_json_forms(self, values: Iterable[Any], depth: int) -> list[Any]:
        """Return the JSON forms of a container's values."""
        return [self.to_json_form(value, depth + 1) for value in values]

    def write_text(self, value: str, _: int) -> Any:
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError:  # JSON would join two lone surrogates into one character
            return ["u", self.count_bytes(text.encode("utf-32-le", "surrogatepass").hex())]
        return self.count_bytes(text)

    def count_bytes(self, text: Any) -> Any:
        """Return a text after counting its characters as bytes of the whole text.

        Raises:
            TooLarge: the whole text is longer than its limit.
        """
        self._bytes -= len(text)
        if self._bytes < 0:
            raise TooLarge("bytes")
        return text

    def write_integer(self, value: int, _: int) -> Any:
        number = int.__add__(value, 0)
        if number.bit_length() <= 63:
            return number
        self._bytes -= number.bit_length() // 4
        if self._bytes < 0:
            raise TooLarge("bytes")
        return ["i", f"{number:x}"]

    def write_mapping(self, value: dict[Any, Any], depth: int) -> Any:
        return ["d", *self.to_json_forms(chain.from_iterable(dict.items(value)), depth)]

    def write_tuple(self, value: tuple[Any, ...], depth: int) -> Any:
        """Return the JSON form of a tuple, with its field names if it is a namedtuple."""
        fields: Any = getattr(type(value), "_fields", None)
        items = self.to_json_forms(tuple.__iter__(value), depth)
        if type(value) is not tuple and _are_names(fields) and len(fields) == tuple.__len__(value):
            return ["nt", " ".join([type(value).__name__, *fields]), *items]
        return ["t", *items]


_Write = Callable[[_Writer, Any, int], Any]


def _make_tagged_list_writer(tag: str, each: Callable[[Any], Iterable[Any]]) -> _Write:
    return lambda writer, value, depth: [tag, *writer.to_json_forms(each(value), depth)]


_WRITERS: dict[type, _Write] = {
    type(None): lambda writer, value, depth: None,
    bool: lambda writer, value, depth: value,
    int: _Writer.write_integer,
    float: lambda writer, value, depth: float.__add__(value, -0.0),  # -0.0 leaves 0.0 and -0.0
    str: _Writer.write_text,
    complex: lambda writer, value, depth: [
        "c",
        complex.real.__get__(value),
        complex.imag.__get__(value),
    ],
    bytes: lambda writer, value, depth: ["b", writer.count_bytes(bytes.hex(value))],
    bytearray: lambda writer, value, depth: ["a", writer.count_bytes(bytearray.hex(value))],
    list: _make_tagged_list_writer("l", list.__iter__),
    tuple: _Writer.write_tuple,
    set: _make_tagged_list_writer("s", set.__iter__),
    frozenset: _make_tagged_list_writer("z", frozenset.__iter__),
    Counter: lambda writer, value, depth: ["dc", *writer.write_mapping(value, depth)[1:]],
    OrderedDict: lambda writer, value, depth: [
        "do",
        *writer.to_json_forms(chain.from_iterable(OrderedDict.items(value)), depth),
    ],
    defaultdict: lambda writer, value, depth: ["dd", *writer.write_mapping(value, depth)[1:]],
    dict: _Writer.write_mapping,
    deque: lambda writer, value, depth: [
        "q",
        deque.maxlen.__get__(value),
        *writer.to_json_forms(deque.__iter__(value), depth),
    ],
    range: lambda writer, value, depth: [
        "r",
        *writer.to_json_forms((value.start, value.stop, value.step), depth),
    ],
    Fraction: lambda writer, value, depth: [
        "f",
        *writer.to_json_forms((value.numerator, value.denominator), depth),
    ],
    Decimal: lambda writer, value, depth: ["D", writer.count_bytes(Decimal.__str__(value))],
}
_WRITERS |= {
    type({}.keys()): _make_tagged_list_writer("vk", iter),
    type({}.values()): _make_tagged_list_writer("vv", iter),
    type({}.items()): _make_tagged_list_writer("vi", iter),
    datetime.timedelta: lambda writer, value, depth: [
        "T",
        *datetime.timedelta.__reduce__(value)[1],
    ],
    datetime.timezone: lambda writer, value, depth: [
        "Z",
        writer.to_json_form(datetime.timezone.utcoffset(value, None), depth + 1),
    ],
    datetime.datetime: lambda writer, value, depth: [
        "N",
        *writer.to_json_forms((*datetime.datetime.timetuple(value)[:6], value.microsecond), depth),
        writer.to_json_form(value.tzinfo, depth + 1),
    ],
    datetime.date: lambda writer, value, depth: ["A", *datetime.date.timetuple(value)[:3]],
    datetime.time: lambda writer, value, depth: [
        "M",
        *writer.to_json_forms((value.hour, value.minute, value.second, value.microsecond), depth),
        writer.to_json_form(value.tzinfo, depth + 1),
    ],
}


def from_json(content: Any, referrer: Referrer | None, depth: int = 0) -> Any:
    """Return the value from which `to_json` created a JSON value.

    For any other JSON value, raise `Malformed`, or the exception of the constructor that gets wrong
    arguments.

    Args:
        content: the JSON value.
        referrer: resolves references; None if references are not allowed.
        depth: number of containers around the value.
    """
    if content is None or isinstance(content, bool | int | float | str):
        return content
    if depth > MAX_DEPTH or not isinstance(content, list) or not content:
        raise Malformed("not the form of a value")
    tag, *rest = content
    if referrer is not None and isinstance(tag, str) and tag in REFERENCES:
        return referrer.resolve_reference(content)
    if not isinstance(tag, str) or tag not in _READERS:
        raise Malformed("an unknown tag")
    read, is_deep = _READERS[tag]
    return read([from_json(item, referrer, depth + 1) for item in rest] if is_deep else rest)


def _are_names(fields: Any) -> bool:
    return isinstance(fields, tuple) and all(
        type(name) is str and name.isidentifier() and not name.startswith("_") for name in fields
    )


def _check_types(values: list[Any], *types: type) -> list[Any]:
    """Return the values unchanged if each has the type at its place in `types`.

    Raises:
        Malformed: a type is different, or the number of values is.
    """
    if [type(value) for value in values] != list(types):
        raise Malformed("values of unexpected types")
    return values


def _read_hex_bytes(values: list[Any]) -> Any:
    return bytes.fromhex(*_check_types(values, str))


def _read_deque(values: list[Any]) -> deque[Any]:
    maxlen, *items = values
    return deque(items, maxlen)


def _read_dict(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))


@lru_cache(256)
def _make_namedtuple(names: str) -> Any:
    name, *fields = names.split()
    return namedtuple(name, fields)


_READERS: dict[str, tuple[Callable[[list[Any]], Any], bool]] = {
    "i": (lambda values: int(_check_types(values, str)[0], 16), False),
    "c": (lambda values: complex(*_check_types(values, float, float)), False),
    "b": (_read_hex_bytes, False),
    "u": (lambda values: _read_hex_bytes(values).decode("utf-32-le", "surrogatepass"), False),
    "a": (lambda values: bytearray(_read_hex_bytes(values)), False),
    "D": (lambda values: Decimal(*_check_types(values, str)), False),
    "f": (lambda values: Fraction(*_check_types(values, int, int)), True),
    "r": (lambda values: range(*_check_types(values, int, int, int)), True),
    "l": (list, True),
    "t": (tuple, True),
    "s": (set, True),
    "z": (frozenset, True),
    "d": (_read_dict, True),
    "q": (_read_deque, True),
    "nt": (lambda values: _make_namedtuple(*_check_types(values[:1], str))(*values[1:]), True),
    "dc": (lambda values: Counter(_read_dict(values)), True),
    "do": (lambda values: OrderedDict(_read_dict(values)), True),
    "dd": (lambda values: defaultdict(None, _read_dict(values)), True),
    "vk": (lambda values: dict.fromkeys(values).keys(), True),
    "vv": (lambda values: dict(enumerate(values)).values(), True),
    "vi": (lambda values: dict(values).items(), True),
    "A": (lambda values: datetime.date(*values), False),
    "T": (lambda values: datetime.timedelta(*values), False),
    "Z": (lambda values: datetime.timezone(*values), True),
    "N": (lambda values: datetime.datetime(*values), True),
    "M": (lambda values: datetime.time(*values), True),
}
"""For each tag, the constructor of the value, and True if its arguments must be decoded first."""
