"""Solutions whose first wrong step people have marked: ProcessBench and PRM800K.

ProcessBench (arXiv 2412.06559) gives one label a solution, the 0-based index of its first wrong
step or -1. PRM800K (arXiv 2305.20050) rates steps -1, 0 or 1 up to the first -1; here only -1 is
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.core.errors import DataError, RejectReason
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.data.readers.rows import object_rows, row_place
from mclabel.data.readers.solutions import RowRejects

_WHOLE = re.compile(r"-?\d{1,9}(?:\.0{1,9})?")


@dataclass(frozen=True, kw_only=True)
class JudgedSolution:
    """A solution and where it first goes wrong."""

    id: str
    """Unique in its file."""
    problem: str
    steps: tuple[str, ...]
    first_error: int | None
    also: frozenset[int | None] = frozenset()
    """Other first errors that those who judged it accept."""
    answer_right: bool | None = None
    """True if the final answer is the gold one; None where the source does not have it."""
    weight: float = 1.0
    """How many solutions of its run it stands for, if it was drawn from one."""


def read_processbench(path: str | Path, left_out: RowRejects | None = None) -> list[JudgedSolution]:
    """The rows of one split of ProcessBench.

    Args:
        path: of the file.
        left_out: receives the rows that cannot be used; None makes the first an error.

    Raises:
        DataError: an empty file, or one of another format; names a row.
    """
    rejects = RowRejects(str(path), strict=True) if left_out is None else left_out
    rows: dict[str, JudgedSolution] = {}
    for number, row in object_rows(str(path)):
        found = row if isinstance(row, RejectReason) else _processbench_row(row)
        if isinstance(found, JudgedSolution) and found.id in rows:
            found = RejectReason(
                "id_taken",
                f"id {found.id!r} occurs in an earlier row, too. Give every row its own id",
            )
        if isinstance(found, RejectReason):
            rejects.add(found, number)
        else:
            rows[found.id] = found
    if not rows:
        if rejects.found:
            raise DataError(rejects.none_left())
        raise DataError(f"{path}: an empty split: holds no rows. Give a split of ProcessBench")
    return list(rows.values())


def read_prm800k(path: str | Path, left_out: RowRejects | None = None) -> list[JudgedSolution]:
    """The solutions of PRM800K whose first wrong step, or soundness, its ratings decide.

    A solution is the one that was rated (`pre_generated_steps`), or the path of the chosen steps;
    where all candidates of a step were rated -1, each ends a solution of its own. Solutions whose
    rating ends before that are left out, and so are rows that checked labelers (quality control,
    screening).

    Args:
        path: of the file.
        left_out: receives the rows that cannot be used; None makes the first an error.

    Raises:
        DataError: an empty file or one of another format; names the row.
    """
    rejects = RowRejects(str(path), strict=True) if left_out is None else left_out
    solutions, empty = [], True
    for number, row in object_rows(str(path)):
        if isinstance(row, RejectReason):
            rejects.add(row, number)
            continue
        place = row_place(str(path), number)
        try:
            if row["is_quality_control_question"] or row["is_initial_screening_question"]:
                continue
            found = _rated(place, row["question"], row["label"])
        except (LookupError, TypeError, AttributeError) as error:
            why = (
                f"not a row of PRM800K ({type(error).__name__}: {error}): needs question with "
                "problem, and label with steps, their completions and ratings"
            )
            rejects.add(RejectReason("bad_row", why), number)
            continue
        empty = False
        solutions += found
    if empty and rejects.found:
        raise DataError(rejects.none_left())
    if empty:
        raise DataError(f"{path}: holds no rows. Give a .jsonl file of PRM800K")
    return solutions


def first_error_of(label: object, num_steps: int) -> int | None:
    """The first wrong step that a label of ProcessBench names, None for -1.

    Tables that were written by other tools have labels as 2.0 or "2".

    Args:
        label: as it was read.
        num_steps: of the solution.

    Raises:
        ValueError: it is no whole number in -1..num_steps - 1.
    """
    number = None
    if isinstance(label, str) and _WHOLE.fullmatch(label.strip()):
        number = int(float(label))
    elif isinstance(label, int | float) and not isinstance(label, bool) and label % 1 == 0:
        number = int(label)
    if number is None or not -1 <= number < num_steps:
        raise ValueError(f"label={label!r}: must be a whole number in -1..{num_steps - 1}")
    return None if number < 0 else number


def answer_right_of(value: object) -> bool | None:
    """What `final_answer_correct` says; None where it says nothing.

    Raises:
        ValueError: it is neither true nor false.
    """
    said = {"true": True, "1": True, "false": False, "0": False, "": None, "none": None}
    if value is None or isinstance(value, bool):
        return value
    text = str(int(value)) if isinstance(value, float) and value % 1 == 0 else str(value)
    try:
        return said[text.strip().casefold()]
    except KeyError:
        raise ValueError(f"final_answer_correct={value!r}: must be true, false or null") from None


def _processbench_row(row: Mapping[str, Any]) -> JudgedSolution | RejectReason:
    wanted = "id, problem (texts), steps (list of texts), label (first wrong step, -1 for none)"
    try:
        identity, problem, steps, label = (row[k] for k in ("id", "problem", "steps", "label"))
    except KeyError:
        return RejectReason(
            "bad_row", f"not a row of ProcessBench: needs {wanted}; has {list(row)}"
        )
    if not isinstance(problem, str) or not problem.strip():
        return RejectReason("no_problem", f"problem={problem!r}: must be a text that is not empty")
    if not isinstance(steps, list) or not steps or not all(isinstance(s, str) for s in steps):
        return RejectReason("bad_solution", "steps: must be a list of texts, at least one")
    try:
        return JudgedSolution(
            id=str(identity),
            problem=problem,
            steps=tuple(steps),
            first_error=first_error_of(label, len(steps)),
            also=_also(row.get("also"), len(steps)),
            answer_right=answer_right_of(row.get("final_answer_correct")),
        )
    except ValueError as error:
        return RejectReason("bad_label", str(error))


def _also(labels: object, num_steps: int) -> frozenset[int | None]:
    if not isinstance(labels, list | None):
        raise ValueError(f"also={labels!r}: must be a list of labels that are accepted, too")
    return frozenset(first_error_of(label, num_steps) for label in labels or ())


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


def as_judged(rows: Sequence[LabeledSolution]) -> list[JudgedSolution]:
    """The labels of a run as judgements; undecided solutions are left out."""
    return [
        JudgedSolution(
            id=row.solution.id,
            problem=row.problem.text,
            steps=tuple(row_steps(row)),
            first_error=row.first_error,
            answer_right=row.solution.outcome is Outcome.RIGHT,
        )
        for row in rows
        if row.is_decided
    ]


def row_steps(row: LabeledSolution) -> list[str]:
    """The texts of a labelled solution's steps."""
    return [step.text for step in row.solution.steps]
