"""Counts the steps that a backtracking matcher takes, so that growth is told without a clock.

`re` does not say how often it went back. This matches in the same order as `re` does, over the
same parse tree, and counts every character tried.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from re import _constants as names  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

Rest = Callable[[int], bool]
Matcher = Callable[[int, Rest], bool]
REPEATS = (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT)
CHARACTERS = (names.LITERAL, names.NOT_LITERAL, names.ANY, names.IN)
_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    names.CATEGORY_DIGIT: str.isdecimal,
    names.CATEGORY_NOT_DIGIT: lambda c: not c.isdecimal(),
    names.CATEGORY_SPACE: str.isspace,
    names.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    names.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    names.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


class TooManySteps(Exception):
    """The limit was reached."""


class Steps:
    """A pattern whose matching is counted.

    Args:
        pattern: compiled.
        limit: of steps in one call; then `TooManySteps` is raised.
    """

    def __init__(self, pattern: re.Pattern[str], limit: int) -> None:
        self.flags = pattern.flags
        self.limit = limit
        self.steps = 0
        self.text = ""
        self.groups: dict[int, tuple[int, int]] = {}
        self.matcher = self._sequence(list(parser.parse(pattern.pattern, pattern.flags)))

    def find_all(self, text: str) -> int:
        """Steps of `finditer`: a search from every place that no match has covered."""
        self._begin(text)
        place = 0
        while place <= len(text):
            end = self._match_at(place)
            place = max(place + 1, -1 if end is None else end)
        return self.steps

    def search(self, text: str) -> int:
        """Steps of `search`: up to the first match."""
        self._begin(text)
        for place in range(len(text) + 1):
            if self._match_at(place) is not None:
                break
        return self.steps

    def match(self, text: str) -> int:
        """Steps of `match`."""
        self._begin(text)
        self._match_at(0)
        return self.steps

    def full_match(self, text: str) -> int:
        """Steps of `fullmatch`."""
        self._begin(text)
        self.groups = {}
        self.matcher(0, lambda end: end == len(text))
        return self.steps

    def _begin(self, text: str) -> None:
        self.text, self.steps = text, 0
        sys.setrecursionlimit(1_000_000)

    def _match_at(self, place: int) -> int | None:
        self.groups = {}
        return _first_end(self.matcher, place)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > self.limit:
            raise TooManySteps

    def _sequence(self, items: list[Any]) -> Matcher:
        matcher: Matcher = _end
        for op, value in reversed(items):
            matcher = _then(self._one(op, value), matcher)
        return matcher

    def _one(self, op: Any, value: Any) -> Matcher:
        if op in CHARACTERS:
            return self._character(fits(op, value, self.flags))
        if op in REPEATS:
            return self._repeat(op, *value)
        if op is names.BRANCH:
            return self._branch([self._sequence(list(one)) for one in value[1]])
        if op is names.SUBPATTERN:
            group, add, remove, items = value
            before = self.flags
            self.flags = (self.flags | add) & ~remove
            inner = self._sequence(list(items))
            self.flags = before
            return inner if group is None else self._group(group, inner)
        if op is names.ATOMIC_GROUP:
            return self._atomic(self._sequence(list(value)))
        if op in (names.ASSERT, names.ASSERT_NOT):
            direction, items = value
            back = items.getwidth()[0] if direction < 0 else 0
            return self._look(self._sequence(list(items)), back, op is names.ASSERT)
        if op is names.AT:
            return self._at(value)
        if op is names.GROUPREF:
            return self._reference(value)
        raise NotImplementedError(op)

    def _character(self, fit: Callable[[str], bool]) -> Matcher:
        def match(i: int, rest: Rest) -> bool:
            self._step()
            return i < len(self.text) and fit(self.text[i]) and rest(i + 1)

        return match

    def _branch(self, branches: list[Matcher]) -> Matcher:
        return lambda i, rest: any(branch(i, rest) for branch in branches)

    def _group(self, number: int, inner: Matcher) -> Matcher:
        def match(i: int, rest: Rest) -> bool:
            def close(end: int) -> bool:
                before = self.groups.get(number)
                self.groups[number] = (i, end)
                if rest(end):
                    return True
                if before is None:
                    self.groups.pop(number, None)
                else:
                    self.groups[number] = before
                return False

            return inner(i, close)

        return match

    def _atomic(self, inner: Matcher) -> Matcher:
        def match(i: int, rest: Rest) -> bool:
            end = _first_end(inner, i)
            return end is not None and rest(end)

        return match

    def _look(self, inner: Matcher, back: int, wanted: bool) -> Matcher:
        def match(i: int, rest: Rest) -> bool:
            self._step()
            found = i >= back and inner(i - back, lambda end: not back or end == i)
            return found is wanted and rest(i)

        return match

    def _reference(self, number: int) -> Matcher:
        def match(i: int, rest: Rest) -> bool:
            self._step()
            if number not in self.groups:
                return False
            start, end = self.groups[number]
            word = self.text[start:end]
            self.steps += len(word)
            return self.text.startswith(word, i) and rest(i + len(word))

        return match

    def _at(self, where: Any) -> Matcher:
        def here(i: int) -> bool:
            text, lines = self.text, bool(self.flags & re.MULTILINE)
            if where is names.AT_BEGINNING:
                return i == 0 or (lines and text[i - 1] == "\n")
            if where is names.AT_BEGINNING_STRING:
                return i == 0
            if where is names.AT_END_STRING:
                return i == len(text)
            if where is names.AT_END:
                last = i == len(text) or (i == len(text) - 1 and text[i] == "\n")
                return last or (lines and text[i] == "\n")
            word = _CATEGORIES[names.CATEGORY_WORD]
            before = i > 0 and word(text[i - 1])
            after = i < len(text) and word(text[i])
            return (before != after) is (where is names.AT_BOUNDARY)

        def match(i: int, rest: Rest) -> bool:
            self._step()
            return here(i) and rest(i)

        return match

    def _repeat(self, op: Any, low: int, high: Any, items: Any) -> Matcher:
        most = 1 << 60 if high is names.MAXREPEAT else int(high)
        inner = self._sequence(list(items))

        def greedy(i: int, rest: Rest, count: int) -> bool:
            self._step()
            if count < most and inner(i, lambda end: end > i and greedy(end, rest, count + 1)):
                return True
            return count >= low and rest(i)

        def lazy(i: int, rest: Rest, count: int) -> bool:
            self._step()
            if count >= low and rest(i):
                return True
            return count < most and inner(i, lambda end: end > i and lazy(end, rest, count + 1))

        def possessive(i: int, rest: Rest, count: int) -> bool:
            while count < most:
                self._step()
                end = _first_end(inner, i)
                if end is None or end == i:
                    break
                i, count = end, count + 1
            return count >= low and rest(i)

        kind = {names.MAX_REPEAT: greedy, names.MIN_REPEAT: lazy}.get(op, possessive)
        return lambda i, rest: kind(i, rest, 0)


def _first_end(matcher: Matcher, place: int) -> int | None:
    """Where the first way to match from a place ends."""
    ends: list[int] = []

    def end(at: int) -> bool:
        ends.append(at)
        return True

    return ends[0] if matcher(place, end) else None


def _end(i: int, rest: Rest) -> bool:
    """Matches nothing more."""
    return rest(i)


def _then(first: Matcher, second: Matcher) -> Matcher:
    return lambda i, rest: first(i, lambda j: second(j, rest))


def fits(op: Any, value: Any, flags: int) -> Callable[[str], bool]:
    """Whether a character is one that a node takes."""
    if op is names.ANY:
        return lambda c: bool(flags & re.DOTALL) or c != "\n"
    if op is names.LITERAL:
        return lambda c: value in _cases(c, flags)
    if op is names.NOT_LITERAL:
        return lambda c: value not in _cases(c, flags)
    negated = value[0][0] is names.NEGATE
    members = value[1:] if negated else value

    def fit(c: str) -> bool:
        return any(_is_member(c, op, one, flags) for op, one in members) is not negated

    return fit


def _cases(c: str, flags: int) -> set[int]:
    if not flags & re.IGNORECASE:
        return {ord(c)}
    return {ord(x) for x in (c, c.lower(), c.upper()) if len(x) == 1}


def _is_member(c: str, op: Any, value: Any, flags: int) -> bool:
    if op is names.CATEGORY:
        inside = _CATEGORIES[value]
        if flags & re.ASCII and not c.isascii():
            return "NOT" in str(value)
        return inside(c)
    if op is names.RANGE:
        return any(value[0] <= x <= value[1] for x in _cases(c, flags))
    return value in _cases(c, flags)


def nodes(items: Any) -> Iterator[tuple[Any, Any]]:
    """Every node of a parse tree, outer ones first."""
    for op, value in items:
        yield op, value
        if op in REPEATS:
            yield from nodes(value[2])
        elif op is names.BRANCH:
            for one in value[1]:
                yield from nodes(one)
        elif op is names.SUBPATTERN:
            yield from nodes(value[3])
        elif op is names.ATOMIC_GROUP:
            yield from nodes(value)
        elif op in (names.ASSERT, names.ASSERT_NOT):
            yield from nodes(value[1])
