"""Compares names, arbitrary constants, and the items of lists, sets and tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations

from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import RationalExpression
from mclabel.answers.values.forms import (
    Choice,
    ClosedForm,
    Equation,
    Form,
    ItemCollection,
    Name,
    Words,
)
from mclabel.answers.values.monomials import UNIT
from mclabel.answers.values.sampling import evaluate_at_point

_VARIABLES = frozenset("tuvwxyz")
_VOWELS = frozenset("aeiou")
_OPTIONS = "ABCDEFGHIJ"
_TRUTH_WORDS = frozenset("true false yes no t f y n".split())
_MAX_SHIFT, _MAX_DENOMINATOR = 1_000, 100
"""Limits on the constant by which antiderivatives such as sin² x and -cos² x differ."""
_MAX_RENAMED, _MAX_PERMUTED = 4, 3
_INTEGERS = frozenset("klmn")
_ARBITRARY = frozenset(
    ("C", "K", *(f"{letter}_{n}" for letter in ("C", "c", "K", "A") for n in range(5)))
)
_CALLED = _ARBITRARY | frozenset("ABCDKabcdk") | frozenset(f"k_{n}" for n in range(5))
"""Names that an answer may give to a constant of integration."""
_FAMILY, _FREE = frozenset("abcdkmtABCDKM"), frozenset("cCkK")
"""Letters that may stand for an arbitrary constant, and, second, letters that always do."""
_GOLD_CONSTANTS = ("C", "C_1", "C_0")
_CONSTANTS = (*_GOLD_CONSTANTS, "c", "K", "k", "c_1", "c_0", "D", "A", "B")


def is_variable_product(letters: str) -> bool:
    """Return whether letters are a product of variables, such as `xy`, `mn` or `abc`.

    Words such as `arc` and capital letters are names instead.
    """
    if not letters.islower():
        return False
    if _VARIABLES.issuperset(letters) or (len(letters) == 2 and _VOWELS.isdisjoint(letters)):
        return True
    return all(ord(b) - ord(a) == 1 for a, b in pairwise(letters))


def compare_different_names(answer: Name, gold: Name) -> bool | None:
    """Return None if two different names may be the same product of variables, else False.

    They may be if they have the same small letters in another order.
    """
    if sorted(answer.letters) == sorted(gold.letters) and gold.letters.islower():
        return None
    return False


def lists_same_option_letters(name: Name, option_letters: list[str]) -> bool:
    """Return whether `ACD` and `A, C, D` list the same letters."""
    letters = [item.upper() for item in option_letters]
    written = list(name.letters.upper())
    if written == sorted(set(written)) and all(letter in _OPTIONS for letter in written):
        return sorted(letters) == written
    return letters == written


def read_option_letters(form: Form) -> str:
    """Return the sorted option letters that a form lists, as `A and C`, `AC` and `A/C` do.

    Args:
        form: a parsed list of options, or a product or quotient of letters, because `AC` and `A/C`
            are parsed as these.

    Returns:
        The empty string if the form does not list at least two option letters.
    """
    if isinstance(form, ItemCollection):
        letters = [_read_option_letter(item) for item in form.items]
    elif isinstance(form, ClosedForm):
        monos = [*form.value.numerator.items(), *form.value.denominator.items()]
        if any(n not in (1, -1) or c != 1 for mono, c in monos for _, n in mono):
            return ""
        letters = [x if isinstance(x, str) else "" for mono, _ in monos for x, _ in mono]
    else:
        return ""
    listed = len(letters) > 1 and len(set(letters)) == len(letters)
    is_list = listed and all(len(x) == 1 and x in _OPTIONS for x in letters)
    return "".join(sorted(letters)) if is_list else ""


def _read_option_letter(form: Form) -> str:
    if isinstance(form, Choice):
        return form.letter if form.content is None else ""
    if (
        not isinstance(form, ClosedForm)
        or len(form.value.numerator) != 1
        or form.value.denominator != UNIT
    ):
        return ""
    ((mono, coefficient),) = form.value.numerator.items()
    names = [x for x, n in mono if n == 1 and isinstance(x, str)]
    return names[0] if coefficient == 1 and len(names) == len(mono) == 1 else ""


def same_antiderivative(answer: RationalExpression, gold: RationalExpression) -> bool:
    """Return whether two antiderivatives differ only by a constant.

    The names of their constants of integration do not count.
    """
    theirs = _remove_integration_constant(gold, _GOLD_CONSTANTS)
    if theirs is None or not any(name.islower() for name in algebra.get_free_symbols(theirs)):
        return False
    ours = _remove_integration_constant(answer, _CONSTANTS)
    if ours is None:
        return False
    difference = algebra.add(ours, algebra.negate(theirs))
    if not difference.numerator or not algebra.get_free_symbols(difference):
        return True
    point = evaluate_at_point(
        difference, dict.fromkeys(algebra.get_free_symbols(difference), 0.7310585786)
    )
    if point is None or abs(point.imag) > 1e-9 or abs(point.real) > _MAX_SHIFT:
        return False
    shift = Fraction(point.real).limit_denominator(_MAX_DENOMINATOR)
    return algebra.same_canonical_form(difference, algebra.make_number_value(shift))


def same_up_to_constant_or_integer_names(
    answer: RationalExpression, gold: RationalExpression
) -> bool:
    """Return whether two formulas differ only in the names of arbitrary constants or of an integer.

    `c_1 e^x` equals `C_1 e^x`, and π/4 + kπ equals π/4 + nπ. An integer may be renamed only if it
    is a factor of π.
    """
    ours, theirs = algebra.get_free_symbols(answer), algebra.get_free_symbols(gold)
    new, old = ours - theirs, theirs - ours
    if _same_up_to_arbitrary_constant_names(answer, gold):
        return True
    if not new or len(new) != len(old) or len(new) > _MAX_RENAMED:
        return False
    if len(new) == 1 and new | old <= _INTEGERS and _occurs_only_multiplied_by_pi(gold, *old):
        names = {next(iter(new)): next(iter(old))}
    else:
        names = {name: name.upper() for name in new}
        if set(names.values()) != old or not old <= _ARBITRARY:
            return False
    return algebra.same_canonical_form(algebra.rename_symbols(answer, names), gold)


def _same_up_to_arbitrary_constant_names(
    answer: RationalExpression, gold: RationalExpression
) -> bool:
    """Return whether two formulas differ only in the names of the gold's arbitrary constants.

    For example, A e^x and C_1 e^x do.
    """
    theirs = algebra.get_free_symbols(gold)
    free = sorted(theirs & _ARBITRARY)
    if not free or not any(name[0].islower() for name in theirs.difference(free)):
        return False
    called = algebra.get_free_symbols(answer) - (theirs - _ARBITRARY)
    if len(called) != len(free) or len(free) > _MAX_PERMUTED or not called <= _CALLED:
        return False
    return any(
        algebra.same_canonical_form(
            algebra.rename_symbols(answer, dict(zip(names, free, strict=True))), gold
        )
        for names in permutations(sorted(called))
    )


def same_families_up_to_constant_letter(
    answer: RationalExpression, gold: RationalExpression
) -> bool | None:
    """Return whether two families of functions differ only in the letter of their constant.

    For example, `kx` and `cx` do, whose constant is arbitrary. The result is None if the gold's
    letter may be a number that the problem gives, as a in `ax`. Only c and k are always arbitrary
    constants.
    """
    ours, theirs = algebra.get_free_symbols(answer), algebra.get_free_symbols(gold)
    new, old = ours - theirs, theirs - ours
    if len(new) != 1 or len(old) != 1 or not new | old <= _FAMILY:
        return False
    names = {next(iter(new)): next(iter(old))}
    if not algebra.same_canonical_form(algebra.rename_symbols(answer, names), gold):
        return False
    return True if old <= _FREE else None


def _occurs_only_multiplied_by_pi(value: RationalExpression, symbol: str) -> bool:
    """Return whether a symbol occurs in only one term: a rational times π times the symbol."""
    turn = frozenset(((symbol, 1), ("π", 1)))
    with_name = [mono for mono in value.numerator if any(x == symbol for x, _ in mono)]
    return with_name == [turn] and symbol not in algebra.get_free_symbols(
        RationalExpression(value.denominator, UNIT)
    )


def _remove_integration_constant(
    value: RationalExpression, names: tuple[str, ...]
) -> RationalExpression | None:
    """Remove an added constant of integration from a value.

    The constant is the first of `names` that the value contains only as a summand with the
    coefficient 1 or -1. Return None if there is no such constant.
    """
    present = algebra.get_free_symbols(value)
    for name in names:
        if name not in present:
            continue
        for sign in (1, -1):
            constant = algebra.multiply(
                algebra.make_number_value(-sign), algebra.make_atom_value(name)
            )
            rest = algebra.add(value, constant)
            if name not in algebra.get_free_symbols(rest):
                return rest
    return None


def has_distinct_names(sequence: ItemCollection) -> bool:
    """Return whether every item is an equation with its own name, as in x = 1, y = 2."""
    labels = [item.label for item in sequence.items if isinstance(item, Equation)]
    return len(labels) == len(sequence.items) == len(set(labels)) and all(labels)


def sort_by_name(sequence: ItemCollection) -> ItemCollection | None:
    """Sort the equations of a list by their names: y = 4, x = 3 becomes x = 3, y = 4.

    The result is None if they are sorted already, or if their names are not consecutive letters
    such as x, y and z.
    """
    if not has_distinct_names(sequence):
        return None
    items = [item for item in sequence.items if isinstance(item, Equation)]
    ordered = sorted(items, key=lambda item: item.label)
    labels = [item.label for item in ordered]
    if ordered == items or any(len(label) > 1 for label in labels):
        return None
    if any(ord(b) - ord(a) != 1 for a, b in pairwise(labels)):
        return None
    return replace(sequence, items=tuple(ordered))


def has_equation(sequence: ItemCollection) -> bool:
    """Return whether any item is an equation."""
    return any(isinstance(item, Equation) for item in sequence.items)


def are_truth_values(sequence: ItemCollection) -> bool:
    """Return whether there are several items, each of which is a truth value.

    Truth values are true and false, yes and no, and their initial letters.
    """
    return len(sequence.items) > 1 and all(map(_is_truth_value, sequence.items))


def _is_truth_value(form: Form) -> bool:
    if isinstance(form, Words):
        return len(form.words) == 1 and form.words[0] in _TRUTH_WORDS
    if not isinstance(form, ClosedForm):
        return False
    names = algebra.get_free_symbols(form.value)
    return len(names) == 1 and next(iter(names)) in ("T", "F")


CompareForms = Callable[[Form, Form], bool | None]


def same_sequences(
    answer: ItemCollection, gold: ItemCollection, compare_forms: CompareForms
) -> bool | None:
    """Return whether two collections have the same items; None if undecided.

    The order of the items counts if their brackets or names require it.

    If only one collection has names, its items are sorted by name before the comparison. If they
    are equal only in the order in which they are written, the result is None.
    """
    if answer.kind == "set" and gold.kind != "set" and has_distinct_names(answer):
        answer = replace(answer, kind="list")
    by = None if has_equation(gold) else sort_by_name(answer)
    if by is not None:
        verdict = _same_items(by, gold, compare_forms)
        return None if not verdict and _same_items(answer, gold, compare_forms) else verdict
    by = None if has_equation(answer) else sort_by_name(gold)
    if by is not None:
        verdict = _same_items(answer, by, compare_forms)
        return None if not verdict and _same_items(answer, gold, compare_forms) else verdict
    return _same_items(answer, gold, compare_forms)


def _same_items(
    answer: ItemCollection, gold: ItemCollection, compare_forms: CompareForms
) -> bool | None:
    kinds = {answer.kind, gold.kind}
    if kinds == {"list", "alternatives"} and read_option_letters(gold):
        return False  # "A or C" differs from "A and C"
    if "tuple" in kinds and "bracket" in kinds and len(gold.items) == 2:
        return False
    if "set" in kinds and kinds & {"tuple", "bracket"}:
        return False
    has_order = kinds <= {"list", "alternatives"} and _is_order_significant(answer, gold)
    if has_order and not has_equation(gold) and has_equation(answer) and not are_truth_values(gold):
        ordered_verdict = are_all_verdicts_true(
            map(compare_forms, flatten_items(answer), flatten_items(gold))
        )
        if ordered_verdict or len(answer.items) != len(gold.items):
            return ordered_verdict
        return (
            None
            if _match_items(flatten_items(answer), flatten_items(gold), compare_forms)
            else False
        )
    ordered = has_order or bool(kinds & {"tuple", "bracket"})
    ours, theirs = flatten_items(answer), flatten_items(gold)
    if kinds == {"set"}:
        ours, theirs = (
            _remove_equal_items(ours, compare_forms),
            _remove_equal_items(theirs, compare_forms),
        )
    if len(ours) > len(theirs) and not ordered:
        ours = _remove_equal_items(ours, compare_forms)
    if len(ours) != len(theirs):
        return False
    if ordered:
        return are_all_verdicts_true(map(compare_forms, ours, theirs))
    return _match_items(ours, theirs, compare_forms)


def _is_order_significant(answer: ItemCollection, gold: ItemCollection) -> bool:
    """Return whether the order of two lists counts.

    It does if their items have names or are truth values, or if a list ends in dots.
    """
    if answer.is_ordered or gold.is_ordered:
        return True
    for sequence, other in ((answer, gold), (gold, answer)):
        if has_distinct_names(sequence) and not has_equation(other):
            return True
    return are_truth_values(gold)


def _remove_equal_items(items: Items[Form], compare_forms: CompareForms) -> list[Form]:
    kept: list[Form] = []
    for item in items:
        if not any(compare_forms(item, other) for other in kept):
            kept.append(item)
    return kept


def _match_items(
    answer: Items[Form], gold: Items[Form], compare_forms: CompareForms
) -> bool | None:
    """Return whether each gold item equals an answer item of its own; None if undecided."""
    remaining, unsure = list(answer), False
    open_golds = []
    for item in gold:
        match = next((x for x in remaining if compare_forms(x, item)), None)
        if match is None:
            open_golds.append(item)
        else:
            remaining.remove(match)
    for item in open_golds:
        if not any(compare_forms(x, item) is None for x in remaining):
            return False
        unsure = True
    return None if unsure else True


def flatten_items(sequence: Form) -> list[Form]:
    """Return the items of a collection, replacing an item that is a list itself by its items.

    For example, ±2 in 1, ±2 is such a list.
    """
    assert isinstance(sequence, ItemCollection)
    items: list[Form] = []
    for item in sequence.items:
        if isinstance(item, ItemCollection) and item.kind in ("list", "alternatives"):
            items.extend(item.items)
        else:
            items.append(item)
    return items


def are_all_verdicts_true(verdicts: Iterable[bool | None]) -> bool | None:
    """Return whether all verdicts are true; None if some are undecided and none is false."""
    unsure = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unsure |= verdict is None
    return None if unsure else True
