"""Reads the rows of a user's file: JSON Lines, JSON, Parquet or CSV, local or by URL.

A row that cannot be read becomes a `RejectReason`, and reading continues with the next row.
"""

from __future__ import annotations

import csv
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import isnan
from pathlib import Path
from typing import IO, Any, TextIO

from mclabel.core.errors import DataError, RejectReason, ShardError
from mclabel.core.plain_files import MAX_ROW

FORMATS = (".jsonl", ".json", ".parquet", ".csv")
MAX_TEXT = 1 << 26
"""Maximum size of a text file or .json file, which is read into memory as a whole, in bytes."""
_PIECE = 1 << 20
"""Number of bytes or characters that are read at a time to skip a line that is too long."""
_MAX_NAMED = 5
"""Maximum number of column names in a message."""
LONE_SURROGATES = "a string is not valid Unicode, because it holds lone surrogates"


TOO_LARGE = RejectReason(
    "row_too_large",
    f"more than {MAX_ROW:,} bytes, which exceeds the context of any model. Shorten or remove the "
    "row",
)
"""Reason for rejecting a row of more than `MAX_ROW` bytes."""


def scan_rows(source: str) -> Iterator[tuple[int, Any]]:
    """Return every row of a file with its number, from 1.

    The number is that of the line in JSON Lines, else that of the row.

    Args:
        source: path or URL of a `.jsonl`, `.json`, `.parquet` or `.csv` file.

    Returns:
        For each row its number and a mapping, or a `RejectReason` if the row cannot be decoded. Any
        other JSON value is returned unchanged.

    Raises:
        DataError: the file is missing or unreadable.
    """
    path = download_if_url(source)
    match path.suffix:
        case ".jsonl":
            return _read_jsonl_rows(path)
        case ".json":
            return enumerate(_read_json_rows(path, source), 1)
        case ".csv":
            return _read_csv_rows(path, source)
        case ".parquet":
            return enumerate(_read_parquet_rows(path, source), 1)
        case other:
            raise DataError(
                f"{source}: the suffix must be .jsonl, .json, .parquet or .csv, is "
                f"{other or 'missing'}. Convert or rename the file"
            )


def is_unicode(content: Any) -> bool:
    """Return whether all texts in a row are valid Unicode, as tokenizers and files require."""
    try:
        json.dumps(content, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def describe_row_place(source: str, number: int) -> str:
    """Return the file and number of a row from `scan_rows` as a text for messages."""
    return f"{source}, {'line' if source.endswith('.jsonl') else 'row'} {number}"


def read_object_rows(source: str) -> Iterator[tuple[int, Mapping[str, Any] | RejectReason]]:
    """Yield pairs of a row's number and the row of a file.

    The number is that of the line in JSON Lines, else that of the row, from 1. A row that is not an
    object, or has a string that is not valid Unicode, is replaced by a reject reason.

    Raises:
        DataError: the file cannot be read.
    """
    for number, row in scan_rows(source):
        if isinstance(row, RejectReason):
            yield number, row
        elif not isinstance(row, Mapping):
            yield (
                number,
                RejectReason("not_an_object", f"must be an object, is a {type(row).__name__}"),
            )
        elif not is_unicode(row):
            yield number, RejectReason("not_utf8", LONE_SURROGATES)
        else:
            yield number, row


def read_file_rows(source: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield pairs of a text for messages, which names the file and the row's number, and the row.

    Raises:
        DataError: the file or one of its rows cannot be read.
    """
    for number, row in read_object_rows(source):
        place = describe_row_place(source, number)
        if isinstance(row, RejectReason):
            raise DataError(f"{place}: {row.detail}")
        yield place, row


def _read_jsonl_rows(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(read_bounded_lines(file), 1):
            if line is None:
                yield number, TOO_LARGE
            elif line.strip():
                yield number, _parse_json_line(line)


def read_bounded_lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """Yield the lines of a file, and None for a line of more than `MAX_ROW` bytes.

    A line that is too long is never held in memory as a whole.
    """
    while line := file.readline(MAX_ROW + 1):
        if len(line) <= MAX_ROW:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(_PIECE)
        yield None


def _parse_json_line(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except UnicodeDecodeError as error:
        return RejectReason(
            "not_utf8",
            f"not valid JSON (not UTF-8: {error.reason}). Convert the file, such as by "
            "iconv -f ENCODING -t UTF-8",
        )
    except json.JSONDecodeError as error:
        return RejectReason("not_json", f"not valid JSON ({error.msg} at character {error.pos})")
    except (ValueError, RecursionError) as error:
        return RejectReason("not_json", f"not valid JSON ({error})")


def _read_json_rows(path: Path, source: str) -> Iterable[Any]:
    if (size := path.stat().st_size) > MAX_TEXT:
        raise DataError(
            f"{source}: {size:,} bytes: a .json file is read into memory as a whole, so it must "
            f"have at most {MAX_TEXT:,}. Write it as JSON Lines: jq -c '.[]' {path.name} > "
            f"{path.stem}.jsonl"
        )
    content = _parse_json_line(path.read_bytes())
    if isinstance(content, RejectReason):
        raise DataError(f"{source}: {content.detail}")
    if not isinstance(content, list):
        raise DataError(
            f"{source}: must be a list of objects, is a {type(content).__name__}. Put its objects "
            "into one list"
        )
    return content


class _BoundedLines:
    """Iterator over lines for `csv`, which raises an error for a row of too many characters.

    It is a class because a generator would end with its first error.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._num_chars = self._num_quotes = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(MAX_ROW + 1)
        if not line:
            raise StopIteration
        self._num_chars += len(line)
        self._num_quotes += line.count('"')
        if self._num_chars <= MAX_ROW:
            return line
        while line and (self._num_quotes % 2 or not line.endswith(("\n", "\r"))):
            line = self._file.readline(_PIECE)
            self._num_quotes += line.count('"')
        raise _TooLargeError

    def begin_row(self) -> None:
        """Reset the counts of characters and quotes for a new row."""
        self._num_chars = self._num_quotes = 0


class _TooLargeError(Exception):
    pass


def _read_csv_rows(path: Path, source: str) -> Iterator[tuple[int, Any]]:
    """Yield the rows of a CSV file with their numbers, from 1.

    Bytes that are not UTF-8 become lone surrogates, which callers reject.
    """
    csv.field_size_limit(MAX_ROW)
    with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        lines = _BoundedLines(file)
        rows = csv.DictReader(lines)
        try:
            names = rows.fieldnames or ()
        except (csv.Error, _TooLargeError) as error:
            raise DataError(
                f"{source}: its first line, which must name the columns, cannot be read "
                f"({error or TOO_LARGE.detail})"
            ) from error
        _check_column_names_distinct(names, source)
        number = 0
        while True:
            number += 1
            lines.begin_row()
            try:
                row: Any = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                row = RejectReason("not_csv", f"not valid CSV ({error})")
            except _TooLargeError:
                row = TOO_LARGE
            yield number, row


def _read_parquet_rows(path: Path, source: str) -> Iterator[Any]:
    from pyarrow.lib import ArrowException

    from mclabel.run.parquet import read_row_batches, read_top_level_columns

    try:
        _check_column_names_distinct(read_top_level_columns(path), source)
        for rows in read_row_batches(path, path.stat().st_size):
            if rows is None:
                yield TOO_LARGE
                continue
            for row in rows:
                if isinstance(row, UnicodeDecodeError):
                    yield RejectReason("not_utf8", f"a string is not UTF-8 ({row.reason})")
                else:
                    yield row
    except (ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{source}: is not a readable Parquet file ({error}). Write the file again"
        ) from error


def _check_column_names_distinct(names: Sequence[str], source: str) -> None:
    """Check that no two columns of a table have the same name."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        shown = ", ".join(repr(name) for name in twice[:_MAX_NAMED])
        raise DataError(
            f"{source}: has more than one column named {shown}, so its rows are ambiguous. Rename "
            "or remove all but one"
        )


def download_if_url(source: str) -> Path:
    """Return the local path of a file, after downloading it if the source is a URL.

    Args:
        source: path, or URL such as `s3://bucket/problems.jsonl`.

    Raises:
        DataError: the file is missing or cannot be downloaded.
    """
    if "://" in source:
        return _download_file(source)
    path = Path(source)
    if path.is_dir():
        raise DataError(
            f"{source}: is a folder, must be a .jsonl, .parquet or .csv file. A folder that "
            f"`datasets` can load is given as hf:{source}"
        )
    if not path.exists():
        raise DataError(f"{source}: no such file. Check the path")
    if not path.is_file():
        raise DataError(
            f"{source}: is a pipe or a device, which may never end. Copy its content to a file"
        )
    return path


def read_text(source: str) -> str:
    """Return the text of a file.

    Args:
        source: path or URL.

    Raises:
        DataError: the file is missing, too large, or not UTF-8.
    """
    path = download_if_url(source)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_TEXT + 1)
        if len(content) > MAX_TEXT:
            raise DataError(f"{source}: is larger than {MAX_TEXT:,} bytes. Give a shorter text")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{source}: is not UTF-8 ({error.reason} at byte {error.start}). Convert the file, "
            "such as by iconv -f ENCODING -t UTF-8"
        ) from error
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror})") from error


@cache
def _get_download_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mclabel-inputs-")


@cache
def _download_file(url: str) -> Path:
    # A file is read several times. A local copy is cheaper than repeated streams, and all passes
    # read the same content. The copy is removed when the process exits.
    from mclabel.run.shards.store import Store

    folder, _, name = url.rpartition("/")
    if not name or folder.endswith(":/"):
        raise DataError(f"{url}: the URL must name a file, as in s3://bucket/problems.jsonl")
    path = Path(tempfile.mkdtemp(dir=_get_download_folder().name)) / name
    try:
        exists = Store(folder).download(name, path)
    except ShardError as error:
        raise DataError(f"{url}: cannot be read: {error}") from error
    if not exists:
        raise DataError(f"{url}: no such file. Check the URL")
    return path


def read_field_text(content: Any) -> str | RejectReason:
    """Return the value of a row's field as text, or the reason why it is not a string.

    Python's JSON, Parquet and pandas store NaN for a missing value, which counts as empty even if
    it was converted to the text "nan".

    Args:
        content: value of the field.

    Returns:
        The text, or a `RejectReason` with the code `empty` or `wrong_type`. The detail is a clause
        without a subject, and the caller prepends the column's name as the subject.
    """
    if content is None or (isinstance(content, str) and not content.strip()):
        return RejectReason("empty", "is empty. Remove the row")
    is_nan_text = isinstance(content, str) and content.strip().casefold() == "nan"
    if is_nan_text or (isinstance(content, float) and isnan(content)):
        return RejectReason(
            "empty", "is NaN, which stands for a missing value. Fill it in or remove the row"
        )
    if isinstance(content, str):
        return content
    return RejectReason("wrong_type", f"must be a string, is a {type(content).__name__}")
