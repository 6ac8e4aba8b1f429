"""Parser of single values with units, bases or magnitudes, and of times, ratios and options."""

from __future__ import annotations

import re
from fractions import Fraction

from mclabel.answers.reading.splitting import split_outside_brackets
from mclabel.answers.values import algebra
from mclabel.answers.values.forms import (
    BasedNumber,
    Choice,
    ClosedForm,
    Form,
    ItemCollection,
    Number,
    PartReader,
    Quantity,
    Ratio,
    TimeOfDay,
)
from mclabel.answers.values.literals import Literal, read_literal
from mclabel.answers.values.units import LETTERS, Unit, get_currency_unit, read_multiplier_and_unit

_BASED = re.compile(
    r"\(?(-?[\dA-Fa-f]+(?:\.[\dA-Fa-f]+)?)\)?\s*"
    r"(?:_\s*(?:\{\s*(?:base )?([a-z]+|\d{1,2})\s*\}|(\d{1,2})|([a-z]+))|"
    r"\(?(?:in )?base[ -](\d{1,2}|[a-z]+)\)?)"
)
_PREFIXES = {"0x": 16, "0b": 2, "0o": 8}
_HEXADECIMAL = re.compile(r"[\dA-Fa-f]{1,60}")
_BASE_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "sixteen": 16,
}  # fmt: skip


def read_based_number(text: str) -> BasedNumber | None:
    """Parse a number in a stated base: `1010_2`, `(4343)_6`, `A3_{16}`, `0xFF` or `1010 base 2`.

    The result is None for any other text, and if a digit is too large for the base.
    """
    if text[:2].lower() in _PREFIXES and _HEXADECIMAL.fullmatch(text[2:]):
        text = f"{text[2:]}_{_PREFIXES[text[:2].lower()]}"
    if "_" not in text and "base" not in text:
        return None
    match = _BASED.fullmatch(text)
    if match is None or not (match[1][-1].isdigit() or len(match[1]) > 1) or len(match[1]) > 200:
        return None
    name = next(group for group in match.groups()[1:] if group)
    base = int(name) if name.isdigit() else _BASE_WORDS.get(name, 0)
    if not 2 <= base <= 36:
        return None
    whole, _, decimals = match[1].upper().lstrip("-").partition(".")
    try:
        value = Fraction(int(whole + decimals, base), base ** len(decimals))
    except ValueError:
        return None
    return BasedNumber(match[1].upper().replace("_", ""), base, -value if text[0] == "-" else value)


_ORDINAL = re.compile(
    r"(\d{1,9}) ?(?:st|nd|rd|th|\^\{?(?:st|nd|rd|th)\}?)(?: (?:place|day|term|row))?"
)
_ORDINALS = dict(
    zip(
        "first second third fourth fifth sixth seventh eighth ninth tenth".split(),
        range(1, 11),
        strict=True,
    )
)
_SHARE = re.compile(r"(\d{1,9}) (?:out of(?: every)?|in(?: every)?) (\d{1,9})")
_REMAINDER = re.compile(r"(\d{1,9}),? ?(?:R|r|rem|remainder|with a remainder of) ?(\d{1,9})")


def read_ordinal_share_or_remainder(text: str) -> Form | None:
    """Parse an ordinal such as `3rd` or `third` as a number; return None for any other text.

    `3 out of 5` is parsed as a fraction, and `7 R 3` as a pair of quotient and remainder.
    """
    place = _ORDINALS.get(text.lower())
    if place is not None:
        return Number(Literal(Fraction(place)))
    match = _ORDINAL.fullmatch(text)
    if match:
        return Number(Literal(Fraction(int(match[1]))))
    match = _SHARE.fullmatch(text)
    if match and int(match[2]):
        return Number(Literal(Fraction(int(match[1]), int(match[2]))))
    match = _REMAINDER.fullmatch(text)
    if match:
        return ItemCollection(
            "tuple", tuple(Number(Literal(Fraction(int(n)))) for n in match.groups())
        )
    return None


_CLOCK = re.compile(
    r"(?:at )?(\d{1,2})(?:\s?:\s?(\d{2}))?(?:\s?:\s?(\d{2}))?"
    r"(?:\s*+([ap])\s*+\.?+\s*+m\b(?:\s*+\.)?)?(?: (?:o'clock|sharp))?",
    re.IGNORECASE,
)
_NAMED_TIMES = {
    "noon": 43200, "12 noon": 43200, "midday": 43200, "midnight": 0, "12 midnight": 0
}  # fmt: skip


def read_time_of_day(text: str) -> TimeOfDay | None:
    """Parse a time such as `4:30 pm`, `9 a.m.`, `16:30` or `noon`; return None for other texts."""
    named = _NAMED_TIMES.get(text.lower())
    if named is not None:
        return TimeOfDay(named, "pm" if named else "am")
    if not text[0].isdigit() and not text.startswith("at "):
        return None
    match = _CLOCK.fullmatch(text)
    if match is None or not (match[2] or match[4]):
        return None
    hour, minute, second = int(match[1]), int(match[2] or 0), int(match[3] or 0)
    half = (match[4] or "").lower()
    if minute > 59 or second > 59 or hour > 23 or (half and not 1 <= hour <= 12):
        return None
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
        return TimeOfDay(hour * 3600 + minute * 60 + second, "pm" if half == "p" else "am")
    terms = tuple(Number(Literal(Fraction(int(n)))) for n in match.groups()[:3] if n)
    if hour > 12 or match[1].startswith("0"):
        return TimeOfDay(hour * 3600 + minute * 60 + second, "24", Ratio(terms))
    return TimeOfDay(hour % 12 * 3600 + minute * 60 + second, "", Ratio(terms))


_COLON = re.compile(r":")
_TO = re.compile(r" to ")
_RATIO_TERM = re.compile(r"[\d.]+|\\frac\{\d+\}\{\d+\}|[A-Za-zπ]|[^:=<>]{1,40}")


def read_ratio(text: str, read_part: PartReader) -> Ratio | None:
    """Parse a ratio such as `3:5` or `1:2:3`; return None for any other text.

    Args:
        text: normalised text.
        read_part: function that parses one term.
    """
    terms = split_outside_brackets(text, _COLON)
    if not 2 <= len(terms) <= 8 or not all(_RATIO_TERM.fullmatch(term) for term in terms):
        return None
    forms = tuple(read_part(term) for term in terms)
    return Ratio(forms) if all(isinstance(f, Number | ClosedForm) for f in forms) else None


_CHOICE = re.compile(
    r"(?:(?:option|choice|answer|part)s?:? )?(?:\(\s?([A-Ja-j])\s?\)|([A-J])[.):](?= ?\S))"
    r"\s*+[.:)]?+\s*+(.*+)",
    re.DOTALL | re.IGNORECASE,
)
_CHOICE_BEHIND = re.compile(r"(\d[\d.,/]{0,20}+(?: [a-z]{1,12}+)?+) \(([A-E])\)")
_NAMED_CHOICE = re.compile(r"(?:option|choice|answer)s?:? \(?\s?([A-J])\s?\)?", re.IGNORECASE)


def read_choice(text: str, read_part: PartReader) -> Choice | None:
    """Parse an option letter, perhaps with its content: `(C)`, `(C) 12`, `C. 12`, `option C`.

    Return None for any other text.

    Args:
        text: normalised text.
        read_part: function that parses the content.
    """
    match = _NAMED_CHOICE.fullmatch(text)
    if match:
        return Choice(match[1].upper(), None)
    match = _CHOICE.fullmatch(text)
    if match is None:
        behind = _CHOICE_BEHIND.fullmatch(text) if text[-1] == ")" else None
        return Choice(behind[2], read_part(behind[1])) if behind else None
    letter, content = match[1] or match[2], match[3].strip()
    if content[:1] in tuple("+-*/^=_!<>≤≥,&∪°") or content.startswith(("(", "and ", "or ")):
        return None
    if match[1] and match[1].islower() and content and content[0].isalpha() and len(content) < 3:
        return None
    if not match[1] and not match[2].isupper():
        return None
    return Choice(letter.upper(), read_part(content) if content else None)


_MAGNITUDE = re.compile(
    r"([+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)(?: ?(bn|mn|tn|mil)|([kKMBT]))", re.ASCII
)
_MAGNITUDES = {
    "k": 10**3, "K": 10**3, "M": 10**6, "mn": 10**6, "mil": 10**6, "B": 10**9, "bn": 10**9,
    "T": 10**12, "tn": 10**12,
}  # fmt: skip


def read_number_with_magnitude_letter(text: str) -> Literal | None:
    """Parse a number with a magnitude such as `2.6B`, `1.5M` or `3k`; return None for other texts.

    The letter may also be a variable, which the caller has to consider.
    """
    match = _MAGNITUDE.fullmatch(text)
    number = read_literal(match[1]) if match else None
    if match is None or number is None:
        return None
    scaled = _multiply_amount(Number(number), _MAGNITUDES[match[2] or match[3]])
    assert isinstance(scaled, Number)
    return scaled.literal


def _apply_money_magnitude(amount: Number | ClosedForm, unit: Unit) -> Number | ClosedForm:
    """Return an amount of money as a number if it has a magnitude such as k in `$3k`.

    After a currency sign, such a letter is not a variable. Return any other amount unchanged.
    """
    if isinstance(amount, ClosedForm) and amount.magnitude is not None and unit in _CURRENCIES:
        return Number(amount.magnitude)
    return amount


_CURRENCIES = tuple(map(get_currency_unit, "$€£¥"))
_PREFIX_SIGN = re.compile(r"(-?)\s*+([$€£¥])\s*+(-?.*+)", re.DOTALL)
_COMPOUND = re.compile(r"(?<!\d)(\d++(?:\.\d++)?+)\s*+([A-Za-z]++)\.?+,?+(?:\s++and)?+\s*+")


_UNIT_QUOTIENT = re.compile(
    r"(?<=[\d)} ])\\frac\{([A-Za-z *^\d]{1,20})\}\{((?:[A-Za-z *^\d]|\{-?\d\}){1,30})\}$"
)


def read_quantity(text: str, read_part: PartReader) -> Form | None:
    """Parse an amount with a unit before or after it; return None for any other text.

    If the unit is generic, such as "units", the result is the amount without a unit.

    Args:
        text: normalised text.
        read_part: function that parses the amount.
    """
    quotient = _UNIT_QUOTIENT.search(text) if text[-1] == "}" else None
    if quotient:
        unit = read_multiplier_and_unit(f" {quotient[1].strip()}/({quotient[2].strip()})")
        amount = read_part(text[: quotient.start()]) if unit else None
        if unit and unit[1] is not None and isinstance(amount, Number | ClosedForm):
            return Quantity(_multiply_amount(amount, unit[0]), unit[1])
    sign = _PREFIX_SIGN.fullmatch(text)
    if sign:
        amount = read_part(sign[1] + sign[3])
        if isinstance(amount, Quantity):
            return Quantity(amount.amount, get_currency_unit(sign[2]))
        if not isinstance(amount, Number | ClosedForm):
            return None
        money = get_currency_unit(sign[2])
        return Quantity(_apply_money_magnitude(amount, money), money)
    for match in _list_amount_and_unit_splits(text):
        read_tail = read_multiplier_and_unit(match[1])
        if read_tail is None:
            continue
        multiplier, measure = read_tail
        if _FUNCTION.search(match[0]) and match[1].strip() in ("°", "%"):
            return None
        amount = read_part(match[0])
        if isinstance(amount, Quantity) and measure is None:
            measure = amount.unit
            amount = amount.amount
        if not isinstance(amount, Number | ClosedForm):
            return None
        amount = amount if measure is None else _apply_money_magnitude(amount, measure)
        total = _multiply_amount(amount, multiplier)
        return total if measure is None else Quantity(total, measure)
    return None


def _list_amount_and_unit_splits(text: str) -> list[tuple[str, str]]:
    """Return the ways to split a text, each as an amount and a possible unit after it.

    The way with the shortest amount comes first.
    """
    if not (text[-1].isalnum() or text[-1] in "°%€£¥$}.)"):
        return []
    cuts = []
    for match in _CUT.finditer(text):
        at = match.start() + 1
        tail = text[at:]
        if "\\" not in tail and len(tail) <= 60:
            cuts.append((text[:at], tail.rstrip(".") if not tail.endswith("..") else tail))
    return cuts[-12:]


_CUT = re.compile(rf"(?<!\\)(?:[\d)}}\]π!.](?=\s*[{LETTERS}°%€£¥$])|(?<=[a-z]) (?=[a-z]))")


def read_compound_quantity(text: str) -> Quantity | None:
    """Parse `2 hours 30 minutes` or `5 ft 6 in` as an amount of the first unit.

    Return None for any other text.
    """
    if not _COMPOUNDS.fullmatch(text):
        return None
    pairs = _COMPOUND.findall(text)
    total = Fraction(0)
    first: Unit | None = None
    for amount, name in pairs:
        unit = read_multiplier_and_unit(f" {name}")
        if unit is None or unit[1] is None:
            return None
        measure = unit[1]
        first = first or measure
        if measure.dimension != first.dimension or next(iter(measure.dimension))[0][:4] == "noun":
            return None
        total += Fraction(amount) * unit[0] * measure.factor
    assert first is not None
    return Quantity(Number(Literal(total / first.factor)), first)


_FUNCTION = re.compile(r"sin|cos|tan|cot|sec|csc|log|cis")
_COMPOUNDS = re.compile(r"(?:\d++(?:\.\d++)?+\s?+[A-Za-z]{1,8}+\.?+,?+(?:\s++and)?+\s*+){2,3}+")


def _multiply_amount(amount: Number | ClosedForm, multiplier: int) -> Number | ClosedForm:
    if multiplier == 1:
        return amount
    if isinstance(amount, Number):
        literal = amount.literal
        unit = literal.unit_in_last_place
        return Number(
            Literal(
                literal.value * multiplier,
                unit_in_last_place=None if unit is None else unit * multiplier,
                num_decimals=literal.num_decimals,
                num_digits=literal.num_digits,
            )
        )
    return ClosedForm(algebra.multiply(amount.value, algebra.make_number_value(multiplier)))
