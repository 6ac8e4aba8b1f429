"""Answers one question in its own process within a budget of counted steps.

A question is whether an answer equals a gold, or whether a gold can be parsed.

A step is a call of a Python function. Counting makes sympy at least twice as slow, and most
questions need far fewer steps than the budget. A question is therefore first tried without
counting, for the CPU time that `compute_min_cpu_s` returns. A question that ends within this time
cannot have exceeded the budget on any existing processor. Otherwise the question is restarted with
counting. Whether a question has a verdict therefore depends only on the question, not on the
machine or its load. Only the time that it takes depends on them.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
from types import FrameType
from typing import Any

MAX_STEPS = 600_000
"""Maximum Python calls for one question. They take 0.2 s on a processor of 2023, or 0.6 s if they
are counted. No pair in the tables of test cases or in real outputs needs more than 0.41 million."""
FASTEST_STEPS_PER_S = 20e6
"""Upper bound on the Python calls per second of any processor. A processor of 2023 makes 3 to 6
million in sympy."""
GUARD_S = 10
"""CPU seconds after which a counting child is killed. It must then be in a single call of C code,
whose steps are not counted. `guard` refuses every formula that could cause such a call."""
_OVER = b'{"same": null, "reason": "too_many_steps"}\n'


def run_attempt(question: dict[str, Any], output_fd: int) -> None:
    """Try to answer a question, and write one line of JSON with `same` and `reason`.

    If the steps are not counted and the attempt takes too long, `SIGPROF` terminates the process.

    Args:
        question: object with `gold`, `steps` (the budget) and `counted`. `counted` is true if the
            steps are counted, and false if the CPU time is limited instead. A comparison also has
            `answer` and `units_optional`; without them, the gold is only parsed.
        output_fd: file descriptor for the result.
    """
    seed_random_generators()
    sys.setrecursionlimit(_RECURSION + (1 if question["counted"] else 0))
    if question["counted"]:
        resource.setrlimit(resource.RLIMIT_CPU, (GUARD_S, 2 * GUARD_S))
        _end_process_after_steps(question["steps"], output_fd)
    else:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, compute_min_cpu_s(question["steps"]))
    reply = _decide_question(question)
    sys.setprofile(None)
    os.write(output_fd, json.dumps(reply).encode() + b"\n")


def compute_min_cpu_s(max_steps: int) -> float:
    """Return the CPU seconds that even the fastest processor needs for `max_steps` steps."""
    return max_steps / FASTEST_STEPS_PER_S


def seed_random_generators() -> None:
    """Seed the random generators, because sympy checks assumptions in a random order."""
    from sympy.core.random import seed

    seed(0)
    random.seed(0)


_RECURSION = 1_000


def _end_process_after_steps(max_steps: int, output_fd: int) -> None:
    """Make the first step over the limit write the reply `too_many_steps` and exit the process.

    The function raises no exception, because sympy could catch it. Steps inside `__eq__` are not
    counted: a hash table compares keys of equal hash in an order that depends on their addresses,
    so the number of comparisons varies.
    """
    steps = 0
    comparing: FrameType | None = None

    def count_step(frame: FrameType, event: str, _: object) -> None:
        nonlocal steps, comparing
        if comparing is not None:
            if event == "return" and frame is comparing:
                comparing = None
        elif event == "call":
            if frame.f_code.co_name == "__eq__":
                comparing = frame
                return
            steps += 1
            if steps > max_steps:
                os.write(output_fd, _OVER)
                os._exit(0)

    sys.setprofile(count_step)


def _decide_question(question: dict[str, Any]) -> dict[str, Any]:
    from mclabel.answers.workers.equivalence import can_parse_gold, decide_equivalence

    try:
        if "answer" not in question:
            return {"same": can_parse_gold(question["gold"]), "reason": "parsed"}
        same = decide_equivalence(
            question["answer"], question["gold"], units_optional=question["units_optional"]
        )
    except MemoryError:
        return {"same": None, "reason": "out_of_memory"}
    except Exception as error:  # sympy raises all kinds on formulas it cannot handle
        return {"same": None, "reason": f"sympy_{type(error).__name__}"}
    return {"same": same, "reason": "undecided" if same is None else "decided"}
