"""Which answers say more than was read of them, so that they may mean a gold that they differ from.

Such an answer is not wrong but undecided: `7 or so`, `7 is too small`, `x: 7`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mclabel.answers.comparison.formulas import lone_letter
from mclabel.answers.values import algebra
from mclabel.answers.values.forms import (
    Choice,
    Closed,
    Equation,
    Form,
    Name,
    Opaque,
    Quantity,
    Ratio,
    Sequence,
    Special,
    Words,
)

Same = Callable[[Form, Form], bool | None]


def says_more(answer: Form, gold: Form, same: Same) -> bool:
    """Whether words of an answer are left over beside a value that may be the gold's.

    Args:
        answer: differs from the gold as far as it was read.
        gold: what it is compared with.
        same: compares an answer with a gold.
    """
    if isinstance(gold, Words | Name | Special):
        return False
    if isinstance(answer, Equation):
        return says_more(answer.right, gold, same)
    if isinstance(answer, Quantity):
        return _is_prose(answer)
    named = _as_named(answer)
    if named is not None:
        items = named.items if isinstance(named, Sequence) else ()
        return any(same(one, gold) is not False for one in (named, *items))
    if not isinstance(answer, Sequence) or answer.kind not in ("list", "alternatives"):
        return False
    if not any(map(_is_unread, answer.items)) or isinstance(gold, Sequence):
        return False
    return any(
        same(item, gold) is not False or says_more(item, gold, same) for item in answer.items
    )


def _as_named(answer: Form) -> Form | None:
    """`x: 3, y: 4`, which was read as ratios, as named values; None of what has no names."""
    if isinstance(answer, Sequence) and answer.kind == "list":
        named = [one for item in answer.items if (one := _as_named(item)) is not None]
        return replace(answer, items=tuple(named)) if len(named) == len(answer.items) else None
    if isinstance(answer, Choice) and isinstance(answer.content, Sequence):  # A: 3, B: 4
        items = answer.content.items
        listed = any(isinstance(item, Choice) for item in items)
        return replace(answer.content, items=tuple(map(_content, items))) if listed else None
    if isinstance(answer, Ratio) and len(answer.terms) == 2:
        name, value = answer.terms
        label = lone_letter(name)
        return Equation(name, value, label) if label and not lone_letter(value) else None
    return None


def _content(item: Form) -> Form:
    return item.content if isinstance(item, Choice) and item.content is not None else item


def _is_prose(quantity: Quantity) -> bool:
    """Whether short words were read as letters: `7 is the answer` as 7·i·s answers."""
    amount = quantity.amount
    return (
        quantity.unit.is_counted
        and isinstance(amount, Closed)
        and bool(algebra.symbols(amount.value))
    )


def _is_unread(item: Form) -> bool:
    if isinstance(item, Equation):
        return _is_unread(item.left) and not item.label
    return isinstance(item, Words | Name | Opaque) or (
        isinstance(item, Quantity) and _is_prose(item)
    )
