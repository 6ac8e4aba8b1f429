"""What answers on the way find in solutions that people have judged: ProcessBench, with golds.

The golds are those of GSM8K and MATH, whose problems they are, found by their texts; solutions to
other problems are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.answers import grade
from mclabel.answers.extraction.extract import reference_answer, stated_answer
from mclabel.core.records import Verdict

SHARED = Path(__file__).parents[3] / "shared" / "data"
DATA = Path(os.environ.get("MCLABEL_TEST_DATA", SHARED))
GOLDS = {
    "gsm8k_test.jsonl": ("question", "answer"),
    "math500.jsonl": ("problem", "answer"),
    "math_train.jsonl": ("problem", "final_answer"),
}
"""By file: the columns of problem and gold, or of a solution that holds it."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """A judged solution."""

    gold: str
    steps: tuple[str, ...]
    first_error: int | None


def given_solutions() -> list[Given] | None:
    """Those whose problem is known; None without the data."""
    if not DATA.is_dir():
        return None
    golds: dict[str, str] = {}
    for name, (problem, answer) in GOLDS.items():
        for row in _rows(DATA / name):
            golds.setdefault(_squeezed(row[problem]), reference_answer(str(row[answer])))
    found = []
    for name in ("processbench_gsm8k.jsonl", "processbench_math.jsonl"):
        for row in _rows(DATA / name):
            gold = golds.get(_squeezed(row["problem"]))
            if gold is not None:
                error = None if row["label"] < 0 else row["label"]
                found.append(Given(gold=gold, steps=tuple(row["steps"]), first_error=error))
    return found


def by_answers(rows: list[Given]) -> dict[str, float]:
    """The rule that the first wrong answer on the way is the first error, and none without one."""
    stating = named = hits = late = errors = 0
    for row in rows:
        told = [
            (step, grade(answer, row.gold).verdict)
            for step, text in enumerate(row.steps[:-1])
            if (answer := stated_answer(text)) is not None
        ]
        if not told:
            continue
        stating += 1
        errors += row.first_error is not None
        first = next((step for step, verdict in told if verdict is Verdict.WRONG), None)
        if first is not None:
            named += 1
            hits += first == row.first_error
            late += row.first_error is not None and row.first_error <= first
    return {
        "solutions": len(rows),
        "state_an_answer": stating,
        "of_these_with_an_error": errors,
        "named": named,
        "named_is_first_error": round(hits / max(1, named), 4),
        "named_at_or_after_it": round(late / max(1, named), 4),
    }


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _squeezed(text: object) -> str:
    return " ".join(str(text).split())
