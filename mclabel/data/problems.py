"""Read problems from arith, JSON Lines, Parquet, CSV or a Hugging Face data set."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mclabel.answers import Checker, default_checker, reference_answer
from mclabel.errors import DataError
from mclabel.records import Problem
from mclabel.seeds import content_id

PROBLEM_COLUMNS = ("problem", "question", "prompt", "text")
ANSWER_COLUMNS = ("answer", "final_answer", "solution")


def read_problems(
    source: str,
    *,
    split: str = "test",
    subset: str | None = None,
    problem_column: str | None = None,
    answer_column: str | None = None,
    limit: int | None = None,
) -> list[Problem]:
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
    problems: dict[str, Problem] = {}
    for place, row in _rows(source, split, subset):
        if limit is not None and len(problems) == limit:
            break
        problem = _problem(row, place, problem_column, answer_column)
        known = problems.setdefault(problem.id, problem)
        if (known.text, known.answer) != (problem.text, problem.answer):
            raise DataError(f"{place}: id {problem.id!r} names another problem before it")
    if not problems:
        raise DataError(f"{source}: holds no problems")
    return list(problems.values())


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
            import pyarrow.parquet as pq
            from pyarrow.lib import ArrowException

            try:
                table = pq.read_table(path)
            except (ArrowException, OSError) as error:
                raise DataError(f"{path}: not a readable Parquet file ({error})") from error
            yield from _numbered(path, table.to_pylist())
        case other:
            raise DataError(
                f"{path}: {other or 'no suffix'}: must be .jsonl, .json, .parquet or .csv"
            )


def _rows(source: str, split: str, subset: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not source.startswith("hf:"):
        yield from file_rows(Path(source))
        return
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
    yield from ((f"{source}, row {i}", row) for i, row in enumerate(rows))


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
