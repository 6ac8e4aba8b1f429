"""The exact step verifier of the arith domain.

A step is right when its words and operands are those of a node of the problem's hidden program
(operands of + and * in either order), the nodes it rests on were stated before by right steps,
and its arithmetic holds. Steps may come in any order that this allows; restating a right step
is right, and so is a step that the question does not need. The answer line is right when the
node asked for was stated and its value is boxed. Nothing may follow the answer.

Steps of a solution that may correct itself have exact states. Such a solution states quantities of
the problem's program, line by line: what a line states of a quantity replaces what was stated of it
before. "So the answer is 12." and the boxed answer state the answer. "Wait." and "Let me check."
state nothing, and neither do the marks of thinking.

A quantity *holds* if what was last said of it is what the program says, in words, operation,
operands and result, and the quantities that it rests on hold. The answer holds if it is the value
of the quantity asked for, and that one holds. So a right value that was reached by a wrong way,
in a step or as an answer, does not.

What is stated wrongly *stands* until it is stated anew, or something that it rests on is stated
rightly which did not hold: what was computed from the old value is void then, and neither right
nor wrong until it is stated again. A line that is no step, or is about a quantity that the
question does not need, leaves nothing that others rest on: it stands until the next right step.

So a step is an `error` if nothing stood wrong before it and something does behind it, and
`recovered` if something stood wrong before it and nothing does behind it: with several errors that
stand, the step that mends the last of them. While anything stands wrong every other step is
`carried`, also one that is right by itself, or wrong in a way of its own; else it is `sound`.

For a solution that repairs nothing the first error is that of `verify_steps`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from mclabel.core.records import StepState
from mclabel.domains.arith.program import Node, Program, ancestors

_EQUATION = re.compile(r"(\d{1,6}) (\+|-|\*|//|/) (\d{1,6}) = (\d{1,6})(?!\d)")
_ANSWER = re.compile(r"The answer is \\boxed\{(\d{1,6})\}\.")


class StepTruth(StrEnum):
    """The truth of one step, and what kind of error it is."""

    RIGHT = "right"
    ARITHMETIC = "arithmetic"
    """The operands are right, the result is not."""
    LOGIC = "logic"
    """Wrong operand or operation, a step left out before, or built on a wrong step."""
    ANSWER = "answer"
    """The value in question was derived, and the answer line boxes another value."""
    MALFORMED = "malformed"
    """The line is no step of this domain."""


def verify_steps(program: Program, steps: Sequence[str]) -> list[StepTruth]:
    """Return the truth of every step of a solution.

    Args:
        program: the problem's.
        steps: texts of the steps; white space around them does not count.
    """
    stated: set[int] = set()
    truths: list[StepTruth] = []
    answered = False
    for step in steps:
        truth = StepTruth.MALFORMED if answered else _verify_step(program, step.strip(), stated)
        answered = answered or read_answer(step.strip()) is not None
        truths.append(truth)
    return truths


@dataclass(frozen=True, kw_only=True)
class Statement:
    """The statement of a step: `left op right = value`, in the words of a claim."""

    claim: str
    """The step with `{}` in place of the equation."""
    op: str
    left: int
    right: int
    value: int

    def is_of(self, node: Node) -> bool:
        """Return whether words, operation and operands are those of a node."""
        return (
            self.claim == node.claim
            and self.op == node.op
            and (
                (self.left, self.right) == (node.left, node.right)
                or (node.op in "+*" and (self.right, self.left) == (node.left, node.right))
            )
        )


def read_statement(step: str) -> Statement | None:
    """Return the statement of a step; None if it has not exactly one equation."""
    equations = list(_EQUATION.finditer(step))
    if len(equations) != 1:
        return None
    equation = equations[0]
    return Statement(
        claim=step[: equation.start()] + "{}" + step[equation.end() :],
        op=equation[2],
        left=int(equation[1]),
        right=int(equation[3]),
        value=int(equation[4]),
    )


def read_answer(step: str) -> int | None:
    """Return the value that an answer line boxes; None of another line."""
    match = _ANSWER.fullmatch(step)
    return None if match is None else int(match[1])


def _verify_step(program: Program, step: str, stated: set[int]) -> StepTruth:
    """Check one step; a right one is added to `stated`."""
    if (boxed := read_answer(step)) is not None:
        if program.target not in stated:
            return StepTruth.LOGIC
        return StepTruth.RIGHT if boxed == program.answer else StepTruth.ANSWER
    if (statement := read_statement(step)) is None:
        return StepTruth.MALFORMED
    follows = [
        index
        for index, node in enumerate(program.nodes)
        if statement.is_of(node) and stated.issuperset(node.needs)
    ]
    if not follows:
        return StepTruth.LOGIC
    if program.nodes[follows[0]].value != statement.value:
        return StepTruth.ARITHMETIC
    stated.update(follows)
    return StepTruth.RIGHT


def carries_truth(meta: Mapping[str, str]) -> bool:
    """Return whether a problem is of this domain. Others may have a field `program` of their
    own.
    """
    return "program" in meta and _program(meta["program"]) is not None


@lru_cache(maxsize=64)
def _program(text: str) -> Program | None:
    try:
        program = Program.from_json(text)
        in_order = all(0 <= j < i for i, node in enumerate(program.nodes) for j in node.needs)
        return program if in_order and 0 <= program.target < len(program.nodes) else None
    except (ValueError, KeyError, TypeError):
        return None


WAIT, CHECK, ANSWER = "Wait.", "Let me check.", "So the answer is {}."
THINK, END_THINK = "<think>", "</think>"
SILENT_LINES = frozenset(("", WAIT, CHECK, THINK, END_THINK))
"""Lines that state nothing."""
_COMMITTED = re.compile(r"So the answer is (\d{1,6})\.")


def trace_states(program: Program, steps: Sequence[str]) -> list[StepState]:
    """Return the state of every step of a solution.

    Args:
        program: the problem's.
        steps: texts of the steps, of one line or several, which have one state together.
    """
    reader = _Reader(program)
    states: list[StepState] = []
    for step in steps:
        before = reader.stands_wrong
        for line in _lines(step):
            reader.read(line)
        after = reader.stands_wrong
        states.append(
            ("carried" if after else "recovered") if before else _state_of_new_step(after)
        )
    return states


def true_states(meta: Mapping[str, str], steps: Sequence[str]) -> list[StepState]:
    """Return the states by the `meta` of a problem that `carries_truth`."""
    program = _program(meta["program"])
    assert program is not None
    return trace_states(program, steps)


def read_commitment(line: str) -> int | None:
    """Return the answer that a line commits to on the way; None of another line."""
    match = _COMMITTED.fullmatch(line)
    return None if match is None else int(match[1])


def _state_of_new_step(wrong: bool) -> StepState:
    return "error" if wrong else "sound"


def _lines(step: str) -> list[str]:
    """Return the lines of a step that are to state something. White space alone is such a line,
    too.
    """
    lines = [line.strip() for line in step.replace(THINK, f"{THINK}\n").split("\n")]
    return [line for line in lines if line not in SILENT_LINES] if any(lines) else [""]


@dataclass(kw_only=True)
class _Quantity:
    """State of a quantity in a solution."""

    value: int | None = None
    """Value as last stated; None if it was not stated, or is void."""
    is_true: bool = False
    """True if it was stated as the program has it; what it rests on may still not hold."""


class _Reader:
    """Reader of the lines of a solution, which keeps the state after each."""

    def __init__(self, program: Program) -> None:
        nodes, target = program.nodes, program.target
        self._nodes, self._target = nodes, target
        self._claims = {node.claim for node in nodes}
        # The answer is one more quantity, which rests on the one asked for.
        self._answer = len(nodes)
        self._needs = [*(node.needs for node in nodes), (target,)]
        self._rests_on = [ancestors(nodes, i) - {i} for i in range(len(nodes))]
        self._rests_on.append(ancestors(nodes, target))
        self._needed = self._rests_on[self._answer] | {self._answer}
        self._stated = [_Quantity() for _ in self._needs]
        self._holds = [False for _ in self._needs]
        self._loose = self._ended = False

    @property
    def stands_wrong(self) -> bool:
        """Return whether anything that the answer needs stands wrong, or a line that is no step."""
        return self._loose or any(
            self._stated[i].value is not None and not self._holds[i] for i in self._needed
        )

    def read(self, line: str) -> None:
        """Read a line and record its statement."""
        if self._ended:
            self._loose = True
        elif (boxed := read_answer(line)) is not None:
            self._ended = True
            self._state_answer(boxed)
        elif (committed := read_commitment(line)) is not None:
            self._state_answer(committed)
        elif (statement := read_statement(line)) is not None and statement.claim in self._claims:
            self._record_statement(statement)
        else:
            self._loose = True

    def _record_statement(self, statement: Statement) -> None:
        alike = [i for i, node in enumerate(self._nodes) if statement.is_of(node)]
        follow = [i for i in alike if all(self._holds[j] for j in self._needs[i])]
        for index in follow or [self._quantity_of(statement, alike)]:
            true = index in alike and statement.value == self._nodes[index].value
            self._set_quantity(index, statement.value, true)
            self._loose |= not self._holds[index] and index not in self._needed
            right = self._holds[index]
        self._loose &= not right

    def _state_answer(self, value: int) -> None:
        asked = self._stated[self._target]
        self._set_quantity(self._answer, value, asked.is_true and value == asked.value)
        self._loose &= not self._holds[self._answer]

    def _set_quantity(self, index: int, value: int, is_true: bool) -> None:
        """State a quantity. If it is true now and was not before, all that was wrongly computed
        from it is void.
        """
        held = self._holds[index]
        self._stated[index] = _Quantity(value=value, is_true=is_true)
        for i, needs in enumerate(self._needs):
            self._holds[i] = self._stated[i].is_true and all(self._holds[j] for j in needs)
        if held or not self._holds[index]:
            return
        for other, before in enumerate(self._rests_on):
            if index in before and not self._stated[other].is_true:
                self._stated[other] = _Quantity()

    def _quantity_of(self, statement: Statement, alike: Sequence[int]) -> int:
        """Return the quantity that a statement is about, if it does not follow.

        One that is `alike` in all but the result, else the one with its words that is most like
        it; of several the first that was not stated yet.
        """
        same = alike or [i for i, node in enumerate(self._nodes) if node.claim == statement.claim]
        return max(
            same, key=lambda i: (self._likeness(statement, i), self._stated[i].value is None, -i)
        )

    def _likeness(self, statement: Statement, index: int) -> int:
        """Return the parts that a statement has in common with a quantity, given what was stated
        before.
        """
        node = self._nodes[index]
        stated_values = {self._nodes[i].value: self._stated[i].value for i in node.needs}
        used = [stated_values.get(operand, operand) for operand in (node.left, node.right)]
        same = max(
            (statement.left == a) + (statement.right == b)
            for a, b in (used, used[::-1] if node.op in "+*" else used)
        )
        return same + (statement.op == node.op)
