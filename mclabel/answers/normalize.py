"""One spelling for answers that differ only in how they are typeset."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

MAX_LENGTH = 1000
"""Longer answers are not parsed; Python would also refuse integers of over 4,300 digits."""

_TYPESETTING = re.compile(r"\\(?:left|right|displaystyle|,|;|:|!| )|\\\(|\\\)|\$|\s+")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\{([^{}]*)\}")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)")
_FRACTION = re.compile(
    r"(?P<sign>[+-]?)(?:\\frac\{(?P<a>[+-]?\d+)\}\{(?P<b>\d+)\}|(?P<c>\d+)/(?P<d>\d+))"
)


def normalize(answer: str) -> str:
    """The answer without typesetting: same meaning, comparable as a string."""
    text = unicodedata.normalize("NFKC", answer).replace("\u2212", "-")
    text = _TEXT.sub(r"\1", text)
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    text = _TYPESETTING.sub("", text).rstrip(".")
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def answer_key(answer: str) -> str:
    """The same for answers that are equal as exact numbers, or else as normalised texts."""
    text = normalize(answer)
    rational = as_rational(text)
    return text if rational is None else str(rational)


def as_rational(normalized: str) -> Fraction | None:
    """The exact value of an integer, a decimal or a fraction, else None."""
    if len(normalized) > MAX_LENGTH or not normalized.isascii():
        return None
    if _DECIMAL.fullmatch(normalized):
        return Fraction(normalized)
    match = _FRACTION.fullmatch(normalized)
    if match is None:
        return None
    top, bottom = match["a"] or match["c"], int(match["b"] or match["d"])
    if bottom == 0:
        return None
    value = Fraction(int(top), bottom)
    return -value if match["sign"] == "-" else value
