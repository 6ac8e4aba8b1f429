"""Write your own checker for durations, grade with it, and label with it.

    python examples/own_checker.py

A checker may be a plain function. It has any of the parameters `completion` (the whole solution),
`gold` (the known answer, as text or data), `problem` and `meta`. It returns True for a right
answer, False for a wrong one, and None if it cannot decide. For a job on a cluster, put the
function into your own module:

    mclabel label CONFIG checker=my_package.grading:same_time

If a configuration file names the checker (`checker: my_package.grading:same_time`), the command
needs `--allow my_package`.
"""

from __future__ import annotations

import re

import mclabel as mc

SECONDS = {"s": 1, "min": 60, "h": 3600}


def same_time(completion: str, gold: str) -> bool | None:
    """Grade whether a solution ends with the duration that the gold states, in any unit."""
    wanted, found = seconds(gold), seconds(completion)
    if wanted is None:
        raise ValueError(f"the gold {gold!r} states no duration")  # the verdict is then unknown
    return None if found is None else found == wanted


def seconds(text: str) -> float | None:
    """Return the last duration in a text, in seconds; None if the text has no duration."""
    found = re.findall(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|min|h)\b", text)
    return None if not found else float(found[-1][0]) * SECONDS[found[-1][1]]


def main() -> None:
    # Grade single completions.
    for text in ("So it takes 1.5 h.", "So it takes 80 min.", "I do not know."):
        print(f"{text:22} {mc.grade(text, '90 min', checker=same_time).verdict}")

    # Label given solutions by their outcome. The checker grades their answers.
    run = mc.label(
        [
            {
                "id": "train",
                "problem": "A train runs 3 times for 30 min. How long?",
                "answer": "1.5 h",
            }
        ],
        solutions=[
            {"problem_id": "train", "steps": ["3 * 30 = 90\n", "The answer is 90 min"]},
            {"problem_id": "train", "steps": ["3 + 30 = 33\n", "The answer is 33 min"]},
        ],
        policy={"model": "arith:policy", "max_tokens": 60},
        estimator="outcome",
        checker=same_time,
    )
    for solution in run:
        print(solution.solution.steps[-1].text, "->", solution.solution.outcome)


if __name__ == "__main__":
    main()
