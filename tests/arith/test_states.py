r"""States of hand-written traces, each compared with a person's reading.

Ada has 40 pens. Ada sells half of the pens. Ada buys 10 pens. Ada gives 6 pens to Tom. Ben has
twice as many pens as Ada. Cleo has 5 pens and gets 3 more. How many pens does Ben have?
"""

from __future__ import annotations

import random

import pytest

from mclabel.domains.arith.misconceptions import write_trace
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.arith.program import Node, Program, write_reference_solution
from mclabel.domains.arith.verify import verify_trace_states
from mclabel.domains.registry import find_true_first_error, find_true_step_states

ADA, BEN, CLEO = "Ada has {} pens.", "Ben has {} pens.", "Cleo has {} pens."
PROGRAM = Program(
    nodes=(
        Node(op="/", left=40, right=2, value=20, claim=ADA, needs=(), event="sell_half"),
        Node(op="+", left=20, right=10, value=30, claim=ADA, needs=(0,), event="buy"),
        Node(op="-", left=30, right=6, value=24, claim=ADA, needs=(1,), event="give"),
        Node(op="*", left=2, right=24, value=48, claim=BEN, needs=(2,), event="times"),
        Node(op="+", left=5, right=3, value=8, claim=CLEO, needs=(), event="buy"),
    ),
    target=3,
)
STATES = {"S": "sound", "E": "error", "C": "carried", "R": "recovered"}
BOXED = r"The answer is \boxed{%d}."

TRACES = {
    "right": """
        S Ada has 40 / 2 = 20 pens.
        S Ada has 10 + 20 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        S Ben has 2 * 24 = 48 pens.
        S So the answer is 48.
        S Let me check. Ada has 30 - 6 = 24 pens.
        S The answer is \\boxed{48}.""",
    "an error that is never noticed": """
        S Ada has 40 / 2 = 20 pens.
        E Ada has 20 - 10 = 10 pens.
        C Ada has 10 - 6 = 4 pens.
        C Let me check. Ada has 20 - 10 = 10 pens.
        C Ben has 2 * 4 = 8 pens.
        C So the answer is 8.
        C The answer is \\boxed{8}.""",
    "noticed at once": """
        S Ada has 40 / 2 = 20 pens.
        E Ada has 20 - 10 = 10 pens.
        R Wait. Ada has 20 + 10 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        S Ben has 2 * 24 = 48 pens.
        S The answer is \\boxed{48}.""",
    "noticed after an answer; what rests on it is computed anew": """
        S Ada has 40 / 2 = 20 pens.
        E Ada has 20 - 10 = 10 pens.
        C Ada has 10 - 6 = 4 pens.
        C Ben has 2 * 4 = 8 pens.
        C So the answer is 8.
        C Let me check. Ada has 40 / 2 = 20 pens.
        R Wait. Ada has 20 + 10 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        S Ben has 2 * 24 = 48 pens.
        S So the answer is 48.
        S The answer is \\boxed{48}.""",
    "repaired, then the old answer is given all the same": """
        E Ada has 40 * 2 = 80 pens.
        C Ada has 80 + 10 = 90 pens.
        C Ada has 90 - 6 = 84 pens.
        C Ben has 2 * 84 = 168 pens.
        R Wait. Ada has 40 / 2 = 20 pens.
        E So the answer is 168.
        C The answer is \\boxed{168}.""",
    "an event left out, and filled in later": """
        E Ada has 40 + 10 = 50 pens.
        C Ada has 50 - 6 = 44 pens.
        R Wait. Ada has 40 / 2 = 20 pens.
        S Ada has 20 + 10 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        S Ben has 2 * 24 = 48 pens.
        S The answer is \\boxed{48}.""",
    "two errors, one above the other: the lower one's repair is not enough": """
        E Ada has 40 * 2 = 80 pens.
        C Ada has 80 + 10 = 90 pens.
        C Ada has 90 + 6 = 96 pens.
        C Wait. Ada has 90 - 6 = 84 pens.
        R Wait. Ada has 40 / 2 = 20 pens.
        S Ada has 20 + 10 = 30 pens.
        E Ada has 30 + 6 = 36 pens.
        C Ben has 2 * 36 = 72 pens.""",
    "a sound step is corrected into a wrong one, and back": """
        S Ada has 40 / 2 = 20 pens.
        S Ada has 20 + 10 = 30 pens.
        E Wait. Ada has 20 - 10 = 10 pens.
        C Ada has 10 - 6 = 4 pens.
        R Wait. Ada has 20 + 10 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        S Ben has 2 * 24 = 48 pens.
        S The answer is \\boxed{48}.""",
    "corrected into a wrong one after all was right; put right, the rest is right again": """
        S Ada has 40 / 2 = 20 pens.
        S Ada has 20 + 10 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        S Ben has 2 * 24 = 48 pens.
        E Wait. Ada has 20 - 10 = 10 pens.
        C So the answer is 48.
        R Wait. Ada has 20 + 10 = 30 pens.
        S So the answer is 48.
        S The answer is \\boxed{48}.""",
    "wrong arithmetic": """
        S Ada has 40 / 2 = 20 pens.
        E Ada has 20 + 10 = 40 pens.
        C Ada has 40 - 6 = 34 pens.
        C Let me check. Ada has 20 + 10 = 40 pens.
        R Wait. Ada has 20 + 10 = 30 pens.
        E Ben has 2 * 34 = 68 pens.""",
    "the right answer by luck does not mend anything": """
        S Ada has 40 / 2 = 20 pens.
        E Ada has 20 - 10 = 10 pens.
        C Ada has 10 - 6 = 4 pens.
        C So the answer is 48.
        C The answer is \\boxed{48}.""",
    "a right value by a wrong way": """
        S Ada has 40 / 2 = 20 pens.
        S Ada has 20 + 10 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        E Ben has 24 + 24 = 48 pens.
        C So the answer is 48.
        R Wait. Ben has 2 * 24 = 48 pens.
        S So the answer is 48.
        S The answer is \\boxed{48}.""",
    "an answer too early, then the step that was missing": """
        S Ada has 40 / 2 = 20 pens.
        S Ada has 20 + 10 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        E So the answer is 24.
        R Wait. Ben has 2 * 24 = 48 pens.
        S So the answer is 48.
        S The answer is \\boxed{48}.""",
    "an answer that is misstated stands until it is stated again": """
        S Ada has 40 / 2 = 20 pens.
        S Ada has 20 + 10 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        S Ben has 2 * 24 = 48 pens.
        E So the answer is 84.
        C Let me check. Ben has 2 * 24 = 48 pens.
        R So the answer is 48.
        S The answer is \\boxed{48}.""",
    "nonsense: an error, on which nothing rests": """
        S Ada has 40 / 2 = 20 pens.
        E Ada has has 20 pens.
        R Ada has 20 + 10 = 30 pens.
        S Ada has 30 - 6 = 24 pens.
        E Tom has 24 - 6 = 18 pens.
        R Ben has 2 * 24 = 48 pens.
        S The answer is \\boxed{48}.""",
    "nonsense while an error stands": """
        S Ada has 40 / 2 = 20 pens.
        E Ada has 20 - 10 = 10 pens.
        C Wait, wait.
        C Let me check. Ada has 40 / 2 = 20 pens.
        R Wait. Ada has 20 + 10 = 30 pens.""",
    "an error about what the question does not need": """
        S Ada has 40 / 2 = 20 pens.
        E Cleo has 5 - 3 = 2 pens.
        R Ada has 20 + 10 = 30 pens.
        S Wait. Cleo has 5 + 3 = 8 pens.""",
    "a step before what it rests on": """
        E Ada has 20 + 10 = 30 pens.
        R Ada has 40 / 2 = 20 pens.
        S Ada has 30 - 6 = 24 pens.""",
    "nothing may follow the answer": """
        E The answer is \\boxed{48}.
        C Ada has 40 / 2 = 20 pens.""",
}


@pytest.mark.parametrize("name", TRACES)
def test_states_of_a_trace(name: str) -> None:
    read = [line.strip().split(" ", 1) for line in TRACES[name].strip().splitlines()]
    steps = [step.replace("Wait. ", "Wait.\n").replace("check. ", "check.\n") for _, step in read]
    wanted = [STATES[letter] for letter, _ in read]
    assert verify_trace_states(PROGRAM, steps) == wanted
    meta = {"program": PROGRAM.to_json()}
    assert find_true_step_states(meta, steps) == wanted
    assert find_true_first_error(meta, steps) == (
        wanted.index("error") if "error" in wanted else None
    )


def test_marks_of_thinking_and_steps_of_several_lines() -> None:
    lines = write_reference_solution(PROGRAM).split("\n")
    thinking = ["<think>\n", *lines[:-1], "</think>\n", lines[-1]]
    assert verify_trace_states(PROGRAM, thinking) == ["sound"] * 7
    assert verify_trace_states(
        PROGRAM, ["<think>\n" + "\n".join(lines[:3]), lines[3] + "\n</think>"]
    ) == [
        "sound",
        "sound",
    ]
    wrong = "Ada has 20 - 10 = 10 pens."
    both = [lines[0] + "\n" + wrong, "<think>\n", lines[1] + "\n" + lines[2]]
    assert verify_trace_states(PROGRAM, both) == ["error", "carried", "recovered"]
    assert verify_trace_states(PROGRAM, [lines[0], "Wait.", wrong, "Wait.", lines[1]]) == [
        "sound",
        "sound",
        "error",
        "carried",
        "recovered",
    ]
    assert verify_trace_states(PROGRAM, ["", "\n"]) == ["error", "carried"]


def test_a_written_trace_ends_right_where_nothing_stands_wrong() -> None:
    rng = random.Random(1)
    kinds: set[str] = set()
    for problem in generate_problems(60, seed=5, split="test", num_steps=(6, 10)):
        program = Program.from_json(problem.meta["program"])
        lines = write_trace(program, problem.text, rng=rng, strength=1.0).split("\n")
        states = verify_trace_states(program, lines)
        kinds |= set(states)
        if states[-1] in ("sound", "recovered"):
            assert lines[-1] == BOXED % program.answer
    assert kinds == set(STATES.values())
