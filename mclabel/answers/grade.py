"""Grades one pair by the layers that run in the caller's process.

An answer is parsed to a form, its structured value. The parser may not understand every word of an
answer, as in `7 or so`, `7 is too small` or `x: 7`. Such an answer may mean the gold although the
part that was parsed differs from it. Its verdict is then unknown rather than wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from mclabel.answers.comparison.compare import FormComparer
from mclabel.answers.comparison.formulas import get_single_letter
from mclabel.answers.effort import TooMuchWork, set_work_limit
from mclabel.answers.extraction.extract import extract_boxed
from mclabel.answers.reading.normalize import MAX_LENGTH, normalize, remove_spaces
from mclabel.answers.reading.programs import same_python_literals
from mclabel.answers.reading.structure import find_integer_set_name, read_form
from mclabel.answers.values import algebra
from mclabel.answers.values.forms import (
    Choice,
    ClosedForm,
    Equation,
    Form,
    ItemCollection,
    Name,
    Number,
    Quantity,
    Ratio,
    SpecialValue,
    UnparsedText,
    Words,
)
from mclabel.answers.values.literals import Literal, read_literal
from mclabel.answers.values.monomials import NotClosed
from mclabel.answers.workers.guard import explain_refused_form
from mclabel.core.records import Verdict

CHECKER_VERSION = "10"
"""Version of the checker, which every shard stores. Any change of a verdict increases it."""


GUESS = "guess"
"""Prefix of the reason of a grade whose answer is a guess: a number that the completion neither
marks nor states as its answer."""
IN_WORDS = "in_words"
"""Reason of an unknown verdict on a text whose last sentence states a number only in unclear
words."""
NO_STACK = "no_stack"
"""Reason of an unknown verdict because the caller's stack is nearly full. The same pair may have a
verdict in another call."""


@dataclass(frozen=True, kw_only=True)
class Grade:
    """A verdict with its reason and the layer that decided it."""

    verdict: Verdict
    reason: str
    """Machine-readable, e.g. `equal`, `different`, `no_answer`, `guess_equal`, `timeout`."""
    layer: str
    """The layer that decided: `extract`, `text`, `number`, `form`, `sympy` or `none`."""


def mark_as_guess(grade: Grade) -> Grade:
    """Return a grade whose reason says that the answer is a guess."""
    return replace(grade, reason=f"{GUESS}_{grade.reason}")


@dataclass(frozen=True, slots=True)
class NormalizedAnswer:
    """A normalised answer with the values that the first layers compare."""

    text: str
    key: str
    """Text without spaces and a final full stop. Answers with equal keys are equal."""
    literal: Literal | None
    """Value of the answer if it is a number; None otherwise."""


def grade_in_process(answer: str, gold: str, *, units_optional: bool) -> Grade | tuple[str, str]:
    """Grade an answer against a gold.

    If only a worker process can decide, return the normalised answer and the normalised gold.

    Args:
        answer: text of the answer.
        gold: text of the gold.
        units_optional: True if 5 cm equals 5.
    """
    if len(answer) > MAX_LENGTH or len(gold) > MAX_LENGTH:
        return _RIGHT_TEXT if answer.strip() == gold.strip() else _TOO_LONG
    written = same_python_literals(answer, gold)
    if written is not None:
        return _DECIDED[written, "form"]
    normalized_answer, normalized_gold = normalize_answer(answer), normalize_gold(gold)
    if normalized_answer.key == normalized_gold.key:
        return _RIGHT_TEXT if normalized_answer.key else _EMPTY
    if not normalized_answer.key:
        return _EMPTY
    try:
        same, needs_worker = _compare_normalized(
            normalized_answer, normalized_gold, gold, units_optional=units_optional
        )
    except (NotClosed, ArithmeticError):  # a number is too large for exact arithmetic
        same, needs_worker = None, False
    except TooMuchWork:
        return _TOO_MUCH_WORK
    except RecursionError:
        return _NO_STACK
    finally:
        set_work_limit(None)
    if same is not None:
        literal = normalized_answer.literal is not None and normalized_gold.literal is not None
        return _DECIDED[same, "number" if literal else "form"]
    return (normalized_answer.text, normalized_gold.text) if needs_worker else _UNSURE


def _compare_normalized(
    normalized_answer: NormalizedAnswer,
    normalized_gold: NormalizedAnswer,
    gold: str,
    *,
    units_optional: bool,
) -> tuple[bool | None, bool]:
    """Return whether an answer equals a gold, or None; and True if a worker should decide.

    Args:
        normalized_answer: normalised answer.
        normalized_gold: normalised gold.
        gold: gold as it is written.
        units_optional: True if 5 cm equals 5.
    """
    needs_worker = False

    def record_provable(left: Form, right: Form) -> None:
        nonlocal needs_worker
        needs_worker = needs_worker or (
            explain_refused_form(left) is None and explain_refused_form(right) is None
        )

    set_work_limit()
    left = (
        Number(normalized_answer.literal)
        if normalized_answer.literal
        else read_form(normalized_answer.text)
    )
    right = Number(normalized_gold.literal) if normalized_gold.literal else read_gold_form(gold)
    if right is None:
        raise TooMuchWork
    set_work_limit()
    comparison = FormComparer(units_optional, record_provable)
    same = comparison.compare(left, right)
    if same and {
        find_integer_set_name(normalized_answer.text),
        find_integer_set_name(normalized_gold.text),
    } == {"Z", "N"}:
        return None, False
    if (
        same is False
        and not (normalized_answer.literal and normalized_gold.literal)
        and (
            may_mean_gold_if_reread(left, right, comparison.compare)
            or _are_none_and_zero(normalized_answer, normalized_gold)
        )
    ):
        return None, False
    return same, needs_worker


def _are_none_and_zero(
    normalized_answer: NormalizedAnswer, normalized_gold: NormalizedAnswer
) -> bool:
    """Return whether one of an answer and a gold is 0 and the other is the word "none".

    "None" may mean that there is no solution, or that a count is 0.
    """
    word, number = (
        (normalized_answer, normalized_gold)
        if normalized_gold.literal
        else (normalized_gold, normalized_answer)
    )
    is_none = word.key.lower() in ("none", "there are none")
    return is_none and number.literal is not None and number.literal.value == 0


def normalize_answer(answer: str) -> NormalizedAnswer:
    """Return an answer in normalised form, without a box around it."""
    text = normalize(answer)
    if "\\boxed" in text or "\\fbox" in text:
        text = normalize(extract_boxed(text) or text)
    literal = read_literal(text)
    key = remove_spaces(text) if literal is None else text
    if key.endswith(".") and not key.endswith(".."):
        key = key[:-1]
    return NormalizedAnswer(text, key, literal)


normalize_gold = lru_cache(maxsize=8192)(normalize_answer)
"""Cached form of `normalize_answer` for golds, each of which is compared with many answers."""


@lru_cache(maxsize=8192)
def read_gold_form(gold: str) -> Form | None:
    """Return the form of a gold; None if reading it takes too much work."""
    set_work_limit()
    try:
        return read_form(normalize_gold(gold).text)
    except TooMuchWork:
        return None
    finally:
        set_work_limit(None)


def answer_key(answer: str) -> str:
    """Return a key for grouping answers.

    Answers have the same key if they are equal as exact numbers or as normalised texts.
    """
    if len(answer) > MAX_LENGTH:
        return answer.strip()
    parsed = normalize_answer(answer)
    return parsed.key if parsed.literal is None else str(parsed.literal.value)


_DECIDED = {
    (same, layer): Grade(
        verdict=Verdict.RIGHT if same else Verdict.WRONG,
        reason="equal" if same else "different",
        layer=layer,
    )
    for same in (True, False)
    for layer in ("number", "form")
}
_RIGHT_TEXT = Grade(verdict=Verdict.RIGHT, reason="equal", layer="text")
_EMPTY = Grade(verdict=Verdict.WRONG, reason="empty_answer", layer="text")
_TOO_LONG = Grade(verdict=Verdict.UNKNOWN, reason="too_long", layer="text")
_TOO_MUCH_WORK = Grade(verdict=Verdict.UNKNOWN, reason="too_much_work", layer="none")
_NO_STACK = Grade(verdict=Verdict.UNKNOWN, reason=NO_STACK, layer="none")
_UNSURE = Grade(verdict=Verdict.UNKNOWN, reason="not_comparable", layer="none")


CompareForms = Callable[[Form, Form], bool | None]


def may_mean_gold_if_reread(answer: Form, gold: Form, compare_forms: CompareForms) -> bool:
    """Return whether an answer may mean the gold if its words that were not understood are read.

    Args:
        answer: parsed answer, which differs from the gold as far as it was understood.
        gold: parsed gold.
        compare_forms: function that compares an answer with a gold; None if undecided.
    """
    if isinstance(gold, Words | Name | SpecialValue):
        return False
    if isinstance(answer, Equation):
        return may_mean_gold_if_reread(answer.right, gold, compare_forms)
    if isinstance(answer, Quantity):
        return _is_misread_sentence(answer)
    named = _convert_ratios_to_equations(answer)
    if named is not None:
        items = named.items if isinstance(named, ItemCollection) else ()
        return any(compare_forms(part, gold) is not False for part in (named, *items))
    if not isinstance(answer, ItemCollection) or answer.kind not in ("list", "alternatives"):
        return False
    if not any(map(_is_unread_form, answer.items)) or isinstance(gold, ItemCollection):
        return False
    return any(
        compare_forms(item, gold) is not False or may_mean_gold_if_reread(item, gold, compare_forms)
        for item in answer.items
    )


def _convert_ratios_to_equations(answer: Form) -> Form | None:
    """Convert `x: 3, y: 4`, which was parsed as ratios, to equations.

    Return None for a form without names.
    """
    if isinstance(answer, ItemCollection) and answer.kind == "list":
        named = [
            named_item
            for item in answer.items
            if (named_item := _convert_ratios_to_equations(item)) is not None
        ]
        return replace(answer, items=tuple(named)) if len(named) == len(answer.items) else None
    if isinstance(answer, Choice) and isinstance(answer.content, ItemCollection):  # A: 3, B: 4
        items = answer.content.items
        listed = any(isinstance(item, Choice) for item in items)
        return (
            replace(answer.content, items=tuple(map(_get_choice_content, items)))
            if listed
            else None
        )
    if isinstance(answer, Ratio) and len(answer.terms) == 2:
        name, value = answer.terms
        label = get_single_letter(name)
        return Equation(name, value, label) if label and not get_single_letter(value) else None
    return None


def _get_choice_content(item: Form) -> Form:
    return item.content if isinstance(item, Choice) and item.content is not None else item


def _is_misread_sentence(quantity: Quantity) -> bool:
    """Return whether a quantity is a sentence whose short words were parsed as variables.

    For example, `7 is the answer` is parsed as 7·i·s answers.
    """
    amount = quantity.amount
    return (
        quantity.unit.is_counted
        and isinstance(amount, ClosedForm)
        and bool(algebra.get_free_symbols(amount.value))
    )


def _is_unread_form(item: Form) -> bool:
    if isinstance(item, Equation):
        return _is_unread_form(item.left) and not item.label
    return isinstance(item, Words | Name | UnparsedText) or (
        isinstance(item, Quantity) and _is_misread_sentence(item)
    )
