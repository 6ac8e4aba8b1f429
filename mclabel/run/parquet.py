"""Reads Parquet files of other programs without using much memory.

A small file can decompress to any size, through compressed runs or one long text to which a million
rows refer. The footer states the size before anything is decompressed. Texts are read as
dictionaries, and rows are built in small groups that are limited by their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mclabel.core.plain_files import MAX_ROW

MAX_GROUP = 1 << 31
"""Bytes that a row group may unfold to: it can be that one page holds all of it."""
MAX_RATIO, _MIN_BOMB = 1000, 1 << 26
"""No data is smaller by this factor for being compressed, where it unfolds to so many bytes."""
_CAREFUL = 1 << 28
"""Bytes up to which dictionaries may multiply texts without a second thought."""
_BATCH_ROWS, _PIECE = 1024, 1 << 24
_BUFFER = 1 << 20
_ITEM = 56
"""Bytes of a small Python object."""


def row_batches(source: Any, num_bytes: int) -> Iterator[list[Any] | None]:
    """Yield the rows in order, a few at a time, and None for a row over `MAX_ROW` bytes.

    Args:
        source: path or content of a Parquet file.
        num_bytes: size of the file.

    Raises:
        ValueError: the file unfolds to too much; gives the size and the remedy.
        pa.ArrowException: it is no Parquet file.
    """
    file = pq.ParquetFile(source)
    if (reason := unfolds_too_far(file.metadata, num_bytes)) is not None:
        raise ValueError(reason)
    for batch in _batches(file, source):
        sizes = row_sizes(batch)
        begin = total = 0
        for number, size in enumerate(sizes.tolist()):
            if size > MAX_ROW:
                yield from _pieces(batch, begin, number)
                yield None
                begin, total = number + 1, 0
            elif total + size > _PIECE:
                yield from _pieces(batch, begin, number)
                begin, total = number, size
            else:
                total += size
        yield from _pieces(batch, begin, len(batch))


def top_columns(source: Any) -> list[str]:
    """Return the names of a file's columns, in order.

    Args:
        source: path or content of a Parquet file.

    Raises:
        pa.ArrowException: it is no Parquet file.
    """
    return [str(name) for name in pq.ParquetFile(source).schema_arrow.names]


def unfolds_too_far(metadata: pq.FileMetaData, num_bytes: int) -> str | None:
    """Return why a file would unfold to an absurd size; None if it would not.

    Args:
        metadata: its footer.
        num_bytes: size of the file.
    """
    groups = [_unfolded(metadata, number) for number in range(metadata.num_row_groups)]
    if _is_bomb(sum(groups), num_bytes):
        return (
            f"its {num_bytes:,} bytes decompress to {sum(groups):,} bytes, which no ordinary data "
            "does, so it is not read"
        )
    if max(groups, default=0) > MAX_GROUP:
        return (
            f"a row group decompresses to {max(groups):,} bytes, more than the limit of "
            f"{MAX_GROUP:,}. Write the file with smaller row groups, as by "
            "pyarrow.parquet.write_table(table, path, row_group_size=10_000)"
        )
    return None


def table_too_large(source: pa.Buffer, metadata: pq.FileMetaData) -> str | None:
    """Return why a file would be an absurdly large table; None if it would not.

    A table of ours may be of any size, but not for being written in next to nothing.

    Args:
        source: content of the file.
        metadata: its footer.
    """
    groups = range(metadata.num_row_groups)
    whole = sum(_unfolded(metadata, number) for number in groups)
    if not _is_bomb(whole, source.size):
        each = _CAREFUL // max(1, len(groups))
        at_worst = sum(_multiplied(source, metadata, number, least=each) for number in groups)
        if at_worst <= _CAREFUL or not _is_bomb(at_worst, source.size):
            return None
        whole = 0
        for batch in _batches(pq.ParquetFile(source), source):
            whole += int(row_sizes(batch).sum())
            if _is_bomb(whole, source.size):
                break
        else:
            return None
    return (
        f"its {source.size:,} bytes decompress to {whole:,} bytes or more, which no ordinary "
        "data does, so it is not read"
    )


def whole_table(file: pq.ParquetFile) -> pa.Table:
    """Return all rows of a file that was opened on bytes in memory.

    Read in the caller's thread alone. A thread of Arrow's pool may still hold the bytes when the
    table has been returned, and needs Python to let go of them; if Python is ending then, the
    process aborts ("terminate called without an active exception"). `pq.read_table` uses such
    threads even with `use_threads=False`.
    """
    return file.read(use_threads=False)


def _is_bomb(unfolded: int, num_bytes: int) -> bool:
    return unfolded > _MIN_BOMB and unfolded > MAX_RATIO * num_bytes


def row_sizes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the approximate bytes of each row as Python objects, texts in full."""
    sizes = np.zeros(len(batch), dtype=np.int64)
    for column in batch.columns:
        sizes += _sizes(column)
    return sizes


def _sizes(array: pa.Array) -> NDArray[np.int64]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = np.append(_sizes(array.dictionary), _ITEM)  # the last is of null
        indices = pc.fill_null(array.indices, len(array.dictionary))
        return np.asarray(lengths[indices.to_numpy(zero_copy_only=False).astype(np.int64)])
    if _is_text(kind):
        lengths = pc.fill_null(pc.binary_length(array), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False).astype(np.int64) + _ITEM)
    if pa.types.is_struct(kind):
        fields = [_sizes(array.field(i)) for i in range(kind.num_fields)]
        return sum(fields, np.full(len(array), _ITEM, dtype=np.int64))
    if pa.types.is_map(kind):
        return _sums(array, _sizes(array.keys) + _sizes(array.items))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _sums(array, _sizes(array.values))
    return np.full(len(array), _ITEM + array.nbytes // max(1, len(array)), dtype=np.int64)


def _sums(array: Any, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums over the items of each list."""
    until = np.concatenate([[0], np.cumsum(sizes)])
    offsets = array.offsets.to_numpy()
    return np.asarray(until[offsets[1:]] - until[offsets[:-1]] + _ITEM, dtype=np.int64)


def _unfolded(metadata: pq.FileMetaData, number: int) -> int:
    """Return the uncompressed bytes of a row group; for lists at least what their items take."""
    group, total = metadata.row_group(number), 0
    for index in range(metadata.num_columns):
        column = group.column(index)
        is_nested = metadata.schema.column(index).max_repetition_level > 0
        items = 8 * column.num_values if is_nested else 0
        total += max(0, column.total_uncompressed_size, items)
    return total


def _batches(file: pq.ParquetFile, source: Any) -> Iterator[pa.RecordBatch]:
    metadata = file.metadata
    texts = _texts(metadata)
    for number in range(metadata.num_row_groups):
        per_row = _unfolded(metadata, number) // max(1, metadata.row_group(number).num_rows)
        rows = max(1, min(_BATCH_ROWS, MAX_ROW // max(1, per_row)))
        # As dictionaries, texts take longer to read.
        careful = _multiplied(source, metadata, number, least=_CAREFUL) > _CAREFUL
        opened = _streamed(source, texts if careful else [])
        yield from opened.iter_batches(batch_size=rows, row_groups=[number], use_threads=False)


def _streamed(source: Any, dictionaries: list[str]) -> pq.ParquetFile:
    """Open the file without reading column chunks ahead, some columns as dictionaries."""
    return pq.ParquetFile(
        source, read_dictionary=dictionaries, pre_buffer=False, buffer_size=_BUFFER
    )


def _texts(metadata: pq.FileMetaData) -> list[str]:
    columns = map(metadata.schema.column, range(metadata.num_columns))
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _multiplied(source: Any, metadata: pq.FileMetaData, number: int, *, least: int) -> int:
    """Return the most bytes that the texts of a row group take without their dictionaries.

    Args:
        source: path or content of the file.
        metadata: its footer.
        number: index of the row group.
        least: bytes of a column under which it is not looked at.
    """
    group = metadata.row_group(number)
    texts = set(_texts(metadata))
    columns = [
        column
        for column in map(group.column, range(metadata.num_columns))
        if column.has_dictionary_page
        and column.path_in_schema in texts
        and column.num_values * column.total_uncompressed_size > least
    ]
    if not columns:
        return 0
    paths = [column.path_in_schema for column in columns]
    probe = _streamed(source, paths).iter_batches(
        batch_size=1, row_groups=[number], columns=paths, use_threads=False
    )
    first = next(probe, None)  # has the dictionaries as a whole, as they come before all rows
    if first is None:
        return 0
    longest = max(map(_longest, first.columns), default=0)
    return longest * sum(int(column.num_values) for column in columns)


def _longest(array: Any) -> int:
    """Return the bytes of the longest text in the dictionaries of an array."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return int(pc.max(pc.binary_length(array.dictionary)).as_py() or 0)
    if pa.types.is_struct(kind):
        return max((_longest(array.field(i)) for i in range(kind.num_fields)), default=0)
    if pa.types.is_map(kind):
        return max(_longest(array.keys), _longest(array.items))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _longest(array.values)
    return 0


def _pieces(batch: pa.RecordBatch, begin: int, end: int) -> Iterator[list[Any]]:
    """Yield the rows as Python objects; one by one where one of them cannot be decoded."""
    if begin == end:
        return
    piece = batch.slice(begin, end - begin)
    try:
        yield piece.to_pylist()
    except UnicodeDecodeError:
        for number in range(len(piece)):
            try:
                yield piece.slice(number, 1).to_pylist()
            except UnicodeDecodeError as error:
                yield [error]


def _is_text(kind: pa.DataType) -> bool:
    tests = (
        *(pa.types.is_string, pa.types.is_large_string),
        *(pa.types.is_binary, pa.types.is_large_binary),
    )
    return any(test(kind) for test in tests)
