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
from typing import Literal

from mclabel.domains.arith.program import Operation, Program, answer_line, apply
from mclabel.domains.arith.story import MAX_VALUE

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
        kind = MISCONCEPTIONS[node.event]
        rate = OFTEN if node.event in MISUNDERSTOOD else SELDOM
        if rng.random() < rate * strength:
            misread_any = True
            if kind == "skip":
                values[index] = left if left_is_node or not node.needs else right
                continue
            if kind == "flip":
                op = FLIPPED[op]
            elif left_is_node:
                right = rng.choice(numbers)
            else:
                left = rng.choice(numbers)
        value = apply(op, left, right, MAX_VALUE)
        if value is None:
            return None
        values[index] = value
        lines.append(node.text(f"{left} {op} {right} = {value}"))
    if not lines:
        return None
    return "\n".join([*lines, answer_line(values[program.target])]), misread_any
