"""Values as JSON text with types, for the pipes between processes that do not trust each other.

Decoding never uses pickle: it builds plain values, whatever was written. A subclass travels as its
nearest plain base, so its `__eq__` stays behind. What is no plain data is left to a `Referrer`.
Standard library only: the module also runs inside the box.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

MAX_DEPTH = 100
"""Containers in containers."""
MAX_ITEMS = 1_000_000
"""Values of one text, those in containers included."""


class Opaque(Exception):
    """A value that is not plain data and cannot be referred to either."""


class TooLarge(Exception):
    """A value deeper, longer or larger than a text may hold."""


class Malformed(Exception):
    """A text that no value was written to."""


class Referrer(Protocol):
    """Writes and reads references to values that are not plain data."""

    def refer(self, value: Any) -> list[Any]:
        """Return a reference as JSON, which begins with a tag from `REFERENCES`.

        Raises:
            Opaque: the value may not be referred to.
        """

    def is_lent(self, value: Any) -> bool:
        """Whether a value is referred to although it is plain data."""

    def resolve(self, reference: list[Any]) -> Any:
        """Return the value that a reference stands for.

        Raises:
            Malformed: there is none.
        """


REFERENCES = frozenset(
    {"awaitable", "class", "described", "exception", "function", "home", "object", "python"}
)
"""Tags of references."""


def encode(value: object, max_bytes: int, referrer: Referrer | None = None) -> bytes:
    """Write a value.

    Args:
        value: of plain types, or of subclasses of theirs.
        max_bytes: of the text.
        referrer: writes what is not plain; None if everything must be plain.

    Raises:
        Opaque: it, or a value in it, is neither plain nor can be referred to.
        TooLarge: it exceeds a bound, or holds itself.
    """
    text = json.dumps(to_json(value, max_bytes, referrer), separators=(",", ":"))
    if len(text) > max_bytes:
        raise TooLarge("bytes")
    return text.encode("ascii")


def to_json(value: object, max_bytes: int, referrer: Referrer | None) -> Any:
    """Return the JSON value that `encode` writes as text; see there."""
    try:
        return _Writer(max_bytes, referrer).plain(value, 0)
    except RecursionError as error:
        raise TooLarge("depth") from error


def decode(text: bytes, max_bytes: int, referrer: Referrer | None = None) -> Any:
    """Read a value that `encode` wrote, from somebody who may have written anything.

    Args:
        text: the JSON text.
        max_bytes: of the text.
        referrer: resolves references; None if there may be none.

    Raises:
        Malformed: it is no such text.
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
    """Counts what one text holds."""

    def __init__(self, max_bytes: int, referrer: Referrer | None) -> None:
        self._items, self._bytes, self._referrer = MAX_ITEMS, max_bytes, referrer

    def plain(self, value: Any, depth: int) -> Any:
        """The JSON value of a value: itself, or a list that begins with the tag of its type."""
        self._items -= 1
        if self._items < 0 or depth > MAX_DEPTH:
            raise TooLarge("items" if self._items < 0 else "depth")
        if self._referrer is not None and self._referrer.is_lent(value):
            return self._referrer.refer(value)
        for base in type(value).__mro__:
            if (write := _WRITERS.get(base)) is not None:
                return write(self, value, depth)
        if self._referrer is not None:
            return self._referrer.refer(value)
        raise Opaque(type(value).__name__)

    def each(self, values: Iterable[Any], depth: int) -> list[Any]:
        """The JSON values of a container's values."""
        return [self.plain(value, depth + 1) for value in values]

    def text(self, value: str, _: int) -> Any:
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError:  # JSON joins halves of a pair
            return ["u", self.sized(text.encode("utf-32-le", "surrogatepass").hex())]
        return self.sized(text)

    def sized(self, text: Any) -> Any:
        """A text or bytes, counted."""
        self._bytes -= len(text)
        if self._bytes < 0:
            raise TooLarge("bytes")
        return text

    def integer(self, value: int, _: int) -> Any:
        number = int.__add__(value, 0)
        if number.bit_length() <= 63:
            return number
        self._bytes -= number.bit_length() // 4
        if self._bytes < 0:
            raise TooLarge("bytes")
        return ["i", f"{number:x}"]

    def mapping(self, value: dict[Any, Any], depth: int) -> Any:
        return ["d", *self.each((one for pair in dict.items(value) for one in pair), depth)]

    def queue(self, value: deque[Any], depth: int) -> Any:
        return ["q", deque.maxlen.__get__(value), *self.each(deque.__iter__(value), depth)]

    def default_mapping(self, value: defaultdict[Any, Any], depth: int) -> Any:
        return ["dd", *self.mapping(value, depth)[1:]]

    def named(self, value: tuple[Any, ...], depth: int) -> Any:
        """A tuple: with the names of its fields if it has some."""
        fields: Any = getattr(type(value), "_fields", None)
        items = self.each(tuple.__iter__(value), depth)
        if type(value) is not tuple and _are_names(fields) and len(fields) == tuple.__len__(value):
            return ["nt", " ".join([type(value).__name__, *fields]), *items]
        return ["t", *items]

    def fraction(self, value: Fraction, depth: int) -> Any:
        return ["f", *self.each((value.numerator, value.denominator), depth)]


_Write = Callable[[_Writer, Any, int], Any]


def _all_of(tag: str, each: Callable[[Any], Iterable[Any]]) -> _Write:
    return lambda writer, value, depth: [tag, *writer.each(each(value), depth)]


_WRITERS: dict[type, _Write] = {
    type(None): lambda writer, value, depth: None,
    bool: lambda writer, value, depth: value,
    int: _Writer.integer,
    float: lambda writer, value, depth: float.__add__(value, -0.0),  # -0.0 leaves 0.0 and -0.0
    str: _Writer.text,
    complex: lambda writer, value, depth: [
        "c",
        complex.real.__get__(value),
        complex.imag.__get__(value),
    ],
    bytes: lambda writer, value, depth: ["b", writer.sized(bytes.hex(value))],
    bytearray: lambda writer, value, depth: ["a", writer.sized(bytearray.hex(value))],
    list: _all_of("l", list.__iter__),
    tuple: _Writer.named,
    set: _all_of("s", set.__iter__),
    frozenset: _all_of("z", frozenset.__iter__),
    Counter: lambda writer, value, depth: ["dc", *writer.mapping(value, depth)[1:]],
    OrderedDict: lambda writer, value, depth: [
        "do",
        *writer.each((one for pair in OrderedDict.items(value) for one in pair), depth),
    ],
    defaultdict: _Writer.default_mapping,
    dict: _Writer.mapping,
    deque: _Writer.queue,
    range: lambda writer, value, depth: [
        "r",
        *writer.each((value.start, value.stop, value.step), depth),
    ],
    Fraction: _Writer.fraction,
    Decimal: lambda writer, value, depth: ["D", writer.sized(Decimal.__str__(value))],
}
_WRITERS |= {
    type({}.keys()): _all_of("vk", iter),
    type({}.values()): _all_of("vv", iter),
    type({}.items()): _all_of("vi", iter),
    datetime.timedelta: lambda writer, value, depth: [
        "T",
        *datetime.timedelta.__reduce__(value)[1],
    ],
    datetime.timezone: lambda writer, value, depth: [
        "Z",
        writer.plain(datetime.timezone.utcoffset(value, None), depth + 1),
    ],
    datetime.datetime: lambda writer, value, depth: [
        "N",
        *writer.each((*datetime.datetime.timetuple(value)[:6], value.microsecond), depth),
        writer.plain(value.tzinfo, depth + 1),
    ],
    datetime.date: lambda writer, value, depth: ["A", *datetime.date.timetuple(value)[:3]],
    datetime.time: lambda writer, value, depth: [
        "M",
        *writer.each((value.hour, value.minute, value.second, value.microsecond), depth),
        writer.plain(value.tzinfo, depth + 1),
    ],
}


def from_json(found: Any, referrer: Referrer | None) -> Any:
    """Return the value of JSON that `to_json` made; raises `Malformed` or what a type raises."""
    return _read(found, 0, referrer)


def _are_names(fields: Any) -> bool:
    return isinstance(fields, tuple) and all(
        type(name) is str and name.isidentifier() and not name.startswith("_") for name in fields
    )


def _read(found: Any, depth: int, referrer: Referrer | None) -> Any:
    if found is None or isinstance(found, bool | int | float | str):
        return found
    if depth > MAX_DEPTH or not isinstance(found, list) or not found:
        raise Malformed("no value")
    tag, *rest = found
    if referrer is not None and isinstance(tag, str) and tag in REFERENCES:
        return referrer.resolve(found)
    if not isinstance(tag, str) or tag not in _READERS:
        raise Malformed("no tag")
    read, is_deep = _READERS[tag]
    return read([_read(one, depth + 1, referrer) for one in rest] if is_deep else rest)


def _of_type(values: list[Any], *types: type) -> list[Any]:
    if [type(value) for value in values] != list(types):
        raise Malformed("other types")
    return values


def _hex(values: list[Any]) -> Any:
    return bytes.fromhex(*_of_type(values, str))


def _queue(values: list[Any]) -> deque[Any]:
    maxlen, *items = values
    return deque(items, maxlen)


def _pairs(values: list[Any]) -> dict[Any, Any]:
    return dict(zip(values[::2], values[1::2], strict=True))


@lru_cache(256)
def _named_type(names: str) -> Any:
    name, *fields = names.split()
    return namedtuple(name, fields)


_READERS: dict[str, tuple[Callable[[list[Any]], Any], bool]] = {
    "i": (lambda values: int(_of_type(values, str)[0], 16), False),
    "c": (lambda values: complex(*_of_type(values, float, float)), False),
    "b": (_hex, False),
    "u": (lambda values: _hex(values).decode("utf-32-le", "surrogatepass"), False),
    "a": (lambda values: bytearray(_hex(values)), False),
    "D": (lambda values: Decimal(*_of_type(values, str)), False),
    "f": (lambda values: Fraction(*_of_type(values, int, int)), True),
    "r": (lambda values: range(*_of_type(values, int, int, int)), True),
    "l": (list, True),
    "t": (tuple, True),
    "s": (set, True),
    "z": (frozenset, True),
    "d": (_pairs, True),
    "q": (_queue, True),
    "nt": (lambda values: _named_type(*_of_type(values[:1], str))(*values[1:]), True),
    "dc": (lambda values: Counter(_pairs(values)), True),
    "do": (lambda values: OrderedDict(_pairs(values)), True),
    "dd": (lambda values: defaultdict(None, _pairs(values)), True),
    "vk": (lambda values: dict.fromkeys(values).keys(), True),
    "vv": (lambda values: dict(enumerate(values)).values(), True),
    "vi": (lambda values: dict(values).items(), True),
    "A": (lambda values: datetime.date(*values), False),
    "T": (lambda values: datetime.timedelta(*values), False),
    "Z": (lambda values: datetime.timezone(*values), True),
    "N": (lambda values: datetime.datetime(*values), True),
    "M": (lambda values: datetime.time(*values), True),
}
"""By tag: what builds the value, and whether from values, or from JSON as it is."""
