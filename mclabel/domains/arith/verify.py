r"""The exact step verifier of the arith domain.

A step is right when its words and operands are those of a node of the problem's hidden program
(operands of + and * in either order), the nodes it rests on were stated before by right steps,
and its arithmetic holds. Steps may come in any order that this allows; restating a right step
is right, and so is a step that the question does not need. The answer line is right when the
node asked for was stated and its value is boxed. Nothing may follow the answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from mclabel.domains.arith.program import Node, Program

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
    """The value asked for was derived, and the answer line boxes another."""
    MALFORMED = "malformed"
    """Not a step of this domain."""


def verify_steps(program: Program, steps: Sequence[str]) -> list[StepTruth]:
    """The truth of every step of a solution.

    Args:
        program: the problem's.
        steps: texts of the steps; white space around them does not count.
    """
    stated: set[int] = set()
    truths: list[StepTruth] = []
    answered = False
    for step in steps:
        truth = StepTruth.MALFORMED if answered else _verify(program, step.strip(), stated)
        answered = answered or read_answer(step.strip()) is not None
        truths.append(truth)
    return truths


def first_wrong_step(program: Program, steps: Sequence[str]) -> int | None:
    """0-based index of the first step that is not right, None if all are."""
    truths = verify_steps(program, steps)
    return next((i for i, t in enumerate(truths) if t is not StepTruth.RIGHT), None)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a step states: `left op right = value`, in the words of a claim."""

    claim: str
    """The step with `{}` in place of the equation."""
    op: str
    left: int
    right: int
    value: int

    def is_of(self, node: Node) -> bool:
        """Whether words, operation and operands are those of a node."""
        return (
            self.claim == node.claim
            and self.op == node.op
            and (
                (self.left, self.right) == (node.left, node.right)
                or (node.op in "+*" and (self.right, self.left) == (node.left, node.right))
            )
        )


def read_statement(step: str) -> Statement | None:
    """What a step states; None if it has not exactly one equation."""
    equations = list(_EQUATION.finditer(step))
    if len(equations) != 1:
        return None
    found = equations[0]
    return Statement(
        claim=step[: found.start()] + "{}" + step[found.end() :],
        op=found[2],
        left=int(found[1]),
        right=int(found[3]),
        value=int(found[4]),
    )


def read_answer(step: str) -> int | None:
    """The value that an answer line boxes; None of another line."""
    found = _ANSWER.fullmatch(step)
    return None if found is None else int(found[1])


def _verify(program: Program, step: str, stated: set[int]) -> StepTruth:
    """Check one step; a right one is added to `stated`."""
    if (boxed := read_answer(step)) is not None:
        if program.target not in stated:
            return StepTruth.LOGIC
        return StepTruth.RIGHT if boxed == program.answer else StepTruth.ANSWER
    if (said := read_statement(step)) is None:
        return StepTruth.MALFORMED
    follows = [
        index
        for index, node in enumerate(program.nodes)
        if said.is_of(node) and stated.issuperset(node.needs)
    ]
    if not follows:
        return StepTruth.LOGIC
    if program.nodes[follows[0]].value != said.value:
        return StepTruth.ARITHMETIC
    stated.update(follows)
    return StepTruth.RIGHT


def carries_truth(meta: Mapping[str, str]) -> bool:
    """Whether a problem is of this domain. Others may have a field `program` of their own."""
    return "program" in meta and _program(meta["program"]) is not None


def truth_program(meta: Mapping[str, str]) -> Program:
    """The hidden program of a problem.

    Raises:
        KeyError: the problem is not of this domain.
    """
    if (program := _program(meta["program"])) is None:
        raise KeyError("program")
    return program


@lru_cache(maxsize=64)
def _program(text: str) -> Program | None:
    try:
        program = Program.from_json(text)
        in_order = all(0 <= j < i for i, one in enumerate(program.nodes) for j in one.needs)
        return program if in_order and 0 <= program.target < len(program.nodes) else None
    except (ValueError, KeyError, TypeError):
        return None
