"""Compares two forms under the rules: equal, different, or not decided here.

Every comparison is three-valued. A pair of formulas that exact arithmetic does not settle goes to
`prove`, which is nothing in the caller's process and sympy in a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from fractions import Fraction

from mclabel.answers import algebra, measures, powers
from mclabel.answers.algebra import Value
from mclabel.answers.effort import spend
from mclabel.answers.equations import equation_and_value, proportional, same_equations
from mclabel.answers.forms import (
    Approximated,
    Based,
    Choice,
    Clock,
    Closed,
    Equation,
    Form,
    Matrix,
    Name,
    Number,
    Opaque,
    Quantity,
    Ratio,
    Reals,
    Relation,
    Sequence,
    Special,
    Words,
    value_of,
)
from mclabel.answers.literals import Literal, rounds_to
from mclabel.answers.matrices import determinant, entries
from mclabel.answers.monomials import NotClosed
from mclabel.answers.names import (
    are_truth_values,
    has_labels,
    integrated,
    is_assigned,
    same_but_for_constants,
    same_names,
    same_options,
    says_product,
)
from mclabel.answers.reals import ALL, same_set
from mclabel.answers.relations import as_interval
from mclabel.answers.rules import GradeRules
from mclabel.answers.sampling import clearly_differ, real

Prover = Callable[[Form, Form], bool | None]
"""Decides about two forms of which exact arithmetic cannot tell; None if it cannot either."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Compares answers with golds."""

    rules: GradeRules
    prove: Prover

    def same(self, answer: Form, gold: Form) -> bool | None:
        """Whether `answer` means what `gold` means."""
        spend(2)
        if isinstance(answer, Number) and isinstance(gold, Number):
            if answer.literal.num_digits >= self.rules.full_precision > 0 and self._is_float_of(
                answer.literal, algebra.number(gold.literal.value)
            ):
                return True
            return self._same_number(answer.literal.value, gold.literal, literal=True)
        for look in (self._wrapped, self._collections, self._sets):
            handled, verdict = look(answer, gold)
            if handled:
                return verdict
        return self._scalars(answer, gold)

    def _wrapped(self, answer: Form, gold: Form) -> tuple[bool, bool | None]:
        """Equations, choices and hedges: what is inside counts."""
        if isinstance(answer, Equation) and isinstance(gold, Equation):
            return True, same_equations(answer, gold, self.same)
        if isinstance(gold, Equation):
            return True, equation_and_value(gold, answer, self.rules, self.same, swap=True)
        if isinstance(answer, Equation) and not isinstance(gold, Relation):
            return True, equation_and_value(answer, gold, self.rules, self.same, swap=False)
        if isinstance(answer, Approximated) or isinstance(gold, Approximated):
            return True, self._approximations(answer, gold)
        if isinstance(answer, Choice) or isinstance(gold, Choice):
            return True, self._choices(answer, gold)
        if _is_hedge(answer, gold) and self.rules.accept_hedged:
            return True, _any(self.same(item, gold) for item in _spread(answer))
        return False, None

    def _approximations(self, answer: Form, gold: Form) -> bool | None:
        """The exact parts, or the gold's approximation; of a formula in symbols what it is near."""
        if isinstance(answer, Approximated):
            exact = self.same(answer.exact, gold)
            value = value_of(answer.exact)
            if exact or (value is not None and not algebra.symbols(value)):
                return exact
            return self.same(answer.stated, gold)
        assert isinstance(gold, Approximated)
        exact = self.same(answer, gold.exact)
        if exact or not self.rules.approximation_of_gold:
            return exact
        stated = self.same(answer, gold.stated)
        return stated or (exact if stated is False else None)

    def _collections(self, answer: Form, gold: Form) -> tuple[bool, bool | None]:
        if isinstance(answer, Matrix) or isinstance(gold, Matrix):
            return True, self._matrices(answer, gold)
        if isinstance(answer, Sequence) and isinstance(gold, Sequence):
            return True, self._sequences(answer, gold)
        for one, other, swap in ((answer, gold, False), (gold, answer, True)):
            if not isinstance(one, Sequence) or isinstance(other, Reals | Special | Relation):
                continue
            if isinstance(other, Name) and one.kind == "list":
                letters = [_lone_letter(item) for item in one.items]
                return True, same_options(other, [x for x in letters if x]) and None not in letters
            if one.decimal is not None and self.rules.decimal_comma:
                short = isinstance(one.decimal, Number) and one.decimal.literal.num_decimals < 2
                if not short or (not swap and value_of(one.items[0]) == algebra.number(0)):
                    return True, self.same(other, one.decimal) if swap else self.same(
                        one.decimal, other
                    )
            if len(one.items) == 1 and one.kind == "set":
                item = one.items[0]
                return True, self.same(other, item) if swap else self.same(item, other)
            entries = measures.vector_entries(other, len(one.items))
            if entries is not None and one.kind == "tuple":
                pairs = zip(entries, one.items, strict=True)
                return True, _all(self.same(i, e) if swap else self.same(e, i) for e, i in pairs)
            reals = as_interval(one)
            if isinstance(other, Opaque) and reals is not None:
                return True, self.prove(other, reals)
            return True, None if isinstance(other, Opaque) else False
        return False, None

    def _sets(self, answer: Form, gold: Form) -> tuple[bool, bool | None]:
        left, right = _as_reals(answer, gold), _as_reals(gold, answer)
        if left is None and right is None:
            return False, None
        if left is not None and right is not None:
            return True, same_set(left, right)
        other = gold if left is not None else answer
        return True, self.prove(answer, gold) if isinstance(other, Opaque) else False

    def _scalars(self, answer: Form, gold: Form) -> bool | None:
        if isinstance(answer, Ratio | Clock) or isinstance(gold, Ratio | Clock):
            return measures.same_colons(answer, gold, self.rules, self.same)
        if isinstance(answer, Based) or isinstance(gold, Based):
            return measures.same_base(answer, gold, self.rules, self.same)
        if isinstance(answer, Quantity) or isinstance(gold, Quantity):
            return measures.same_quantity(answer, gold, self.rules, self.same)
        if isinstance(answer, Words) or isinstance(gold, Words):
            return measures.same_text(answer, gold, self.rules)
        if isinstance(answer, Name) or isinstance(gold, Name):
            return self._names(answer, gold)
        if isinstance(answer, Relation) and isinstance(gold, Relation):
            return proportional(answer.difference, gold.difference, positive=True) and (
                answer.strict == gold.strict
            )
        if isinstance(answer, Relation) or isinstance(gold, Relation):
            return self.prove(answer, gold) if _opaque(answer, gold) else False
        if isinstance(answer, Special) or isinstance(gold, Special):
            if isinstance(answer, Special) and isinstance(gold, Special):
                return answer.name == gold.name
            other = gold if isinstance(answer, Special) else answer
            return None if isinstance(other, Opaque) else False
        return self._formulas(answer, gold)

    def _names(self, answer: Form, gold: Form) -> bool | None:
        """Letters as they are spelt, or as a product where they say so."""
        if not self.rules.letters_are_names:
            return self._formulas(answer, gold)
        if isinstance(answer, Name) and isinstance(gold, Name):
            if answer.letters == gold.letters:
                return True
            if self.rules.ignore_case and answer.letters.lower() == gold.letters.lower():
                return True
            if not says_product(gold.letters):
                return same_names(answer, gold)
        verdict = self._formulas(answer, gold)
        product = not isinstance(gold, Name) or says_product(gold.letters)
        return verdict if verdict is not True or product else None

    def _formulas(self, answer: Form, gold: Form) -> bool | None:
        left, right = value_of(answer), value_of(gold)
        if left is None or right is None:
            return self.prove(answer, gold)
        try:
            if algebra.same_form(left, right):
                return True
            if isinstance(gold, Number) and self._rounds(left, gold.literal):
                return True
            if isinstance(answer, Number) and self._is_float_of(answer.literal, right):
                return True
            if self._near(left, right):
                return True
            if self.rules.any_constant and (
                integrated(left, right) or same_but_for_constants(left, right)
            ):
                return True
            if _letters_only(answer, gold, self.rules):
                return True
            if algebra.is_canonical(left) and algebra.is_canonical(right):
                return False
            if clearly_differ(left, right):
                return False
            if _same_squares(left, right):
                return True
        except NotClosed:
            return self.prove(answer, gold)
        return self.prove(answer, gold)

    def _same_number(self, value: Fraction, gold: Literal, *, literal: bool) -> bool:
        if value == gold.value:
            return True
        if abs(value - gold.value) <= abs(gold.value) * Fraction(self.rules.relative_tolerance):
            return True
        if not self.rules.round_to_gold or gold.unit_in_last_place is None:
            return False
        precise = gold.num_decimals >= 2 or gold.num_digits >= 3
        return (precise or not literal) and rounds_to(value, gold)

    def _rounds(self, value: Value, gold: Literal) -> bool:
        """Whether a formula rounds to a decimal gold."""
        if not self.rules.round_to_gold or gold.unit_in_last_place is None:
            return False
        exact = value.rational
        if exact is not None:
            return self._same_number(exact, gold, literal=True)
        if algebra.symbols(value):
            return False
        size = real(value)
        return size is not None and rounds_to(Fraction(size), gold)

    def _is_float_of(self, answer: Literal, gold: Value) -> bool:
        """Whether a decimal of full precision is a rounding of an exact number."""
        digits = self.rules.full_precision
        if not digits or answer.num_digits < digits or algebra.symbols(gold):
            return False
        size = real(gold)
        if size is None:
            return False
        return abs(answer.value - Fraction(size)) <= abs(answer.value) / 10 ** (digits - 1)

    def _near(self, answer: Value, gold: Value) -> bool:
        """Whether two real numbers are as near as the rules allow."""
        if not self.rules.relative_tolerance or algebra.symbols(answer) or algebra.symbols(gold):
            return False
        ours, theirs = real(answer), real(gold)
        if ours is None or theirs is None:
            return False
        return abs(ours - theirs) <= abs(theirs) * self.rules.relative_tolerance

    def _choices(self, answer: Form, gold: Form) -> bool | None:
        if isinstance(answer, Choice) and isinstance(gold, Choice):
            if answer.letter != gold.letter:
                return False
            if answer.content is None or gold.content is None:
                return True
            return None if self.same(answer.content, gold.content) is False else True
        choice, other = (answer, gold) if isinstance(answer, Choice) else (gold, answer)
        assert isinstance(choice, Choice)
        letter = _lone_letter(other)
        if letter is not None and letter.upper() == choice.letter:
            return True
        if choice.content is None:
            return False
        if isinstance(answer, Choice):
            return self.same(choice.content, gold)
        return self.same(answer, choice.content)

    def _matrices(self, answer: Form, gold: Form) -> bool | None:
        if isinstance(answer, Matrix) and isinstance(gold, Matrix):
            if answer.determinant != gold.determinant:
                return False
            if [len(row) for row in answer.rows] != [len(row) for row in gold.rows]:
                return False
            cells = zip(_flat(answer), _flat(gold), strict=True)
            return _all(self.same(a, b) for a, b in cells)
        matrix, other = (answer, gold) if isinstance(answer, Matrix) else (gold, answer)
        assert isinstance(matrix, Matrix)
        if isinstance(other, Opaque):
            return None
        if matrix.determinant:
            grid = entries(matrix)
            value = None if grid is None else determinant(grid)
            if value is None or value_of(other) is None:
                return None
            one = Closed(value)
            return self.same(one, gold) if matrix is answer else self.same(answer, one)
        flat = len(matrix.rows) == 1 or len(matrix.rows[0]) == 1
        if not flat or not self.rules.vector_as_tuple:
            return False
        cells = _flat(matrix)
        items = measures.vector_entries(other, len(cells))
        if items is None:
            if not isinstance(other, Sequence) or other.kind == "set":
                return False
            items = [*other.items]
        if len(cells) != len(items):
            return False
        if matrix is answer:
            return _all(map(self.same, cells, items))
        return _all(map(self.same, items, cells))

    def _sequences(self, answer: Sequence, gold: Sequence) -> bool | None:
        kinds = {answer.kind, gold.kind}
        if "tuple" in kinds and "bracket" in kinds and len(gold.items) == 2:
            return False
        if "set" in kinds and kinds & {"tuple", "bracket"}:
            return False
        loose = {"list", "alternatives"}
        ordered = bool(kinds & {"tuple", "bracket"}) or (
            self.rules.ordered_lists and kinds <= loose
        )
        if kinds == {"set"} and self.rules.ordered_sets:
            ordered = True
        told = kinds <= loose and self._order_is_told(answer, gold)
        if told and not has_labels(gold) and has_labels(answer) and not are_truth_values(gold):
            ordered_verdict = _all(map(self.same, _spread(answer), _spread(gold)))
            if ordered_verdict or len(answer.items) != len(gold.items):
                return ordered_verdict
            return None if self._matching(_spread(answer), _spread(gold)) else False
        ordered = ordered or told
        if kinds & loose and kinds - loose and ordered and not self.rules.brackets_optional:
            return False
        ours, theirs = _spread(answer), _spread(gold)
        if kinds == {"set"}:
            ours, theirs = self._distinct(ours), self._distinct(theirs)
        if len(ours) != len(theirs):
            return False
        if ordered:
            return _all(map(self.same, ours, theirs))
        return self._matching(ours, theirs)

    def _order_is_told(self, answer: Sequence, gold: Sequence) -> bool:
        """Whether names, truth values or dots at the end say that the order of a list counts."""
        if answer.ordered or gold.ordered:
            return True
        if not self.rules.ordered_assignments:
            return False
        for one, other in ((answer, gold), (gold, answer)):
            if is_assigned(one) and not has_labels(other):
                return True
        return are_truth_values(gold)

    def _distinct(self, items: Items[Form]) -> list[Form]:
        kept: list[Form] = []
        for item in items:
            if not any(self.same(item, other) for other in kept):
                kept.append(item)
        return kept

    def _matching(self, answer: Items[Form], gold: Items[Form]) -> bool | None:
        """Whether every gold item has an answer item of its own."""
        left, unsure = list(answer), False
        open_golds = []
        for item in gold:
            found = next((x for x in left if self.same(x, item)), None)
            if found is None:
                open_golds.append(item)
            else:
                left.remove(found)
        for item in open_golds:
            if not any(self.same(x, item) is None for x in left):
                return False
            unsure = True
        return None if unsure else True


def _as_reals(form: Form, beside: Form) -> Reals | None:
    """A set of reals, also one that another form writes if the other side is beyond doubt one."""
    if isinstance(form, Reals):
        return form
    if isinstance(form, Special) and form.name == "all reals":
        return ALL
    if not isinstance(beside, Reals):
        return None
    if isinstance(form, Special) and form.name == "no solution":
        return Reals(())
    if isinstance(form, Sequence) and form.kind == "set":
        return measures.points(form)
    return as_interval(form)


def _opaque(answer: Form, gold: Form) -> bool:
    return isinstance(answer, Opaque) or isinstance(gold, Opaque)


def _letters_only(answer: Form, gold: Form, rules: GradeRules) -> bool:
    """Lone letters that differ in case."""
    left, right = _lone_letter(answer), _lone_letter(gold)
    return bool(rules.ignore_case and left and right and left.lower() == right.lower())


def _lone_letter(form: Form) -> str | None:
    if not isinstance(form, Closed) or len(form.value.num) != 1 or len(form.value.den) != 1:
        return None
    ((mono, coefficient),) = form.value.num.items()
    if coefficient != 1 or len(mono) != 1:
        return None
    ((name, exponent),) = mono
    return name if exponent == 1 and isinstance(name, str) and len(name) == 1 else None


def _flat(matrix: Matrix) -> list[Form]:
    return [cell for row in matrix.rows for cell in row]


def _same_squares(left: Value, right: Value) -> bool:
    """Whether two real numbers of one sign have one square, as √(7 + 4√3) and 2 + √3 have."""
    if algebra.symbols(left) or algebra.symbols(right):
        return False
    one, other = real(left), real(right)
    if one is None or other is None or one * other <= 0:
        return False
    return algebra.same_form(powers.square(left), powers.square(right))


def _is_hedge(answer: Form, gold: Form) -> bool:
    return (
        isinstance(answer, Sequence)
        and answer.kind == "alternatives"
        and not isinstance(gold, Sequence)
    )


def _spread(sequence: Form) -> list[Form]:
    """Items, with those that are several answers themselves (1, ±2) spread out."""
    assert isinstance(sequence, Sequence)
    items: list[Form] = []
    for item in sequence.items:
        if isinstance(item, Sequence) and item.kind in ("list", "alternatives"):
            items.extend(item.items)
        else:
            items.append(item)
    return items


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    unsure = False
    for verdict in verdicts:
        if verdict is False:
            return False
        unsure |= verdict is None
    return None if unsure else True


def _any(verdicts: Iterable[bool | None]) -> bool | None:
    unsure = False
    for verdict in verdicts:
        if verdict:
            return True
        unsure |= verdict is None
    return None if unsure else False
