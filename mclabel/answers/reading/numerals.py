"""Parser of English number words: `twenty-one`, `one hundred and twenty`, `two and a half`.

A number is parsed from a list of words at an index, with a bounded look-ahead. Parsing a sentence
therefore takes time proportional to its length. All words are in lower case, and hyphenated words
are split.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS = {
    word: 10 * n
    for n, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_SMALL = {**{word: n for n, word in enumerate(_UNITS)}, **_TENS}
_LARGE = {"billion": 10**9, "million": 10**6, "thousand": 10**3}
_ORDINALS = {
    **{
        word: n
        for n, word in enumerate(
            "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
            "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth".split(),
            3,
        )
    },
    **{f"{word[:-1]}ieth": n for word, n in _TENS.items()},
    **{"hundredth": 100, "thousandth": 10**3, "millionth": 10**6},
}
_PARTS = {"half": 2, "quarter": 4, **_ORDINALS}
_PLURALS = {"halves": 2, **{f"{word}s": n for word, n in _PARTS.items() if word != "half"}}
_SIGNS = frozenset(("minus", "negative"))
_ARTICLES = frozenset(("a", "an"))
NUMBER_WORDS = frozenset(_SMALL)
"""Words for the numbers below twenty and for the tens, in lower case."""
PARTS = frozenset((*_PARTS, *_PLURALS))
SCALES = frozenset(("hundred", "dozen", *_LARGE))
BEGINNINGS = NUMBER_WORDS | _SIGNS | _ARTICLES | {"half", "none"}
"""First words of numbers."""
_TELLING = frozenset(
    (*NUMBER_WORDS, *PARTS, *SCALES, *(f"{word}s" for word in SCALES))
) | frozenset("none nothing first second once twice double triple single couple pair".split())
_REMAINING = frozenset(("left", "remain", "remains", "remaining"))
_FIRST = frozenset(("first", "second"))
MAX_WORDS = 14
"""Maximum number of words in a number, after hyphenated words are split."""
_WORD, _LETTERS = re.compile(r"[^\s-]+"), re.compile(r"[a-z]+")


def parse_number_in_words(text: str) -> Fraction | None:
    """Return the value of a text that is only a number in words; None for any other text."""
    words = split_words(text)
    number = parse_number_at(words, 0)
    return number[0] if number is not None and number[1] == len(words) else None


def parse_leading_number(text: str) -> tuple[Fraction, str] | None:
    """Return the value of the number in words at the start of a text, and the text after it.

    The result is None if the text does not begin with a number followed by other words.
    """
    pieces = [match for match, _ in zip(_WORD.finditer(text), range(MAX_WORDS + 1), strict=False)]
    words = [piece[0].lower() for piece in pieces]
    number = parse_number_at(words, 0)
    if number is None or number[1] >= len(words):
        return None
    value, end = number
    start = pieces[end].start()
    return (
        (value, text[start:])
        if text[start - 1].isspace() and no_number_word_follows(words, end)
        else None
    )


def split_words(text: str) -> list[str]:
    """Split a text at spaces and hyphens, and return its words in lower case."""
    return _WORD.findall(text.lower())


def is_number_word(word: str) -> bool:
    """Return whether a single word in lower case is a number, such as `twelve` or `twenty-one`."""
    return all(part in NUMBER_WORDS for part in word.split("-"))


def mentions_number(text: str, *, include_first_and_second: bool = True) -> bool:
    """Return whether any word of a text denotes a number, such as `twelve`, `third` or `dozens`.

    Args:
        text: text in upper or lower case.
        include_first_and_second: True if `first` and `second` count as numbers.
    """
    words = {*_LETTERS.findall(text.lower())}
    if "no" in words and not words.isdisjoint(_REMAINING):  # there are no apples left
        return True
    return not (_TELLING if include_first_and_second else _TELLING - _FIRST).isdisjoint(words)


def mentions_fraction(text: str) -> bool:
    """Return whether a text contains a fraction in words, such as `half` or `one sixth`."""
    words = _LETTERS.findall(text.lower())
    numbers = (parse_number_at(words, at) for at, word in enumerate(words) if word in BEGINNINGS)
    return any(number is not None and number[0].denominator > 1 for number in numbers)


def no_number_word_follows(words: Sequence[str], end: int) -> bool:
    """Return whether no further number word follows a number.

    Otherwise the number may be only a part, as `twenty` in `twenty fifth`.

    Args:
        words: words in lower case.
        end: index after the last word of the number.
    """
    follows = words[end] if end < len(words) else ""
    return follows not in _TELLING or follows in ("single", "pair", "double", "first")


def parse_number_at(words: Sequence[str], start: int) -> tuple[Fraction, int] | None:
    """Parse the number that begins at index `start`.

    Args:
        words: words in lower case, as `split_words` returns them.
        start: index of the first word of the number.

    Returns:
        The value and the index after the last word of the number; None if no number begins there.
    """
    if _get_word_or_empty(words, start) in _SIGNS:
        magnitude = (
            parse_number_at(words, start + 1)
            if _get_word_or_empty(words, start + 1) not in _SIGNS
            else None
        )
        return None if magnitude is None else (-magnitude[0], magnitude[1])
    if _get_word_or_empty(words, start) == "none" and _get_word_or_empty(words, start + 1) in (
        "left",
        "remaining",
    ):
        return Fraction(0), start + 2
    fraction = _parse_fraction(words, start)
    if fraction is not None:
        return fraction
    if (
        _get_word_or_empty(words, start) in _ARTICLES
        and _get_word_or_empty(words, start + 1) == "dozen"
    ):
        return Fraction(12), start + 2
    whole = _parse_cardinal(words, start)
    if whole is None:
        return None
    value, end = whole
    if _get_word_or_empty(words, end) == "and":
        rest = _parse_fraction(words, end + 1)
        if rest is not None and rest[0] < 1:
            return value + rest[0], rest[1]
    if _get_word_or_empty(words, end) == "point":
        return _parse_digits_after_point(words, end + 1, value)
    return Fraction(value), end


def _get_word_or_empty(words: Sequence[str], index: int) -> str:
    return words[index] if index < len(words) else ""


def _parse_fraction(words: Sequence[str], start: int) -> tuple[Fraction, int] | None:
    """Parse a fraction such as `half`, `a third`, `two thirds` or `three twenty-fifths`."""
    word = _get_word_or_empty(words, start)
    if word in ("half", "quarter"):
        return Fraction(1, _PARTS[word]), start + 1
    count = (1, start + 1) if word in _ARTICLES else _parse_cardinal(words, start)
    if count is None:
        return None
    top, place = count
    tens = _TENS.get(_get_word_or_empty(words, place), 0)
    parts = _PARTS if top == 1 else _PLURALS
    bottom = parts.get(_get_word_or_empty(words, place + bool(tens)))
    if bottom is None or (tens and bottom > 9):
        return None
    return Fraction(top, tens + bottom), place + bool(tens) + 1


def _parse_cardinal(words: Sequence[str], start: int) -> tuple[int, int] | None:
    """Parse a cardinal such as `twelve`, `a hundred` or `one thousand five hundred and six`."""
    total, end, below = 0, start, 10**12
    while (block := _parse_below_thousand(words, end)) is not None:
        count, behind = block
        scale = _LARGE.get(_get_word_or_empty(words, behind), 1)
        if scale >= below:
            break
        total, end, below = total + count * scale, behind + (scale > 1), scale
        if scale == 1:
            break
        joint = _get_word_or_empty(words, end) == "and"
        if joint and (
            _parse_fraction(words, end + 1) or _parse_below_thousand(words, end + 1) is None
        ):
            break
        end += joint
    return (total, end) if end > start else None


def _parse_below_thousand(words: Sequence[str], start: int) -> tuple[int, int] | None:
    if _get_word_or_empty(words, start) in _ARTICLES:
        scaled = (
            _get_word_or_empty(words, start + 1) == "hundred"
            or _get_word_or_empty(words, start + 1) in _LARGE
        )
        count = (1, start + 1) if scaled else None
    else:
        count = _parse_below_hundred(words, start)
    if count is None or _get_word_or_empty(words, count[1]) != "hundred" or count[0] == 0:
        return count
    value, end = 100 * count[0], count[1] + 1
    joint = _get_word_or_empty(words, end) == "and"
    if joint and _parse_fraction(words, end + 1):
        return value, end
    rest = _parse_below_hundred(words, end + joint)
    return (value, end) if rest is None or not rest[0] else (value + rest[0], rest[1])


def _parse_below_hundred(words: Sequence[str], start: int) -> tuple[int, int] | None:
    value = _SMALL.get(_get_word_or_empty(words, start))
    if value is None:
        return None
    unit = _SMALL.get(_get_word_or_empty(words, start + 1), 0) if value >= 20 else 0
    return (value + unit, start + 2) if 0 < unit < 10 else (value, start + 1)


def _parse_digits_after_point(
    words: Sequence[str], start: int, whole: int
) -> tuple[Fraction, int] | None:
    """Parse the digits after the word "point", as in `two point five`."""
    value, end, place = Fraction(whole), start, Fraction(1, 10)
    while end - start < MAX_WORDS and _SMALL.get(_get_word_or_empty(words, end), 10) < 10:
        value, end, place = value + _SMALL[words[end]] * place, end + 1, place / 10
    return (value, end) if end > start else None
