"""Compares names, constants of integration, and lists, sets and tuples: in order or not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations

from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import Value
from mclabel.answers.values.forms import Choice, Closed, Equation, Form, Name, Sequence, Words
from mclabel.answers.values.monomials import UNIT
from mclabel.answers.values.sampling import approximate

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
"""Letters for any constant in a family of functions, and those that stand for nothing else."""
_GOLD_CONSTANTS = ("C", "C_1", "C_0")
_CONSTANTS = (*_GOLD_CONSTANTS, "c", "K", "k", "c_1", "c_0", "D", "A", "B")


def says_product(letters: str) -> bool:
    """Return whether letters are read as a product: `xy`, `mn`, `abc`; not `arc`, nor any
    capitals.
    """
    if not letters.islower():
        return False
    if _VARIABLES.issuperset(letters) or (len(letters) == 2 and _VOWELS.isdisjoint(letters)):
        return True
    return all(ord(b) - ord(a) == 1 for a, b in pairwise(letters))


def same_names(answer: Name, gold: Name) -> bool | None:
    """Return whether two names agree that are spelt differently.

    Small letters in another order could be a product after all, so nothing is said of them.
    """
    if sorted(answer.letters) == sorted(gold.letters) and gold.letters.islower():
        return None
    return False


def same_options(name: Name, items: list[str]) -> bool:
    """Return whether `ACD` and `A, C, D` list the same letters."""
    letters = [item.upper() for item in items]
    written = list(name.letters.upper())
    if written == sorted(set(written)) and all(letter in _OPTIONS for letter in written):
        return sorted(letters) == written
    return letters == written


def option_letters(form: Form) -> str:
    """Return the letters of options that a form lists, in order: `A and C`, `AC`, `A/C`; empty if
    it is none.

    Args:
        form: a list of choices, or the formula that letters in a row or with signs were read as.
    """
    if isinstance(form, Sequence):
        letters = [_option(item) for item in form.items]
    elif isinstance(form, Closed):
        monos = [*form.value.num.items(), *form.value.den.items()]
        if any(n not in (1, -1) or c != 1 for mono, c in monos for _, n in mono):
            return ""
        letters = [x if isinstance(x, str) else "" for mono, _ in monos for x, _ in mono]
    else:
        return ""
    listed = len(letters) > 1 and len(set(letters)) == len(letters)
    is_list = listed and all(len(x) == 1 and x in _OPTIONS for x in letters)
    return "".join(sorted(letters)) if is_list else ""


def _option(form: Form) -> str:
    if isinstance(form, Choice):
        return form.letter if form.content is None else ""
    if not isinstance(form, Closed) or len(form.value.num) != 1 or form.value.den != UNIT:
        return ""
    ((mono, coefficient),) = form.value.num.items()
    names = [x for x, n in mono if n == 1 and isinstance(x, str)]
    return names[0] if coefficient == 1 and len(names) == len(mono) == 1 else ""


def integrated(answer: Value, gold: Value) -> bool:
    """Return whether two antiderivatives differ by a constant only, whatever each calls its own."""
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
    """Return whether two formulas are one but for the names of constants or of an integer.

    `c_1 e^x` is `C_1 e^x`; π/4 + kπ is π/4 + nπ, where the integer stands beside π.
    """
    ours, theirs = algebra.symbols(answer), algebra.symbols(gold)
    new, old = ours - theirs, theirs - ours
    if _same_but_for_arbitrary(answer, gold):
        return True
    if not new or len(new) != len(old) or len(new) > _MAX_RENAMED:
        return False
    if len(new) == 1 and new | old <= _INTEGERS and _are_turns(gold, *old):
        names = {next(iter(new)): next(iter(old))}
    else:
        names = {name: name.upper() for name in new}
        if set(names.values()) != old or not old <= _ARBITRARY:
            return False
    return algebra.same_form(algebra.renamed(answer, names), gold)


def _same_but_for_arbitrary(answer: Value, gold: Value) -> bool:
    """Return whether constants that the gold shows to be arbitrary have other names: A e^x for C_1
    e^x.
    """
    theirs = algebra.symbols(gold)
    free = sorted(theirs & _ARBITRARY)
    if not free or not any(name[0].islower() for name in theirs.difference(free)):
        return False
    called = algebra.symbols(answer) - (theirs - _ARBITRARY)
    if len(called) != len(free) or len(free) > _MAX_PERMUTED or not called <= _CALLED:
        return False
    return any(
        algebra.same_form(algebra.renamed(answer, dict(zip(names, free, strict=True))), gold)
        for names in permutations(sorted(called))
    )


def same_but_for_a_letter(answer: Value, gold: Value) -> bool | None:
    """Return whether two families of functions are one: `kx` and `cx`; None where a letter may be
    given.

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
    """Return whether every term with that symbol is a rational multiple of it times π."""
    turn = frozenset(((name, 1), ("π", 1)))
    with_name = [mono for mono in value.num if any(x == name for x, _ in mono)]
    return with_name == [turn] and name not in algebra.symbols(Value(value.den, UNIT))


def _without_constant(value: Value, names: tuple[str, ...]) -> Value | None:
    """Return the value less the constant of `names` that is added to it; None if there is none."""
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
    """Return whether every item is given to a name of its own: x = 1, y = 2."""
    labels = [item.label for item in sequence.items if isinstance(item, Equation)]
    return len(labels) == len(sequence.items) == len(set(labels)) and all(labels)


def by_name(sequence: Sequence) -> Sequence | None:
    """Return the assigned values in the order of their names: x = 3, y = 4 of y = 4, x = 3.

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
    """Return whether any item names what it is the value of."""
    return any(isinstance(item, Equation) for item in sequence.items)


def are_truth_values(sequence: Sequence) -> bool:
    """Return whether every item is true or false, yes or no, T or F."""
    return len(sequence.items) > 1 and all(map(_is_truth_value, sequence.items))


def _is_truth_value(form: Form) -> bool:
    if isinstance(form, Words):
        return len(form.words) == 1 and form.words[0] in _TRUTH_WORDS
    if not isinstance(form, Closed):
        return False
    names = algebra.symbols(form.value)
    return len(names) == 1 and next(iter(names)) in ("T", "F")


Same = Callable[[Form, Form], bool | None]


def same_sequences(answer: Sequence, gold: Sequence, same: Same) -> bool | None:
    """Return whether two collections hold the same, in order where their brackets or names say so.

    Beside values without names, named ones count in the order of their names. If only the order in
    which they are written fits, nothing is decided.
    """
    if answer.kind == "set" and gold.kind != "set" and is_assigned(answer):
        answer = replace(answer, kind="list")
    by = None if has_labels(gold) else by_name(answer)
    if by is not None:
        verdict = _same_items(by, gold, same)
        return None if not verdict and _same_items(answer, gold, same) else verdict
    by = None if has_labels(answer) else by_name(gold)
    if by is not None:
        verdict = _same_items(answer, by, same)
        return None if not verdict and _same_items(answer, gold, same) else verdict
    return _same_items(answer, gold, same)


def _same_items(answer: Sequence, gold: Sequence, same: Same) -> bool | None:
    kinds = {answer.kind, gold.kind}
    if kinds == {"list", "alternatives"} and option_letters(gold):
        return False  # A or C is not A and C
    if "tuple" in kinds and "bracket" in kinds and len(gold.items) == 2:
        return False
    if "set" in kinds and kinds & {"tuple", "bracket"}:
        return False
    loose = {"list", "alternatives"}
    has_order = kinds <= loose and _order_is_stated(answer, gold)
    if has_order and not has_labels(gold) and has_labels(answer) and not are_truth_values(gold):
        ordered_verdict = all_same(map(same, spread(answer), spread(gold)))
        if ordered_verdict or len(answer.items) != len(gold.items):
            return ordered_verdict
        return None if _matching(spread(answer), spread(gold), same) else False
    ordered = has_order or bool(kinds & {"tuple", "bracket"})
    ours, theirs = spread(answer), spread(gold)
    if kinds == {"set"}:
        ours, theirs = _distinct(ours, same), _distinct(theirs, same)
    if len(ours) > len(theirs) and not ordered:
        ours = _distinct(ours, same)
    if len(ours) != len(theirs):
        return False
    if ordered:
        return all_same(map(same, ours, theirs))
    return _matching(ours, theirs, same)


def _order_is_stated(answer: Sequence, gold: Sequence) -> bool:
    """Return whether names, truth values or dots at the end say that the order of a list counts."""
    if answer.ordered or gold.ordered:
        return True
    for sequence, other in ((answer, gold), (gold, answer)):
        if is_assigned(sequence) and not has_labels(other):
            return True
    return are_truth_values(gold)


def _distinct(items: Items[Form], same: Same) -> list[Form]:
    kept: list[Form] = []
    for item in items:
        if not any(same(item, other) for other in kept):
            kept.append(item)
    return kept


def _matching(answer: Items[Form], gold: Items[Form], same: Same) -> bool | None:
    """Return whether every gold item has an answer item of its own."""
    remaining, unsure = list(answer), False
    open_golds = []
    for item in gold:
        match = next((x for x in remaining if same(x, item)), None)
        if match is None:
            open_golds.append(item)
        else:
            remaining.remove(match)
    for item in open_golds:
        if not any(same(x, item) is None for x in remaining):
            return False
        unsure = True
    return None if unsure else True


def spread(sequence: Form) -> list[Form]:
    """Return the items, with those that are several answers themselves (1, ±2) spread out."""
    assert isinstance(sequence, Sequence)
    items: list[Form] = []
    for item in sequence.items:
        if isinstance(item, Sequence) and item.kind in ("list", "alternatives"):
            items.extend(item.items)
        else:
            items.append(item)
    return items


def all_same(verdicts: Iterable[bool | None]) -> bool | None:
    """Return whether all verdicts are true; None if some are undecided and none is false."""
    unsure = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unsure |= verdict is None
    return None if unsure else True
