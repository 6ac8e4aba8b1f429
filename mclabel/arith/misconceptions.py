"""Solutions written under a misconception, to train a policy that errs on purpose.

A real policy's mistakes are mostly of understanding: it takes the wrong operand, flips an
operation or leaves a step out, consistently, and calculates on from there. A tiny model
trained only on right solutions errs mostly in arithmetic, which no scorer of its size can
see. So the bundled policy is fine-tuned on solutions in which each kind of event is
misread in its own way at its own rate; the rest of the solution follows from the mistake.
"""

from __future__ import annotations

import random
import re
from typing import Literal

from mclabel.arith.program import Operation, Program, answer_line
from mclabel.arith.stories import MAX_VALUE

Kind = Literal["flip", "operand", "skip"]

MISCONCEPTIONS: dict[str, tuple[Kind, float]] = {
    # event: (how it is misread, how often at strength 1)
    "buy": ("operand", 0.05),
    "sell": ("flip", 0.1),
    "receive": ("skip", 0.2),
    "give": ("flip", 0.25),
    "sell_half": ("skip", 0.25),
    "give_part": ("skip", 0.25),
    "pass_on_half": ("skip", 0.25),
    "times": ("operand", 0.15),
    "more": ("flip", 0.1),
    "fewer": ("flip", 0.3),
    "part": ("operand", 0.2),
    "together": ("operand", 0.25),
    "above": ("flip", 0.3),
    "start": ("operand", 0.03),
    "add_loose": ("operand", 0.1),
    "take_out": ("flip", 0.25),
    "add_containers": ("operand", 0.2),
    "keep_pile": ("operand", 0.25),
    "buy_several": ("operand", 0.15),
    "pay": ("flip", 0.1),
    "earn": ("skip", 0.2),
    "spend_half": ("skip", 0.2),
    "spend_part": ("skip", 0.25),
    "ride_on": ("operand", 0.05),
    "turn_back": ("flip", 0.3),
    "drive": ("skip", 0.2),
    "halfway_home": ("skip", 0.2),
    "times_as_far": ("operand", 0.15),
    "stock": ("operand", 0.05),
    "customers": ("skip", 0.2),
    "break_part": ("skip", 0.25),
    "copy_stock": ("flip", 0.2),
    "sell_half_stock": ("skip", 0.25),
    "fill_trays": ("operand", 0.1),
}
"""`flip` turns the operation round, `operand` takes another number of the problem, `skip`
goes on with the step's first operand as if nothing had happened."""

_FLIPPED: dict[Operation, Operation] = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "*"}


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
        strength: factor on the rates of `MISCONCEPTIONS`.

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


def _follow(
    program: Program, problem_text: str, rng: random.Random, strength: float
) -> tuple[str, bool] | None:
    numbers = [int(n) for n in re.findall(r"\d+", problem_text)]
    values: dict[int, int] = {}
    lines: list[str] = []
    misread_any = False
    for index in program.needed():
        node = program.nodes[index]
        left, right, op = node.left, node.right, node.op
        by_value = {program.nodes[i].value: values[i] for i in node.needs}
        left_is_node = left in by_value
        left, right = by_value.get(left, left), by_value.get(right, right)
        kind, rate = MISCONCEPTIONS[node.event]
        if rng.random() < rate * strength:
            misread_any = True
            if kind == "skip":
                values[index] = left if left_is_node or not node.needs else right
                continue
            if kind == "flip":
                op = _FLIPPED[op]
            elif left_is_node:
                right = rng.choice(numbers)
            else:
                left = rng.choice(numbers)
        value = _apply(op, left, right)
        if value is None:
            return None
        values[index] = value
        lines.append(node.text(f"{left} {op} {right} = {value}"))
    if not lines:
        return None
    return "\n".join([*lines, answer_line(values[program.target])]), misread_any


def _apply(op: Operation, left: int, right: int) -> int | None:
    if op in ("/", "//"):
        if right == 0 or (op == "/" and left % right):
            return None
        value = left // right
    else:
        value = {"+": left + right, "-": left - right, "*": left * right}[op]
    return value if 1 <= value <= MAX_VALUE else None
