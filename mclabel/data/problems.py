"""Read problems from JSON Lines, JSON, Parquet, CSV or a Hugging Face data set."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import partial
from math import isinf, isnan
from typing import Any, Literal, Protocol

import numpy as np

from mclabel.answers import reference_answer
from mclabel.data.rejects import Reject, bounded
from mclabel.data.rows import LONE_SURROGATES, MAX_ROW, Fault, row_place, scan_rows
from mclabel.data.sizes import Size
from mclabel.errors import DataError
from mclabel.records import Problem
from mclabel.seeds import content_id

PROBLEM_COLUMNS = ("problem", "question", "prompt", "text")
MAX_ANSWER = 1 << 20
"""Characters of a gold, or of the solution that it is the end of."""
ANSWER_COLUMNS = ("answer", "final_answer", "solution")


class Problems(Protocol):
    """Problems that can be gone through again and again; a list, or what reads a file."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Problem]: ...


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
        problem_column: str | None = None,
        answer_column: str | None = None,
        limit: int | None = None,
        may_repeat: bool = False,
        strict: bool = False,
    ) -> None:
        """Args:
        rows: the source's rows, each with its number, from the first.
        source: its name.
        problem_column: as in `read_problems`.
        answer_column: as in `read_problems`.
        limit: distinct problems at most.
        may_repeat: as in `read_problems`.
        strict: whether a row that cannot be used is an error.

        Raises:
            DataError: no row can be used; if strict, one cannot.
        """
        self._rows, self._source, self._strict = rows, source, strict
        self._columns = (problem_column, answer_column)
        self._limit, self._may_repeat = limit, may_repeat
        self._repeats: dict[int, Literal["duplicate", "id_taken"]] = {}
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
        """Of the problems."""
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

    def _judged(self) -> Iterator[tuple[int, str | None, Problem | Fault]]:
        """Every row: its number, its problem's id if it has one, and the problem or its fault."""
        for number, row in self._rows():
            found = row if isinstance(row, Fault) else _problem(row, *self._columns)
            if isinstance(found, Problem):
                identity: str | None = found.id
            else:
                identity = _given_id(row)
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
                fault = _repeat(self._repeats[number], found.id)
                self._refuse(number, fault)
                self.num_rejected += not self._passes(fault)
            else:
                known[identity] = content
                self._measure(found)
        self._count = len(known)

    def _measure(self, problem: Problem) -> None:
        self._num_chars += len(problem.text)
        self._num_squares += len(problem.text) ** 2

    def _passes(self, fault: Fault) -> bool:
        return self._may_repeat and fault.reason == "duplicate"

    def _refuse(self, number: int, fault: Fault) -> None:
        if self._strict and not self._passes(fault):
            raise DataError(f"{row_place(self._source, number)}: {bounded(fault.detail)}")


class Chosen:
    """Those of some problems whose ids are in a set."""

    def __init__(self, problems: Problems, ids: Container[str], *, count: int) -> None:
        """Args:
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


def read_problems(
    source: str,
    *,
    split: str = "test",
    subset: str | None = None,
    problem_column: str | None = None,
    answer_column: str | None = None,
    limit: int | None = None,
    may_repeat: bool = False,
    strict: bool = False,
) -> ProblemStream:
    r"""Problems with their gold answers, in the order of the source.

    Args:
        source: a `.jsonl`, `.json`, `.parquet` or `.csv` file, the URL of one, or `hf:NAME`, a
            data set of the Hugging Face hub or a local one that `datasets.load_dataset`
            understands.
        split: of a Hugging Face data set.
        subset: of a Hugging Face data set (its configuration name).
        problem_column: by default the first of `problem`, `question`, `prompt`, `text`.
        answer_column: by default the first of `answer`, `final_answer`, `solution`. A text
            with `\boxed{}` or `####` gives what it boxes, any other text is the answer.
        limit: read no more than this many.
        may_repeat: whether several rows may hold the same problem, as where each has a solution.
        strict: whether a row that cannot be used is an error; else it is left out.

    Returns:
        Problems with distinct ids; of rows that repeat an id the first.

    Raises:
        DataError: the source is missing or unreadable, or no row can be used; if strict, one
            cannot.
    """
    return ProblemStream(
        _rows(source, split, subset),
        source=source,
        problem_column=problem_column,
        answer_column=answer_column,
        limit=limit,
        may_repeat=may_repeat,
        strict=strict,
    )


def _rows(source: str, split: str, subset: str | None) -> Callable[[], Iterable[tuple[int, Any]]]:
    if not source.startswith("hf:"):
        return partial(scan_rows, source)
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    name = source.removeprefix("hf:").removeprefix("//")
    try:
        rows = load_dataset(name, subset, split=split)
    except (DatasetsError, HfHubHTTPError, OSError, ValueError) as error:
        raise DataError(
            f"{source}: cannot load split {split!r}, subset {subset!r} ({error}). "
            "Check the name, log in with `hf auth login` if it is gated, or give a local file"
        ) from error
    return lambda: enumerate(rows, 1)


def _problem(row: Any, problem_column: str | None, answer_column: str | None) -> Problem | Fault:
    if not isinstance(row, Mapping):
        return Fault("not_an_object", "must be an object with a problem and an answer")
    text = _column(row, "problem", problem_column, PROBLEM_COLUMNS)
    if isinstance(text, Fault):
        return text
    given = _column(row, "answer", answer_column, ANSWER_COLUMNS)
    if isinstance(given, Fault):
        return given
    if len(text) > MAX_ROW or len(given) > MAX_ANSWER:
        return Fault(
            "too_long",
            f"the problem has {len(text):,} characters and the answer {len(given):,}: at most "
            f"{MAX_ROW:,} and {MAX_ANSWER:,} are taken. Shorten or remove the row",
        )
    answer = reference_answer(given)
    used = {"id", "meta", problem_column, answer_column, *PROBLEM_COLUMNS, *ANSWER_COLUMNS}
    meta = {k: str(v) for k, v in row.items() if k not in used and isinstance(v, str | int | float)}
    if isinstance(row.get("meta"), Mapping):
        meta |= {str(k): str(v) for k, v in row["meta"].items()}
    identity = _given_id(row)
    try:
        "".join([text, answer, identity or "", *map(str, meta), *meta.values()]).encode()
    except UnicodeEncodeError:
        return Fault("not_utf8", LONE_SURROGATES)
    return Problem(
        id=content_id("problem", text, answer) if identity is None else identity,
        text=text,
        answer=answer,
        meta=meta,
    )


def _given_id(row: Any) -> str | None:
    identity = row.get("id") if isinstance(row, Mapping) else None
    missing = identity in (None, "") or (isinstance(identity, float) and isnan(identity))
    return None if missing else str(identity)


def _column(
    row: Mapping[str, Any], what: str, name: str | None, defaults: Iterable[str]
) -> str | Fault:
    names = [name] if name else [d for d in defaults if d in row]
    missing = "no_gold" if what == "answer" else "no_problem"
    if not names or names[0] not in row:
        return Fault(
            missing,
            f"no {what}: looked for {name or ' or '.join(defaults)!s}, the row has "
            f"{', '.join(map(str, row)) or 'no columns'}. Set problems.{what}_column",
        )
    found = text_of(row[names[0]], numbers=what == "answer")
    if isinstance(found, Fault):
        reason = missing if found.reason == "empty" else found.reason
        return Fault(reason, f"the {what} in column {names[0]!r} {found.detail}")
    return found


def text_of(content: Any, *, numbers: bool) -> str | Fault:
    """A text that a row of a file holds, or why it is none.

    JSON as Python writes it, Parquet and pandas hold NaN where nothing is known: that is no text,
    also where it was made one.

    Args:
        content: of a field of the row.
        numbers: whether a finite number stands for its text.

    Returns:
        The text, or a `Fault` of the reason `empty` or `wrong_type`, whose detail is a predicate.
    """
    if content is None or (isinstance(content, str) and not content.strip()):
        return Fault("empty", "is empty. Remove the row")
    nothing = isinstance(content, str) and content.strip().casefold() == "nan"
    if nothing or (isinstance(content, float) and isnan(content)):
        return Fault("empty", "is NaN, as a missing value is written. Fill it in or remove the row")
    if isinstance(content, str):
        return content
    if isinstance(content, float) and isinf(content):
        return Fault("wrong_type", f"is {content}: must be finite, or a text such as '\\infty'")
    if numbers and isinstance(content, int | float) and not isinstance(content, bool):
        return str(content)
    wanted = "a text or a number" if numbers else "a text"
    return Fault("wrong_type", f"must be {wanted}, is a {type(content).__name__}")


def _repeat(how: Literal["duplicate", "id_taken"], identity: str) -> Fault:
    if how == "duplicate":
        return Fault(how, f"repeats problem {identity!r}")
    return Fault(how, f"id {identity!r} names another problem before it")
