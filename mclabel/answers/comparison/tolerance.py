"""Whether two numbers are one, as far as the rules let a number be rounded or inexact."""

from __future__ import annotations

from fractions import Fraction

from mclabel.answers.rules import GradeRules
from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import Value
from mclabel.answers.values.literals import Literal, rounds_to
from mclabel.answers.values.sampling import real


def same_number(value: Fraction, gold: Literal, rules: GradeRules, *, literal: bool) -> bool:
    """Whether a number is a decimal gold, as far as the rules round.

    Args:
        value: of the answer.
        gold: as it was written.
        rules: how far.
        literal: the answer was written as a rational number; short golds round only what is not.
    """
    if value == gold.value:
        return True
    tolerance = rules.relative_tolerance
    if tolerance and abs(value - gold.value) <= abs(gold.value) * Fraction(tolerance):
        return True
    if not rules.round_to_gold or gold.unit_in_last_place is None:
        return False
    precise = gold.num_decimals >= 2 or gold.num_digits >= 3
    return (precise or not literal) and rounds_to(value, gold)


def rounds(value: Value, gold: Literal, rules: GradeRules) -> bool:
    """Whether a formula rounds to a decimal gold."""
    if not rules.round_to_gold or gold.unit_in_last_place is None:
        return False
    exact = value.rational
    if exact is not None:
        return same_number(exact, gold, rules, literal=True)
    if algebra.symbols(value):
        return False
    size = real(value)
    return size is not None and rounds_to(Fraction(size), gold)


def is_float_of(answer: Literal, gold: Value, rules: GradeRules) -> bool:
    """Whether a decimal of full precision is a rounding of an exact number."""
    digits = rules.full_precision
    if not digits or answer.num_digits < digits or algebra.symbols(gold):
        return False
    size = real(gold)
    if size is None:
        return False
    distance = abs(answer.value - Fraction(size))
    return distance <= abs(answer.value) * Fraction(1, 10 ** (digits - 1))


def near(answer: Value, gold: Value, rules: GradeRules) -> bool:
    """Whether two real numbers are as near as the rules allow."""
    if not rules.relative_tolerance or algebra.symbols(answer) or algebra.symbols(gold):
        return False
    ours, theirs = real(answer), real(gold)
    if ours is None or theirs is None:
        return False
    return abs(ours - theirs) <= abs(theirs) * rules.relative_tolerance
