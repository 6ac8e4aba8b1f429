r"""The verifier on a problem that is worked out by hand.

Ada has 12 pens. Ben has 3 times as many pens as Ada. Cleo has 10 fewer pens than Ben. Dan has as
many pens as Ada and Cleo together. Eva has 5 pens. How many pens does Dan have?
"""

from __future__ import annotations

import pytest

from mclabel.domains.arith.program import Node, Program
from mclabel.domains.arith.verify import StepTruth, verify_steps

PROGRAM = Program(
    nodes=(
        Node(op="*", left=3, right=12, value=36, claim="Ben has {} pens.", needs=(), event="times"),
        Node(op="-", left=36, right=10, value=26, claim="Cleo has {} pens.", needs=(0,), event="x"),
        Node(op="+", left=12, right=26, value=38, claim="Dan has {} pens.", needs=(1,), event="x"),
        Node(op="+", left=5, right=12, value=17, claim="Both have {} pens.", needs=(), event="x"),
    ),
    target=2,
)
BEN, CLEO, DAN = (
    "Ben has 3 * 12 = 36 pens.",
    "Cleo has 36 - 10 = 26 pens.",
    "Dan has 12 + 26 = 38 pens.",
)
ANSWER = r"The answer is \boxed{38}."
R, L, A = StepTruth.RIGHT, StepTruth.LOGIC, StepTruth.ARITHMETIC
W, M = StepTruth.ANSWER, StepTruth.MALFORMED


@pytest.mark.parametrize(
    ("steps", "truths"),
    [
        ([BEN, CLEO, DAN, ANSWER], [R, R, R, R]),
        (["Ben has 12 * 3 = 36 pens.", CLEO, "Dan has 26 + 12 = 38 pens.", ANSWER], [R, R, R, R]),
        ([BEN, "Both have 5 + 12 = 17 pens.", CLEO, DAN, ANSWER], [R, R, R, R, R]),
        ([BEN, BEN, CLEO, DAN, ANSWER], [R, R, R, R, R]),
        ([CLEO, BEN, CLEO, DAN, ANSWER], [L, R, R, R, R]),  # Cleo's number depends on Ben's
        ([BEN, "Cleo has 10 - 36 = 26 pens.", DAN, ANSWER], [R, L, L, L]),
        ([BEN, "Cleo has 36 - 10 = 25 pens.", "Dan has 12 + 25 = 37 pens."], [R, A, L]),
        ([BEN, "Cleo has 36 + 10 = 46 pens."], [R, L]),
        ([BEN, "Cleo has 36 - 5 = 31 pens."], [R, L]),
        (["Dan has 3 * 12 = 36 pens."], [L]),
        ([BEN, CLEO, ANSWER], [R, R, L]),  # the final value was never derived
        ([BEN, CLEO, DAN, r"The answer is \boxed{83}."], [R, R, R, W]),
        ([BEN, CLEO, DAN, ANSWER, DAN], [R, R, R, R, M]),
        (["Ben has many pens.", ""], [M, M]),
        (["Ben has 3 * 12 = 36 pens. Cleo has 36 - 10 = 26 pens."], [M]),
        (["Ben has 3 * 12 = 360 pens."], [A]),
        (["Ben has 3 * 12 = 36"], [L]),
        (["Ben has 3 * 12 = " + "3" * 10_000 + " pens."], [M]),
        (["  " + BEN + "\n"], [R]),
    ],
)
def test_truth_of_steps(steps: list[str], truths: list[StepTruth]) -> None:
    assert verify_steps(PROGRAM, steps) == truths


def test_a_value_reached_by_a_wrong_way_supports_nothing() -> None:
    assert verify_steps(PROGRAM, ["Ben has 24 + 12 = 36 pens.", CLEO]) == [L, L]
