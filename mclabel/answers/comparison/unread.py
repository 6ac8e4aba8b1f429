"""Which answers say more than was read of them, so that they may mean a gold that they differ from.

Such an answer is not wrong but undecided: `7 or so`, `7 if n is even`, `n = 7 is the smallest`.
"""

from __future__ import annotations

from collections.abc import Callable

from mclabel.answers.values import algebra
from mclabel.answers.values.forms import (
    Closed,
    Equation,
    Form,
    Name,
    Opaque,
    Quantity,
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
    if not isinstance(answer, Sequence) or answer.kind not in ("list", "alternatives"):
        return False
    if not any(map(_is_unread, answer.items)) or isinstance(gold, Sequence):
        return False
    return any(
        same(item, gold) is not False or says_more(item, gold, same) for item in answer.items
    )


def _is_prose(quantity: Quantity) -> bool:
    """Whether short words were read as letters: `7 is the answer` as 7·i·s answers."""
    counted = any(name.startswith("noun ") for name, _ in quantity.unit.dimension)
    amount = quantity.amount
    return counted and isinstance(amount, Closed) and bool(algebra.symbols(amount.value))


def _is_unread(item: Form) -> bool:
    if isinstance(item, Equation):
        return _is_unread(item.left) and not item.label
    return isinstance(item, Words | Name | Opaque) or (
        isinstance(item, Quantity) and _is_prose(item)
    )
