"""Solutions whose first wrong step people have marked: ProcessBench and PRM800K.

ProcessBench (arXiv 2412.06559) gives one label a solution, the 0-based index of its first wrong
step or -1. PRM800K (arXiv 2305.20050) rates steps -1, 0 or 1 up to the first -1; here only -1 is
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.data.readers.rows import file_rows
from mclabel.errors import DataError


@dataclass(frozen=True, kw_only=True)
class JudgedSolution:
    """A solution and where it first goes wrong."""

    id: str
    """Unique in its file."""
    problem: str
    steps: tuple[str, ...]
    first_error: int | None
    answer_right: bool | None = None
    """Whether the final answer is the gold one; None where the source does not have it."""


def read_processbench(path: str | Path) -> list[JudgedSolution]:
    """The rows of one split of ProcessBench.

    Raises:
        DataError: an empty file, one of another format, or two rows of one id; names the row.
    """
    rows: dict[str, JudgedSolution] = {}
    for place, row in file_rows(str(path)):
        solution = _processbench_row(place, row)
        if solution.id in rows:
            raise DataError(
                f"{place}: id {solution.id!r} occurs in an earlier row, too. Give "
                "every row its own id"
            )
        rows[solution.id] = solution
    if not rows:
        raise DataError(f"{path}: an empty split: holds no rows. Give a split of ProcessBench")
    return list(rows.values())


def read_prm800k(path: str | Path) -> list[JudgedSolution]:
    """The solutions of PRM800K whose first wrong step, or soundness, its ratings decide.

    A solution is the one that was rated (`pre_generated_steps`), or the path of the chosen steps;
    where all candidates of a step were rated -1, each ends a solution of its own. Solutions whose
    rating ends before that are left out, and so are rows that checked labelers (quality control,
    screening).

    Raises:
        DataError: an empty file or one of another format; names the row.
    """
    solutions, empty = [], True
    for place, row in file_rows(str(path)):
        empty = False
        try:
            if row["is_quality_control_question"] or row["is_initial_screening_question"]:
                continue
            solutions += _rated(place, row["question"], row["label"])
        except (LookupError, TypeError, AttributeError) as error:
            raise DataError(
                f"{place}: not a row of PRM800K ({type(error).__name__}: {error}): needs question "
                "with problem, and label with steps, their completions and ratings"
            ) from error
    if empty:
        raise DataError(f"{path}: holds no rows. Give a .jsonl file of PRM800K")
    return solutions


def _processbench_row(place: str, row: Mapping[str, Any]) -> JudgedSolution:
    wanted = "id, problem (texts), steps (list of texts), label (first wrong step, -1 for none)"
    fields = list(row) if isinstance(row, Mapping) else type(row).__name__
    try:
        identity, problem, steps, label = (row[k] for k in ("id", "problem", "steps", "label"))
    except (KeyError, TypeError):
        raise DataError(
            f"{place}: not a row of ProcessBench: needs {wanted}; has {fields}"
        ) from None
    if not isinstance(problem, str) or not problem.strip():
        raise DataError(f"{place}: problem={problem!r}: must be a text that is not empty")
    if not isinstance(steps, list) or not steps or not all(isinstance(s, str) for s in steps):
        raise DataError(f"{place}: steps: must be a list of texts, at least one")
    if type(label) is not int or not -1 <= label < len(steps):
        raise DataError(f"{place}: label={label!r}: must be in -1..{len(steps) - 1}")
    right = row.get("final_answer_correct")
    return JudgedSolution(
        id=str(identity),
        problem=problem,
        steps=tuple(steps),
        first_error=None if label < 0 else label,
        answer_right=None if right is None else bool(right),
    )


def _rated(
    place: str, question: Mapping[str, Any], label: Mapping[str, Any]
) -> list[JudgedSolution]:
    problem: str = question["problem"]
    given: Sequence[str] | None = question.get("pre_generated_steps")
    path: list[str] = []
    for index, step in enumerate(label["steps"]):
        ratings = {c["text"]: c["rating"] for c in step["completions"] or ()}
        chosen, written = step["chosen_completion"], step["human_completion"]
        if given is not None:
            text = given[index]
        elif chosen is not None:
            text = step["completions"][chosen]["text"]
        elif written is not None:
            text = written if isinstance(written, str) else written["text"]
            ratings = {text: 1}
        else:
            return [
                _judged(f"{place}, candidate {number}", problem, [*path, text], index)
                for number, (text, rating) in enumerate(ratings.items())
                if rating is not None and rating < 0
            ]
        path.append(text)
        if (rating := ratings.get(text)) is None:
            return []
        if rating < 0:
            return [_judged(place, problem, given or path, index)]
    whole = label["finish_reason"] == "solution" and (given is None or len(path) == len(given))
    return [_judged(place, problem, path, None)] if whole and path else []


def _judged(
    identity: str, problem: str, steps: Sequence[str], first_error: int | None
) -> JudgedSolution:
    return JudgedSolution(id=identity, problem=problem, steps=tuple(steps), first_error=first_error)
