"""Rows of a user's file: JSON Lines, JSON, Parquet or CSV, local or by URL.

A row that cannot be read is given as a `Fault` with the reason, and reading goes on behind it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.data.remote import local_path
from mclabel.errors import DataError

FORMATS = (".jsonl", ".json", ".parquet", ".csv")
LONE_SURROGATES = "a text is not valid Unicode: it holds lone surrogates"
_MAX_FIELD = 1 << 30
"""Characters of a field of a CSV file."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row, or a problem, cannot be used."""

    reason: str
    """A short code."""
    detail: str


def scan_rows(source: str) -> Iterator[tuple[int, Any]]:
    """Every row, readable or not, with its number: the line in JSON Lines, else the row, from 1.

    Args:
        source: `.jsonl`, `.json`, `.parquet` or `.csv` file, or the URL of one.

    Returns:
        A mapping for a good row, and a `Fault` for one that cannot be decoded; what else JSON can
        hold is given as it is.

    Raises:
        DataError: there is no such file, or it cannot be read as a whole.
    """
    path = local_path(source)
    match path.suffix:
        case ".jsonl":
            return _jsonl_rows(path)
        case ".json":
            return enumerate(_json_rows(path, source), 1)
        case ".csv":
            return _csv_rows(path)
        case ".parquet":
            return enumerate(_parquet_rows(path, source), 1)
        case other:
            raise DataError(
                f"{source}: {other or 'no suffix'}: must be .jsonl, .json, .parquet or .csv"
            )


def is_unicode(content: Any) -> bool:
    """Whether all texts in a row are valid Unicode; tokenizers take no others, nor do files."""
    try:
        json.dumps(content, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def row_place(source: str, number: int) -> str:
    """Where a row of `scan_rows` stands, for messages."""
    return f"{source}, {'line' if source.endswith('.jsonl') else 'row'} {number}"


def file_rows(source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows with the place each came from.

    Raises:
        DataError: the file, or a row, cannot be read.
    """
    for number, row in scan_rows(source):
        place = row_place(source, number)
        if isinstance(row, Fault):
            raise DataError(f"{place}: {row.detail}")
        if not isinstance(row, Mapping):
            raise DataError(f"{place}: must be an object, is a {type(row).__name__}")
        if not is_unicode(row):
            raise DataError(f"{place}: {LONE_SURROGATES}")
        yield place, row


def _jsonl_rows(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _parsed(line)


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except UnicodeDecodeError as error:
        return Fault("not_utf8", f"not valid JSON (not UTF-8: {error.reason})")
    except json.JSONDecodeError as error:
        return Fault("not_json", f"not valid JSON ({error.msg} at character {error.pos})")
    except (ValueError, RecursionError) as error:
        return Fault("not_json", f"not valid JSON ({error})")


def _json_rows(path: Path, source: str) -> Iterable[Any]:
    content = _parsed(path.read_bytes())
    if isinstance(content, Fault):
        raise DataError(f"{source}: {content.detail}")
    if not isinstance(content, list):
        raise DataError(f"{source}: must be a list of objects, is a {type(content).__name__}")
    return content


def _csv_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Rows; what is no UTF-8 becomes lone surrogates, which no text may hold."""
    csv.field_size_limit(_MAX_FIELD)
    with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        rows = csv.DictReader(file)
        number = 0
        while True:
            number += 1
            try:
                row: Any = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                row = Fault("not_csv", f"not valid CSV ({error})")
            yield number, row


def _parquet_rows(path: Path, source: str) -> Iterator[Any]:
    import pyarrow.parquet as pq
    from pyarrow.lib import ArrowException

    try:
        for batch in pq.ParquetFile(path).iter_batches():
            try:
                yield from batch.to_pylist()
            except UnicodeDecodeError:
                yield from (_parquet_row(batch.slice(i, 1)) for i in range(len(batch)))
    except (ArrowException, OSError) as error:
        raise DataError(f"{source}: not a readable Parquet file ({error})") from error


def _parquet_row(batch: Any) -> Any:
    try:
        return batch.to_pylist()[0]
    except UnicodeDecodeError as error:
        return Fault("not_utf8", f"a text is not UTF-8 ({error.reason})")
