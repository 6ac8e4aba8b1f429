"""Values as JSON text with types, for the pipes between processes that do not trust each other.

Never pickle: what is read builds plain values alone, whatever was written. A subclass (Counter,
namedtuple, IntEnum) travels as its plain base, so no `__eq__` of anybody's travels with it.
Standard library only: the module also runs inside the box.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

MAX_DEPTH = 100
"""Containers in containers."""
MAX_ITEMS = 1_000_000
"""Values of one text, those in containers included."""


class Opaque(Exception):
    """A value that is not plain data."""


class TooLarge(Exception):
    """A value deeper, longer or larger than a text may hold."""


class Malformed(Exception):
    """A text that no value was written to."""


def encode(value: object, max_bytes: int) -> bytes:
    """Write a value.

    Args:
        value: of plain types, or of subclasses of theirs.
        max_bytes: of the text.

    Raises:
        Opaque: it, or a value in it, is of another type.
        TooLarge: it exceeds a bound, or holds itself.
    """
    try:
        text = json.dumps(_Writer(max_bytes).plain(value, 0), separators=(",", ":"))
    except RecursionError as error:
        raise TooLarge("depth") from error
    if len(text) > max_bytes:
        raise TooLarge("bytes")
    return text.encode("ascii")


def decode(text: bytes, max_bytes: int) -> Any:
    """Read a value that `encode` wrote, from somebody who may have written anything.

    Raises:
        Malformed: it is no such text.
    """
    if len(text) > max_bytes:
        raise Malformed("too long")
    try:
        return _read(json.loads(text), 0)
    except Malformed:
        raise
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise Malformed(type(error).__name__) from error


class _Writer:
    """Counts what one text holds."""

    def __init__(self, max_bytes: int) -> None:
        self._items, self._bytes = MAX_ITEMS, max_bytes

    def plain(self, value: Any, depth: int) -> Any:
        """The JSON value of a value: itself, or a list that begins with the tag of its type."""
        self._items -= 1
        if self._items < 0 or depth > MAX_DEPTH:
            raise TooLarge("items" if self._items < 0 else "depth")
        for base in type(value).__mro__:
            if (write := _WRITERS.get(base)) is not None:
                return write(self, value, depth)
        if isinstance(value, Iterator) or type(value) in _VIEWS:
            return ["I", *self.each(iter(value), depth)]
        raise Opaque(type(value).__name__)

    def each(self, values: Iterable[Any], depth: int) -> Iterator[Any]:
        """The JSON values of a container's values."""
        return (self.plain(value, depth + 1) for value in values)

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

    def fraction(self, value: Fraction, depth: int) -> Any:
        return ["f", *self.each((value.numerator, value.denominator), depth)]


_Write = Callable[[_Writer, Any, int], Any]


def _all_of(tag: str, each: Callable[[Any], Iterator[Any]]) -> _Write:
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
    tuple: _all_of("t", tuple.__iter__),
    set: _all_of("s", set.__iter__),
    frozenset: _all_of("z", frozenset.__iter__),
    dict: _Writer.mapping,
    deque: _Writer.queue,
    range: lambda writer, value, depth: [
        "r",
        *writer.each((value.start, value.stop, value.step), depth),
    ],
    Fraction: _Writer.fraction,
    Decimal: lambda writer, value, depth: ["D", writer.sized(Decimal.__str__(value))],
}
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


def _read(found: Any, depth: int) -> Any:
    if found is None or isinstance(found, bool | int | float | str):
        return found
    if depth > MAX_DEPTH or not isinstance(found, list) or not found:
        raise Malformed("no value")
    tag, *rest = found
    if not isinstance(tag, str) or tag not in _READERS:
        raise Malformed("no tag")
    read, is_deep = _READERS[tag]
    return read([_read(one, depth + 1) for one in rest] if is_deep else rest)


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
    "I": (iter, True),
}
"""By tag: what builds the value, and whether from values, or from JSON as it is."""
