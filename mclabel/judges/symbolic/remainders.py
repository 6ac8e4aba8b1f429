"""Divisions with a remainder: `1529 / 6 = 254 with a remainder of 5`."""

from __future__ import annotations

import re

from mclabel.judges.symbolic.formula import Side

_DIVISION = re.compile(r"(?:([0-9]+)/([0-9]+)|\\frac\{([0-9]+)\}\{([0-9]+)\})")
_REMAINDER = re.compile(
    r"[\s\\)\]$,;]{0,8}+(?:(?:with|and|leaving) )?(?:(?:a|the) )?"
    r"(?:remainder (?:(?:of|is) )?|\\(?:mathrm|text)\{ ?R ?\}[\s\\;]{0,4}+|R ?(?=[0-9]))"
    r"[\\($\s]{0,4}+([0-9]{1,12})(?![0-9]*[.,/^*]?[0-9])"
)
_MAX_LENGTH = 80


def divided_with_remainder(left: Side, right: Side, behind: str) -> str | None:
    """Whether an equality is a division with a remainder, and why it is false.

    Args:
        left: of the equality.
        right: of the equality.
        behind: the text behind the right side.

    Returns:
        None where it is no such division, "" where it holds, else the reason in plain English.
    """
    division = _DIVISION.fullmatch(left.text)
    remainder = _REMAINDER.match(behind[:_MAX_LENGTH])
    if division is None or remainder is None or not right.text.isdecimal():
        return None
    dividend, divisor = (int(group) for group in division.groups() if group)
    quotient, rest = int(right.text), int(remainder[1])
    total = divisor * quotient + rest
    if total == dividend:
        return ""
    return f"{divisor} * {quotient} + {rest} is {total}, not {dividend}"
