"""Problems of any source, checked, in its order."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np

from mclabel.core.errors import DataError, RejectReason, bounded
from mclabel.core.records import CHANCE, Problem
from mclabel.data.readers.base import ReaderSettings, RowSettings, make_reader, reader_settings
from mclabel.data.readers.problem_rows import Columns, given_id, problem_in
from mclabel.data.readers.rows import row_place
from mclabel.run.forecast import Size
from mclabel.run.shards.rejects import Reject


def read_problems(
    problems: ReaderSettings | str, *, may_repeat: bool = False, strict: bool = False
) -> ProblemStream:
    """Problems with their gold answers, in the order of the source.

    Args:
        problems: settings of the reader, or the source alone, as in `problems.source`.
        may_repeat: whether several rows may hold the same problem, as where each has a solution.
        strict: whether a row that cannot be used is an error; else it is left out.

    Returns:
        Problems with distinct ids; of rows that repeat an id the first.

    Raises:
        ConfigError: no reader reads the source.
        DataError: the source is missing or unreadable, or no row can be used; if strict, one
            cannot.
    """
    settings = reader_settings(problems) if isinstance(problems, str) else problems
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


Repeat = Literal["duplicate", "id_taken"]
"""How a row repeats one before it: the same problem, or another one under its id."""


class Problems(Protocol):
    """Problems that can be gone through again and again: a list, or what reads a file."""

    def __len__(self) -> int:
        """How many there are."""

    def __iter__(self) -> Iterator[Problem]:
        """From the first, in the same order every time."""


class ProblemStream:
    """Problems of a source, read anew each time they are gone through.

    Rows that cannot be used are left out, which depends on nothing but the rows. Nothing is kept of
    them but which repeat a problem; so a source of millions costs little.
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
        """Read the rows once, to count the problems and to find those that are there twice.

        Args:
            rows: the source's rows, each with its number, from the first.
            source: its name.
            columns: of problem and answer.
            limit: number of distinct problems at most.
            chance: of a right guess; None where the problems tell it.
            may_repeat: as in `read_problems`.
            strict: whether a row that cannot be used is an error.

        Raises:
            DataError: no row can be used; if strict, one cannot.
        """
        self._rows, self._source, self._strict = rows, source, strict
        self._columns, self._limit, self._may_repeat = columns, limit, may_repeat
        self._meta = {} if chance is None else {CHANCE: f"{chance:g}"}
        self._repeats: dict[int, Repeat] = {}
        self._count = self.num_rejected = 0
        self._num_chars = self._num_squares = 0
        seen = array("Q")
        for _, _, found in self._judged():
            if isinstance(found, Problem):
                seen.append(_hash(found.id))
                self._measure(found)
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
                raise DataError(f"{source}: holds no problems")
            raise DataError(
                f"{source}: holds no problems, {self.num_rejected} of {self.num_rejected} rows "
                f"cannot be used; {row_place(source, first.row or 0)}: {bounded(first.detail)}"
            )

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Problem]:
        left = self._count
        for _, _, found in self._judged():
            if not left:
                return
            if isinstance(found, Problem):
                yield found
                left -= 1

    @property
    def size(self) -> Size:
        """How much text the problems have."""
        return Size(self._count, self._num_chars, self._num_squares)

    def rejects(self) -> Iterator[Reject]:
        """The rows that were left out, in order; those behind `limit` problems are not read."""
        left = self._limit if self._count == self._limit else None
        for number, identity, found in self._judged():
            if left == 0:
                return
            if isinstance(found, Problem):
                left = None if left is None else left - 1
                continue
            if self._passes(found):
                continue
            yield Reject(
                problem_id=identity,
                row=number,
                source=self._source,
                reason=found.reason,
                detail=found.detail,
            )

    def _judged(self) -> Iterator[tuple[int, str | None, Problem | RejectReason]]:
        """Yields for every row its number, its id if any, and the problem or a reject reason."""
        for number, row in self._rows():
            found = (
                row if isinstance(row, RejectReason | Problem) else problem_in(row, self._columns)
            )
            if isinstance(found, Problem):
                if self._meta:
                    found = replace(found, meta={**found.meta, **self._meta})
                identity: str | None = found.id
            else:
                identity = given_id(row)
                self._refuse(number, found)
            if isinstance(found, Problem) and number in self._repeats:
                found = _repeat(self._repeats[number], found.id)
            yield number, identity, found

    def _find_repeats(self) -> None:
        """Which rows repeat a problem, for a source in which some do."""
        known: dict[int, int] = {}
        self.num_rejected = self._num_chars = self._num_squares = 0
        for number, _, found in self._judged():
            if len(known) == self._limit:
                break
            if not isinstance(found, Problem):
                self.num_rejected += 1
                continue
            identity, content = _hash(found.id), _hash(found.text + "\0" + found.answer)
            if identity in known:
                same = known[identity] == content
                self._repeats[number] = "duplicate" if same else "id_taken"
                why = _repeat(self._repeats[number], found.id)
                self._refuse(number, why)
                self.num_rejected += not self._passes(why)
            else:
                known[identity] = content
                self._measure(found)
        self._count = len(known)

    def _measure(self, problem: Problem) -> None:
        self._num_chars += len(problem.text)
        self._num_squares += len(problem.text) ** 2

    def _passes(self, why: RejectReason) -> bool:
        return self._may_repeat and why.reason == "duplicate"

    def _refuse(self, number: int, why: RejectReason) -> None:
        if self._strict and not self._passes(why):
            raise DataError(f"{row_place(self._source, number)}: {bounded(why.detail)}")


class ChosenProblems:
    """The problems whose ids are in a set."""

    def __init__(self, problems: Problems, ids: Container[str], *, count: int) -> None:
        """Choose some problems, which are read when they are gone through.

        Args:
            problems: to choose from.
            ids: of those that are chosen.
            count: how many these are.
        """
        self._problems, self._ids, self._count = problems, ids, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Problem]:
        return (problem for problem in self._problems if problem.id in self._ids)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _repeat(how: Repeat, identity: str) -> RejectReason:
    if how == "duplicate":
        return RejectReason(how, f"repeats problem {identity!r}. Remove the row")
    return RejectReason(
        how, f"id {identity!r} already names an earlier problem. Give the row another id"
    )
