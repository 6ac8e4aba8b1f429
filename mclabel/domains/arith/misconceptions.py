"""Solutions written under misconceptions, to train a policy that errs on purpose.

A real policy's mistakes are mostly of understanding, and they are consistent: what it gets wrong
about a kind of event it gets wrong more often than not, so that neither a vote nor its own
likelihood finds the right answer. A tiny model trained only on right solutions errs mostly in
arithmetic, at random, which no scorer of its size can see. So the bundled policy is fine-tuned on
solutions in which each kind of event is misread in its own way, a few kinds often and the others
seldom. The rest of the solution follows from the mistake.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mclabel.domains.arith.program import MAX_VALUE, Node, Operation, Program, answer_line, apply

Kind = Literal["flip", "operand", "skip"]

MISCONCEPTIONS: dict[str, Kind] = {
    "buy": "operand",
    "sell": "flip",
    "receive": "skip",
    "give": "flip",
    "sell_half": "skip",
    "give_part": "skip",
    "pass_on_half": "skip",
    "times": "operand",
    "more": "flip",
    "fewer": "flip",
    "part": "operand",
    "together": "operand",
    "above": "flip",
    "start": "operand",
    "add_loose": "operand",
    "take_out": "flip",
    "add_containers": "operand",
    "keep_pile": "skip",
    "buy_several": "operand",
    "pay": "flip",
    "earn": "skip",
    "spend_half": "skip",
    "spend_part": "skip",
    "ride_on": "operand",
    "turn_back": "flip",
    "drive": "skip",
    "halfway_home": "skip",
    "times_as_far": "operand",
    "stock": "operand",
    "customers": "skip",
    "break_part": "skip",
    "copy_stock": "flip",
    "sell_half_stock": "skip",
    "fill_trays": "operand",
}
"""By event. `flip` turns the operation round, `operand` takes another number of the problem,
`skip` goes on with the step's first operand as if nothing had happened."""

MISUNDERSTOOD = frozenset(
    ("give_part", "fewer", "keep_pile", "spend_part", "turn_back", "break_part")
)
"""Events, one a family, that are misread more often than not."""
OFTEN, SELDOM = 0.7, 0.04
"""How often these events and all others are misread, at strength 1."""

FLIPPED: dict[Operation, Operation] = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "*"}


def misread(
    program: Program, problem_text: str, *, rng: random.Random, strength: float
) -> tuple[str, bool]:
    """A solution in which events are misread at their own rates.

    A misreading that leads out of the range of quantities is dropped, so the solution is
    always one that calculates rightly.

    Args:
        program: the problem's hidden program.
        problem_text: its numbers are the wrong operands to choose from.
        rng: decides what is misread.
        strength: factor on the rates above.

    Returns:
        The solution's text, and whether anything was misread in it.
    """
    for _ in range(8):
        lines = _follow(program, problem_text, rng, strength)
        if lines is not None:
            return lines
    lines = _follow(program, problem_text, rng, 0.0)
    assert lines is not None
    return lines


@dataclass(frozen=True, kw_only=True)
class Misreading:
    """A wrong way to read an event."""

    kind: Kind
    number: int = 0
    """What `operand` takes in place of an operand."""


def misreading(node: Node, numbers: Sequence[int], rng: random.Random) -> Misreading:
    """The wrong way to read a node's event; `numbers` are those of the problem."""
    kind = MISCONCEPTIONS[node.event]
    return Misreading(kind=kind, number=rng.choice(numbers) if kind == "operand" else 0)


def draw_misreading(
    node: Node, numbers: Sequence[int], rng: random.Random, strength: float
) -> Misreading | None:
    """How a node's event is misread, at its own rate; None if it is read rightly."""
    rate = OFTEN if node.event in MISUNDERSTOOD else SELDOM
    return misreading(node, numbers, rng) if rng.random() < rate * strength else None


def read_node(
    program: Program, index: int, values: Mapping[int, int], wrongly: Misreading | None
) -> tuple[int, str | None] | None:
    """What a node comes to under a reading.

    Args:
        program: of the problem.
        index: of the node.
        values: of the nodes that it needs, as they were read.
        wrongly: the misreading, if any.

    Returns:
        Its value and the step that states it, None for a step that is left out; None if the value
        is out of the range of quantities.
    """
    node = program.nodes[index]
    by_value = {program.nodes[i].value: values[i] for i in node.needs}
    left_is_node = node.left in by_value
    left, right = by_value.get(node.left, node.left), by_value.get(node.right, node.right)
    op = node.op
    if wrongly is not None:
        if wrongly.kind == "skip":
            return left if left_is_node or not node.needs else right, None
        if wrongly.kind == "flip":
            op = FLIPPED[op]
        elif left_is_node:
            right = wrongly.number
        else:
            left = wrongly.number
    value = apply(op, left, right, MAX_VALUE)
    return None if value is None else (value, node.text(f"{left} {op} {right} = {value}"))


def numbers_of(problem_text: str) -> list[int]:
    """The numbers of a problem, in their order."""
    return [int(n) for n in re.findall(r"\d+", problem_text)]


def _follow(
    program: Program, problem_text: str, rng: random.Random, strength: float
) -> tuple[str, bool] | None:
    numbers = numbers_of(problem_text)
    values: dict[int, int] = {}
    lines: list[str] = []
    misread_any = False
    for index in program.needed():
        wrongly = draw_misreading(program.nodes[index], numbers, rng, strength)
        misread_any |= wrongly is not None
        found = read_node(program, index, values, wrongly)
        if found is None:
            return None
        values[index], text = found
        lines += [] if text is None else [text]
    if not lines:
        return None
    return "\n".join([*lines, answer_line(values[program.target])]), misread_any
