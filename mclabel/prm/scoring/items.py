"""Solutions as the items of a job: the rows of a file, or the solutions of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mclabel.core.errors import DataError, RejectReason
from mclabel.core.records import LabeledSolution
from mclabel.data.readers.rows import LONE_SURROGATES, row_place, scan_rows, text_of
from mclabel.data.readers.solutions import say_separated, solution_in
from mclabel.run.forecast import Size
from mclabel.run.shards.rejects import Reject

FILES = (".jsonl", ".json", ".parquet", ".csv")


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionItem:
    """A solution to be scored."""

    id: str
    """Its row in the file, or its own id in a run."""
    number: int
    """Its place in the input, from 1."""
    place: str
    """Names it in messages."""
    row: str
    """The input's row, as JSON."""
    problem: str
    steps: str | tuple[str, ...]
    """The solution with a step a line, or the texts of its steps."""
    is_separated: bool = False
    """True if the steps are given one by one, as in `GivenSolution`."""

    @property
    def num_chars(self) -> int:
        """Length of problem and solution."""
        return len(self.problem) + sum(map(len, self.steps))

    def content(self) -> Sequence[str]:
        """The whole row: it is written again with the scores."""
        return (self.row,)

    def extras(self) -> Sequence[str]:
        """Nothing: all of the row is content."""
        return ()


class Solutions:
    """Solutions of an input, read anew each time they are gone through.

    Rows that cannot be used are left out, which depends on nothing but the rows.
    """

    def __init__(
        self,
        rows: Callable[[], Iterable[SolutionItem | tuple[int, RejectReason]]],
        *,
        source: str,
        strict: bool = False,
    ) -> None:
        """Go through an input once, to count it.

        Args:
            rows: gives the input's rows: a solution, or a row's number and why it is rejected.
            source: its name.
            strict: whether a row that cannot be used is an error.

        Raises:
            DataError: no row can be used; if strict, one cannot.
        """
        self._rows, self.source, self._strict = rows, source, strict
        read = [(item.num_chars, item.is_separated) for item in self]
        lengths = [num_chars for num_chars, _ in read]
        say_separated(source, sum(is_separated for _, is_separated in read))
        self._count, self.size = len(lengths), Size.of_lengths(lengths)
        if lengths:
            return
        reasons = list(self.rejects())
        if not reasons:
            raise DataError(f"{source}: holds no solutions")
        raise DataError(none_left(source, reasons))

    @property
    def items(self) -> Solutions:
        """Number of its solutions."""
        return self

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[SolutionItem]:
        for item in self._rows():
            if isinstance(item, SolutionItem):
                yield item
            elif self._strict:
                number, why = item
                raise DataError(f"{row_place(self.source, number)}: {why.detail}")

    def rejects(self) -> Iterator[Reject]:
        """The rows that were left out, in order."""
        for item in self._rows():
            if not isinstance(item, SolutionItem):
                number, why = item
                yield Reject(row=number, source=self.source, reason=why.reason, detail=why.detail)


def none_left(source: str, rejects: Sequence[Reject]) -> str:
    """The message that nothing of an input can be scored; names the first row."""
    first = min(rejects, key=lambda reject: reject.row or 0)
    return (
        f"{source}: none of its {len(rejects)} rows can be scored; "
        f"{row_place(source, first.row or 0)}: {first.detail}"
    )


def file_items(source: str) -> Iterator[SolutionItem | tuple[int, RejectReason]]:
    """The rows of a file: a solution, or a row's number and why it is rejected."""
    for number, row in scan_rows(source):
        item = (
            row
            if isinstance(row, RejectReason)
            else row_item(number, row_place(source, number), row)
        )
        yield (number, item) if isinstance(item, RejectReason) else item


def row_item(number: int, place: str, row: Any) -> SolutionItem | RejectReason:
    """The solution in a row, or why there is none.

    Args:
        number: number of the row, from 1.
        place: names it in messages.
        row: as it was read.
    """
    if not isinstance(row, Mapping):
        return RejectReason("not_an_object", "must be an object with a problem and a solution")
    problem = text_of(row.get("problem"))
    if isinstance(problem, RejectReason):
        return RejectReason("no_problem", f"needs a problem (text): it {problem.detail}")
    given = solution_in(row)
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


def labeled_item(number: int, labeled: LabeledSolution) -> SolutionItem:
    """A solution of a run.

    Args:
        number: its place in the run, from 1.
        labeled: it, with its labels.
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
