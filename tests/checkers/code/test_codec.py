"""Values survive the transfer between two processes, and malformed texts create no object."""

from __future__ import annotations

import datetime
import enum
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mclabel.checkers.code.codec import Malformed, NotReferable, TooLarge, decode, encode

LIMIT = 1 << 20
Point = namedtuple("Point", "x y")


class Colour(enum.IntEnum):
    RED = 1


class Sly(list[Any]):
    def __eq__(self, other: object) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter([1, 2])


class Text(str):
    pass


_plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=1 << 200, max_value=1 << 900).map(lambda number: -number),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
    st.binary().map(bytearray),
    st.fractions(),
    st.decimals(allow_nan=False),
    st.builds(range, st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 3)),
)
_keys = _plain.filter(lambda key: not isinstance(key, bytearray))
_keys = st.one_of(_keys, st.tuples(_keys, _keys), st.frozensets(_keys, max_size=3))
_values = st.recursive(
    _plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.lists(inner, max_size=5).map(lambda some: deque(some, 9)),
        st.dictionaries(_keys, inner, max_size=5),
        st.sets(_keys, max_size=5),
    ),
    max_leaves=20,
)


def describe_types(value: Any) -> Any:
    """Return a value together with the types of all its elements; the order of sets is ignored."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, [(describe_types(key), describe_types(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(describe_types(item)) for item in value)
    if isinstance(value, list | tuple | deque):
        return kind, [describe_types(item) for item in value]
    return kind, repr(value)


@settings(max_examples=100, deadline=None)
@given(_values)
def test_values_come_back(value: Any) -> None:
    assert describe_types(decode(encode(value, LIMIT), LIMIT)) == describe_types(value)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Counter("aab"), Counter("aab")),
        (OrderedDict(b=1, a=2), OrderedDict(b=1, a=2)),
        (defaultdict(list, {1: [2]}), defaultdict(None, {1: [2]})),
        (Point(1, 2), Point(1, 2)),
        (Colour.RED, 1),
        (Text("x"), "x"),
        (Sly([3]), [3]),
        (deque([1], 2), deque([1], 2)),
        (float("inf"), float("inf")),
        ("\ud83d\ude00", "\ud83d\ude00"),
    ],
)
def test_subclasses_become_plain(value: Any, plain: Any) -> None:
    assert describe_types(decode(encode(value, LIMIT), LIMIT)) == describe_types(plain)


def test_views_are_no_lists_and_dates_stay_dates() -> None:
    values = {1: 3, 2: 4}
    for view in (values.keys(), values.items()):
        decoded = decode(encode(view, LIMIT), LIMIT)
        assert decoded == view and type(decoded) is type(view) and list(decoded) == list(view)
    zone = datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))
    moment = datetime.datetime(2026, 2, 28, 23, 59, 58, 7, zone)
    for value in (moment, moment.date(), moment.timetz(), datetime.timedelta(-1, 5, 6), math.nan):
        assert describe_types(decode(encode(value, LIMIT), LIMIT)) == describe_types(value)


def test_what_is_no_plain_data_or_too_much_is_not_written() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for opaque in (
        object(),
        len,
        int,
        json,
        [lambda: 0],
        Exception("x"),
        {1: {2: print}},
        iter([]),
    ):
        with pytest.raises(NotReferable):
            encode(opaque, LIMIT)
    for large in (endless, "x" * LIMIT * 2, 1 << 10**8, [0] * 2_000_000):
        with pytest.raises(TooLarge):
            encode(large, LIMIT)


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.builds(
            lambda tag, rest: [tag, *rest],
            st.sampled_from([*"icbuaDfrltszdqATZNM?", "nt", "dc", "do", "dd", "vk", "vv", "vi"]),
            st.lists(inner, max_size=4),
        ),
        st.dictionaries(st.text(max_size=2), inner, max_size=2),
    ),
)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.binary(), _json.map(lambda value: json.dumps(value).encode())))
def test_hostile_bytes_give_plain_values_or_none(text: bytes) -> None:
    try:
        decoded = decode(text, LIMIT)
    except Malformed:
        return
    modules = {"builtins", "collections", "datetime", "decimal", "fractions"}
    assert type(decoded).__module__ in modules or isinstance(decoded, tuple)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'["l",' * 500 + b"1" + b"]" * 500,
        b'["f",1,0]',
        b'["r",1,2,0]',
        b'["q",-1]',
        b'["d",1]',
        b'["s",["l"]]',
        b'["i","z"]',
        b"9" * 100_000,
        b'["b","xyz"]',
        b"{}",
        b"[[]]",
        b'"' + b"x" * LIMIT + b'"',
    ],
)
def test_hostile_texts(text: bytes) -> None:
    with pytest.raises(Malformed):
        decode(text, LIMIT)
