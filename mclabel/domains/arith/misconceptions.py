"""Solutions and traces with systematic misreadings, to train a policy that errs on purpose.

The mistakes of a real policy are mostly misunderstandings, and they are consistent. If the policy
misunderstands a kind of event, it does so in most samples. Then neither a majority vote nor the
policy's own likelihood finds the right answer. A tiny model trained only on right solutions makes
mostly random arithmetic errors, which a scorer of the same size cannot detect. So the bundled
policy is fine-tuned on solutions with misread events. Each kind of event is misread in its own way:
a few kinds often, the other kinds seldom. All later steps of the solution build on the misreading.

A *trace* thinks aloud, with one step a line, and then states the answer. Events are misread
as often as in solutions, and later steps build on the misreading. A trace can correct itself in
two ways. Some misreadings are noticed at once: the trace writes "Wait." and repeats the step. Other
misreadings are noticed in a check, which follows "Let me check." and repeats the whole problem.
There "Wait." precedes each step that the check reads differently. Some misreadings are never
noticed, and sometimes a sound step is "corrected" into a wrong step. A small model can learn these
forms, because each step depends only on the problem and the steps just before it.

The number of answers that a trace states before its end follows a count in 59 public traces on
MATH-500: 20 of DeepSeek-R1, 20 of R1-Distill-Llama-8B and 19 of R1-Distill-Qwen-7B, from
`data/traces` of github.com/markyx316/LLM-Reasoning-Trace-Topology. The count includes each
paragraph with "answer is", "answer:" or a boxed value. 12% of the traces have no such paragraph
before the thinking ends, 51% have two or more, and 36% have three or more. The mean is 2.3 per
trace (3.1, 2.1 and 1.7 by model). The numbers of answers per paragraph (.169, .015, .026) and per
sentence (.025, .009, .012) differ far more between the models. Therefore the generator draws the
number of answers per trace: none with probability `SILENT`, else one plus a geometrically
distributed number.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from mclabel.domains.arith.program import (
    MAX_VALUE,
    Node,
    Operation,
    Program,
    apply_operation,
    write_answer_line,
)
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
"""Kind of misreading by name of the event. `flip` inverts the operation. `operand` replaces one
operand by a number drawn from the problem. `skip` leaves the step out and continues with an
operand's value."""

MISUNDERSTOOD = frozenset(
    ("give_part", "fewer", "keep_pile", "spend_part", "turn_back", "break_part")
)
"""Events that are misread in most samples: one event of each training family."""
OFTEN, SELDOM = 0.7, 0.04
"""Probabilities of a misreading at `strength` 1: for events in `MISUNDERSTOOD`, and for others."""

FLIPPED: dict[Operation, Operation] = {"+": "-", "-": "+", "*": "+", "/": "*", "//": "*"}


def write_misread_solution(
    program: Program, problem_text: str, *, rng: random.Random, strength: float
) -> tuple[str, bool]:
    """Return a solution in which each event is misread with a probability of its own.

    An attempt with a quantity outside 1..MAX_VALUE is discarded and drawn again. So the arithmetic
    of the solution is always right.

    Args:
        program: the problem's hidden program.
        problem_text: text of the problem, whose numbers serve as wrong operands.
        rng: random generator that decides the misreadings.
        strength: factor by which the probabilities `OFTEN` and `SELDOM` are multiplied.

    Returns:
        The text of the solution, and True if it contains a misreading.
    """
    for _ in range(8):
        text_and_flag = _try_write_solution(program, problem_text, rng, strength)
        if text_and_flag is not None:
            return text_and_flag
    text_and_flag = _try_write_solution(program, problem_text, rng, 0.0)
    assert text_and_flag is not None
    return text_and_flag


@dataclass(frozen=True, kw_only=True)
class Misreading:
    """A wrong way to read an event of a problem's story, such as a purchase."""

    kind: Kind
    number: int = 0
    """Number that replaces an operand if `kind` is `operand`."""


def choose_misreading(node: Node, numbers: Sequence[int], rng: random.Random) -> Misreading:
    """Return the misreading of a node's event.

    Args:
        node: node of the problem's hidden program.
        numbers: numbers in the problem's text, which serve as wrong operands.
        rng: random generator that draws a wrong operand.
    """
    kind = MISCONCEPTIONS[node.event]
    return Misreading(kind=kind, number=rng.choice(numbers) if kind == "operand" else 0)


def draw_misreading(
    node: Node, numbers: Sequence[int], rng: random.Random, strength: float
) -> Misreading | None:
    """Draw whether a node's event is misread; return the misreading, or None if it is not.

    Args:
        node: node of the problem's hidden program.
        numbers: numbers in the problem's text, which serve as wrong operands.
        rng: random generator that decides.
        strength: factor by which the probabilities `OFTEN` and `SELDOM` are multiplied.
    """
    rate = OFTEN if node.event in MISUNDERSTOOD else SELDOM
    return choose_misreading(node, numbers, rng) if rng.random() < rate * strength else None


def compute_node(
    program: Program, index: int, values: Mapping[int, int], misreading: Misreading | None
) -> tuple[int, str | None] | None:
    """Compute a node's value and the text of its step, under a misreading if one is given.

    Args:
        program: program of the problem.
        index: 0-based index of the node.
        values: values computed so far, by node index.
        misreading: the misreading of the node's event; None reads it rightly.

    Returns:
        The value of the node and the text of its step. The text is None if the step is left out.
        The whole result is None if the value is outside 1..MAX_VALUE.
    """
    node = program.nodes[index]
    value_by_true_value = {program.nodes[i].value: values[i] for i in node.needs}
    is_left_node = node.left in value_by_true_value
    left, right = (
        value_by_true_value.get(node.left, node.left),
        value_by_true_value.get(node.right, node.right),
    )
    op = node.op
    if misreading is not None:
        if misreading.kind == "skip":
            return left if is_left_node or not node.needs else right, None
        if misreading.kind == "flip":
            op = FLIPPED[op]
        elif is_left_node:
            right = misreading.number
        else:
            left = misreading.number
    value = apply_operation(op, left, right, MAX_VALUE)
    return None if value is None else (value, node.write_step(f"{left} {op} {right} = {value}"))


def find_numbers_in_text(problem_text: str) -> list[int]:
    """Return the numbers in a problem's text, in the order in which they appear."""
    return [int(number) for number in re.findall(r"\d+", problem_text)]


def _try_write_solution(
    program: Program, problem_text: str, rng: random.Random, strength: float
) -> tuple[str, bool] | None:
    numbers = find_numbers_in_text(problem_text)
    values: dict[int, int] = {}
    lines: list[str] = []
    has_misreading = False
    for index in program.find_needed_nodes():
        misreading = draw_misreading(program.nodes[index], numbers, rng, strength)
        has_misreading |= misreading is not None
        value_and_text = compute_node(program, index, values, misreading)
        if value_and_text is None:
            return None
        values[index], text = value_and_text
        lines += [] if text is None else [text]
    if not lines:
        return None
    return "\n".join([*lines, write_answer_line(values[program.target])]), has_misreading


SILENT, MORE_ANSWERS = 0.12, 1.6
"""`SILENT` is the probability that a trace states no answer before its end. Otherwise it states at
least one, and `MORE_ANSWERS` is the mean number of further answers."""
SELDOM_NOTICED = frozenset(("fewer", "turn_back", "break_part"))
"""Events whose misreading is seldom noticed."""
NOTICED, NOTICED_SELDOM = 0.75, 0.2
"""Probabilities that a misreading is noticed: for most events, and for `SELDOM_NOTICED`."""
NOTICED_AT_ONCE = 0.4
"""Share of noticed misreadings that are noticed at once; the other ones are noticed in a check."""
MISCORRECTED = 0.01
"""Probability, each time a sound step is written, that it is "corrected" into a wrong step, at
`strength` 1."""
MIN_LINES, MAX_LINES = 10, 56
"""Number of lines below which a check is always added, and about the maximum number of lines."""


def write_trace(
    program: Program,
    problem_text: str,
    *,
    rng: random.Random,
    strength: float,
    answer_rate: float = 1.0,
) -> str:
    """Return a trace on a problem: its thinking and its answer line.

    An attempt with a quantity outside 1..MAX_VALUE is discarded and drawn again. So the arithmetic
    of the trace is always right.

    Args:
        program: the problem's hidden program.
        problem_text: text of the problem, whose numbers serve as wrong operands.
        rng: random generator for all decisions.
        strength: factor by which the probabilities of misreadings and of wrong corrections are
            multiplied.
        answer_rate: probability, in [0, 1], that an answer before the trace's end is written.
    """
    for attempt in range(16):
        writer = _TraceWriter(program, problem_text, rng, strength if attempt < 15 else 0.0)
        if writer.write(answer_rate):
            break
    return "\n".join([THINK, *writer.lines, END_THINK, write_answer_line(writer.answer)])


class _TraceWriter:
    """One attempt at a trace."""

    def __init__(
        self, program: Program, problem_text: str, rng: random.Random, strength: float
    ) -> None:
        self.lines: list[str] = []
        self._program, self._rng, self._strength = program, rng, strength
        self._numbers = find_numbers_in_text(problem_text)
        self._needed = program.find_needed_nodes()
        self._values: dict[int, int] = {}
        self._misreadings: dict[int, Misreading] = {}
        self._nodes_to_correct: set[int] = set()
        """Indices of the misread nodes that a later check corrects."""

    @property
    def answer(self) -> int:
        """The last computed value of the target node."""
        return self._values[self._program.target]

    def write(self, answer_rate: float) -> bool:
        """Write all lines before the final answer; return False if a value was out of range.

        Args:
            answer_rate: probability, in [0, 1], that an answer before the trace's end is written.
        """
        rng, num_steps = self._rng, len(self._needed)
        num_answers = 0 if rng.random() < SILENT else 1
        while num_answers and rng.random() < MORE_ANSWERS / (1 + MORE_ANSWERS):
            num_answers += 1
        if not self._write_first_pass():
            return False
        needs_check = self._nodes_to_correct or len(self.lines) < MIN_LINES or rng.random() < 0.2
        num_checks = min(max(num_answers - 1, int(bool(needs_check))), MAX_LINES // num_steps - 1)
        passes_with_answer = rng.sample(range(num_checks + 1), min(num_answers, num_checks + 1))
        for number in range(num_checks + 1):
            if number and not self._write_check(last=number == num_checks):
                return False
            if number in passes_with_answer and rng.random() < answer_rate:
                self.lines.append(ANSWER.format(self.answer))
        return True

    def _write_first_pass(self) -> bool:
        rng = self._rng
        for index in self._needed:
            node = self._program.nodes[index]
            misreading = draw_misreading(node, self._numbers, rng, self._strength)
            if misreading is not None:
                self._misreadings[index] = misreading
            if not self._write_step(index):
                return False
            is_noticed = rng.random() < (
                NOTICED_SELDOM if node.event in SELDOM_NOTICED else NOTICED
            )
            if misreading is None:
                is_in_range = not self._draw_miscorrection(index) or self._write_step(index, WAIT)
            elif is_noticed and rng.random() < NOTICED_AT_ONCE:
                del self._misreadings[index]
                is_in_range = self._write_step(index, WAIT)
            else:
                is_in_range = True
                self._nodes_to_correct |= {index} if is_noticed else set()
            if not is_in_range:
                return False
        return True

    def _write_check(self, *, last: bool) -> bool:
        """Write all steps again.

        The last check corrects every misreading left in `_nodes_to_correct`.
        """
        self.lines.append(CHECK)
        for index in self._needed:
            remark = None
            if index in self._nodes_to_correct and (last or self._rng.random() < 0.5):
                self._nodes_to_correct.remove(index)
                del self._misreadings[index]
                remark = WAIT
            elif index not in self._misreadings and self._draw_miscorrection(index):
                remark = WAIT
            if not self._write_step(index, remark):
                return False
        return True

    def _draw_miscorrection(self, index: int) -> bool:
        """Draw whether a sound step is "corrected" into a wrong step; return True if it is.

        Also draw whether a later check will correct the wrong step again.
        """
        misreading = choose_misreading(self._program.nodes[index], self._numbers, self._rng)
        if misreading.kind == "skip" or self._rng.random() >= MISCORRECTED * self._strength:
            return False
        self._misreadings[index] = misreading
        self._nodes_to_correct |= {index} if self._rng.random() < NOTICED else set()
        return True

    def _write_step(self, index: int, remark: str | None = None) -> bool:
        """Write a node's step; return False if its value is out of range.

        If the node's event is misread now, the step is written under this misreading. If the step
        is left out, no line is written.

        Args:
            index: 0-based index of the node.
            remark: line before the step, such as "Wait."; None for no such line.
        """
        value_and_text = compute_node(
            self._program, index, self._values, self._misreadings.get(index)
        )
        if value_and_text is None:
            return False
        self._values[index], text = value_and_text
        if text is not None:
            self.lines += [text] if remark is None else [remark, text]
        return True
