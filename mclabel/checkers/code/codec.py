"""Encodes typed values as JSON text for pipes between processes that do not trust each other.

Plain values are numbers, texts, containers and a few more types of the standard library. Decoding
never uses pickle and builds only plain values. A value of a subclass is sent as its nearest plain
base class, so its `__eq__` is not sent. A `Referrer` handles all other values. The module uses only
the standard library, because it also runs inside the sandbox.
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
            NotReferable: references to the value are not allowed.
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
        NotReferable: the value, or a value inside it, is neither plain nor can be sent as a
            reference.
        TooLarge: the value exceeds a limit or contains itself.
    """
    text = json.dumps(encode_json_value(value, max_bytes, referrer), separators=(",", ":"))
    if len(text) > max_bytes:
        raise TooLarge("bytes")
    return text.encode("ascii")


def encode_json_value(value: object, max_bytes: int, referrer: Referrer | None) -> Any:
    """Return the JSON value that `encode` writes as text.

    The arguments and errors are those of `encode`.
    """
    try:
        return _JsonConverter(max_bytes, referrer).convert_value(value, 0)
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
        return decode_json_value(json.loads(text), referrer)
    except Malformed:
        raise
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise Malformed(type(error).__name__) from error


class _JsonConverter:
    """Writer of one text, which counts items and bytes against their limits."""

    def __init__(self, max_bytes: int, referrer: Referrer | None) -> None:
        self._items, self._bytes, self._referrer = MAX_ITEMS, max_bytes, referrer

    def convert_value(self, value: Any, depth: int) -> Any:
        """Return the JSON form of a value: itself, or a list that begins with a tag."""
        self._items -= 1
        if self._items < 0 or depth > MAX_DEPTH:
            raise TooLarge("items" if self._items < 0 else "depth")
        if self._referrer is not None and self._referrer.is_lent(value):
            return self._referrer.make_reference(value)
        for base in type(value).__mro__:
            if (convert := _CONVERTERS.get(base)) is not None:
                return convert(self, value, depth)
        if self._referrer is not None:
            return self._referrer.make_reference(value)
        raise NotReferable(type(value).__name__)

    def convert_values(self, values: Iterable[Any], depth: int) -> list[Any]:
        """Return the JSON forms of a container's values."""
        return [self.convert_value(value, depth + 1) for value in values]

    def convert_text(self, value: str, _: int) -> Any:
        text = str.__str__(value)
        try:
            text.encode()
        except UnicodeEncodeError:  # JSON would join two lone surrogates into one character
            return ["u", self.count_text_bytes(text.encode("utf-32-le", "surrogatepass").hex())]
        return self.count_text_bytes(text)

    def count_text_bytes(self, text: Any) -> Any:
        """Return a text after counting its characters as bytes of the whole text.

        Raises:
            TooLarge: the whole text is longer than its limit.
        """
        self._bytes -= len(text)
        if self._bytes < 0:
            raise TooLarge("bytes")
        return text

    def convert_integer(self, value: int, _: int) -> Any:
        number = int.__add__(value, 0)
        if number.bit_length() <= 63:
            return number
        self._bytes -= number.bit_length() // 4
        if self._bytes < 0:
            raise TooLarge("bytes")
        return ["i", f"{number:x}"]

    def convert_mapping(self, value: dict[Any, Any], depth: int) -> Any:
        return ["d", *self.convert_values(chain.from_iterable(dict.items(value)), depth)]

    def convert_tuple(self, value: tuple[Any, ...], depth: int) -> Any:
        """Return the JSON form of a tuple, with its field names if it is a namedtuple."""
        fields: Any = getattr(type(value), "_fields", None)
        items = self.convert_values(tuple.__iter__(value), depth)
        if (
            type(value) is not tuple
            and _are_field_names(fields)
            and len(fields) == tuple.__len__(value)
        ):
            return ["nt", " ".join([type(value).__name__, *fields]), *items]
        return ["t", *items]


_ConvertToJson = Callable[[_JsonConverter, Any, int], Any]


def _make_tagged_list_converter(tag: str, each: Callable[[Any], Iterable[Any]]) -> _ConvertToJson:
    return lambda converter, value, depth: [tag, *converter.convert_values(each(value), depth)]


_CONVERTERS: dict[type, _ConvertToJson] = {
    type(None): lambda converter, value, depth: None,
    bool: lambda converter, value, depth: value,
    int: _JsonConverter.convert_integer,
    float: lambda converter, value, depth: float.__add__(value, -0.0),  # -0.0 leaves 0.0 and -0.0
    str: _JsonConverter.convert_text,
    complex: lambda converter, value, depth: [
        "c",
        complex.real.__get__(value),
        complex.imag.__get__(value),
    ],
    bytes: lambda converter, value, depth: ["b", converter.count_text_bytes(bytes.hex(value))],
    bytearray: lambda converter, value, depth: [
        "a",
        converter.count_text_bytes(bytearray.hex(value)),
    ],
    list: _make_tagged_list_converter("l", list.__iter__),
    tuple: _JsonConverter.convert_tuple,
    set: _make_tagged_list_converter("s", set.__iter__),
    frozenset: _make_tagged_list_converter("z", frozenset.__iter__),
    Counter: lambda converter, value, depth: ["dc", *converter.convert_mapping(value, depth)[1:]],
    OrderedDict: lambda converter, value, depth: [
        "do",
        *converter.convert_values(chain.from_iterable(OrderedDict.items(value)), depth),
    ],
    defaultdict: lambda converter, value, depth: [
        "dd",
        *converter.convert_mapping(value, depth)[1:],
    ],
    dict: _JsonConverter.convert_mapping,
    deque: lambda converter, value, depth: [
        "q",
        deque.maxlen.__get__(value),
        *converter.convert_values(deque.__iter__(value), depth),
    ],
    range: lambda converter, value, depth: [
        "r",
        *converter.convert_values((value.start, value.stop, value.step), depth),
    ],
    Fraction: lambda converter, value, depth: [
        "f",
        *converter.convert_values((value.numerator, value.denominator), depth),
    ],
    Decimal: lambda converter, value, depth: [
        "D",
        converter.count_text_bytes(Decimal.__str__(value)),
    ],
}
_CONVERTERS |= {
    type({}.keys()): _make_tagged_list_converter("vk", iter),
    type({}.values()): _make_tagged_list_converter("vv", iter),
    type({}.items()): _make_tagged_list_converter("vi", iter),
    datetime.timedelta: lambda converter, value, depth: [
        "T",
        *datetime.timedelta.__reduce__(value)[1],
    ],
    datetime.timezone: lambda converter, value, depth: [
        "Z",
        converter.convert_value(datetime.timezone.utcoffset(value, None), depth + 1),
    ],
    datetime.datetime: lambda converter, value, depth: [
        "N",
        *converter.convert_values(
            (*datetime.datetime.timetuple(value)[:6], value.microsecond), depth
        ),
        converter.convert_value(value.tzinfo, depth + 1),
    ],
    datetime.date: lambda converter, value, depth: ["A", *datetime.date.timetuple(value)[:3]],
    datetime.time: lambda converter, value, depth: [
        "M",
        *converter.convert_values(
            (value.hour, value.minute, value.second, value.microsecond), depth
        ),
        converter.convert_value(value.tzinfo, depth + 1),
    ],
}


def decode_json_value(content: Any, referrer: Referrer | None, depth: int = 0) -> Any:
    """Return the value from which `encode_json_value` created a JSON value.

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
    return read(
        [decode_json_value(item, referrer, depth + 1) for item in rest] if is_deep else rest
    )


def _are_field_names(fields: Any) -> bool:
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
