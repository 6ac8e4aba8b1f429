"""Compares numbers with units, percentages, numbers in a base, times, ratios and words."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from mclabel.answers.reading.cardinals import CARDINALS
from mclabel.answers.reading.numerals import mentions_number, parse_number_in_words
from mclabel.answers.reading.words import has_no_negation, same_words
from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import RationalExpression
from mclabel.answers.values.forms import (
    BasedNumber,
    ClosedForm,
    Form,
    ItemCollection,
    Name,
    Number,
    Quantity,
    Ratio,
    Reals,
    SpecialValue,
    TimeOfDay,
    UnparsedText,
    Words,
    get_closed_value,
)
from mclabel.answers.values.literals import Literal
from mclabel.answers.values.monomials import Monomial, NotClosed
from mclabel.answers.values.reals import make_interval, union
from mclabel.answers.values.units import Unit, read_multiplier_and_unit

_INITIALS: dict[Monomial, tuple[str, ...]] = {
    frozenset(((letter, 1),)): word
    for letter, word in {"T": ("true",), "F": ("false",), "Y": ("yes",), "N": ("no",)}.items()
}
"""Words that a single letter equals, by the monomial of that letter: T is `true`."""

CompareForms = Callable[[Form, Form], bool | None]

_PERCENT, _DEGREE, _RADIAN = (frozenset(((name, 1),)) for name in ("percent", "degree", "radian"))


def same_quantity(
    answer: Form, gold: Form, compare_forms: CompareForms, *, units_optional: bool
) -> bool | None:
    """Return whether a quantity equals another one, or a number without a unit; None if undecided.

    Units are converted.

    Args:
        answer: parsed answer.
        gold: parsed gold.
        compare_forms: function that compares an answer with a gold; None if undecided.
        units_optional: True if 5 cm equals 5.
    """
    if isinstance(answer, Quantity) and isinstance(gold, Quantity):
        return _same_converted_quantities(answer, gold, compare_forms)
    quantity, other = (answer, gold) if isinstance(answer, Quantity) else (gold, answer)
    assert isinstance(quantity, Quantity)
    if isinstance(other, UnparsedText):
        return None
    value = get_closed_value(other)
    if value is None:
        return False
    if len(value.numerator) == 1 and algebra.get_free_symbols(value):
        spelt = _read_letter_as_unit(value)
        if spelt is not None and spelt.unit == quantity.unit:
            return _compare_in_answer_gold_order(
                quantity.amount, spelt.amount, answer is quantity, compare_forms
            )
    bare = _compare_in_answer_gold_order(quantity.amount, other, answer is quantity, compare_forms)
    dimension = quantity.unit.dimension
    if dimension == _PERCENT:
        return bare or _compare_in_answer_gold_order(
            _multiply_amount(quantity.amount, Fraction(1, 100)),
            other,
            answer is quantity,
            compare_forms,
        )
    if dimension == _DEGREE:
        if bare or "π" not in _collect_numerator_atoms(other):
            return bool(bare)
        return _compare_in_answer_gold_order(
            _convert_to_radians(quantity.amount), other, answer is quantity, compare_forms
        )
    return bare if units_optional else False


def _read_letter_as_unit(value: RationalExpression) -> Quantity | None:
    """Read a number times a letter, such as 0.64N, as a quantity whose unit is the letter."""
    ((mono, coefficient),) = value.numerator.items()
    names = [(name, n) for name, n in mono if isinstance(name, str) and name not in ("π", "e", "i")]
    if len(names) != 1 or names[0][1] != 1:
        return None
    unit = read_multiplier_and_unit(f" {names[0][0]}")
    if unit is None or unit[1] is None:
        return None
    return Quantity(
        _convert_value_to_form(
            RationalExpression({mono - {names[0]}: coefficient}, value.denominator)
        ),
        unit[1],
    )


def _same_converted_quantities(
    answer: Quantity, gold: Quantity, compare_forms: CompareForms
) -> bool | None:
    ours, theirs = answer.unit, gold.unit
    if ours == theirs:
        return compare_forms(answer.amount, gold.amount)
    if {ours.dimension, theirs.dimension} == {_DEGREE, _RADIAN}:
        left, right = (
            _convert_to_radians(measure.amount)
            if measure.unit.dimension == _DEGREE
            else measure.amount
            for measure in (answer, gold)
        )
        return compare_forms(left, right)
    if ours.dimension != theirs.dimension:
        # Counted things may have two names: 12 pieces of fruit are perhaps 12 apples.
        counted = ours.is_counted or theirs.is_counted
        return None if counted and compare_forms(answer.amount, gold.amount) is not False else False
    if isinstance(answer.amount, Number) and not ours.offset and not theirs.offset:
        return compare_forms(
            _multiply_amount(answer.amount, ours.factor / theirs.factor), gold.amount
        )
    amount = get_closed_value(answer.amount)
    if amount is None:
        return None
    return compare_forms(_convert_value_to_form(_convert_unit(amount, ours, theirs)), gold.amount)


def _convert_unit(amount: RationalExpression, source: Unit, target: Unit) -> RationalExpression:
    base = algebra.add(
        algebra.multiply(amount, algebra.make_number_value(source.factor)),
        algebra.make_number_value(source.offset),
    )
    return algebra.divide(
        algebra.add(base, algebra.make_number_value(-target.offset)),
        algebra.make_number_value(target.factor),
    )


def _compare_in_answer_gold_order(
    form: Form, other_form: Form, form_is_answer: bool, compare_forms: CompareForms
) -> bool | None:
    return compare_forms(form, other_form) if form_is_answer else compare_forms(other_form, form)


def _multiply_amount(amount: Form, factor: Fraction) -> Form:
    if isinstance(amount, Number):
        literal = amount.literal
        unit = literal.unit_in_last_place
        return Number(
            Literal(
                literal.value * factor,
                unit_in_last_place=None if unit is None else unit * factor,
                num_decimals=literal.num_decimals,
                num_digits=literal.num_digits,
            )
        )
    value = get_closed_value(amount)
    return (
        amount
        if value is None
        else ClosedForm(algebra.multiply(value, algebra.make_number_value(factor)))
    )


def _convert_to_radians(degrees: Form) -> Form:
    value = get_closed_value(degrees)
    if value is None:
        return degrees
    return ClosedForm(
        algebra.multiply(
            value,
            algebra.multiply(
                algebra.make_atom_value("π"), algebra.make_number_value(Fraction(1, 180))
            ),
        )
    )


def _collect_numerator_atoms(form: Form) -> set[object]:
    value = get_closed_value(form)
    return set() if value is None else {x for mono in value.numerator for x, _ in mono}


def _convert_value_to_form(value: RationalExpression) -> Form:
    exact = value.rational
    return ClosedForm(value) if exact is None else Number(Literal(exact))


def same_based_numbers(answer: Form, gold: Form) -> bool | None:
    """Return whether a number in a stated base equals another number; None if undecided.

    If only one of them has a base, their digits are compared.
    """
    if isinstance(answer, BasedNumber) and isinstance(gold, BasedNumber):
        return answer.value == gold.value and answer.base == gold.base
    based, other = (answer, gold) if isinstance(answer, BasedNumber) else (gold, answer)
    assert isinstance(based, BasedNumber)
    match other:
        case UnparsedText(text):
            return True if text.upper() == based.digits else None
        case Name(letters=letters):
            return letters.upper() == based.digits
        case ClosedForm(digits=digits) if digits:
            return digits == based.digits
    value = get_closed_value(other)
    exact = None if value is None else value.rational
    if exact is None or not based.digits.lstrip("-").isdigit():
        return False
    return exact == int(based.digits)


def same_times_or_ratios(answer: Form, gold: Form, compare_forms: CompareForms) -> bool | None:
    """Return whether two times or ratios are equal; None if undecided.

    The notation a:b may denote a time or a ratio. A ratio may also equal a quotient.
    """
    if isinstance(answer, TimeOfDay) and isinstance(gold, TimeOfDay):
        return _same_times(answer, gold, compare_forms)
    if _is_number_of_full_hour(answer, gold) or _is_number_of_full_hour(gold, answer):
        return True
    left = answer.ratio if isinstance(answer, TimeOfDay) else answer
    right = gold.ratio if isinstance(gold, TimeOfDay) else gold
    if left is None or right is None:
        return None if isinstance(answer, UnparsedText) or isinstance(gold, UnparsedText) else False
    if isinstance(left, Ratio) and isinstance(right, Ratio):
        return _same_ratios(left, right, compare_forms)
    ratio, other = (left, right) if isinstance(left, Ratio) else (right, left)
    assert isinstance(ratio, Ratio)
    if isinstance(other, UnparsedText):
        return None
    top, bottom = get_closed_value(ratio.terms[0]), get_closed_value(ratio.terms[1])
    if len(ratio.terms) != 2 or top is None or bottom is None:
        return False
    if (
        get_closed_value(other) is None
        or isinstance(answer, TimeOfDay)
        or isinstance(gold, TimeOfDay)
    ):
        return False
    try:
        quotient = _convert_value_to_form(algebra.divide(top, bottom))
    except NotClosed:
        return None
    return compare_forms(quotient, gold) if ratio is left else compare_forms(answer, quotient)


def _is_number_of_full_hour(form: Form, time_of_day: Form) -> bool:
    """Return whether a form is a bare number and `time_of_day` is this full hour with am or pm."""
    if (
        not isinstance(time_of_day, TimeOfDay)
        or not time_of_day.day_half
        or time_of_day.day_half == "24"
    ):
        return False
    value = get_closed_value(form)
    hour = None if value is None else value.rational
    return (
        hour is not None and 1 <= hour <= 12 and hour * 3600 % 43200 == time_of_day.seconds % 43200
    )


def _same_times(answer: TimeOfDay, gold: TimeOfDay, compare_forms: CompareForms) -> bool | None:
    if answer.day_half and gold.day_half:
        if answer.seconds == gold.seconds:
            return True
    elif answer.day_half or gold.day_half:
        if answer.seconds % 43200 == gold.seconds % 43200:
            return True
    elif answer.seconds == gold.seconds:
        return True
    if answer.ratio is None or gold.ratio is None:
        return False
    return None if _same_ratios(answer.ratio, gold.ratio, compare_forms) else False


def _same_ratios(answer: Ratio, gold: Ratio, compare_forms: CompareForms) -> bool | None:
    """Compare two ratios term by term after scaling: a_i · b_0 = b_i · a_0."""
    if len(answer.terms) != len(gold.terms):
        return False
    ours, theirs = ([get_closed_value(t) for t in r.terms] for r in (answer, gold))
    if ours[0] is None or theirs[0] is None:
        return None
    verdict: bool | None = True
    for left, right in zip(ours[1:], theirs[1:], strict=True):
        if left is None or right is None:
            return None
        crossed = (
            ClosedForm(algebra.multiply(left, theirs[0])),
            ClosedForm(algebra.multiply(right, ours[0])),
        )
        equal = compare_forms(*crossed)
        if equal is False:
            return False
        verdict = verdict and equal
    return verdict


def same_words_or_number(answer: Form, gold: Form) -> bool | None:
    """Return whether an answer equals a gold, where at least one is in words; None if undecided."""
    if isinstance(answer, Words) and isinstance(gold, Words):
        return same_words(answer.words, gold.words)
    words, other = (answer, gold) if isinstance(answer, Words) else (gold, answer)
    assert isinstance(words, Words)
    if isinstance(other, UnparsedText):
        return None
    if isinstance(other, Name):
        return same_words(words.words, (other.letters.lower(),))
    if isinstance(other, SpecialValue):
        return None if other.name != "empty text" and len(words.words) > 3 else False
    value = get_closed_value(other)
    if value is not None and len(words.words) == 1 and len(value.numerator) == 1:
        ((mono, coefficient),) = value.numerator.items()
        if coefficient == 1 and words.words[0] in _INITIALS.get(mono, ()):
            return True
    exact = None if value is None else value.rational
    if exact is None:
        return False
    if exact in map(_parse_word_as_number, words.words):
        return None if has_no_negation(words.words) else False
    return None if mentions_number(" ".join(words.words)) else False


def _parse_word_as_number(word: str) -> Fraction | int | None:
    """Return the number that a word denotes, in digits or as a numeral of a supported language."""
    return int(word) if word.isdecimal() else CARDINALS.get(word, parse_number_in_words(word))


def read_vector_entries(form: Form, num_entries: int) -> list[Form] | None:
    """Return the entries of a vector written with the unit vectors i, j and k, such as 2i + 3j.

    Args:
        form: parsed text.
        num_entries: number of entries that the vector must have.

    Returns:
        The entries in order; None if the form is not such a vector.
    """
    value = get_closed_value(form)
    if value is None or num_entries not in (2, 3) or len(value.denominator) > 1:
        return None
    entries: list[Form] = [Number(Literal(Fraction(0)))] * num_entries
    names = set()
    for mono, coefficient in value.numerator.items():
        units = [x for x, n in mono if x in ("i", "j", "k") and n == 1]
        if len(units) != 1 or str(units[0]) not in "ijk"[:num_entries]:
            return None
        rest = frozenset((x, n) for x, n in mono if x != units[0])
        entries["ijk".index(str(units[0]))] = ClosedForm(
            RationalExpression({rest: coefficient}, value.denominator)
        )
        names.add(units[0])
    return entries if names - {"i"} else None


def convert_collection_to_reals(form: ItemCollection) -> Reals | None:
    """Convert a finite set of reals to a union of intervals, each of which is a point.

    Return None if an item is not a number.
    """
    values = [get_closed_value(item) for item in form.items]
    try:
        return (
            union(
                make_interval(v, v, are_ends_closed=(True, True)) for v in values if v is not None
            )
            if None not in values
            else None
        )
    except NotClosed:
        return None
