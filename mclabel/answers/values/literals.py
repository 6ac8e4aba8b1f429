r"""Parser of number literals: integers, decimals, fractions, mixed numbers, repeating decimals and
scientific notation.

The value of a literal is an exact rational. The precision of a decimal is recorded, because an
answer may be rounded to the precision of its gold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MAX_DIGITS = 1000
"""Maximum number of characters of a literal. Python refuses integers of over 4,300 digits."""
MAX_EXPONENT = 2000
"""Largest exponent of ten in scientific notation."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A rational number as it was written."""

    value: Fraction
    unit_in_last_place: Fraction | None = None
    """Unit in the last place of a decimal such as 3.14 (1/100) or 6.02e23 (1e21); None if the
    number is exact."""
    num_decimals: int = 0
    """Number of digits after the decimal point; 0 for an exact number."""
    num_digits: int = 0
    """Number of significant digits of a decimal; 0 for an exact number."""


_UNSIGNED = r"(?:[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d{0,2}(?: \d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMBER = re.compile(rf"([+-]?)\s?({_UNSIGNED})")
_FRACTION = re.compile(r"([+-]?)\s?\\frac\{\s?([+-]?)\s?(\d+)\s?\}\{\s?([+-]?)\s?(\d+)\s?\}")
_SLASH = re.compile(r"([+-]?)\s?\(?([+-]?)(\d+)\)?\s?/\s?\(?([+-]?)(\d+)\)?")
_MIXED = re.compile(
    r"([+-]?)\s?(\d+)(?:\s?\+?\s?\\frac\{\s?(\d+)\s?\}\{\s?(\d+)\s?\}|(?: | ?\+ ?)(\d+) ?/ ?(\d+))"
)
_EUROPEAN = re.compile(r"([+-]?)([1-9]\d{0,2}(?:\.\d{3})+)(?:,(\d+))?")
"""A number with points between groups of thousands and perhaps a decimal comma."""
_SCIENTIFIC = re.compile(
    rf"([+-]?)\s?({_UNSIGNED})\s?"
    r"(?:[eE]([+-]?\d{1,5})|\*\s?10\s?\^\s?(?:\{\s?([+-]?\s?\d{1,5})\s?\}|\(?([+-]?\d{1,5})\)?))"
)
_REPEATING = re.compile(
    r"([+-]?)\s?(\d*)\.(\d*)"
    r"(?:\\(?:overline|bar|dot)\s?\{\s?(\d+)\s?\}|\\(?:bar|dot|overline)\s?(\d)|\((\d+)\))"
)
_ELLIPSIS = re.compile(r"([+-]?)\s?(\d*+)\.(\d++)\.\.\.")
_MAX_PERIOD = 6
_MIN_REPEATS = 3


def read_literal(text: str) -> Literal | None:
    """Parse a normalised text as a number literal; return None if it is not one."""
    if len(text) > MAX_DIGITS or not text or not (text[-1].isdigit() or text[-1] in "})."):
        return None
    match = _NUMBER.fullmatch(text)
    if match:
        return _parse_decimal(match[1], match[2])
    if text.count(".") > 1 or ("." in text and "," in text):
        european = _EUROPEAN.fullmatch(text)
        if european:
            whole = european[2].replace(".", "")
            return _parse_decimal(european[1], f"{whole}.{european[3]}" if european[3] else whole)
    if "\\frac" in text or "/" in text:
        return _parse_fraction(text)
    match = _SCIENTIFIC.fullmatch(text)
    if match:
        return _parse_scientific(match)
    return _parse_repeating(text) if "." in text else None


def rounds_to(value: Fraction, gold: Literal) -> bool:
    """Return whether a value, rounded to the precision of a decimal gold, equals the gold.

    A tie may be rounded up or down.
    """
    unit = gold.unit_in_last_place
    return unit is not None and abs(value - gold.value) * 2 <= unit


def _parse_decimal(sign: str, digits: str) -> Literal:
    digits = digits.replace(",", "").replace(" ", "")
    if digits.isdecimal():  # building a `Fraction` from an integer takes a fifth of the time
        return Literal(Fraction(-int(digits) if sign == "-" else int(digits)))
    whole, _, decimals = digits.partition(".")
    number = int(whole + decimals)
    value = Fraction(-number if sign == "-" else number, 10 ** len(decimals))
    if not decimals:
        return Literal(value)
    return Literal(
        value,
        unit_in_last_place=Fraction(1, 10 ** len(decimals)),
        num_decimals=len(decimals),
        num_digits=len((whole + decimals).lstrip("0")),
    )


def _parse_fraction(text: str) -> Literal | None:
    match = _FRACTION.fullmatch(text) or _SLASH.fullmatch(text)
    if match:
        bottom = int(match[5])
        if not bottom:
            return None
        value = Fraction(int(match[3]), bottom)
        odd = (match[1] == "-") + (match[2] == "-") + (match[4] == "-")
        return Literal(-value if odd % 2 else value)
    match = _MIXED.fullmatch(text)
    if not match:
        return None
    top, bottom = int(match[3] or match[5]), int(match[4] or match[6])
    if not bottom or (top >= bottom and "+" not in text[1:]):
        return None
    value = int(match[2]) + Fraction(top, bottom)
    return Literal(-value if match[1] == "-" else value)


def _parse_scientific(match: re.Match[str]) -> Literal | None:
    exponent = int((match[3] or match[4] or match[5]).replace(" ", ""))
    if abs(exponent) > MAX_EXPONENT:
        return None
    mantissa = _parse_decimal(match[1], match[2])
    power = Fraction(10) ** exponent
    unit = mantissa.unit_in_last_place
    if unit is None:
        return Literal(mantissa.value * power)
    return Literal(
        mantissa.value * power,
        unit_in_last_place=unit * power,
        num_decimals=mantissa.num_decimals,
        num_digits=mantissa.num_digits,
    )


def _parse_repeating(text: str) -> Literal | None:
    match = _REPEATING.fullmatch(text)
    if match:
        fixed, period = match[3], match[4] or match[5] or match[6]
    else:
        match = _ELLIPSIS.fullmatch(text)
        split = _split_off_repeating_digits(match[3]) if match else None
        if match is None or split is None:
            return None
        fixed, period = split
    whole = match[2] or "0"
    scale = 10 ** len(fixed)
    value = Fraction(int(whole + fixed), scale)
    value += Fraction(int(period), scale * (10 ** len(period) - 1))
    return Literal(-value if match[1] == "-" else value)


def _split_off_repeating_digits(digits: str) -> tuple[str, str] | None:
    """Split decimals into the fixed digits and the period: 1666 becomes 1 and 6.

    Return None if no period repeats often enough.
    """
    candidates = []
    for size in range(1, _MAX_PERIOD + 1):
        start = len(digits) - size
        while start > 0 and digits[start - 1] == digits[start - 1 + size]:
            start -= 1
        repeats = (len(digits) - start) // size
        if repeats >= _MIN_REPEATS:
            candidates.append((len(digits) - repeats * size, size))
    if not candidates:
        return None
    start, size = min(candidates)
    return digits[:start], digits[start : start + size]
