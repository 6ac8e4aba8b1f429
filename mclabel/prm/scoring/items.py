"""Solutions as work items of a job, from the rows of a file or from a labelling run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mclabel.core.errors import DataError, RejectReason
from mclabel.core.records import LabeledSolution
from mclabel.data.readers.rows import (
    LONE_SURROGATES,
    describe_row_place,
    read_field_text,
    scan_rows,
)
from mclabel.data.readers.solutions import read_solution, warn_about_inserted_breaks
from mclabel.run.forecast import Size
from mclabel.run.shards.rejects import Reject

FILES = (".jsonl", ".json", ".parquet", ".csv")
"""Suffixes of files that can be scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionItem:
    """A solution to be scored or judged."""

    id: str
    """Number of the row in a file, or id of the solution in a run."""
    number: int
    """Position of the solution in the input, from 1."""
    place: str
    """Description of the item for error messages."""
    row: str
    """Row of the input, as JSON."""
    problem: str
    """Text of the problem."""
    steps: str | tuple[str, ...]
    """Text of the solution with a step per line, or the texts of its steps."""
    is_separated: bool = False
    """True if line breaks were inserted between steps that no white space separated."""

    @property
    def num_chars(self) -> int:
        """Return the number of characters of problem and solution."""
        return len(self.problem) + sum(map(len, self.steps))

    def content(self) -> Sequence[str]:
        """Return the texts that identify the item: its whole row."""
        return (self.row,)

    def extra_texts(self) -> Sequence[str]:
        """Return no further texts of the row, since `content` holds the whole row."""
        return ()


class Solutions:
    """The solutions of an input. Each iteration reads the input again.

    Rows that cannot be used are left out. Whether a row can be used depends on this row alone.
    """

    def __init__(
        self,
        rows: Callable[[], Iterable[SolutionItem | tuple[int, RejectReason]]],
        *,
        source: str,
        strict: bool = False,
    ) -> None:
        """Read an input once, to count its solutions.

        Args:
            rows: function that yields the input's rows. A row is a solution or, if it is rejected,
                its number and the reason.
            source: name of the input for messages.
            strict: true if an unusable row is an error.

        Raises:
            DataError: no row can be used or, with `strict`, a row cannot be used.
        """
        self._rows, self.source, self._strict = rows, source, strict
        read = [(item.num_chars, item.is_separated) for item in self]
        lengths = [num_chars for num_chars, _ in read]
        warn_about_inserted_breaks(source, sum(is_separated for _, is_separated in read))
        self._count, self.size = len(lengths), Size.from_lengths(lengths)
        if lengths:
            return
        reasons = list(self.rejects())
        if not reasons:
            raise DataError(f"{source}: holds no solutions")
        raise DataError(no_solutions_message(source, reasons))

    @property
    def items(self) -> Solutions:
        """Return this object, which iterates over the solutions and has their number as length."""
        return self

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[SolutionItem]:
        for item in self._rows():
            if isinstance(item, SolutionItem):
                yield item
            elif self._strict:
                number, why = item
                raise DataError(f"{describe_row_place(self.source, number)}: {why.detail}")

    def rejects(self) -> Iterator[Reject]:
        """Yield the rows that are left out, in input order."""
        for item in self._rows():
            if not isinstance(item, SolutionItem):
                number, why = item
                yield Reject(row=number, source=self.source, reason=why.reason, detail=why.detail)


def no_solutions_message(source: str, rejects: Sequence[Reject]) -> str:
    """Return the message for an input without usable rows, with the reason for the first row."""
    first = min(rejects, key=lambda reject: reject.row or 0)
    return (
        f"{source}: none of its {len(rejects)} rows can be scored; "
        f"{describe_row_place(source, first.row or 0)}: {first.detail}"
    )


def read_file_items(source: str) -> Iterator[SolutionItem | tuple[int, RejectReason]]:
    """Yield for each row of a file its solution, or its number and the reason for its rejection."""
    for number, row in scan_rows(source):
        item = (
            row
            if isinstance(row, RejectReason)
            else convert_row_to_item(number, describe_row_place(source, number), row)
        )
        yield (number, item) if isinstance(item, RejectReason) else item


def convert_row_to_item(number: int, place: str, row: Any) -> SolutionItem | RejectReason:
    """Return the solution in a row, or the reason for which the row is rejected.

    Args:
        number: number of the row, from 1.
        place: description of the row for messages.
        row: content of the row, as read from the file.
    """
    if not isinstance(row, Mapping):
        return RejectReason("not_an_object", "must be an object with a problem and a solution")
    problem = read_field_text(row.get("problem"))
    if isinstance(problem, RejectReason):
        return RejectReason("no_problem", f"needs a problem (text): it {problem.detail}")
    given = read_solution(row)
    if isinstance(given, RejectReason):
        return given
    content = json.dumps(row, ensure_ascii=False, default=str)
    try:
        content.encode()
    except UnicodeEncodeError:
        return RejectReason("not_utf8", LONE_SURROGATES)
    steps: str | tuple[str, ...] = given.text
    if given.step_ends is not None:
        steps = tuple(given.text[a:b] for a, b in pairwise((0, *given.step_ends)))
    return SolutionItem(
        id=str(number),
        number=number,
        place=place,
        row=content,
        problem=problem,
        steps=steps,
        is_separated=given.is_separated,
    )


def convert_solution_to_item(number: int, labeled: LabeledSolution) -> SolutionItem:
    """Return a labelled solution of a run as an item of a job.

    Args:
        number: position of the solution in the run, from 1.
        labeled: the solution with its labels.
    """
    problem, solution = labeled.problem, labeled.solution
    steps = tuple(step.text for step in solution.steps)
    row = {
        "id": solution.id,
        "problem_id": problem.id,
        "problem": problem.text,
        "steps": steps,
        "step_separator": "",
        "outcome": solution.outcome,
    }
    return SolutionItem(
        id=solution.id,
        number=number,
        place=f"solution {solution.id}",
        row=json.dumps(row, ensure_ascii=False),
        problem=problem.text,
        steps=steps,
    )
