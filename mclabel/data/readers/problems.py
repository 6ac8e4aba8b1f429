"""Reads and checks the problems of any source, in the source's order."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np

from mclabel.core.errors import DataError, RejectReason, shorten_detail
from mclabel.core.records import CHANCE, Problem
from mclabel.data.readers.base import ReaderSettings, RowSettings, make_reader, make_reader_settings
from mclabel.data.readers.problem_rows import Columns, read_problem, read_row_id
from mclabel.data.readers.rows import describe_row_place
from mclabel.run.forecast import Size
from mclabel.run.shards.rejects import Reject


def read_problems(
    problems: ReaderSettings | str, *, may_repeat: bool = False, strict: bool = False
) -> ProblemStream:
    """Read problems with their gold answers, in the order of the source.

    Args:
        problems: settings of the reader, or only the source, as in `problems.source`.
        may_repeat: True if several rows may have the same problem, for example one per solution.
        strict: True if a row that cannot be used is an error. Otherwise the row is left out.

    Returns:
        Problems with distinct ids. The first of several rows with the same id is used.

    Raises:
        ConfigError: no reader reads the source.
        DataError: the source is missing or unreadable, or no row can be used. If `strict`, one row
            that cannot be used is enough.
    """
    settings = make_reader_settings(problems) if isinstance(problems, str) else problems
    columns: Columns = (None, None)
    if isinstance(settings, RowSettings):
        columns = (settings.problem_column, settings.answer_column)
    return ProblemStream(
        make_reader(settings).rows,
        source=settings.source,
        columns=columns,
        limit=settings.limit,
        chance=settings.chance,
        may_repeat=may_repeat,
        strict=strict,
    )


RepeatFault = Literal["duplicate", "id_taken"]
"""Fault of a row whose id an earlier row has: `duplicate` if both rows have the same problem and
answer, and `id_taken` if they differ."""


class Problems(Protocol):
    """Collection of problems that can be iterated repeatedly: a list, or a stream from a file."""

    def __len__(self) -> int:
        """Return the number of problems."""

    def __iter__(self) -> Iterator[Problem]:
        """Iterate over the problems, in the same order every time."""


class ProblemStream:
    """Problems of a source, which is read again for each iteration.

    Rows that cannot be used are left out. Only the row numbers of repeated problems are held in
    memory, so a source of millions of rows needs little memory.
    """

    def __init__(
        self,
        rows: Callable[[], Iterable[tuple[int, Any]]],
        *,
        source: str,
        columns: Columns = (None, None),
        limit: int | None = None,
        chance: float | None = None,
        may_repeat: bool = False,
        strict: bool = False,
    ) -> None:
        """Read the rows to count the problems and to find repeated problems.

        Args:
            rows: function that returns all rows of the source with their numbers, from 1.
            source: name of the source, for messages.
            columns: names of the columns of the problem and of the answer, each None for common
                names.
            limit: maximum number of distinct problems; None for no limit.
            chance: probability of a right guess; None to derive it from each gold answer.
            may_repeat: True if several rows may have the same problem. Repeated rows are then left
                out without being rejected.
            strict: True to raise an error for a row that cannot be used. Otherwise it is left out.

        Raises:
            DataError: no row can be used. If `strict`, one row that cannot be used is enough.
        """
        self._rows, self._source, self._strict = rows, source, strict
        self._columns, self._limit, self._may_repeat = columns, limit, may_repeat
        self._meta = {} if chance is None else {CHANCE: f"{chance:g}"}
        self._repeats: dict[int, RepeatFault] = {}
        self._count = self.num_rejected = 0
        self._num_chars = self._sum_squared_chars = 0
        seen = array("Q")
        for _, _, problem in self._read_rows():
            if isinstance(problem, Problem):
                seen.append(_hash_text(problem.id))
                self._add_text_size(problem)
                if len(seen) == limit:
                    break
            else:
                self.num_rejected += 1
        self._count = len(seen)
        if len(np.unique(np.frombuffer(seen, dtype=np.uint64))) < self._count:
            self._find_repeats()
        if not self._count:
            first = next(self.rejects(), None)
            if first is None:
                raise DataError(
                    f"{source}: holds no problems. Give a source with at least one problem"
                )
            raise DataError(
                f"{source}: holds no problems, because none of its {self.num_rejected} rows can be "
                f"used; {describe_row_place(source, first.row or 0)}: "
                f"{shorten_detail(first.detail)}"
            )

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Problem]:
        remaining = self._count
        for _, _, problem in self._read_rows():
            if not remaining:
                return
            if isinstance(problem, Problem):
                yield problem
                remaining -= 1

    @property
    def size(self) -> Size:
        """Number of problems, and number of characters of their texts."""
        return Size(self._count, self._num_chars, self._sum_squared_chars)

    def rejects(self) -> Iterator[Reject]:
        """Yield the rows that were left out, in order, up to the row of the last problem."""
        remaining = self._limit if self._count == self._limit else None
        for number, identity, problem in self._read_rows():
            if remaining == 0:
                return
            if isinstance(problem, Problem):
                remaining = None if remaining is None else remaining - 1
                continue
            if self._is_allowed_repeat(problem):
                continue
            yield Reject(
                problem_id=identity,
                row=number,
                source=self._source,
                reason=problem.reason,
                detail=problem.detail,
            )

    def _read_rows(self) -> Iterator[tuple[int, str | None, Problem | RejectReason]]:
        """Yield each row's number, its problem's id or None, and its problem or reject reason.

        The number is from 1. The id is None if the row cannot be used and has no id.
        """
        for number, row in self._rows():
            problem = (
                row if isinstance(row, RejectReason | Problem) else read_problem(row, self._columns)
            )
            if isinstance(problem, Problem):
                if self._meta:
                    problem = replace(problem, meta={**problem.meta, **self._meta})
                identity: str | None = problem.id
            else:
                identity = read_row_id(row)
                self._raise_if_strict(number, problem)
            if isinstance(problem, Problem) and number in self._repeats:
                problem = _reject_repeat(self._repeats[number], problem.id)
            yield number, identity, problem

    def _find_repeats(self) -> None:
        """Read the source again to find which rows repeat a problem."""
        content_hashes: dict[int, int] = {}
        self.num_rejected = self._num_chars = self._sum_squared_chars = 0
        for number, _, problem in self._read_rows():
            if len(content_hashes) == self._limit:
                break
            if not isinstance(problem, Problem):
                self.num_rejected += 1
                continue
            identity, content = (
                _hash_text(problem.id),
                _hash_text(problem.text + "\0" + problem.answer),
            )
            if identity in content_hashes:
                is_same = content_hashes[identity] == content
                self._repeats[number] = "duplicate" if is_same else "id_taken"
                reason = _reject_repeat(self._repeats[number], problem.id)
                self._raise_if_strict(number, reason)
                self.num_rejected += not self._is_allowed_repeat(reason)
            else:
                content_hashes[identity] = content
                self._add_text_size(problem)
        self._count = len(content_hashes)

    def _add_text_size(self, problem: Problem) -> None:
        self._num_chars += len(problem.text)
        self._sum_squared_chars += len(problem.text) ** 2

    def _is_allowed_repeat(self, reason: RejectReason) -> bool:
        return self._may_repeat and reason.reason == "duplicate"

    def _raise_if_strict(self, number: int, reason: RejectReason) -> None:
        if self._strict and not self._is_allowed_repeat(reason):
            raise DataError(
                f"{describe_row_place(self._source, number)}: {shorten_detail(reason.detail)}"
            )


class ChosenProblems:
    """Subset of problems, chosen by their ids."""

    def __init__(self, problems: Problems, ids: Container[str], *, count: int) -> None:
        """Store the choice. The problems themselves are read anew on each iteration.

        Args:
            problems: problems to choose from.
            ids: ids of the chosen problems.
            count: number of chosen problems.
        """
        self._problems, self._ids, self._count = problems, ids, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Problem]:
        return (problem for problem in self._problems if problem.id in self._ids)


def _hash_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _reject_repeat(kind: RepeatFault, identity: str) -> RejectReason:
    if kind == "duplicate":
        return RejectReason(kind, f"repeats problem {identity!r}. Remove the row")
    return RejectReason(
        kind, f"id {identity!r} already names an earlier problem. Give the row another id"
    )
