"""Compares formulas with sympy in a worker if exact arithmetic cannot decide.

The caller's process never imports this module. Texts are parsed by `latex2sympy2_extended` after
`guard` has accepted them. Closed forms are converted node by node. No string is passed to `sympify`
or `parse_expr`, and no expression is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, _Latex2Sympy
from sympy.core.relational import Relational

from mclabel.answers.comparison.compare import FormComparer
from mclabel.answers.reading.structure import read_form
from mclabel.answers.values.algebra import RationalExpression
from mclabel.answers.values.forms import ClosedForm, Form, Number, Reals, UnparsedText
from mclabel.answers.values.monomials import Atom, Polynomial
from mclabel.answers.values.powers import BARE_LOG
from mclabel.answers.workers.guard import explain_refused_form

_DIGITS = 30
_BARE_LOG = sympy.Symbol("bare log", positive=True)
"""Symbol for the natural logarithm of the base of `log` without a base, which is e or 10."""
_POINTS = (
    (sympy.Rational(37, 23), sympy.Rational(-17, 11), sympy.Rational(41, 29)),
    (sympy.Rational(-13, 19), sympy.Rational(31, 7), sympy.Rational(-47, 31)),
    (sympy.Rational(53, 43), sympy.Rational(23, 17), sympy.Rational(5, 7)),
    (sympy.Rational(2, 31), sympy.Rational(3, 37), sympy.Rational(5, 41)),
    (sympy.Rational(531, 43), sympy.Rational(673, 37), sympy.Rational(823, 29)),
)
_NUM_NORMAL_POINTS = 3
"""Number of points at which two formulas are normally compared. Further points are used only if the
formulas cannot be evaluated at any of these."""
_OPERATIONS = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit, sympy.Derivative)
_CONFIG = ConversionConfig(lowercase_symbols=False)
_TO_LATEX = str.maketrans({
    "≤": "\\le ", "≥": "\\ge ", "≠": "\\ne ", "∞": "\\infty ", "π": "\\pi ", "*": "\\cdot ",
    "°": "^{\\circ}",
})  # fmt: skip
_FUNCTIONS: Mapping[str, Any] = {
    "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec,
    "csc": sympy.csc, "sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh,
    "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "log": sympy.log,
    "abs": sympy.Abs, "factorial": sympy.factorial, "floor": sympy.floor, "ceil": sympy.ceiling,
}  # fmt: skip


_SIMPLIFIED: tuple[Callable[[sympy.Expr], Any], ...] = (
    sympy.expand,
    lambda difference: sympy.simplify(sympy.sqrtdenest(difference)),
    lambda difference: sympy.simplify(difference.rewrite(sympy.exp)),
    lambda difference: sympy.expand_complex(difference),
    lambda difference: sympy.simplify(sympy.logcombine(difference, force=True)),
    lambda difference: sympy.simplify(_make_symbols_real(difference)),
)
"""Simplifications that may reduce a difference to zero, from the cheapest to the most expensive."""


def decide_equivalence(answer: str, gold: str, *, units_optional: bool) -> bool | None:
    """Return whether a normalised answer and gold are equivalent; None if undecided.

    If `units_optional` is true, 5 cm equals 5.
    """
    return FormComparer(units_optional, prove_equality).compare(read_form(answer), read_form(gold))


def can_parse_gold(gold: str) -> bool:
    """Return whether a normalised gold can be parsed, by the LaTeX parser if necessary."""
    form = read_form(gold)
    return not isinstance(form, UnparsedText) or (
        explain_refused_form(form) is None and _parse_latex(form.text) is not None
    )


def prove_equality(answer: Form, gold: Form) -> bool | None:
    """Return whether two formulas or sets are equal; None if undecided."""
    if explain_refused_form(answer) is not None or explain_refused_form(gold) is not None:
        return None
    left, right = _form_to_sympy(answer), _form_to_sympy(gold)
    if left is None or right is None:
        return None
    if isinstance(left, Relational) or isinstance(right, Relational):
        left, right = _solve_inequality(left), _solve_inequality(right)
    if isinstance(left, sympy.Set) or isinstance(right, sympy.Set):
        return _same_sets(left, right)
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return None
    return _same_expressions(left, right)


def _same_expressions(left: sympy.Expr, right: sympy.Expr) -> bool | None:
    left, right = _make_symbols_positive(left, right)
    difference = left - right
    if difference == 0:
        return True
    if difference.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        return False if left.is_finite and right.is_infinite else None
    bases = (sympy.Integer(1), sympy.log(10)) if difference.has(_BARE_LOG) else (None,)
    for base in bases:
        sides = (left, right) if base is None else [s.subs(_BARE_LOG, base) for s in (left, right)]
        if not _differ_at_sample_point(*sides):
            difference = sides[0] - sides[1]
            break
    else:
        return False
    if difference == 0:
        return True
    for simplified in _SIMPLIFIED:
        try:
            if simplified(difference) == 0:
                return True
        except (NotImplementedError, PermissionError, AttributeError):
            continue  # sympy failed or tried to compile a text: try the next simplification
    return None


def _make_symbols_real(expression: sympy.Expr) -> sympy.Expr:
    """Make all symbols real and factor all radicands, so that √(x² + 2x + 1) becomes |x + 1|."""
    real = expression.subs({s: sympy.Symbol(s.name, real=True) for s in expression.free_symbols})
    return real.replace(
        lambda node: node.is_Pow and node.exp == sympy.S.Half and node.free_symbols,
        lambda node: sympy.sqrt(sympy.factor(node.base)),
    )


def _make_symbols_positive(left: Any, right: Any) -> tuple[Any, Any]:
    """Make all symbols positive if a logarithm occurs, so that ln x² equals 2 ln x."""
    if not (left.has(sympy.log) or right.has(sympy.log)):
        return left, right
    names = {s: sympy.Symbol(s.name, positive=True) for s in left.free_symbols | right.free_symbols}
    return left.subs(names), right.subs(names)


def _differ_at_sample_point(left: sympy.Expr, right: sympy.Expr) -> bool:
    """Return whether two formulas clearly differ at one of a few points.

    Only points where every root and logarithm has a unique value are used.
    """
    names = sorted(left.free_symbols | right.free_symbols, key=lambda s: s.name)
    branched = (
        [*_find_multivalued_arguments(left), *_find_multivalued_arguments(right)] if names else []
    )
    compared = 0
    for number, point in enumerate(_POINTS):
        if compared and number >= _NUM_NORMAL_POINTS:
            return False
        values = {s: point[i % 3] + sympy.Rational(i, 7) for i, s in enumerate(names)}
        values = {s: abs(v) if s.is_positive else v for s, v in values.items()}
        if not all(sympy.N(inner.subs(values)).is_positive for inner in branched):
            continue
        a, b = (sympy.N(side.subs(values), _DIGITS) for side in (left, right))
        if not (a.is_number and b.is_number and a.is_finite and b.is_finite):
            continue
        compared += 1
        size = abs(a) + abs(b)
        if sympy.N(abs(a - b) - size * sympy.Float(10) ** (-_DIGITS // 2), _DIGITS).is_positive:
            return True
        if not names:
            return False
    return False


def _find_multivalued_arguments(side: sympy.Expr) -> list[sympy.Expr]:
    """Return the bases of fractional powers and the arguments of logarithms that may be negative.

    For a negative base or argument, the power or logarithm has several complex values.
    """
    inner = [node.args[0] for node in side.atoms(sympy.log)]
    inner += [node.base for node in side.atoms(sympy.Pow) if not node.exp.is_integer]
    return [node for node in inner if not node.is_positive]


def _solve_inequality(expression: Any) -> Any:
    """Return the solution set of an inequality in one real variable.

    For any other relation, return None. Return an expression that is no relation unchanged.
    """
    if not isinstance(expression, Relational):
        return expression
    names = expression.free_symbols
    if len(names) != 1 or isinstance(expression, sympy.Eq):
        return None
    (name,) = names
    real = sympy.Dummy(real=True)
    return sympy.solve_univariate_inequality(expression.subs(name, real), real, relational=False)


def _same_sets(left: Any, right: Any) -> bool | None:
    if not (isinstance(left, sympy.Set) and isinstance(right, sympy.Set)):
        return None
    if left == right:
        return True
    difference = sympy.SymmetricDifference(left, right).doit()
    empty = difference.is_empty
    return None if empty is None else bool(empty)


def _form_to_sympy(form: Form) -> Any:
    match form:
        case ClosedForm(value=value):
            return _value_to_sympy(value)
        case Number(literal):
            return _rational_to_sympy(literal.value)
        case Reals(pieces):
            return sympy.Union(
                *(
                    sympy.Interval(
                        -sympy.oo if p.low is None else _value_to_sympy(p.low),
                        sympy.oo if p.high is None else _value_to_sympy(p.high),
                        not p.is_low_closed,
                        not p.is_high_closed,
                    )
                    for p in pieces
                )
            )
        case UnparsedText(text):
            return _parse_latex(text)
    return None


def _parse_latex(text: str) -> Any:
    """Parse a LaTeX text; return None if the parser cannot read it."""
    try:
        result = _LatexParser(config=_CONFIG).parse(text.translate(_TO_LATEX))
    except MemoryError:
        raise
    except Exception:  # the parser raises a bare Exception for every text that it cannot read
        return None
    if isinstance(result, list | tuple):
        result = result[0] if len(result) == 1 else None
    if not isinstance(result, sympy.Expr | Relational | sympy.Set):
        return None
    renamed = {s: sympy.Symbol(_strip_name_markup(s.name)) for s in result.free_symbols}
    return _evaluate_operations(result.subs(renamed) if renamed else result)


def _evaluate_operations(expression: Any) -> Any:
    """Evaluate the integrals, sums, products, limits and derivatives of an expression.

    The result is None if an integral has no bounds, or if the differentiated expression does not
    contain the variable. Sympy would evaluate dy/dx to 0.
    """
    if not expression.has(*_OPERATIONS):
        return expression
    for node in expression.atoms(sympy.Derivative):
        if not node.expr.has(*node.variables):
            return None
    if any(len(limits) == 1 for node in expression.atoms(sympy.Integral) for limits in node.limits):
        return None
    evaluated = expression.doit()
    return None if evaluated.has(*_OPERATIONS, sympy.Piecewise) else evaluated


class _LatexParser(_Latex2Sympy):  # type: ignore[misc]
    """The LaTeX parser, changed so that it does not pass the text of a number to `sympify`."""

    def parse_number(self, text: str) -> sympy.Rational:
        return _rational_to_sympy(Fraction(text.replace(",", "")))


def _strip_name_markup(name: str) -> str:
    return name.replace("{", "").replace("}", "").replace("\\", "")


def _value_to_sympy(value: RationalExpression) -> sympy.Expr:
    return _polynomial_to_sympy(value.numerator) / _polynomial_to_sympy(value.denominator)


def _polynomial_to_sympy(terms: Polynomial) -> sympy.Expr:
    return sympy.Add(
        *(
            sympy.Mul(
                _rational_to_sympy(c),
                *(_atom_to_sympy(x) ** _rational_to_sympy(e) for x, e in mono),
            )
            for mono, c in terms.items()
        )
    )


def _rational_to_sympy(n: Any) -> sympy.Rational:
    return sympy.Rational(int(n.numerator), int(n.denominator))


def _atom_to_sympy(x: Atom) -> sympy.Expr:
    if isinstance(x, int):
        return sympy.Integer(x)
    if isinstance(x, str):
        constants = {"π": sympy.pi, "e": sympy.E, "i": sympy.I}
        return constants.get(x) or sympy.Symbol(x)
    match x:
        case ("ln", prime):
            return sympy.log(prime)
        case ("^", base, mono):
            return _atom_to_sympy(base) ** _polynomial_to_sympy({mono: 1})
        case ("power", base, exponent):
            return _quotient_to_sympy(base) ** _quotient_to_sympy(exponent)
        case ("root", inner):
            return _quotient_to_sympy(inner)
    if x == BARE_LOG:
        return _BARE_LOG
    if x[0] == "binomial":
        return sympy.binomial(_quotient_to_sympy(x[1]), _quotient_to_sympy(x[2]))
    function = _FUNCTIONS.get(x[0])
    return (function or sympy.Function(_strip_name_markup(x[0].replace(" ", "_"))))(
        _quotient_to_sympy(x[1])
    )


def _quotient_to_sympy(parts: Any) -> sympy.Expr:
    return _polynomial_to_sympy(dict(parts[0])) / _polynomial_to_sympy(dict(parts[1]))
