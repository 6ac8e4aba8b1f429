"""Compares names, constants of integration, and lists of which the order counts."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import Value
from mclabel.answers.values.forms import Closed, Equation, Form, Name, Sequence, Words
from mclabel.answers.values.monomials import UNIT
from mclabel.answers.values.sampling import approximate

_VARIABLES = frozenset("tuvwxyz")
_VOWELS = frozenset("aeiou")
_OPTIONS = "ABCDEFGHIJ"
_TRUTH_WORDS = frozenset("true false yes no t f y n".split())
_MAX_SHIFT, _MAX_DENOMINATOR = 1_000, 100
"""Of the constant by which antiderivatives such as sin² x and -cos² x differ."""
_MAX_RENAMED = 4
_INTEGERS = frozenset("klmn")
_ARBITRARY = frozenset(("C", "C_0", "C_1", "C_2", "C_3", "C_4", "K"))
_FAMILY, _FREE = frozenset("abcdkmtABCDKM"), frozenset("cCkK")
"""Letters for any constant in a family of functions, and those that stand for nothing else."""
_GOLD_CONSTANTS = ("C", "C_1", "C_0")
_CONSTANTS = (*_GOLD_CONSTANTS, "c", "K", "k", "c_1", "c_0")


def says_product(letters: str) -> bool:
    """Whether letters are read as a product: `xy`, `mn`, `abc`; not `arc`, nor any capitals."""
    if not letters.islower():
        return False
    if _VARIABLES.issuperset(letters) or (len(letters) == 2 and _VOWELS.isdisjoint(letters)):
        return True
    return all(ord(b) - ord(a) == 1 for a, b in pairwise(letters))


def same_names(answer: Name, gold: Name) -> bool | None:
    """Whether two names agree that are spelt differently.

    Small letters in another order could be a product after all, so nothing is said of them.
    """
    if sorted(answer.letters) == sorted(gold.letters) and gold.letters.islower():
        return None
    return False


def same_options(name: Name, items: list[str]) -> bool:
    """Whether `ACD` and `A, C, D` list the same letters."""
    letters = [item.upper() for item in items]
    written = list(name.letters.upper())
    if written == sorted(set(written)) and all(letter in _OPTIONS for letter in written):
        return sorted(letters) == written
    return letters == written


def integrated(answer: Value, gold: Value) -> bool:
    """Whether two antiderivatives differ by a constant only, whatever each calls its own."""
    theirs = _without_constant(gold, _GOLD_CONSTANTS)
    if theirs is None or not any(name.islower() for name in algebra.symbols(theirs)):
        return False
    ours = _without_constant(answer, _CONSTANTS)
    if ours is None:
        return False
    difference = algebra.add(ours, algebra.negate(theirs))
    if not difference.num or not algebra.symbols(difference):
        return True
    point = approximate(difference, dict.fromkeys(algebra.symbols(difference), 0.7310585786))
    if point is None or abs(point.imag) > 1e-9 or abs(point.real) > _MAX_SHIFT:
        return False
    shift = Fraction(point.real).limit_denominator(_MAX_DENOMINATOR)
    return algebra.same_form(difference, algebra.number(shift))


def same_but_for_constants(answer: Value, gold: Value) -> bool:
    """Whether two formulas are one but for the names of constants or of an integer.

    `c_1 e^x` is `C_1 e^x`; π/4 + kπ is π/4 + nπ, where the integer stands beside π.
    """
    ours, theirs = algebra.symbols(answer), algebra.symbols(gold)
    new, old = ours - theirs, theirs - ours
    if not new or len(new) != len(old) or len(new) > _MAX_RENAMED:
        return False
    if len(new) == 1 and new | old <= _INTEGERS and _are_turns(gold, *old):
        names = {next(iter(new)): next(iter(old))}
    else:
        names = {name: name.upper() for name in new}
        if set(names.values()) != old or not old <= _ARBITRARY:
            return False
    return algebra.same_form(algebra.renamed(answer, names), gold)


def same_but_for_a_letter(answer: Value, gold: Value) -> bool | None:
    """Whether two families of functions are one: `kx` and `cx`; None where a letter may be given.

    Only c and k are taken for any constant: a in `ax` may be a number of the problem.
    """
    ours, theirs = algebra.symbols(answer), algebra.symbols(gold)
    new, old = ours - theirs, theirs - ours
    if len(new) != 1 or len(old) != 1 or not new | old <= _FAMILY:
        return False
    names = {next(iter(new)): next(iter(old))}
    if not algebra.same_form(algebra.renamed(answer, names), gold):
        return False
    return True if old <= _FREE else None


def _are_turns(value: Value, name: str) -> bool:
    """Whether every term with that symbol is a rational multiple of it times π."""
    turn = frozenset(((name, 1), ("π", 1)))
    with_name = [mono for mono in value.num if any(x == name for x, _ in mono)]
    return with_name == [turn] and name not in algebra.symbols(Value(value.den, UNIT))


def _without_constant(value: Value, names: tuple[str, ...]) -> Value | None:
    """The value less the one of `names` that is added to it; None if there is none."""
    present = algebra.symbols(value)
    for name in names:
        if name not in present:
            continue
        for sign in (1, -1):
            constant = algebra.multiply(algebra.number(-sign), algebra.atom(name))
            rest = algebra.add(value, constant)
            if name not in algebra.symbols(rest):
                return rest
    return None


def is_assigned(sequence: Sequence) -> bool:
    """Whether every item is given to a name of its own: x = 1, y = 2."""
    labels = [item.label for item in sequence.items if isinstance(item, Equation)]
    return len(labels) == len(sequence.items) == len(set(labels)) and all(labels)


def by_name(sequence: Sequence) -> Sequence | None:
    """Assigned values in the order of their names: x = 3, y = 4 of y = 4, x = 3.

    None if they stand in that order, or if their names are not letters in a row, as x, y and z are.
    """
    if not is_assigned(sequence):
        return None
    items = [item for item in sequence.items if isinstance(item, Equation)]
    ordered = sorted(items, key=lambda item: item.label)
    labels = [item.label for item in ordered]
    if ordered == items or any(len(label) > 1 for label in labels):
        return None
    if any(ord(b) - ord(a) != 1 for a, b in pairwise(labels)):
        return None
    return replace(sequence, items=tuple(ordered))


def has_labels(sequence: Sequence) -> bool:
    """Whether any item names what it is the value of."""
    return any(isinstance(item, Equation) for item in sequence.items)


def are_truth_values(sequence: Sequence) -> bool:
    """Whether every item is true or false, yes or no, T or F."""
    return len(sequence.items) > 1 and all(map(_is_truth_value, sequence.items))


def _is_truth_value(form: Form) -> bool:
    if isinstance(form, Words):
        return len(form.words) == 1 and form.words[0] in _TRUTH_WORDS
    if not isinstance(form, Closed):
        return False
    names = algebra.symbols(form.value)
    return len(names) == 1 and next(iter(names)) in ("T", "F")
