"""Compares equations with equations and with values: `x = 3` with `x = 3` and with `3`."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from mclabel.answers.comparison.names import same_families_up_to_constant_letter
from mclabel.answers.values import algebra, powers
from mclabel.answers.values.algebra import RationalExpression
from mclabel.answers.values.forms import (
    ClosedForm,
    Equation,
    Form,
    ItemCollection,
    Number,
    Quantity,
    Ratio,
    Reals,
    Relation,
    UnparsedText,
    Words,
    get_closed_value,
)
from mclabel.answers.values.literals import Literal
from mclabel.answers.values.monomials import UNIT, NotClosed
from mclabel.answers.values.sampling import evaluate_as_real

CONGRUENCE = "congruence modulo"
"""Prefix of the word that represents a congruence in a form, which is a parsed answer. The modulus
follows the prefix."""
_ANY_INTEGER = frozenset("kmnt")
"""Letters that usually stand for an arbitrary integer."""
_ARGUMENT = re.compile(r"\s*\\?([A-Za-z]{1,7}(?:_\{?\w\}?)?'{0,2})\s*\(\s*([a-z])\s*\)\s*")
"""A function applied to a variable, such as `f(x)`."""
_APPLIED = re.compile(r"[a-zA-Z]\(x\)")

CompareForms = Callable[[Form, Form], bool | None]


def same_equations(answer: Equation, gold: Equation, compare_forms: CompareForms) -> bool | None:
    """Return whether two equations give the same value to the same name or have the same solutions.

    The result is None if this is undecided.
    """
    if answer.label and gold.label:
        if _strip_spaces_and_backslashes(answer.label) == _strip_spaces_and_backslashes(gold.label):
            verdict = compare_forms(answer.right, gold.right)
            if verdict is False and gold.label.endswith(")"):
                return _same_function_family(answer.right, gold.right)
            return verdict
        if isinstance(answer.left, ItemCollection) and isinstance(gold.left, ItemCollection):
            return compare_forms(answer.right, gold.right)
        ours, theirs = _ARGUMENT.fullmatch(answer.label), _ARGUMENT.fullmatch(gold.label)
        if ours and theirs and ours[1] == theirs[1]:
            return _same_function_up_to_argument_name(
                answer.right, ours[2], gold.right, theirs[2], compare_forms
            )
        if _are_function_and_y(answer.label, gold.label) or _are_function_and_y(
            gold.label, answer.label
        ):
            return compare_forms(answer.right, gold.right)
    sides = [
        get_closed_value(side)
        for equation in (answer, gold)
        for side in (equation.left, equation.right)
    ]
    a, b, c, d = sides
    if a is None or b is None or c is None or d is None:
        return _compare_equation_sides(answer, gold, compare_forms)
    try:
        first, second = algebra.add(a, algebra.negate(b)), algebra.add(c, algebra.negate(d))
        if are_proportional(first, second, requires_positive_factor=False):
            return True
    except NotClosed:
        return None
    if not algebra.get_free_symbols(first) or not algebra.get_free_symbols(second):
        untrue = any(
            not algebra.get_free_symbols(difference) and difference.numerator
            for difference in (first, second)
        )
        return None if untrue else compare_forms(answer.right, gold.right)
    return (
        False
        if algebra.has_no_opaque_atoms(first) and algebra.has_no_opaque_atoms(second)
        else None
    )


def same_equation_and_value(
    equation: Equation, other: Form, compare_forms: CompareForms, *, equation_is_gold: bool
) -> bool | None:
    """Return whether an equation and a form that is not an equation are equal; None if undecided.

    The value of an equation is its right side. If both sides are numbers and the equality is true,
    as in 2 m = 200 cm, the left side counts too. A false equality is never right.

    Args:
        equation: the equation.
        other: the form that is not an equation.
        compare_forms: function that compares an answer with a gold; None if undecided.
        equation_is_gold: True if the equation is the gold, False if it is the answer.
    """
    if isinstance(other, Relation) or (isinstance(other, Reals) and other.variable):
        return False

    def equals_side(side: Form) -> bool | None:
        return compare_forms(other, side) if equation_is_gold else compare_forms(side, other)

    claimed = equals_side(equation.right)
    if equation.label:
        return claimed
    true = equality_holds(equation.left, equation.right, compare_forms)
    if true is False:
        return None if claimed else claimed
    if true:
        return claimed or equals_side(equation.left) or (None if claimed is None else False)
    if isinstance(equation.left, Quantity) or isinstance(equation.right, Quantity):
        return claimed or (None if equals_side(equation.left) is not False else claimed)
    left, right = get_closed_value(equation.left), get_closed_value(equation.right)
    if left is None:
        if isinstance(equation.left, Ratio | Words):
            return claimed
        return (claimed or None) if isinstance(equation.left, UnparsedText) else None
    if not _states_expression_value(left, right):
        return None if right is None else False
    return claimed if algebra.get_free_symbols(left) else None


def is_congruence(form: Form) -> bool:
    """Return whether a form is a congruence such as `x ≡ 3 (mod 7)`."""
    if not isinstance(form, ItemCollection) or form.kind != "tuple":
        return False
    first = form.items[0]
    return isinstance(first, Words) and "".join(first.words[:1]).startswith(CONGRUENCE)


def convert_to_congruence(form: Form) -> Form:
    """Convert `x = 7k + 3` or `7k + 3` to the congruence modulo 7; return any other form unchanged.

    Args:
        form: the form to convert. The letters k, m, n and t stand for an arbitrary integer.
    """
    if isinstance(form, Equation) and not form.label:
        return form
    value = get_closed_value(form.right if isinstance(form, Equation) else form)
    names = algebra.get_free_symbols(value) if value is not None else frozenset()
    if value is None or len(names) != 1 or not names <= _ANY_INTEGER or value.denominator != UNIT:
        return form
    (name,) = names
    terms = dict(value.numerator)
    residue = Fraction(terms.pop(frozenset(), Fraction(0)))
    size = abs(Fraction(terms.pop(frozenset(((name, 1),)), Fraction(0))))
    if terms or size < 2 or size.denominator > 1 or residue.denominator > 1:
        return form
    words = Words((f"{CONGRUENCE} {size}",))
    return ItemCollection("tuple", (words, Number(Literal(residue % size))))


def equality_holds(
    left: Form,
    right: Form,
    compare_forms: CompareForms,
    *,
    relative_tolerance: Fraction = Fraction(0),
) -> bool | None:
    """Return whether an equality of numbers is true up to the precision of its right side.

    Args:
        left: the left side.
        right: the right side, which may be rounded.
        compare_forms: function that compares an answer with a gold; None if undecided.
        relative_tolerance: additional difference that is accepted, as a fraction of the left side.

    Returns:
        None if a side is not a number, or if the units of the sides have different dimensions.
    """
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        if left.unit.dimension != right.unit.dimension:
            return None
    elif isinstance(left, Quantity):
        left = left.amount
    elif isinstance(right, Quantity) and not compare_forms(left, right):  # 1/2 = 50%
        right = right.amount
    left_size, right_size = _get_numeric_value(left), _get_numeric_value(right)
    if left_size is None or right_size is None:
        return None
    if compare_forms(left, right):
        return True
    if isinstance(left, Quantity) or isinstance(right, Quantity):
        return False
    unit = right.literal.unit_in_last_place if isinstance(right, Number) else None
    difference = abs(left_size - right_size)
    return (left_size.denominator > 1 and difference < (unit or 1)) or difference <= abs(
        left_size
    ) * relative_tolerance


def _get_numeric_value(form: Form) -> Fraction | None:
    """Return the value of a number or quantity; None for any other form.

    An irrational value is approximated with a float's precision.
    """
    value = get_closed_value(form.amount if isinstance(form, Quantity) else form)
    if value is None or algebra.get_free_symbols(value):
        return None
    exact = value.rational
    size = evaluate_as_real(value) if exact is None else None
    return exact if size is None else Fraction(size)


def are_proportional(
    a: RationalExpression, b: RationalExpression, *, requires_positive_factor: bool
) -> bool:
    """Return whether a is a constant multiple of b, so that a = 0 and b = 0 are equivalent.

    If `requires_positive_factor` is true, the constant is positive: a > 0 and b > 0 are equivalent.
    """
    left, right = _remove_denominators(a), _remove_denominators(b)
    if not left.numerator or not right.numerator:
        return not left.numerator and not right.numerator
    mono = next(iter(right.numerator))
    if mono not in left.numerator:
        return False
    ratio = Fraction(left.numerator[mono]) / Fraction(right.numerator[mono])
    if requires_positive_factor and ratio < 0:
        return False
    return algebra.same_canonical_form(
        left, algebra.multiply(algebra.make_number_value(ratio), right)
    )


def _compare_equation_sides(
    answer: Equation, gold: Equation, compare_forms: CompareForms
) -> bool | None:
    """Return whether two equations are equal of which a side is not a formula; None if undecided.

    If a left side is in words, only the right sides are compared.
    """
    if isinstance(answer.left, Words) or isinstance(gold.left, Words):
        return compare_forms(answer.right, gold.right)
    left, right = compare_forms(answer.left, gold.left), compare_forms(answer.right, gold.right)
    if left and right:
        return True
    return False if right is False and left else None


def _same_function_up_to_argument_name(
    answer: Form, answer_argument: str, gold: Form, gold_argument: str, compare_forms: CompareForms
) -> bool | None:
    """Return whether two functions are equal apart from the name of their argument.

    For example, f(t) = t² and f(x) = x² are. The result is None if undecided.
    """
    value = get_closed_value(answer)
    if value is None or get_closed_value(gold) is None:
        return None
    if gold_argument in algebra.get_free_symbols(value):
        return False
    return compare_forms(
        ClosedForm(algebra.rename_symbols(value, {answer_argument: gold_argument})), gold
    )


def _same_function_family(answer: Form, gold: Form) -> bool | None:
    """Return whether the right sides of two equations are the same family of functions.

    The letter of the arbitrary constant does not count. The result is None if undecided.
    """
    ours, theirs = get_closed_value(answer), get_closed_value(gold)
    return (
        ours is not None
        and theirs is not None
        and same_families_up_to_constant_letter(ours, theirs)
    )


def _are_function_and_y(label: str, other: str) -> bool:
    """Return whether `label` is a function of x, such as f(x), and `other` is y."""
    return other == "y" and bool(_APPLIED.fullmatch(label))


def _states_expression_value(left: RationalExpression, right: RationalExpression | None) -> bool:
    """Return whether an equation states the value of an expression, as a + b = 3 may do.

    Otherwise, it is an equation to solve.
    """
    if not algebra.get_free_symbols(left):
        return True
    if right is not None and not right.numerator:
        return False
    return all(mono and coefficient == 1 for mono, coefficient in left.numerator.items())


def _remove_denominators(value: RationalExpression) -> RationalExpression:
    """Return the numerator of a value without negative exponents.

    It is multiplied by powers of its symbols that remove them.
    """
    lowest: dict[str, int | Fraction] = {}
    for mono in value.numerator:
        for x, exponent in mono:
            if isinstance(x, str) and exponent < 0:
                lowest[x] = min(lowest.get(x, 0), exponent)
    result = RationalExpression(value.numerator, UNIT)
    for x, exponent in lowest.items():
        factor = powers.power(
            algebra.make_atom_value(x), algebra.make_number_value(-Fraction(exponent))
        )
        result = algebra.multiply(result, factor)
    return result


def _strip_spaces_and_backslashes(label: str) -> str:
    return label.replace(" ", "").replace("\\", "")
