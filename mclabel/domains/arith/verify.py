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
        answered = answered or bool(_ANSWER.fullmatch(step.strip()))
        truths.append(truth)
    return truths


def first_wrong_step(program: Program, steps: Sequence[str]) -> int | None:
    """0-based index of the first step that is not right, None if all are."""
    truths = verify_steps(program, steps)
    return next((i for i, t in enumerate(truths) if t is not StepTruth.RIGHT), None)


def _verify(program: Program, step: str, stated: set[int]) -> StepTruth:
    """Check one step; a right one is added to `stated`."""
    if answer := _ANSWER.fullmatch(step):
        if program.target not in stated:
            return StepTruth.LOGIC
        return StepTruth.RIGHT if int(answer[1]) == program.answer else StepTruth.ANSWER
    equations = list(_EQUATION.finditer(step))
    if len(equations) != 1:
        return StepTruth.MALFORMED
    found = equations[0]
    claim = step[: found.start()] + "{}" + step[found.end() :]
    left, op, right_operand, value = int(found[1]), found[2], int(found[3]), int(found[4])
    follows = [
        index
        for index, node in enumerate(program.nodes)
        if node.claim == claim
        and node.op == op
        and _same_operands(node, left, right_operand)
        and stated.issuperset(node.needs)
    ]
    if not follows:
        return StepTruth.LOGIC
    if program.nodes[follows[0]].value != value:
        return StepTruth.ARITHMETIC
    stated.update(follows)
    return StepTruth.RIGHT


def _same_operands(node: Node, left: int, right: int) -> bool:
    if (node.left, node.right) == (left, right):
        return True
    return node.op in "+*" and (node.right, node.left) == (left, right)


def carries_truth(meta: Mapping[str, str]) -> bool:
    """Whether a problem is of this domain. Others may have a field `program` of their own."""
    return "program" in meta and _program(meta["program"]) is not None


def true_first_error(meta: Mapping[str, str], steps: Sequence[str]) -> int | None:
    """The first wrong step of a solution, from 0; None for none.

    Raises:
        KeyError: the problem is not of this domain.
    """
    if (program := _program(meta["program"])) is None:
        raise KeyError("program")
    return first_wrong_step(program, steps)


@lru_cache(maxsize=64)
def _program(text: str) -> Program | None:
    try:
        return Program.from_json(text)
    except (ValueError, KeyError, TypeError):
        return None
