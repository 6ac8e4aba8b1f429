"""Parser of values with a remark: `42 (forty-two)`, `7 if n is even`, `5 is the smallest`.

The argument `read_part` of the functions parses one part of the text.
"""

from __future__ import annotations

import re

from mclabel.answers.reading.numerals import parse_number_in_words
from mclabel.answers.values.forms import (
    ApproximatedForm,
    ClosedForm,
    Equation,
    Form,
    ItemCollection,
    Number,
    PartReader,
    Quantity,
    RemarkedForm,
    get_closed_value,
)
from mclabel.answers.values.literals import Literal
from mclabel.answers.values.units import read_multiplier_and_unit

_MAX_REMARK = 80
"""Maximum number of characters of a remark in brackets."""
_REMARK_MARK = re.compile(
    r"(?:(?:or )?(?P<rough>≈|approximately|approx\.?|about|roughly)|i\. ?e\.?|ie|that is|which is|"
    r"in other words|equal to|equals|or|=)(?![a-z]),? ?",
    re.IGNORECASE,
)
_SPELT_OUT = re.compile(r"(\S+) \(([A-Za-z][A-Za-z -]{1,60})\)((?: [A-Za-z]+){1,4})")
"""A number, the same number in words, and the counted things: `12 (twelve) apples`."""
_BARE = re.compile(r"-?(?:\d|\\frac|\\sqrt|\.\d)")
"""Start of a number."""
_LIST_JOINTS = (", ", ";", " and ", " or ")

_CONDITION = re.compile(
    r" (?:(?:when(?:ever)?|if|only if|unless|provided(?: that)?|assuming(?: that)?|where) (?=\S)"
    r"|(?:as|for|at) \(?[A-Za-z](?:_\w)?(?:\([a-z]\))? ?"
    r"(?=\\to|->|[=<>≤≥≠]|approach|tend|go|grow|increase|decrease|get|become))"
)
_LIMIT = re.compile(r"\blimit\b|\\lim(?![a-z])", re.IGNORECASE)
_TENDING = re.compile(r"[a-z](?:_\{?\w\}?)?(?:\([a-z]\))?")
_IS = re.compile(r" (?:is|are|was|were) ")
_NAMING = frozenset(
    "the our my a of all such that which and least most minimum maximum minimal maximal only "
    "unique final correct right desired required answer answers solution solutions root roots "
    "value values integer integers number numbers possible positive negative natural whole prime "
    "result total sum limit x n k m y".split()
)
"""Words that, like superlatives, only identify a value: `the smallest such integer`."""
_SUPERLATIVE = re.compile(r"[a-z]{3,12}est")


_IRRELEVANT_REMARK = re.compile(
    r"(?<=\S)[,.;]? ?(?:\((?:q\.?e\.?d\.?|(?:see|shown|proved|proven|derived|given) (?:the )?"
    r"(?:above|below|figure|diagram|text|work|solution|explanation)[a-z ]{0,30}|"
    r"as (?:required|desired|claimed|needed|expected|wanted|above|shown)(?: above)?|"
    r"by (?=[A-Za-z])(?:[^()]|\([^()]{0,40}\)){2,80}|(?:since|because) [^()]{2,80}|"
    r"(?:verified|checked|confirmed|simplified)(?: by [a-z ]{3,30})?|"
    r"(?:the |our |final |exact |correct |required |simplified )*(?:answer|value|result|solution)|"
    r"exact(?:ly)?|final|"
    r"(?:rejected|rejecting|discarded|discarding|ignored|ignoring|excluding) [^()]{2,60}|"
    r"(?:rounded |correct |accurate )?(?:to )?(?:the )?(?:nearest [a-z]{3,12}|"
    r"(?:\d|one|two|three|four) (?:decimal places?|decimals?|"
    r"significant (?:figures?|digits?)|d\.?p\.?|s\.?f\.?)))\)"
    r"|(?<=[\s.,;])q\.?e\.?d\b\.?|(?<=[\s.,;])as (?:required|desired|claimed|needed|expected))\.?$",
    re.IGNORECASE,
)
"""A remark after a value that does not change the value: `(see above)`, `as required`, `Q.E.D.`"""
_IRRELEVANT_REMARK_ENDS = (")", ").", "ed", "ed.", "d.", "D", "D.")


def remove_remark(text: str) -> str:
    """Remove a remark that does not change the value from the end of a text."""
    if not text.endswith(_IRRELEVANT_REMARK_ENDS) or text[0] == "(":
        return text
    return _IRRELEVANT_REMARK.sub("", text)


def read_value_with_remark(text: str, read_part: PartReader) -> Form | None:
    """Parse `42 (forty-two)`, `7 as n → ∞` or `5 is the smallest`; return None for other texts."""
    if " (" in text:
        form = _read_bracketed_remark(text, read_part)
        if form is not None:
            return form
    condition = _CONDITION.search(text)
    if condition is not None:
        return _read_conditional_value(text, condition, read_part)
    copula = _IS.search(text)
    if copula is None:
        return None
    before, after = text[: copula.start()], text[copula.end() :]
    value = (
        before if _only_identifies_value(after) else after if _only_identifies_value(before) else ""
    )
    if not any(c.isdigit() for c in value):
        return None
    form = read_part(value)
    return form if isinstance(form, _VALUES) else None


_VALUES = (Number, ClosedForm, Quantity, Equation)


def _only_identifies_value(text: str) -> bool:
    """Return whether words only identify a value, as in `the smallest such integer`."""
    words = text.lower().split()
    return 0 < len(words) <= 8 and all(
        word in _NAMING or _SUPERLATIVE.fullmatch(word) for word in words
    )


def _read_conditional_value(
    text: str, condition: re.Match[str], read_part: PartReader
) -> Form | None:
    """Parse a value with its condition, as in `7 as n → ∞` or `7 if n is even`.

    Return None if the text before the condition is not a single value.

    Args:
        text: the text.
        condition: match of the condition in the text.
        read_part: function that parses the value.
    """
    value, words = text[: condition.start()].rstrip(","), text[condition.start() :]
    if not value or any(joint in value or joint in words for joint in _LIST_JOINTS):
        return None
    form = read_part(value)
    if _LIMIT.search(value):  # the condition is part of a limit and does not restrict it
        return form
    form = form.value if isinstance(form, RemarkedForm) else form
    return RemarkedForm(form, None, words) if isinstance(form, _VALUES) else None


def read_limit_arrow(parts_between_arrows: list[str], read_part: PartReader) -> Form | None:
    """Parse `x → 7` as a remarked value, because x need not reach 7; return None for other steps.

    Args:
        parts_between_arrows: the texts between arrows.
        read_part: function that parses the value.
    """
    name, value = parts_between_arrows[0], parts_between_arrows[-1]
    if len(parts_between_arrows) != 2 or not _TENDING.fullmatch(name) or not value[-1].isdigit():
        return None
    return RemarkedForm(read_part(value), None, name)


def _read_bracketed_remark(text: str, read_part: PartReader) -> Form | None:
    """Parse a value with a bracketed remark that restates it, as in `3/4 (or 0.75)`.

    Return None for any other text.
    """
    spelt = _SPELT_OUT.fullmatch(text)
    if spelt is not None:
        value, remark = f"{spelt[1]}{spelt[3]}", spelt[2]
    else:
        start = _find_remark_bracket_index(text)
        value, remark = text[:start].rstrip(), text[start + 1 : -1].strip()
    if not value or not 0 < len(remark) <= _MAX_REMARK or any(x in value for x in _LIST_JOINTS):
        return None
    mark = None if spelt else _REMARK_MARK.match(remark)
    if mark is None and _is_unit_name(remark):
        return read_part(f"{value} {remark}")
    in_words = _spells_number(remark) or (spelt is None and _spells_number(value))
    if mark is None and not in_words and not (_BARE.match(remark) and _BARE.match(value)):
        return None
    form, stated = read_part(value), read_part(remark[mark.end() :] if mark else remark)
    if not isinstance(form, _VALUES) or not isinstance(stated, _VALUES):
        return None
    if mark is None:
        restated = in_words or (value != remark and _is_bracketed_remark(form, stated))
        return RemarkedForm(form, stated, "") if restated else None
    if mark["rough"]:
        return ApproximatedForm(form, stated)
    is_alternative = mark[0].lower().startswith("or")
    return (
        ItemCollection("alternatives", (form, stated))
        if is_alternative
        else RemarkedForm(form, stated, "")
    )


def _find_remark_bracket_index(text: str) -> int:
    """Return the index of the opening bracket whose closing bracket ends the text.

    The result is 0 if there is no such bracket with a space before it.
    """
    if text[-1] != ")":
        return 0
    depth = 0
    for place in range(len(text) - 1, 0, -1):
        depth += (text[place] == ")") - (text[place] == "(")
        if depth == 0:
            return place if text[place - 1] == " " else 0
    return 0


def _is_unit_name(remark: str) -> bool:
    unit = read_multiplier_and_unit(f" {remark}") if len(remark) > 1 and remark.isalpha() else None
    return unit is not None and unit[1] is not None and not unit[1].is_counted


def _is_bracketed_remark(form: Form, bracketed_form: Form) -> bool:
    """Return whether a bracketed number without a word such as "or" is a remark, not a factor.

    The number is a remark if it or the value has a unit, or if both are the same number in
    different spellings.
    """
    if isinstance(form, Quantity) or isinstance(bracketed_form, Quantity):
        return True
    if isinstance(form, Number) and isinstance(bracketed_form, Number):
        literal, other_literal = form.literal, bracketed_form.literal
        return _is_rounded_by(literal, other_literal) or _is_rounded_by(other_literal, literal)
    left, right = get_closed_value(form), get_closed_value(bracketed_form)
    return left is not None and right is not None and None is not left.rational == right.rational


def _is_rounded_by(exact: Literal, rounded: Literal) -> bool:
    """Return whether `rounded` has at least two decimals and `exact` rounds to it."""
    unit = rounded.unit_in_last_place if rounded.num_decimals > 1 else None
    return abs(exact.value - rounded.value) * 2 <= (unit or 0)


def _spells_number(text: str) -> bool:
    return text[0].isalpha() and parse_number_in_words(text) is not None
