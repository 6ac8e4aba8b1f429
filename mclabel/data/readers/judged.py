"""Reads solutions with human labels of the first wrong step: ProcessBench and PRM800K.

ProcessBench (arXiv 2412.06559) has one label per solution: the 0-based index of the first wrong
step, or -1 if no step is wrong. PRM800K (arXiv 2305.20050) rates steps -1, 0 or 1 up to the first
-1. Here only -1 counts as wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.core.errors import DataError, RejectReason
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.data.readers.rows import describe_row_place, read_object_rows
from mclabel.data.readers.solutions import RowRejects

_WHOLE = re.compile(r"-?\d{1,9}(?:\.0{1,9})?")


@dataclass(frozen=True, kw_only=True)
class JudgedSolution:
    """Solution with the index of its first wrong step."""

    id: str
    """Id of the solution, unique in its file."""
    problem: str
    """Text of the problem."""
    steps: tuple[str, ...]
    """Texts of the steps."""
    first_error: int | None
    """0-based index of the first wrong step; None if no step is wrong."""
    other_first_errors: frozenset[int | None] = frozenset()
    """Other values of `first_error` that the annotators accept."""
    answer_right: bool | None = None
    """True if the final answer is right; None if the source does not record this."""
    weight: float = 1.0
    """Number of solutions of a run that this one represents, if it was sampled from the run."""


def read_processbench(
    path: str | Path, rejected_rows: RowRejects | None = None
) -> list[JudgedSolution]:
    """Read one split of ProcessBench.

    Args:
        path: path of the file.
        rejected_rows: collection that receives the rows that cannot be used; None raises an error
            at the first such row.

    Raises:
        DataError: the file is empty or has another format. The message names a row.
    """
    rejects = RowRejects(str(path), strict=True) if rejected_rows is None else rejected_rows
    rows: dict[str, JudgedSolution] = {}
    for number, row in read_object_rows(str(path)):
        judged = row if isinstance(row, RejectReason) else _read_processbench_row(row)
        if isinstance(judged, JudgedSolution) and judged.id in rows:
            judged = RejectReason(
                "id_taken",
                f"id {judged.id!r} already occurs in an earlier row. Give every row its own id",
            )
        if isinstance(judged, RejectReason):
            rejects.add(judged, number)
        else:
            rows[judged.id] = judged
    if not rows:
        if rejects.found:
            raise DataError(rejects.describe_lack_of_usable_rows())
        raise DataError(f"{path}: holds no rows. Give a split of ProcessBench")
    return list(rows.values())


def read_prm800k(path: str | Path, rejected_rows: RowRejects | None = None) -> list[JudgedSolution]:
    """Read the solutions of PRM800K whose ratings decide which step is the first wrong one, if any.

    A row's solution consists of its `pre_generated_steps`, else of the chosen steps. If all
    candidates of a step were rated -1, each candidate ends a separate solution. Solutions whose
    ratings end before a decision are omitted, and so are rows of quality control and screening.

    Args:
        path: path of the file.
        rejected_rows: collection that receives the rows that cannot be used; None raises an error
            at the first such row.

    Raises:
        DataError: the file is empty or has another format. The message names a row.
    """
    rejects = RowRejects(str(path), strict=True) if rejected_rows is None else rejected_rows
    solutions, is_empty = [], True
    for number, row in read_object_rows(str(path)):
        if isinstance(row, RejectReason):
            rejects.add(row, number)
            continue
        place = describe_row_place(str(path), number)
        try:
            if row["is_quality_control_question"] or row["is_initial_screening_question"]:
                continue
            row_solutions = _read_rated_solutions(place, row["question"], row["label"])
        except (LookupError, TypeError, AttributeError) as error:
            detail = (
                f"not a row of PRM800K ({type(error).__name__}: {error}): needs question with "
                "problem, and label with steps, their completions and ratings"
            )
            rejects.add(RejectReason("bad_row", detail), number)
            continue
        is_empty = False
        solutions += row_solutions
    if is_empty and rejects.found:
        raise DataError(rejects.describe_lack_of_usable_rows())
    if is_empty:
        raise DataError(f"{path}: holds no rows. Give a .jsonl file of PRM800K")
    return solutions


def parse_first_error(label: object, num_steps: int) -> int | None:
    """Parse a label of ProcessBench: the 0-based index of the first wrong step, or None for -1.

    Labels such as 2.0 or "2" are accepted, because other tools write them.

    Args:
        label: label as read from the file.
        num_steps: number of steps of the solution.

    Raises:
        ValueError: the label is not a whole number in -1..num_steps - 1.
    """
    number = None
    if isinstance(label, str) and _WHOLE.fullmatch(label.strip()):
        number = int(float(label))
    elif isinstance(label, int | float) and not isinstance(label, bool) and label % 1 == 0:
        number = int(label)
    if number is None or not -1 <= number < num_steps:
        raise ValueError(f"label={label!r}: must be a whole number in -1..{num_steps - 1}")
    return None if number < 0 else number


def parse_answer_right(value: object) -> bool | None:
    """Parse the field `final_answer_correct` of ProcessBench, which is True for a right answer.

    Return None if the field is empty.

    Raises:
        ValueError: the value is neither true nor false.
    """
    values = {"true": True, "1": True, "false": False, "0": False, "": None, "none": None}
    if value is None or isinstance(value, bool):
        return value
    text = str(int(value)) if isinstance(value, float) and value % 1 == 0 else str(value)
    try:
        return values[text.strip().casefold()]
    except KeyError:
        raise ValueError(f"final_answer_correct={value!r}: must be true, false or null") from None


def _read_processbench_row(row: Mapping[str, Any]) -> JudgedSolution | RejectReason:
    wanted = "id, problem (strings), steps (list of strings), label (first wrong step, -1 for none)"
    try:
        identity, problem, steps, label = (row[k] for k in ("id", "problem", "steps", "label"))
    except KeyError:
        return RejectReason(
            "bad_row", f"not a row of ProcessBench: it needs {wanted}; it has {list(row)}"
        )
    if not isinstance(problem, str) or not problem.strip():
        return RejectReason(
            "no_problem", f"problem={problem!r}: must be a string that is not empty"
        )
    if not isinstance(steps, list) or not steps or not all(isinstance(s, str) for s in steps):
        return RejectReason("bad_solution", "steps: must be a list of strings, at least one")
    try:
        return JudgedSolution(
            id=str(identity),
            problem=problem,
            steps=tuple(steps),
            first_error=parse_first_error(label, len(steps)),
            other_first_errors=_parse_further_labels(row.get("also"), len(steps)),
            answer_right=parse_answer_right(row.get("final_answer_correct")),
        )
    except ValueError as error:
        return RejectReason("bad_label", str(error))


def _parse_further_labels(labels: object, num_steps: int) -> frozenset[int | None]:
    if not isinstance(labels, list | None):
        raise ValueError(f"also={labels!r}: must be a list of further accepted labels")
    return frozenset(parse_first_error(label, num_steps) for label in labels or ())


def _read_rated_solutions(
    place: str, question: Mapping[str, Any], label: Mapping[str, Any]
) -> list[JudgedSolution]:
    problem: str = question["problem"]
    pregenerated_steps: Sequence[str] | None = question.get("pre_generated_steps")
    path: list[str] = []
    for index, step in enumerate(label["steps"]):
        ratings = {c["text"]: c["rating"] for c in step["completions"] or ()}
        chosen, human_completion = step["chosen_completion"], step["human_completion"]
        if pregenerated_steps is not None:
            text = pregenerated_steps[index]
        elif chosen is not None:
            text = step["completions"][chosen]["text"]
        elif human_completion is not None:
            text = (
                human_completion if isinstance(human_completion, str) else human_completion["text"]
            )
            ratings = {text: 1}
        else:
            return [
                _make_judged_solution(f"{place}, candidate {number}", problem, [*path, text], index)
                for number, (text, rating) in enumerate(ratings.items())
                if rating is not None and rating < 0
            ]
        path.append(text)
        if (rating := ratings.get(text)) is None:
            return []
        if rating < 0:
            return [_make_judged_solution(place, problem, pregenerated_steps or path, index)]
    is_complete = label["finish_reason"] == "solution" and (
        pregenerated_steps is None or len(path) == len(pregenerated_steps)
    )
    return [_make_judged_solution(place, problem, path, None)] if is_complete and path else []


def _make_judged_solution(
    identity: str, problem: str, steps: Sequence[str], first_error: int | None
) -> JudgedSolution:
    return JudgedSolution(id=identity, problem=problem, steps=tuple(steps), first_error=first_error)


def to_judged_solutions(rows: Sequence[LabeledSolution]) -> list[JudgedSolution]:
    """Convert the labelled solutions of a run to judged solutions.

    Solutions whose labels do not decide which step is the first wrong one, if any, are left out.
    """
    return [
        JudgedSolution(
            id=row.solution.id,
            problem=row.problem.text,
            steps=tuple(list_step_texts(row)),
            first_error=row.first_error,
            answer_right=row.solution.outcome is Outcome.RIGHT,
        )
        for row in rows
        if row.is_decided
    ]


def list_step_texts(row: LabeledSolution) -> list[str]:
    """Return the texts of a labelled solution's steps."""
    return [step.text for step in row.solution.steps]
