"""The exact step verifier of the arith domain.

`verify_steps` is for solutions that do not correct themselves. A step is right under three
conditions. Its words and operands are those of a node of the problem's hidden program; the operands
of + and * may be swapped. Earlier right steps have stated the nodes that this node needs. Its
arithmetic is right. Steps may come in any order that satisfies these conditions. A right step may
be repeated, and steps that the question does not need are allowed. The answer line is right if the
target node was stated and the line boxes its value. Nothing may follow the answer line.

`verify_trace_states` is for solutions that may correct themselves. Each line states a quantity of
the program, and replaces any earlier statement of the same quantity. "So the answer is 12." and the
boxed answer state the answer. "Wait.", "Let me check." and the thinking tags state nothing.

A quantity *holds* under two conditions. Its last statement agrees with the program in words,
operation, operands and result. All quantities that it is computed from hold. The answer holds if it
equals the value of the target quantity and that quantity holds. So a right value does not hold if
it was reached in a wrong way.

A wrong statement *stands* until its quantity is stated again, or until a quantity that it is
computed from is corrected. Such a correction makes the dependent statement *void*: it counts as
neither right nor wrong until it is stated again. A line that is not a step, or a wrong statement of
a quantity that the question does not need, stands until the next right step.

A step is an `error` if no wrong statement stands before it and one stands after it. A step is
`recovered` if a wrong statement stands before it and none stands after it. If several wrong
statements stand, only the step that removes the last of them is `recovered`. While a wrong
statement stands, every other step is `carried`, even a step that is right by itself. All remaining
steps are `sound`.

If a solution corrects nothing, both functions give the same first error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from mclabel.core.records import StepState
from mclabel.domains.arith.program import Node, Program, find_ancestors

_EQUATION = re.compile(r"(\d{1,6}) (\+|-|\*|//|/) (\d{1,6}) = (\d{1,6})(?!\d)")
_ANSWER = re.compile(r"The answer is \\boxed\{(\d{1,6})\}\.")


class StepTruth(StrEnum):
    """The truth of one step: right, or the kind of its error."""

    RIGHT = "right"
    ARITHMETIC = "arithmetic"
    """The operands are right, but the result is wrong."""
    LOGIC = "logic"
    """The step has a wrong operand or operation, or needs a quantity that no right step stated."""
    ANSWER = "answer"
    """A right step stated the target's value, but the answer line boxes another value."""
    MALFORMED = "malformed"
    """The line has not exactly one equation, or follows the answer line."""


def verify_steps(program: Program, steps: Sequence[str]) -> list[StepTruth]:
    """Return whether each step of a solution that does not correct itself is right, or its error.

    Args:
        program: hidden program of the problem.
        steps: texts of the steps; leading and trailing white space is ignored.
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
    """The parsed text of a step: its equation `left op right = value`, and the words around it."""

    claim: str
    """Text of the step with `{}` in place of the equation."""
    op: str
    left: int
    right: int
    value: int

    def matches_node(self, node: Node) -> bool:
        """Return whether words, operation and operands are those of a node.

        The operands of + and * may be swapped, and the value may differ.
        """
        return (
            self.claim == node.claim
            and self.op == node.op
            and (
                (self.left, self.right) == (node.left, node.right)
                or (node.op in "+*" and (self.right, self.left) == (node.left, node.right))
            )
        )


def read_statement(step: str) -> Statement | None:
    """Parse a step; return None unless it has exactly one equation."""
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
    """Return the boxed value of an answer line; None if the line is not an answer line."""
    match = _ANSWER.fullmatch(step)
    return None if match is None else int(match[1])


def _verify_step(program: Program, step: str, stated: set[int]) -> StepTruth:
    """Check one step; add the indices of the nodes that a right step states to `stated`."""
    if (boxed := read_answer(step)) is not None:
        if program.target not in stated:
            return StepTruth.LOGIC
        return StepTruth.RIGHT if boxed == program.answer else StepTruth.ANSWER
    if (statement := read_statement(step)) is None:
        return StepTruth.MALFORMED
    matching_indices = [
        index
        for index, node in enumerate(program.nodes)
        if statement.matches_node(node) and stated.issuperset(node.needs)
    ]
    if not matching_indices:
        return StepTruth.LOGIC
    if program.nodes[matching_indices[0]].value != statement.value:
        return StepTruth.ARITHMETIC
    stated.update(matching_indices)
    return StepTruth.RIGHT


def has_hidden_program(meta: Mapping[str, str]) -> bool:
    """Return whether a problem belongs to this domain.

    Other problems may have a `program` field, too, so its content is parsed.
    """
    return "program" in meta and _parse_program(meta["program"]) is not None


@lru_cache(maxsize=64)
def _parse_program(text: str) -> Program | None:
    try:
        program = Program.from_json(text)
        is_ordered = all(0 <= j < i for i, node in enumerate(program.nodes) for j in node.needs)
        return program if is_ordered and 0 <= program.target < len(program.nodes) else None
    except (ValueError, KeyError, TypeError):
        return None


WAIT, CHECK, ANSWER = "Wait.", "Let me check.", "So the answer is {}."
THINK, END_THINK = "<think>", "</think>"
SILENT_LINES = frozenset(("", WAIT, CHECK, THINK, END_THINK))
"""Lines that state no quantity and do not change the state of a trace."""
_COMMITTED = re.compile(r"So the answer is (\d{1,6})\.")


def verify_trace_states(program: Program, steps: Sequence[str]) -> list[StepState]:
    """Return the state of every step of a solution that may correct itself.

    Args:
        program: hidden program of the problem.
        steps: texts of the steps. A step of several lines has one state, after its last line.
    """
    reader = _SolutionReader(program)
    states: list[StepState] = []
    for step in steps:
        had_error = reader.has_standing_error
        for line in _split_step_lines(step):
            reader.read_line(line)
        has_error = reader.has_standing_error
        states.append(
            ("carried" if has_error else "recovered")
            if had_error
            else ("error" if has_error else "sound")
        )
    return states


def find_true_step_states(meta: Mapping[str, str], steps: Sequence[str]) -> list[StepState]:
    """Return the state of every step of a solution.

    Args:
        meta: metadata of the problem, for which `has_hidden_program` is true.
        steps: texts of the steps.
    """
    program = _parse_program(meta["program"])
    assert program is not None
    return verify_trace_states(program, steps)


def read_commitment(line: str) -> int | None:
    """Return N if a line is "So the answer is N."; None for any other line."""
    match = _COMMITTED.fullmatch(line)
    return None if match is None else int(match[1])


def _split_step_lines(step: str) -> list[str]:
    """Return the lines of a step without `SILENT_LINES`; a blank step gives one empty line."""
    lines = [line.strip() for line in step.replace(THINK, f"{THINK}\n").split("\n")]
    return [line for line in lines if line not in SILENT_LINES] if any(lines) else [""]


@dataclass(kw_only=True)
class _QuantityState:
    """The last statement of a quantity in a solution."""

    value: int | None = None
    """Value as last stated; None if the quantity was not stated, or its statement is void."""
    is_true: bool = False
    """True if the statement agrees with the program. The quantity can still not hold, if one that
    it is computed from does not."""


class _SolutionReader:
    """Reader of a solution's lines that tracks which quantities are stated and which hold."""

    def __init__(self, program: Program) -> None:
        nodes, target = program.nodes, program.target
        self._nodes, self._target = nodes, target
        self._claims = {node.claim for node in nodes}
        # The answer is an additional quantity, computed from the target.
        self._answer = len(nodes)
        self._needs = [*(node.needs for node in nodes), (target,)]
        self._ancestors = [find_ancestors(nodes, i) - {i} for i in range(len(nodes))]
        self._ancestors.append(find_ancestors(nodes, target))
        self._needed = self._ancestors[self._answer] | {self._answer}
        self._stated = [_QuantityState() for _ in self._needs]
        self._holds = [False for _ in self._needs]
        self._has_stray_error = self._ended = False

    @property
    def has_standing_error(self) -> bool:
        """Return whether a wrong statement has neither been replaced nor become void."""
        return self._has_stray_error or any(
            self._stated[i].value is not None and not self._holds[i] for i in self._needed
        )

    def read_line(self, line: str) -> None:
        """Read a line and record its statement."""
        if self._ended:
            self._has_stray_error = True
        elif (boxed := read_answer(line)) is not None:
            self._ended = True
            self._record_answer(boxed)
        elif (committed := read_commitment(line)) is not None:
            self._record_answer(committed)
        elif (statement := read_statement(line)) is not None and statement.claim in self._claims:
            self._record_statement(statement)
        else:
            self._has_stray_error = True

    def _record_statement(self, statement: Statement) -> None:
        candidates = [i for i, node in enumerate(self._nodes) if statement.matches_node(node)]
        supported_candidates = [
            i for i in candidates if all(self._holds[j] for j in self._needs[i])
        ]
        for index in supported_candidates or [self._match_quantity(statement, candidates)]:
            is_true = index in candidates and statement.value == self._nodes[index].value
            self._set_quantity(index, statement.value, is_true)
            self._has_stray_error |= not self._holds[index] and index not in self._needed
            holds = self._holds[index]
        self._has_stray_error &= not holds

    def _record_answer(self, value: int) -> None:
        target_state = self._stated[self._target]
        self._set_quantity(
            self._answer, value, target_state.is_true and value == target_state.value
        )
        self._has_stray_error &= not self._holds[self._answer]

    def _set_quantity(self, index: int, value: int, is_true: bool) -> None:
        """Record the statement of a quantity.

        If the quantity holds now and did not hold before, void all wrong statements that were
        computed from it.

        Args:
            index: 0-based index of the quantity.
            value: stated value.
            is_true: True if the statement agrees with the program.
        """
        held_before = self._holds[index]
        self._stated[index] = _QuantityState(value=value, is_true=is_true)
        for i, needs in enumerate(self._needs):
            self._holds[i] = self._stated[i].is_true and all(self._holds[j] for j in needs)
        if held_before or not self._holds[index]:
            return
        for dependent, ancestors in enumerate(self._ancestors):
            if index in ancestors and not self._stated[dependent].is_true:
                self._stated[dependent] = _QuantityState()

    def _match_quantity(self, statement: Statement, candidates: Sequence[int]) -> int:
        """Return the 0-based index of the quantity that a wrong statement is about.

        The candidate whose operation and operands agree best with the statement is chosen. Ties go
        to candidates that were not stated yet, then to the lower index.

        Args:
            statement: the wrong statement.
            candidates: indices of the candidates; if empty, all quantities with the statement's
                words are candidates.
        """
        indices = candidates or [
            i for i, node in enumerate(self._nodes) if node.claim == statement.claim
        ]
        return max(
            indices,
            key=lambda i: (self._count_agreements(statement, i), self._stated[i].value is None, -i),
        )

    def _count_agreements(self, statement: Statement, index: int) -> int:
        """Return how many of operation, left and right operand agree with a quantity, 0 to 3.

        Operands are compared with the values as stated before, not with the true values.
        """
        node = self._nodes[index]
        stated_values = {self._nodes[i].value: self._stated[i].value for i in node.needs}
        operands = [stated_values.get(operand, operand) for operand in (node.left, node.right)]
        num_equal_operands = max(
            (statement.left == left) + (statement.right == right)
            for left, right in (operands, operands[::-1] if node.op in "+*" else operands)
        )
        return num_equal_operands + (statement.op == node.op)
