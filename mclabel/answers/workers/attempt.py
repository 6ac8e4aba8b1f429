"""One question in a process of its own, within a budget of counted steps.

A step is a call of a Python function. Counting slows sympy down to a half or less, and most
questions are far from the budget, so a question is first tried uncounted for `QUICK_S` of CPU
time: what ends within it cannot have taken more steps than the budget, on any processor that there
is. Only what does not is begun anew and counted. So whether a question has a verdict depends on
the question, and neither on the machine nor on what else runs on it; how long it takes does.
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
"""Python calls for one question: 0.2 s on a processor of 2023, and 0.6 s where they are counted. Of
the pairs in the tables of judged cases and in real outputs none needs more than 0.41 million."""
FASTEST_STEPS_PER_S = 20e6
"""Python calls a second that no processor reaches: one of 2023 makes 3 to 6 million in sympy."""
GUARD_S = 10
"""CPU seconds after which a counted child is killed: it is in a single call of C code then. The
guard of the texts leaves nothing to pass that could be so long."""
_OVER = b'{"same": null, "reason": "too_many_steps"}\n'


def attempt(question: dict[str, Any], output: int) -> None:
    """Write one line with `same` and `reason`, or die by `SIGPROF` if that takes too long.

    Args:
        question: `gold`, `steps` and, unless only parsing is asked for, `answer` and
            `units_optional`; `counted` where the time does not limit it but the steps.
        output: descriptor to write to.
    """
    settle_chance()
    sys.setrecursionlimit(_RECURSION + (1 if question["counted"] else 0))
    if question["counted"]:
        resource.setrlimit(resource.RLIMIT_CPU, (GUARD_S, 2 * GUARD_S))
        _count_steps(question["steps"], output)
    else:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, min_cpu_s(question["steps"]))
    reply = _answer(question)
    sys.setprofile(None)
    os.write(output, json.dumps(reply).encode() + b"\n")


def min_cpu_s(max_steps: int) -> float:
    """Return the CPU seconds that even the fastest processor needs for `max_steps` steps."""
    return max_steps / FASTEST_STEPS_PER_S


def settle_chance() -> None:
    """Seed the random generators, since sympy shuffles the order of the assumptions it checks."""
    from sympy.core.random import seed

    seed(0)
    random.seed(0)


_RECURSION = 1_000


def _count_steps(limit: int, output: int) -> None:
    """Write a separate verdict and end the process at the first step over the limit.

    The function raises no exception, because sympy could catch it. Steps inside `__eq__` are not
    counted: a hash table compares keys of equal hash in an order that depends on their addresses,
    so the number of comparisons varies.
    """
    steps = 0
    comparing: FrameType | None = None

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal steps, comparing
        if comparing is not None:
            if event == "return" and frame is comparing:
                comparing = None
        elif event == "call":
            if frame.f_code.co_name == "__eq__":
                comparing = frame
                return
            steps += 1
            if steps > limit:
                os.write(output, _OVER)
                os._exit(0)

    sys.setprofile(count)


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    from mclabel.answers.workers.equivalence import decide, parses

    try:
        if "answer" not in question:
            return {"same": parses(question["gold"]), "reason": "parsed"}
        same = decide(
            question["answer"], question["gold"], units_optional=question["units_optional"]
        )
    except MemoryError:
        return {"same": None, "reason": "out_of_memory"}
    except Exception as error:  # sympy raises all kinds on formulas it cannot handle
        return {"same": None, "reason": f"sympy_{type(error).__name__}"}
    return {"same": same, "reason": "undecided" if same is None else "decided"}
