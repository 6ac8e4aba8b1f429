"""Parser of dates: `2024-03-05`, `March 5, 2024`, `the 5th of March`, `5. März 2024`.

A date is represented by a tuple of words: a marker, the month with the day, and the year if it is
given. 03/05/2024 may be the third of May or the fifth of March. Such a date is equal only to a date
with the same digits in the same order.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mclabel.answers.values.forms import Words

DATE = "date:"
"""Marker that is the first word of a date. The words of other texts have no colon."""
AMBIGUOUS = "/"
"""Separator of month and day if either number may be the month."""
_MONTHS = (
    "january jan januar janvier enero janeiro gennaio января januari",
    "february feb februar février febrero fevereiro febbraio февраля februari",
    "march mar märz mars marzo março марта maart",
    "april apr avril abril aprile апреля",
    "may mai mayo maio maggio мая mei",
    "june jun juni juin junio junho giugno июня",
    "july jul juli juillet julio julho luglio июля",
    "august aug août agosto августа augustus",
    "september sep sept septembre septiembre setembro settembre сентября",
    "october oct oktober octobre octubre outubro ottobre октября",
    "november nov novembre noviembre novembro ноября",
    "december dec dezember décembre diciembre dezembro dicembre декабря",
)
_MONTH_OF = {name: n for n, names in enumerate(_MONTHS, 1) for name in names.split()}
_PASSED_OVER = frozenset(
    "the of on st nd rd th er o le de del den der am em el il di г года monday tuesday wednesday "
    "thursday friday saturday sunday mon tue wed thu fri sat sun".split()
)
"""Words of a date that are ignored: articles, ordinal endings and days of the week."""
_SIGNS = re.compile(r"[^\W_]+(?:[ ,.]{1,3}[^\W_]+){1,7}\.?")
_DIGIT = re.compile(r"\d")
_PIECE = re.compile(r"\d+|[^\W\d_]+")
_YEAR_FIRST = re.compile(r"([12]\d{3})([-/.])(\d{2})\2(\d{2})")
_YEAR_LAST = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2([12]\d{3})")
_IDEOGRAPHIC = re.compile(r"(?:(\d{4}) ?[年년] ?)?(\d{1,2}) ?[月월](?: ?(\d{1,2}) ?[日号號일])?")
_MAX_LENGTH = 40
_MIN_NUMERIC = len("1/1/2000")


@lru_cache(maxsize=4096)
def read_date(text: str) -> Words | None:
    """Parse a text that is only a date; return None for any other text."""
    if not 4 <= len(text) <= _MAX_LENGTH or not text[0].isalnum():
        return None
    if text.startswith(DATE) and "\\" not in text and _DIGIT.search(text):
        _, *years, day_of_year = text.split()
        return Words((DATE, day_of_year, *years))
    if text[0].isdigit() and len(text) >= _MIN_NUMERIC and (numeric := _read_numeric_date(text)):
        return numeric
    ideographic = None if text.isascii() else _IDEOGRAPHIC.fullmatch(text)
    if ideographic:
        year, month, day = ideographic.groups(default="")
        return _make_date_words(year, int(month), day) if year or day else None
    return _read_date_in_words(text) if _SIGNS.fullmatch(text) else None


def same_dates(answer: tuple[str, ...], gold: tuple[str, ...]) -> bool | None:
    """Return whether two dates are equal; None if undecided.

    This is undecided if only one has a year, or if one may be either of two days, as 03/05.

    Args:
        answer: words of the answer's date, as `read_date` returns them.
        gold: words of the gold's date.
    """
    years = {words[2] for words in (answer, gold) if len(words) > 2}
    if len(years) > 1:
        return False
    if answer[1] == gold[1]:
        return True if len(answer) == len(gold) else None
    if AMBIGUOUS not in answer[1] + gold[1]:
        return False
    pairs = {frozenset(re.findall(r"\d+", words[1])) for words in (answer, gold)}
    return None if len(pairs) == 1 else False


def _read_numeric_date(text: str) -> Words | None:
    first = _YEAR_FIRST.fullmatch(text)
    if first:
        return _make_date_words(first[1], int(first[3]), first[4])
    last = _YEAR_LAST.fullmatch(text)
    if last is None:
        return None
    first_number, sign, second_number, year = int(last[1]), last[2], int(last[3]), last[4]
    if sign == "." or (first_number > 12 and sign == "/"):
        return _make_date_words(year, second_number, last[1])
    if sign == "-" and len(last[1] + last[3]) < 4:
        return None
    if second_number > 12 or first_number == second_number:
        return _make_date_words(year, first_number, last[3])
    if first_number > 12:
        return _make_date_words(year, second_number, last[1])
    return Words((DATE, f"{first_number:02}{AMBIGUOUS}{second_number:02}", year))


def _read_date_in_words(text: str) -> Words | None:
    pieces = _PIECE.findall(text.lower())
    if _MONTH_OF.keys().isdisjoint(pieces):
        return None
    pieces = [piece for piece in pieces if piece not in _PASSED_OVER]
    months = [_MONTH_OF[piece] for piece in pieces if piece in _MONTH_OF]
    numbers = [piece for piece in pieces if piece.isdecimal()]
    if len(months) != 1 or len(pieces) != 1 + len(numbers) or not 0 < len(numbers) < 3:
        return None
    years = [piece for piece in numbers if len(piece) == 4]
    days = [piece for piece in numbers if len(piece) < 3]
    if len(years) > 1 or len(days) > 1 or len(years) + len(days) < len(numbers):
        return None
    return _make_date_words("".join(years), months[0], "".join(days))


def _make_date_words(year: str, month: int, day: str) -> Words | None:
    if not 1 <= month <= 12 or (day and not 1 <= int(day) <= 31):
        return None
    words = (DATE, f"{month:02}-{int(day or 0):02}", year)
    return Words(words if year else words[:2])
