"""Guard that does not let expensive formulas, and texts that are not formulas, reach the workers.

The limits of a worker bound every question. The guard saves the time for killing and replacing a
worker, and passes only plain formulas to the LaTeX parser.
"""

from __future__ import annotations

import re
from typing import Any

from mclabel.answers.values.algebra import RationalExpression, get_free_symbols
from mclabel.answers.values.forms import ClosedForm, Form, Number, Reals, UnparsedText
from mclabel.answers.values.monomials import UNIT, Monomial, list_argument_monomials
from mclabel.answers.values.sampling import evaluate_at_point, overflows_float

MAX_LENGTH = 300
"""Maximum number of characters of a text."""
MAX_NESTING = 20
"""Maximum depth of nested brackets or functions."""
MAX_DIGITS = 100
"""Number of digits from which a number is refused."""
MAX_OPERATORS = 2
"""Maximum number of integrals, sums, products and limits in one formula."""
MAX_INTEGRATED = 2
"""Maximum number of functions in a formula with an integral."""
MAX_EXPONENTS = 5_000
"""Maximum product of all numeric exponents."""
MAX_ARGUMENT = 100
"""Largest argument of a factorial or binomial coefficient that is left to sympy."""

_COMMANDS = frozenset(
    "frac sqrt binom sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp pi "
    "alpha beta gamma delta epsilon theta lambda mu rho sigma tau phi omega Delta Gamma Omega Phi "
    "lfloor rfloor lceil rceil infty cdot det int sum prod lim to gcd".split()
)
_COUNTING = frozenset(("factorial", "binomial"))
_FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp sqrt".split()
)
_VARIABLE_POWER = re.compile(r"(?<![a-z\\])[a-df-z]\s*+\^\s*+\{?+\s*+-?+\s*+[a-z]")
_OPERATORS = frozenset(("int", "sum", "prod", "lim"))
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_LONG_NUMBER = re.compile(rf"(?<!\d)\d{{{MAX_DIGITS}}}")
_SIGNS = re.compile(r"[\w\s+\-*/^=()\[\]{}|!.,<>≤≥≠∞π°\\]*", re.ASCII)
_TORN = re.compile(
    r"[<>]\s*+[<>]|[+*/=^]\s*+[<>]|[-+*/=^<>]\s*+(?:[)\]}]|$)|\\(?:sum|prod|lim)(?!\s*+_)"
)
"""An operator or relation without a right side, or a sum, product or limit without a bound."""
_JUXTAPOSED = re.compile(r"[)}\]A-Za-z]\s*\d{3,}|\{\s*\}")
"""A number directly after a letter or bracket, or an empty group. Neither is valid notation."""
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}")
_PROSE = re.compile(
    r"(?<![\\A-Za-z])(?:the|of|mod|are|when|for|than|with|per|from|not|has|was|out|if|is)"
    r"(?![A-Za-z])|(?<=[ (])as(?= )|\d(?:st|nd|rd|th)(?![A-Za-z])"
)
"""Words that the LaTeX parser would read as products of letters."""
_EXPONENT = re.compile(r"\^\s*+[({]?+\s*+[({]?+\s*+-?+\s*+(\d++)")
_TOWER = re.compile(
    r"\^[\s{(]*+-?+\s*+\d[\d.]*+[\s})]*+\^[\s{(]*+-?+\s*+\d|"
    r"\^(?:[^!^)]|\)(?!\s*+!))*+\)\s*+!"
)
_LARGE_ARGUMENT = re.compile(
    r"(?<!\d)\d{4,}+\s*+[)}]?+\s*+!|![\s)}]*+!|"
    r"\\binom(?:[^A-Za-z^\d]|\d{1,3}+(?!\d))*+(?:\d{4}|\^)"
)


def explain_refused_form(form: Form) -> str | None:
    """Return the reason why a form is not sent to the worker; None if it is sent."""
    match form:
        case Number():
            return None
        case ClosedForm(value):
            return _explain_refused_value(value)
        case Reals(pieces):
            ends = (end for piece in pieces for end in (piece.low, piece.high) if end is not None)
            return next(filter(None, map(_explain_refused_value, ends)), None)
    return explain_refused_text(form.text) if isinstance(form, UnparsedText) else "no_formula"


def explain_refused_text(text: str) -> str | None:
    """Return the reason why a text is not passed to the LaTeX parser; None if it is."""
    if len(text) > MAX_LENGTH:
        return "too_long"
    if not _SIGNS.fullmatch(text) or "__" in text or _LONG_WORD.search(text):
        return "no_formula"
    if _PROSE.search(text) or _JUXTAPOSED.search(text) or _TORN.search(text):
        return "no_formula"
    commands = _COMMAND.findall(text)
    if any(name not in _COMMANDS for name in commands):
        return "unknown_command"
    if sum(name in _OPERATORS for name in commands) > MAX_OPERATORS:
        return "too_large"
    if "int" in commands and _is_hard_to_integrate(text, commands):
        return "too_large"
    depth = deepest = 0
    for char in text:
        depth += (char in "({[") - (char in ")}]")
        deepest = max(deepest, depth)
    if deepest > MAX_NESTING or depth:
        return "nested_too_deep"
    if _LONG_NUMBER.search(text) or _LARGE_ARGUMENT.search(text) or _TOWER.search(text):
        return "too_large"
    size = 1
    for exponent in _EXPONENT.findall(text):
        size *= max(1, int(exponent[:7]))
        if size > MAX_EXPONENTS:
            return "too_large"
    return None


def _is_hard_to_integrate(text: str, commands: list[str]) -> bool:
    """Return whether sympy would probably find no integral of a text.

    This is the case if the text has many functions, or a variable in an exponent, as x^x has.
    """
    functions = text.count("e^") + sum(name in _FUNCTIONS for name in commands)
    return functions > MAX_INTEGRATED or bool(_VARIABLE_POWER.search(text))


def _explain_refused_value(value: RationalExpression) -> str | None:
    """Return the reason why a closed form is not sent to the worker; None if it is sent.

    Exponents and arguments are bounded, so that no single operation of the worker takes long.
    """
    waiting: list[tuple[Monomial, int]] = [
        (mono, 0) for part in (value.numerator, value.denominator) for mono in part
    ]
    while waiting:
        mono, depth = waiting.pop()
        for x, exponent in mono:
            if max(abs(exponent.numerator), exponent.denominator) > MAX_EXPONENTS:
                return "too_large"
            if not isinstance(x, tuple):
                continue
            if depth == MAX_NESTING:
                return "nested_too_deep"
            if x[0] in _COUNTING and any(
                _is_argument_larger_than(key, MAX_ARGUMENT) for key in x[1:]
            ):
                return "too_large"
            if x[0] == "power" and _is_argument_larger_than(x[2], MAX_EXPONENTS):
                return "too_large"
            waiting.extend((inner, depth + 1) for inner in list_argument_monomials(x))
    return "too_large" if overflows_float(value) else None


def _is_argument_larger_than(argument_key: Any, limit: int) -> bool:
    """Return whether an argument is a number larger than `limit`; False if it has symbols."""
    numerator, denominator = (dict(part) for part in argument_key)
    value = RationalExpression(numerator, UNIT if denominator == UNIT else denominator)
    if get_free_symbols(value):
        return False
    size = evaluate_at_point(value)
    return size is None or abs(size) > limit
