"""Solutions and traces written under misconceptions, to train a policy that errs on purpose.

A real policy's mistakes are mostly of understanding, and they are consistent: what it gets wrong
about a kind of event it gets wrong more often than not, so that neither a vote nor its own
likelihood finds the right answer. A tiny model trained only on right solutions errs mostly in
arithmetic, at random, which no scorer of its size can see. So the bundled policy is fine-tuned on
solutions in which each kind of event is misread in its own way, a few kinds often and the others
seldom. The rest of the solution follows from the mistake.

A trace thinks aloud, a step a line, and then answers; its author checks steps and corrects some.
Events are misread at the same rates, and what follows rests on the mistake. Some misreadings are
noticed at once: "Wait.", and the step again. Others in a check, behind "Let me check.", which goes
through the whole problem again: "Wait." stands before a step that it reads otherwise than before.
Others are never noticed, and now and then a sound step is "corrected" into a wrong one. These forms
ask little of a small model, as every step is read from the problem and the steps just before.

How often a trace states an answer on its way was counted beforehand in 59 public traces on
MATH-500, 20 of DeepSeek-R1, 20 of R1-Distill-Llama-8B and 19 of R1-Distill-Qwen-7B, in
`data/traces` of github.com/markyx316/LLM-Reasoning-Trace-Topology. A paragraph counted if it says
"answer is", "answer:" or a boxed value. In 12% of traces none does before the thinking ends; the
mean is 2.3 a trace (3.1, 2.1 and 1.7 by model); 51% have two or more, 36% three or more. The models
differ far more by paragraph (.169, .015 and .026), and by sentence (.025, .009, .012), so that
traces go by the number in a trace: none with the chance `SILENT`, else one and a geometric number
more.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mclabel.domains.arith.program import MAX_VALUE, Node, Operation, Program, answer_line, apply
from mclabel.domains.arith.verify import ANSWER, CHECK, END_THINK, THINK, WAIT

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
"""Kind of misreading by event. `flip` turns the operation round, `operand` takes another number of
the problem, `skip` goes on with the step's first operand as if nothing had happened."""

MISUNDERSTOOD = frozenset(
    ("give_part", "fewer", "keep_pile", "spend_part", "turn_back", "break_part")
)
"""Events, one a family, that are misread more often than not."""
OFTEN, SELDOM = 0.7, 0.04
"""Rates at which these events and all others are misread, at strength 1."""

FLIPPED: dict[Operation, Operation] = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "*"}


def misread(
    program: Program, problem_text: str, *, rng: random.Random, strength: float
) -> tuple[str, bool]:
    """Return a solution in which events are misread at their own rates.

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
        lines = _follow_program(program, problem_text, rng, strength)
        if lines is not None:
            return lines
    lines = _follow_program(program, problem_text, rng, 0.0)
    assert lines is not None
    return lines


@dataclass(frozen=True, kw_only=True)
class Misreading:
    """A wrong way to read an event."""

    kind: Kind
    number: int = 0
    """Number that `operand` takes in place of an operand."""


def misreading(node: Node, numbers: Sequence[int], rng: random.Random) -> Misreading:
    """Return the wrong way to read a node's event; `numbers` are those of the problem."""
    kind = MISCONCEPTIONS[node.event]
    return Misreading(kind=kind, number=rng.choice(numbers) if kind == "operand" else 0)


def draw_misreading(
    node: Node, numbers: Sequence[int], rng: random.Random, strength: float
) -> Misreading | None:
    """Return the misreading of a node's event, drawn at its own rate; None if it is read
    rightly.
    """
    rate = OFTEN if node.event in MISUNDERSTOOD else SELDOM
    return misreading(node, numbers, rng) if rng.random() < rate * strength else None


def read_node(
    program: Program, index: int, values: Mapping[int, int], wrongly: Misreading | None
) -> tuple[int, str | None] | None:
    """Return the value and the step of a node under a reading.

    Args:
        program: program of the problem.
        index: index of the node.
        values: values of the nodes that it needs, as they were read.
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
    """Return the numbers of a problem, in their order."""
    return [int(n) for n in re.findall(r"\d+", problem_text)]


def _follow_program(
    program: Program, problem_text: str, rng: random.Random, strength: float
) -> tuple[str, bool] | None:
    numbers = numbers_of(problem_text)
    values: dict[int, int] = {}
    lines: list[str] = []
    misread_any = False
    for index in program.needed():
        wrongly = draw_misreading(program.nodes[index], numbers, rng, strength)
        misread_any |= wrongly is not None
        value_and_text = read_node(program, index, values, wrongly)
        if value_and_text is None:
            return None
        values[index], text = value_and_text
        lines += [] if text is None else [text]
    if not lines:
        return None
    return "\n".join([*lines, answer_line(values[program.target])]), misread_any


SILENT, MORE_ANSWERS = 0.12, 1.6
"""Chance of a trace without an answer on its way; mean number of answers after the first."""
SELDOM_NOTICED = frozenset(("fewer", "turn_back", "break_part"))
"""Events whose misreading is seldom noticed."""
NOTICED, NOTICED_SELDOM = 0.75, 0.2
"""Chances that a misreading is noticed."""
AT_ONCE = 0.4
"""Share of what is noticed that is noticed at once, and not in a check."""
MISCORRECTED = 0.01
"""Chance that a sound step is "corrected" into a wrong one, each time that it is written."""
MIN_LINES, MAX_LINES = 10, 56


def write_trace(
    program: Program,
    problem_text: str,
    *,
    rng: random.Random,
    strength: float,
    answer_rate: float = 1.0,
) -> str:
    """Return a trace on a problem, with its thinking and its answer line.

    A misreading that leads out of the range of quantities is dropped, so that a trace always
    calculates rightly.

    Args:
        program: the problem's hidden program.
        problem_text: its numbers are the wrong operands to choose from.
        rng: decides everything.
        strength: factor on the rates of misreadings and of wrong corrections.
        answer_rate: share of the answers on the way that are written; 0.5 halves their number.
    """
    for attempt in range(16):
        writer = _Writer(program, problem_text, rng, strength if attempt < 15 else 0.0)
        if writer.write(answer_rate):
            break
    return "\n".join([THINK, *writer.lines, END_THINK, answer_line(writer.answer)])


class _Writer:
    """One attempt at a trace."""

    def __init__(
        self, program: Program, problem_text: str, rng: random.Random, strength: float
    ) -> None:
        self.lines: list[str] = []
        self._program, self._rng, self._strength = program, rng, strength
        self._numbers = numbers_of(problem_text)
        self._needed = program.needed()
        self._values: dict[int, int] = {}
        self._misread: dict[int, Misreading] = {}
        self._to_notice: set[int] = set()
        """Misreadings that a check is to find."""

    @property
    def answer(self) -> int:
        return self._values[self._program.target]

    def write(self, answer_rate: float) -> bool:
        """Write all lines before the answer; False if a value was out of range."""
        rng, length = self._rng, len(self._needed)
        num_answers = 0 if rng.random() < SILENT else 1
        while num_answers and rng.random() < MORE_ANSWERS / (1 + MORE_ANSWERS):
            num_answers += 1
        if not self._first_pass():
            return False
        wanted = self._to_notice or len(self.lines) < MIN_LINES or rng.random() < 0.2
        checks = min(max(num_answers - 1, int(bool(wanted))), MAX_LINES // length - 1)
        occasions = rng.sample(range(checks + 1), min(num_answers, checks + 1))
        for number in range(checks + 1):
            if number and not self._write_check(last=number == checks):
                return False
            if number in occasions and rng.random() < answer_rate:
                self.lines.append(ANSWER.format(self.answer))
        return True

    def _first_pass(self) -> bool:
        rng = self._rng
        for index in self._needed:
            node = self._program.nodes[index]
            wrongly = draw_misreading(node, self._numbers, rng, self._strength)
            if wrongly is not None:
                self._misread[index] = wrongly
            if not self._write_step(index):
                return False
            noticed = rng.random() < (NOTICED_SELDOM if node.event in SELDOM_NOTICED else NOTICED)
            if wrongly is None:
                fits = not self._miscorrects(index) or self._write_step(index, WAIT)
            elif noticed and rng.random() < AT_ONCE:
                del self._misread[index]
                fits = self._write_step(index, WAIT)
            else:
                fits = True
                self._to_notice |= {index} if noticed else set()
            if not fits:
                return False
        return True

    def _write_check(self, *, last: bool) -> bool:
        """Go through the problem again; the last check finds all that is to be noticed."""
        self.lines.append(CHECK)
        for index in self._needed:
            remark = None
            if index in self._to_notice and (last or self._rng.random() < 0.5):
                self._to_notice.remove(index)
                del self._misread[index]
                remark = WAIT
            elif index not in self._misread and self._miscorrects(index):
                remark = WAIT
            if not self._write_step(index, remark):
                return False
        return True

    def _miscorrects(self, index: int) -> bool:
        """Return whether a sound step is now read wrongly, and noticed to be later or not."""
        node = self._program.nodes[index]
        wrongly = misreading(node, self._numbers, self._rng)
        if wrongly.kind == "skip" or self._rng.random() >= MISCORRECTED * self._strength:
            return False
        self._misread[index] = wrongly
        self._to_notice |= {index} if self._rng.random() < NOTICED else set()
        return True

    def _write_step(self, index: int, remark: str | None = None) -> bool:
        """Write a step as its event is read now, or leave it out; False if it is out of range."""
        value_and_text = read_node(self._program, index, self._values, self._misread.get(index))
        if value_and_text is None:
            return False
        self._values[index], text = value_and_text
        if text is not None:
            self.lines += [text] if remark is None else [remark, text]
        return True
