"""Measure how often flags of symbolic step checks are right, and how many errors they find.

    python -m tests.benchmarks.symbolic_steps [--data DIR] [--smoke | --quick]

The benchmark checks the solutions of ProcessBench, whose first wrong step people have marked, and
the gold solutions of GSM8K and MATH-500, cut into sentences. A flag claims that the first error
lies at or before its step. So the first flag is right if the marked step is not after it. On a
sound solution every flag is a false alarm. Speed is in steps per second of this process's CPU time.
The last line is JSON. At the smoke size a few built-in rows replace the public data.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.judge.symbolic import EqualityFlag, check_steps
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import DATA, BenchmarkSize, SizedParser, not_run

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CALCULATOR = re.compile(r"<<[^<>]*>>")
"""Marks in GSM8K's solutions that were written for a calculator tool."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A solution in steps, with the known facts about it."""

    id: str
    problem: str
    steps: Sequence[str]
    first_error: int | None
    """0-based index of the first wrong step; None if no step is wrong."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The flags of a set of solutions, and the CPU time that they took."""

    solutions: Sequence[Solution]
    flags: Sequence[Sequence[EqualityFlag]]
    cpu_s: float

    @property
    def num_steps(self) -> int:
        return sum(len(solution.steps) for solution in self.solutions)

    def flagged(self) -> list[tuple[Solution, EqualityFlag]]:
        """Return the flagged solutions, each with its first flag."""
        pairs = zip(self.solutions, self.flags, strict=True)
        return [(solution, flags[0]) for solution, flags in pairs if flags]


SMOKE = {
    "gsm8k": [
        Solution(id="a", problem="", steps=["3 * 4 = 12.", "12 + 5 = 18."], first_error=1),
        Solution(id="b", problem="", steps=["3 * 4 = 12.", "12 + 5 = 17."], first_error=None),
    ],
    "math": [
        Solution(id="c", problem="", steps=[r"\(2x + 3 = 11\)", "So x = 5."], first_error=1),
        Solution(id="d", problem="", steps=[r"\(2x + 3 = 11\)", "So x = 4."], first_error=None),
    ],
    "gold": [
        Solution(
            id="e", problem="", steps=[r"\[ \frac{1}{2} + \frac{1}{2} = 1 \]"], first_error=None
        )
    ],
}


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the public data")
    args = parser.read()
    size: BenchmarkSize = args.size
    if size is BenchmarkSize.SMOKE:
        sets = SMOKE
    else:
        if not args.data.is_dir():
            not_run(f"The folder {args.data} does not exist. Name another with --data")
        sets = read_sets(args.data, every=size.pick(smoke=1, quick=4, full=1))
    finish(figures({name: measure(solutions) for name, solutions in sets.items()}))


def measure(solutions: Sequence[Solution]) -> Measured:
    """Check every solution once, and measure the CPU time of this process."""
    start = time.process_time()
    flags = [check_steps(solution.problem, solution.steps) for solution in solutions]
    return Measured(solutions=solutions, flags=flags, cpu_s=time.process_time() - start)


def labelled_figures(measured: Measured) -> dict[str, Any]:
    """Return the figures of solutions with a marked first error.

    Returns:
        `at_or_after`: share of the flagged solutions whose first error is not after the first flag.
        `found`: share of the wrong solutions whose first flag is at the first error.
        `false_alarms`: share of the sound solutions that are flagged. The other entries are the
        numbers of these solutions. A share without solutions is None.
    """
    flagged = measured.flagged()
    wrong = [solution for solution in measured.solutions if solution.first_error is not None]
    right = sum(
        solution.first_error is not None and flag.step >= solution.first_error
        for solution, flag in flagged
    )
    exact = sum(flag.step == solution.first_error for solution, flag in flagged)
    alarms = sum(solution.first_error is None for solution, _ in flagged)
    return {
        "at_or_after": _share(right, len(flagged)),
        "found": _share(exact, len(wrong)),
        "false_alarms": _share(alarms, len(measured.solutions) - len(wrong)),
        "solutions": len(measured.solutions),
        "wrong": len(wrong),
        "flagged": len(flagged),
    }


def figures(measured: dict[str, Measured]) -> dict[str, Any]:
    """Return the figures of the JSON line."""
    gold = measured["gold"]
    num_flagged = len(gold.flagged())
    cpu_s = sum(corpus.cpu_s for corpus in measured.values())
    return {
        **{name: labelled_figures(measured[name]) for name in ("gsm8k", "math")},
        "gold": {
            "solutions": len(gold.solutions),
            "flagged": num_flagged,
            "share": _share(num_flagged, len(gold.solutions)),
        },
        "steps_per_second": round(sum(corpus.num_steps for corpus in measured.values()) / cpu_s),
    }


def read_sets(data: Path, *, every: int) -> dict[str, list[Solution]]:
    """Read every `every`th solution of ProcessBench and every `every`th gold solution."""
    sets = {
        name: [
            Solution(
                id=row["id"],
                problem=row["problem"],
                steps=row["steps"],
                first_error=None if row["label"] < 0 else row["label"],
            )
            for row in _rows(data / f"processbench_{name}.jsonl", every)
        ]
        for name in ("gsm8k", "math")
    }
    gold = [
        _gold(f"gsm8k-{row['idx']}", row["question"], _CALCULATOR.sub("", row["answer"]))
        for row in _rows(data / "gsm8k_test.jsonl", every)
    ]
    gold += [
        _gold(row["unique_id"], row["problem"], row["solution"])
        for row in _rows(data / "math500.jsonl", every)
    ]
    return {**sets, "gold": gold}


def _gold(name: str, problem: str, text: str) -> Solution:
    steps = [part for part in _SENTENCE.split(text) if part.strip()]
    return Solution(id=name, problem=problem, steps=steps, first_error=None)


def _rows(path: Path, every: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.open(encoding="utf-8")][::every]


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


if __name__ == "__main__":
    main()
