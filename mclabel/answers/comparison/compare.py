"""Compares two parsed answers (forms): they are equal, different or undecided.

A comparison returns True, False or None, where None means undecided. A pair of formulas that exact
arithmetic cannot decide is passed to `prove`. In a worker, `prove` calls sympy. In the caller's
process it only records that a worker is needed, and returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from mclabel.answers.comparison import measures
from mclabel.answers.comparison.equations import (
    are_proportional,
    convert_to_congruence,
    equality_holds,
    is_congruence,
    same_equation_and_value,
    same_equations,
)
from mclabel.answers.comparison.formulas import (
    FULL_PRECISION,
    equals_or_rounds_to,
    get_single_letter,
    is_float_rounding,
    same_formulas,
)
from mclabel.answers.comparison.names import (
    are_all_verdicts_true,
    compare_different_names,
    is_variable_product,
    lists_same_option_letters,
    read_option_letters,
    same_sequences,
)
from mclabel.answers.effort import spend_work
from mclabel.answers.reading.relations import convert_pair_to_interval
from mclabel.answers.values import algebra
from mclabel.answers.values.forms import (
    ApproximatedForm,
    BasedNumber,
    Choice,
    ClosedForm,
    Equation,
    Form,
    ItemCollection,
    Matrix,
    Name,
    Number,
    Quantity,
    Ratio,
    Reals,
    Relation,
    RemarkedForm,
    SpecialValue,
    TimeOfDay,
    UnparsedText,
    Words,
    compute_determinant,
    get_cell_values,
    get_closed_value,
)
from mclabel.answers.values.reals import ALL, same_set

Prover = Callable[[Form, Form], bool | None]
"""A function that compares two forms that exact arithmetic cannot decide. It returns None if it
cannot decide either."""
_ROUNDED = Fraction(1, 20)
"""Largest accepted relative difference between a value and the approximation after its `≈`."""


@dataclass(frozen=True, slots=True)
class FormComparer:
    """Compares answers with golds."""

    units_optional: bool
    """True if 5 cm equals 5, that is, if a unit on only one side is ignored."""
    prove_equality: Prover
    """Function that compares two forms that exact arithmetic cannot decide."""

    def compare(self, answer: Form, gold: Form) -> bool | None:
        """Return whether `answer` is equivalent to `gold`; None if undecided."""
        spend_work(2)
        if isinstance(answer, Number) and isinstance(gold, Number):
            if answer.literal.num_digits >= FULL_PRECISION and is_float_rounding(
                answer.literal, algebra.make_number_value(gold.literal.value)
            ):
                return True
            return equals_or_rounds_to(answer.literal.value, gold.literal)
        for look in (
            self._try_compare_inner_values,
            self._try_compare_collections,
            self._try_compare_real_sets,
        ):
            handled, verdict = look(answer, gold)
            if handled:
                return verdict
        return self._compare_scalars(answer, gold)

    def _try_compare_inner_values(self, answer: Form, gold: Form) -> tuple[bool, bool | None]:
        """Compare remarks, equations, choices and approximations by the values inside them.

        Returns:
            True if one of the forms is of such a type, and then the verdict. The verdict is None if
            undecided.
        """
        if is_congruence(answer) is not is_congruence(gold):
            ours, theirs = convert_to_congruence(answer), convert_to_congruence(gold)
            if ours is not answer or theirs is not gold:
                return True, self.compare(ours, theirs)
        if isinstance(answer, RemarkedForm) or isinstance(gold, RemarkedForm):
            return True, self._compare_remarked_values(answer, gold)
        if isinstance(answer, Equation) and isinstance(gold, Equation):
            return True, same_equations(answer, gold, self.compare)
        if isinstance(gold, Equation):
            return True, same_equation_and_value(gold, answer, self.compare, equation_is_gold=True)
        if isinstance(answer, Equation) and not isinstance(gold, Relation):
            return True, same_equation_and_value(answer, gold, self.compare, equation_is_gold=False)
        if isinstance(answer, ApproximatedForm) or isinstance(gold, ApproximatedForm):
            return True, self._compare_approximations(answer, gold)
        if isinstance(answer, Choice) or isinstance(gold, Choice):
            return True, self._compare_choices(answer, gold)
        return False, None

    def _compare_remarked_values(self, answer: Form, gold: Form) -> bool | None:
        """Compare two forms of which one is a value with a remark, such as `42 (forty-two)`.

        The value counts, and so does the remark if it restates the value.
        """
        if (
            isinstance(answer, RemarkedForm)
            and isinstance(gold, RemarkedForm)
            and answer.condition == gold.condition != ""
        ):
            return self.compare(answer.value, gold.value)
        remarked = answer if isinstance(answer, RemarkedForm) else gold
        assert isinstance(remarked, RemarkedForm)
        other = gold if remarked is answer else answer
        claims = [form for form in (remarked.value, remarked.remark) if form is not None]
        pairs = [(form, other) if remarked is answer else (other, form) for form in claims]
        verdict = _is_any_verdict_true(self.compare(*pair) for pair in pairs)
        if remarked.remark is not None and (
            self.compare(remarked.value, remarked.remark)
            or self.compare(remarked.remark, remarked.value)
        ):
            return verdict
        return False if verdict is False and not isinstance(other, ItemCollection) else None

    def _compare_approximations(self, answer: Form, gold: Form) -> bool | None:
        """Compare two forms of which one has the form `exact ≈ stated`.

        The exact parts decide first. The approximation counts if it belongs to the gold, or if the
        exact part of the answer is a formula with variables.
        """
        if isinstance(answer, ApproximatedForm):
            exact = self.compare(answer.exact, gold)
            if (
                equality_holds(
                    answer.exact, answer.approximation, self.compare, relative_tolerance=_ROUNDED
                )
                is False
            ):
                stated = self.compare(answer.approximation, gold)
                return None if stated else stated
            value = get_closed_value(answer.exact)
            if exact or (value is not None and not algebra.get_free_symbols(value)):
                return exact
            return self.compare(answer.approximation, gold)
        assert isinstance(gold, ApproximatedForm)
        exact = self.compare(answer, gold.exact)
        if exact:
            return exact
        stated = self.compare(answer, gold.approximation)
        return stated or (exact if stated is False else None)

    def _try_compare_collections(self, answer: Form, gold: Form) -> tuple[bool, bool | None]:
        if isinstance(answer, Matrix) or isinstance(gold, Matrix):
            return True, self._compare_matrices(answer, gold)
        if isinstance(answer, ItemCollection) and isinstance(gold, ItemCollection):
            return True, same_sequences(answer, gold, self.compare)
        for sequence, other, swap in ((answer, gold, False), (gold, answer, True)):
            if not isinstance(sequence, ItemCollection) or isinstance(
                other, Reals | SpecialValue | Relation
            ):
                continue
            options = read_option_letters(other) if sequence.kind == "list" else ""
            if options and read_option_letters(sequence) == options:
                return True, True
            if isinstance(other, Name) and sequence.kind == "list":
                letters = [get_single_letter(item) for item in sequence.items]
                return True, lists_same_option_letters(
                    other, [x for x in letters if x]
                ) and None not in letters
            if sequence is answer and sequence.kind == "alternatives":
                return True, are_all_verdicts_true(
                    self.compare(item, gold) for item in sequence.items
                )
            if sequence.single_value is not None and sequence.kind == "tuple":
                return True, self.compare(other, sequence.single_value) if swap else self.compare(
                    sequence.single_value, other
                )
            if sequence.single_value is not None:
                short = (
                    isinstance(sequence.single_value, Number)
                    and sequence.single_value.literal.num_decimals == 1
                )
                if not short or (
                    not swap and get_closed_value(sequence.items[0]) == algebra.make_number_value(0)
                ):
                    return True, self.compare(
                        other, sequence.single_value
                    ) if swap else self.compare(sequence.single_value, other)
            if len(sequence.items) == 1 and sequence.kind == "set":
                item = sequence.items[0]
                return True, self.compare(other, item) if swap else self.compare(item, other)
            entries = measures.read_vector_entries(other, len(sequence.items))
            if entries is not None and sequence.kind == "tuple":
                pairs = zip(entries, sequence.items, strict=True)
                return True, are_all_verdicts_true(
                    self.compare(i, e) if swap else self.compare(e, i) for e, i in pairs
                )
            reals = convert_pair_to_interval(sequence)
            if isinstance(other, UnparsedText) and reals is not None:
                return True, self.prove_equality(other, reals)
            return True, None if isinstance(other, UnparsedText) else False
        return False, None

    def _try_compare_real_sets(self, answer: Form, gold: Form) -> tuple[bool, bool | None]:
        left, right = _convert_to_reals(answer, gold), _convert_to_reals(gold, answer)
        if left is None and right is None:
            return False, None
        if left is not None and right is not None:
            return True, same_set(left, right)
        other = gold if left is not None else answer
        return True, self.prove_equality(answer, gold) if isinstance(other, UnparsedText) else False

    def _compare_scalars(self, answer: Form, gold: Form) -> bool | None:
        if isinstance(answer, Ratio | TimeOfDay) or isinstance(gold, Ratio | TimeOfDay):
            return measures.same_times_or_ratios(answer, gold, self.compare)
        if isinstance(answer, BasedNumber) or isinstance(gold, BasedNumber):
            return measures.same_based_numbers(answer, gold)
        if isinstance(answer, Quantity) or isinstance(gold, Quantity):
            return measures.same_quantity(
                answer, gold, self.compare, units_optional=self.units_optional
            )
        if isinstance(answer, Words) or isinstance(gold, Words):
            return measures.same_words_or_number(answer, gold)
        if isinstance(answer, Name) or isinstance(gold, Name):
            return self._compare_names(answer, gold)
        if isinstance(answer, Relation) and isinstance(gold, Relation):
            return are_proportional(
                answer.difference, gold.difference, requires_positive_factor=True
            ) and (answer.is_strict == gold.is_strict)
        if isinstance(answer, Relation) or isinstance(gold, Relation):
            is_opaque = isinstance(answer, UnparsedText) or isinstance(gold, UnparsedText)
            return self.prove_equality(answer, gold) if is_opaque else False
        if isinstance(answer, SpecialValue) or isinstance(gold, SpecialValue):
            if isinstance(answer, SpecialValue) and isinstance(gold, SpecialValue):
                return _are_same_special_values(answer.name, gold.name)
            other = gold if isinstance(answer, SpecialValue) else answer
            return None if isinstance(other, UnparsedText) else False
        return self._compare_formulas(answer, gold)

    def _compare_names(self, answer: Form, gold: Form) -> bool | None:
        """Compare two forms of which one is a name.

        Two names are compared by their letters, or as products of variables if the gold's letters
        usually denote variables, such as xy.
        """
        if isinstance(answer, Name) and isinstance(gold, Name):
            if answer.letters.lower() == gold.letters.lower():
                return True
            if not is_variable_product(gold.letters):
                return compare_different_names(answer, gold)
        verdict = self._compare_formulas(answer, gold)
        product = not isinstance(gold, Name) or is_variable_product(gold.letters)
        return verdict if verdict is not True or product else None

    def _compare_formulas(self, answer: Form, gold: Form) -> bool | None:
        verdict = same_formulas(answer, gold)
        return self.prove_equality(answer, gold) if verdict is None else verdict

    def _compare_choices(self, answer: Form, gold: Form) -> bool | None:
        if isinstance(answer, Choice) and isinstance(gold, Choice):
            if answer.letter != gold.letter:
                return False
            if answer.content is None or gold.content is None:
                return True
            return None if self.compare(answer.content, gold.content) is False else True
        choice, other = (answer, gold) if isinstance(answer, Choice) else (gold, answer)
        assert isinstance(choice, Choice)
        letter = get_single_letter(other)
        if letter is not None and letter.upper() == choice.letter:
            return True
        if choice.content is None:
            return False
        if isinstance(answer, Choice):
            return self.compare(choice.content, gold)
        return self.compare(answer, choice.content)

    def _compare_matrices(self, answer: Form, gold: Form) -> bool | None:
        if isinstance(answer, Matrix) and isinstance(gold, Matrix):
            if answer.is_determinant != gold.is_determinant:
                return False
            if [len(row) for row in answer.rows] != [len(row) for row in gold.rows]:
                return False
            cells = zip(_list_matrix_cells(answer), _list_matrix_cells(gold), strict=True)
            return are_all_verdicts_true(self.compare(a, b) for a, b in cells)
        matrix, other = (answer, gold) if isinstance(answer, Matrix) else (gold, answer)
        assert isinstance(matrix, Matrix)
        if isinstance(other, UnparsedText):
            return None
        if matrix.is_determinant:
            grid = get_cell_values(matrix)
            value = None if grid is None else compute_determinant(grid)
            if value is None or get_closed_value(other) is None:
                return None
            scalar = ClosedForm(value)
            return self.compare(scalar, gold) if matrix is answer else self.compare(answer, scalar)
        flat = len(matrix.rows) == 1 or len(matrix.rows[0]) == 1
        if not flat:
            return False
        flat_cells = _list_matrix_cells(matrix)
        items = measures.read_vector_entries(other, len(flat_cells))
        if items is None:
            if not isinstance(other, ItemCollection) or other.kind == "set":
                return False
            items = [*other.items]
        if len(flat_cells) != len(items):
            return False
        if matrix is answer:
            return are_all_verdicts_true(map(self.compare, flat_cells, items))
        return are_all_verdicts_true(map(self.compare, items, flat_cells))


def _are_same_special_values(answer: str, gold: str) -> bool | None:
    """Return whether two special values, such as `∞` and `undefined`, are equal.

    "Diverges" may mean infinite or undefined, so its comparison with either is undecided (None).
    """
    if answer != gold and "diverges" in (answer, gold):
        return None if {answer, gold} & {"∞", "-∞", "undefined"} else False
    return answer == gold


def _convert_to_reals(form: Form, other_form: Form) -> Reals | None:
    """Read a form as a set of reals, or return None.

    Finite sets, pairs and "no solution" are read as sets of reals only if `other_form`, the other
    side of the comparison, is a set of reals.
    """
    if isinstance(form, Reals):
        return form
    if isinstance(form, SpecialValue) and form.name == "all reals":
        return ALL
    if not isinstance(other_form, Reals):
        return None
    if isinstance(form, SpecialValue) and form.name == "no solution":
        return Reals(())
    if isinstance(form, ItemCollection) and form.kind == "set":
        return measures.convert_collection_to_reals(form)
    return convert_pair_to_interval(form)


def _list_matrix_cells(matrix: Matrix) -> list[Form]:
    return [cell for row in matrix.rows for cell in row]


def _is_any_verdict_true(verdicts: Iterable[bool | None]) -> bool | None:
    unsure = False
    for verdict in verdicts:
        if verdict:
            return True
        unsure |= verdict is None
    return None if unsure else False
