"""Read problems from arith, JSON Lines, Parquet, CSV or a Hugging Face data set."""

from __future__ import annotations

import csv
import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mclabel.answers import Checker, default_checker, reference_answer
from mclabel.errors import DataError
from mclabel.records import Problem
from mclabel.seeds import content_id

PROBLEM_COLUMNS = ("problem", "question", "prompt", "text")
ANSWER_COLUMNS = ("answer", "final_answer", "solution")


class ProblemStream:
    """Problems of a source, read anew each time they are gone through.

    Nothing is kept of them but which rows repeat a problem; so a source of millions costs little.
    """

    def __init__(
        self,
        rows: Callable[[], Iterable[tuple[str, Mapping[str, Any]]]],
        read: Callable[[Mapping[str, Any], str], Problem],
        *,
        limit: int | None,
    ) -> None:
        """Args:
        rows: the source's rows, each with its place, from the first.
        read: the problem in a row.
        limit: distinct problems at most.

        Raises:
            DataError: a row is malformed, or one id names two problems.
        """
        self._rows, self._read = rows, read
        self._repeats: frozenset[int] = frozenset()
        seen = array("Q", (_hash(problem.id) for _, problem in islice(self._all(), limit)))
        self._count = len(seen)
        if len(np.unique(np.frombuffer(seen, dtype=np.uint64))) < self._count:
            self._find_repeats(limit)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Problem]:
        distinct = (
            problem
            for number, (_, problem) in enumerate(self._all())
            if number not in self._repeats
        )
        return islice(distinct, self._count)

    def _all(self) -> Iterator[tuple[str, Problem]]:
        return ((place, self._read(row, place)) for place, row in self._rows())

    def _find_repeats(self, limit: int | None) -> None:
        """Which rows repeat a problem, for a source in which some do."""
        known: dict[str, int] = {}
        repeats: set[int] = set()
        for number, (place, problem) in enumerate(self._all()):
            if len(known) == limit:
                break
            content = _hash(problem.text + "\0" + problem.answer)
            if known.setdefault(problem.id, content) != content:
                raise DataError(f"{place}: id {problem.id!r} names another problem before it")
            if number != len(known) + len(repeats) - 1:
                repeats.add(number)
        self._repeats, self._count = frozenset(repeats), len(known)


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
) -> ProblemStream:
    r"""Problems with their gold answers, in the order of the source.

    Args:
        source: a `.jsonl`, `.json`, `.parquet` or `.csv` file, or `hf:NAME`, a data set of
            the Hugging Face hub or a local one that `datasets.load_dataset` understands.
        split: of a Hugging Face data set.
        subset: of a Hugging Face data set (its configuration name).
        problem_column: by default the first of `problem`, `question`, `prompt`, `text`.
        answer_column: by default the first of `answer`, `final_answer`, `solution`. A text
            with `\boxed{}` or `####` gives what it boxes, any other text is the answer.
        limit: read no more than this many.

    Returns:
        Problems with distinct ids; rows that repeat a problem and its answer are left out.

    Raises:
        DataError: the source is missing or unreadable, a column is missing, a row has no
            problem or no answer, or one id names two problems.
    """

    def read(row: Mapping[str, Any], place: str) -> Problem:
        return _problem(row, place, problem_column, answer_column)

    problems = ProblemStream(_rows(source, split, subset), read, limit=limit)
    if not len(problems):
        raise DataError(f"{source}: holds no problems")
    return problems


def unparsed_golds(
    problems: Iterable[Problem], *, checker: Checker | None = None
) -> dict[str, str]:
    """Golds that the answer checker does not understand, so that it compares them as texts.

    Args:
        problems: whose golds to look at.
        checker: the process-wide one by default.

    Returns:
        Problem ids, each with the reason.
    """
    checker = checker or default_checker()
    reasons = ((problem.id, checker.unparsed_gold(problem.answer)) for problem in problems)
    return {identity: reason for identity, reason in reasons if reason is not None}


def file_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows of a JSON Lines, JSON, Parquet or CSV file, each with the place it came from."""
    if not path.is_file():
        raise DataError(f"{path}: no such file. Give an existing .jsonl, .parquet or .csv file")
    match path.suffix:
        case ".jsonl":
            yield from _jsonl_rows(path)
        case ".json":
            yield from _numbered(path, _parse_json(path.read_bytes(), str(path)))
        case ".csv":
            with path.open(newline="", encoding="utf-8-sig") as file:
                yield from _numbered(path, csv.DictReader(file))
        case ".parquet":
            yield from _numbered(path, _parquet_rows(path))
        case other:
            raise DataError(
                f"{path}: {other or 'no suffix'}: must be .jsonl, .json, .parquet or .csv"
            )


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    try:
        for batch in pq.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    except (ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error})") from error


def _rows(
    source: str, split: str, subset: str | None
) -> Callable[[], Iterator[tuple[str, Mapping[str, Any]]]]:
    if not source.startswith("hf:"):
        return partial(file_rows, Path(source))
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    name = source.removeprefix("hf:")
    try:
        rows = load_dataset(name, subset, split=split)
    except (DatasetsError, HfHubHTTPError, OSError, ValueError) as error:
        raise DataError(
            f"{source}: cannot load split {split!r}, subset {subset!r} ({error}). "
            "Check the name, log in with `hf auth login` if it is gated, or give a local file"
        ) from error
    return lambda: ((f"{source}, row {i}", row) for i, row in enumerate(rows))


def _jsonl_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                place = f"{path}, line {number}"
                yield place, _parse_json(line, place)


def _parse_json(raw: bytes, place: str) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not valid JSON ({error})") from error


def _numbered(
    path: Path, rows: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((f"{path}, row {number}", row) for number, row in enumerate(rows, 1))


def _problem(
    row: Mapping[str, Any], place: str, problem_column: str | None, answer_column: str | None
) -> Problem:
    if not isinstance(row, Mapping):
        raise DataError(f"{place}: must be an object with a problem and an answer")
    text = _column(row, place, "problem", problem_column, PROBLEM_COLUMNS)
    given = _column(row, place, "answer", answer_column, ANSWER_COLUMNS)
    answer = reference_answer(given)
    used = {"id", "meta", problem_column, answer_column, *PROBLEM_COLUMNS, *ANSWER_COLUMNS}
    meta = {k: str(v) for k, v in row.items() if k not in used and isinstance(v, str | int | float)}
    if isinstance(row.get("meta"), Mapping):
        meta |= {str(k): str(v) for k, v in row["meta"].items()}
    identity = row.get("id")
    return Problem(
        id=str(identity) if identity not in (None, "") else content_id("problem", text, answer),
        text=text,
        answer=answer,
        meta=meta,
    )


def _column(
    row: Mapping[str, Any], place: str, what: str, name: str | None, defaults: Iterable[str]
) -> str:
    names = [name] if name else [d for d in defaults if d in row]
    if not names or names[0] not in row:
        raise DataError(
            f"{place}: no {what}: looked for {name or ' or '.join(defaults)!s}, the row has "
            f"{', '.join(map(str, row)) or 'no columns'}. Set problems.{what}_column"
        )
    content = row[names[0]]
    text = content if isinstance(content, str) else "" if content is None else str(content)
    if not text.strip():
        raise DataError(f"{place}: the {what} in column {names[0]!r} is empty. Remove the row")
    return text
