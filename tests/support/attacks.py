"""Texts that may make a pattern slow, made from parts of the pattern itself."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from re import _constants as names  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from tests.support.regex_nodes import CHARACTERS, REPEATS, fits, nodes

_PLAIN = "a1 x.!\n\x00AZé"


@dataclass(frozen=True, slots=True)
class Attack:
    """An attack text of any length: a beginning, a repeated word, and an end."""

    begin: str
    word: str
    end: str

    def text(self, length: int) -> str:
        """Return a text of about `length` characters."""
        return self.begin + self.word * max(1, length // len(self.word)) + self.end


def attacks(pattern: re.Pattern[str], *, number: int) -> list[Attack]:
    """Return attacks on a pattern, which are always the same.

    The repeated words are characters that the pattern's sets distinguish, samples of its repeated
    parts, and mixtures of both.
    """
    rng = random.Random(pattern.pattern)
    tree = list(parser.parse(pattern.pattern, pattern.flags))
    alphabet = _alphabet(tree, pattern.flags)
    bodies = [v[2] for op, v in nodes(tree) if op in REPEATS and int(v[1]) > 8]
    words = list(alphabet)
    words += [_sample(body, rng, pattern.flags, alphabet) for body in bodies for _ in range(4)]
    words = [word for word in words if word]
    wholes = ["", *(_sample(tree, rng, pattern.flags, alphabet) for _ in range(6))]
    begins = [*wholes, *(whole[: rng.randint(0, len(whole))] for whole in wholes)]
    ends = ["", "\x00", *alphabet]
    made = [Attack("", word, end) for word in words for end in ("", "\x00")]
    while len(made) < number:
        word = "".join(rng.choice(words) for _ in range(rng.randint(1, 3)))
        made.append(Attack(rng.choice(begins), word, rng.choice(ends)))
    return made


def alphabet_of(pattern: re.Pattern[str]) -> list[str]:
    """Return one character for each class that the pattern's sets distinguish."""
    return _alphabet(list(parser.parse(pattern.pattern, pattern.flags)), pattern.flags)


def _alphabet(tree: Sequence[Any], flags: int) -> list[str]:
    """Return one character for each class that the sets of a parsed pattern distinguish."""
    chars, sets = set(_PLAIN), []
    for op, value in nodes(tree):
        if op in CHARACTERS:
            sets.append(fits(op, value, flags))
            chars.update(_list_literals(op, value))
    return list({tuple(fit(c) for fit in sets): c for c in sorted(chars)}.values())


def _list_literals(op: Any, value: Any) -> Iterator[str]:
    if op in (names.LITERAL, names.NOT_LITERAL):
        yield chr(value)
    elif op is names.IN:
        for kind, member in value:
            if kind is names.LITERAL:
                yield chr(member)
            elif kind is names.RANGE:
                yield from map(chr, member)


def _sample(items: Any, rng: random.Random, flags: int, alphabet: Sequence[str]) -> str:
    """Return a text that the nodes match, unless their look-arounds forbid it."""
    pieces = []
    for op, value in items:
        if op in CHARACTERS:
            fit = fits(op, value, flags)
            pieces.append(rng.choice([c for c in alphabet if fit(c)] or [""]))
        elif op in REPEATS:
            low, high, body = value
            for _ in range(rng.randint(low, min(int(high), low + 2))):
                pieces.append(_sample(body, rng, flags, alphabet))
        elif op is names.BRANCH:
            pieces.append(_sample(rng.choice(value[1]), rng, flags, alphabet))
        elif op is names.SUBPATTERN:
            pieces.append(_sample(value[3], rng, flags, alphabet))
        elif op is names.ATOMIC_GROUP:
            pieces.append(_sample(value, rng, flags, alphabet))
    return "".join(pieces)
