"""The words, numbers and signs of one sentence, for the rules that say what it asserts."""

from __future__ import annotations

import re
from fractions import Fraction

from mclabel.answers.reading.numerals import (
    BEGINNINGS,
    MAX_WORDS,
    PARTS,
    SCALES,
    is_clear,
    number_at,
    split_words,
)

_TOKEN = re.compile(
    r"[A-Za-z]++(?:['’-][A-Za-z]++)*+|"
    r"[-−]?+[$€£]?+(?:\d++(?:,\d{3})*+(?:\.\d++)?+|\.\d++)(?:/\d++)?+[%°]?+|\S"
)
_COPULAS = frozenset("is are was were be equals it's that's".split())
_BEHIND_FRACTION = frozenset(
    ". ! ; : ) percent cup cups hour hours minute minutes day days week weeks year years mile "
    "miles pound pounds ounce ounces gallon gallons liter liters litre litres inch inches foot "
    "feet meter meters metre metres".split()
)
"""What may stand behind a fraction in words that means no part of something told elsewhere."""
_DIGITS = frozenset("0123456789")
_NUMERAL = (BEGINNINGS - {"a", "an", "one"}) | PARTS | SCALES
"""Words of which a sentence with a number in words has one, unless hyphens join them."""
_DENYING = frozenset("not cannot never neither nor without except".split())
_MAX_DENYING = 4
"""Words before a number in which one may deny it."""


class Sentence:
    """The words, numbers and signs of a sentence, with where they stand.

    A number in several words is one token: `two and a half`.
    """

    def __init__(self, text: str) -> None:
        tokens: list[str] = _TOKEN.findall(text)
        lower = [token.lower() for token in tokens]
        self.tokens, self.words = tokens, lower
        self.unclear: set[int] = set()
        """Places of numbers in words that may mean something else."""
        in_words: set[int] = set()
        if "-" in text or not _NUMERAL.isdisjoint(lower):
            in_words = self._join(tokens, lower)
        self.numbers = [
            i
            for i, word in enumerate(self.words)
            if word[-1] in _DIGITS or (len(word) > 1 and word[-1] in "%°") or i in in_words
        ]

    def _join(self, tokens: list[str], lower: list[str]) -> set[int]:
        """Make each number in words one token; gives their places."""
        joined: list[str] = []
        places: set[int] = set()
        at = 0
        while at < len(tokens):
            end = _end_of_number(lower, at)
            if end:
                places.add(len(joined))
                if not _is_clear_number(lower, at, end):
                    self.unclear.add(len(joined))
            joined.append(" ".join(tokens[at:end]) if end else tokens[at])
            at = end or at + 1
        self.tokens, self.words = joined, [token.lower() for token in joined]
        return places

    def word(self, i: int) -> str:
        """A word in lower case; empty beyond the ends."""
        return self.words[i] if 0 <= i < len(self.words) else ""

    def is_denied(self, i: int) -> bool:
        """Whether a word right before a number denies it."""
        return any(
            word in _DENYING or word.endswith(("n't", "n’t"))
            for word in self.words[max(0, i - _MAX_DENYING) : i]
        )


def _end_of_number(tokens: list[str], at: int) -> int:
    """The place behind the number in words that begins at a token; 0 if none does."""
    if tokens[at].partition("-")[0] not in BEGINNINGS:
        return 0
    found = number_at(words := _words_from(tokens, at), 0)
    if found is None or words[: found[1]] == ["one"]:
        return 0  # "one" is mostly no number
    end, count = at, 0
    while count < found[1]:
        count += len(split_words(tokens[end]))
        end += 1
    return end


def _is_clear_number(tokens: list[str], at: int, end: int) -> bool:
    """Whether a number in words can mean nothing else, such as a share or an ordinal."""
    words = _words_from(tokens, at)
    value, count = number_at(words, 0) or (Fraction(0), 0)
    follows = tokens[end] if end < len(tokens) else ""
    if count != len(split_words(" ".join(tokens[at:end]))) or not is_clear(words, count):
        return False
    if value.denominator == 1 or abs(value) > 1:
        return follows != "or"
    if follows and follows not in _BEHIND_FRACTION:
        return False
    return follows.isalpha() or (at > 0 and tokens[at - 1] in _COPULAS)


def _words_from(tokens: list[str], at: int) -> list[str]:
    """The words of the tokens from a place on, as many as a number has."""
    words: list[str] = []
    for token in tokens[at : at + MAX_WORDS]:
        if not token[0].isalpha():
            break
        words += split_words(token)
    return words
