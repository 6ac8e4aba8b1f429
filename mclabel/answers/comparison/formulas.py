"""Compares two closed forms: by exact arithmetic, by the rules, and by their values at a point."""

from __future__ import annotations

from mclabel.answers.comparison.names import integrated, same_but_for_constants
from mclabel.answers.comparison.tolerance import is_float_of, near, rounds
from mclabel.answers.rules import GradeRules
from mclabel.answers.values import algebra, powers
from mclabel.answers.values.algebra import Value
from mclabel.answers.values.angles import same_angles
from mclabel.answers.values.forms import Closed, Form, Number, value_of
from mclabel.answers.values.monomials import NotClosed
from mclabel.answers.values.sampling import clearly_differ, real


def same_formulas(answer: Form, gold: Form, rules: GradeRules) -> bool | None:
    """Whether a formula is another; None where exact arithmetic cannot tell."""
    left, right = value_of(answer), value_of(gold)
    if left is None or right is None:
        return None
    try:
        if algebra.same_form(left, right):
            return True
        if _same_by_rule(answer, gold, left, right, rules):
            return True
        if algebra.is_canonical(left) and algebra.is_canonical(right):
            return False
        if clearly_differ(left, right):
            return False
        return _same_squares(left, right) or same_angles(left, right) or None
    except NotClosed:
        return None


def _same_by_rule(answer: Form, gold: Form, left: Value, right: Value, rules: GradeRules) -> bool:
    """Whether they differ only by what the rules let differ."""
    if isinstance(gold, Number) and rounds(left, gold.literal, rules):
        return True
    if isinstance(answer, Number) and is_float_of(answer.literal, right, rules):
        return True
    if near(left, right, rules):
        return True
    if rules.any_constant and (integrated(left, right) or same_but_for_constants(left, right)):
        return True
    if not rules.ignore_case:
        return False
    one, other = lone_letter(answer), lone_letter(gold)
    return bool(one and other and one.lower() == other.lower())


def lone_letter(form: Form) -> str | None:
    """The letter that is the whole of a form, or None."""
    if not isinstance(form, Closed) or len(form.value.num) != 1 or len(form.value.den) != 1:
        return None
    ((mono, coefficient),) = form.value.num.items()
    if coefficient != 1 or len(mono) != 1:
        return None
    ((name, exponent),) = mono
    return name if exponent == 1 and isinstance(name, str) and len(name) == 1 else None


def _same_squares(left: Value, right: Value) -> bool:
    """Whether two real numbers of one sign have one square, as √(7 + 4√3) and 2 + √3 have."""
    if algebra.symbols(left) or algebra.symbols(right):
        return False
    one, other = real(left), real(right)
    if one is None or other is None or one * other <= 0:
        return False
    return algebra.same_form(powers.square(left), powers.square(right))
