"""Reads Parquet files that other programs wrote, with bounded memory.

A small file can decompress to any size: it may hold compressed runs, or one long text to which a
million rows refer. The file's footer states the size before decompression. Text columns that could
become large are read as Arrow dictionaries, which store equal texts once. Rows are built in small
groups of limited size.
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
"""Maximum decompressed size of a row group in bytes. A single page may hold the whole group."""
MAX_RATIO, _MIN_BOMB = 1000, 1 << 26
"""Limits for suspicious files. A file is refused if its decompressed size exceeds the second number
in bytes and its compression ratio exceeds the first, which ordinary data never reaches."""
_CAREFUL = 1 << 28
"""Size in bytes of a row group's texts, with equal texts counted separately, above which texts are
read as Arrow dictionaries."""
_BATCH_ROWS, _PIECE = 1024, 1 << 24
"""Maximum number of rows per batch, and of bytes per yielded group of rows."""
_BUFFER = 1 << 20
"""Size of the read buffer in bytes."""
_ITEM = 56
"""Approximate bytes of a small Python object."""


def read_row_batches(source: Any, num_bytes: int) -> Iterator[list[Any] | None]:
    """Yield the rows in order as lists of rows, and None in place of a row over `MAX_ROW` bytes.

    Args:
        source: path or content of a Parquet file.
        num_bytes: size of the file.

    Raises:
        ValueError: the decompressed file is too large; the message gives size and remedy.
        pa.ArrowException: the source is not a Parquet file.
    """
    file = pq.ParquetFile(source)
    if (reason := find_decompression_fault(file.metadata, num_bytes)) is not None:
        raise ValueError(reason)
    for batch in _iter_batches(file, source):
        sizes = measure_row_sizes(batch)
        begin = total = 0
        for number, size in enumerate(sizes.tolist()):
            if size > MAX_ROW:
                yield from _decode_rows(batch, begin, number)
                yield None
                begin, total = number + 1, 0
            elif total + size > _PIECE:
                yield from _decode_rows(batch, begin, number)
                begin, total = number, size
            else:
                total += size
        yield from _decode_rows(batch, begin, len(batch))


def read_top_level_columns(source: Any) -> list[str]:
    """Return the names of a file's columns, in order.

    Args:
        source: path or content of a Parquet file.

    Raises:
        pa.ArrowException: the source is not a Parquet file.
    """
    return [str(name) for name in pq.ParquetFile(source).schema_arrow.names]


def find_decompression_fault(metadata: pq.FileMetaData, num_bytes: int) -> str | None:
    """Return the reason why a file would decompress to too many bytes; None if it would not.

    Args:
        metadata: footer of the file.
        num_bytes: size of the file in bytes.
    """
    groups = [
        _sum_decompressed_bytes(metadata, group_index)
        for group_index in range(metadata.num_row_groups)
    ]
    if _is_decompression_bomb(sum(groups), num_bytes):
        return (
            f"its {num_bytes:,} bytes decompress to {sum(groups):,} bytes, which no ordinary data "
            "does, so the file is not read"
        )
    if max(groups, default=0) > MAX_GROUP:
        return (
            f"a row group decompresses to {max(groups):,} bytes, more than the limit of "
            f"{MAX_GROUP:,}. Write the file with smaller row groups, for example by "
            "pyarrow.parquet.write_table(table, path, row_group_size=10_000)"
        )
    return None


def describe_oversized_table(source: pa.Buffer, metadata: pq.FileMetaData) -> str | None:
    """Return the reason why a file would become a table implausibly larger than itself; None if it
    would not.

    A table that mclabel wrote may have any size, but not an implausible compression ratio.

    Args:
        source: content of the file.
        metadata: footer of the file.
    """
    groups = range(metadata.num_row_groups)
    whole = sum(_sum_decompressed_bytes(metadata, group_index) for group_index in groups)
    if not _is_decompression_bomb(whole, source.size):
        each = _CAREFUL // max(1, len(groups))
        at_worst = sum(
            _bound_decoded_text_bytes(source, metadata, group_index, min_bytes=each)
            for group_index in groups
        )
        if at_worst <= _CAREFUL or not _is_decompression_bomb(at_worst, source.size):
            return None
        whole = 0
        for batch in _iter_batches(pq.ParquetFile(source), source):
            whole += int(measure_row_sizes(batch).sum())
            if _is_decompression_bomb(whole, source.size):
                break
        else:
            return None
    return (
        f"its {source.size:,} bytes decompress to {whole:,} bytes or more, which no ordinary "
        "data does, so the file is not read"
    )


def read_whole_table(file: pq.ParquetFile) -> pa.Table:
    """Return all rows of a file that was opened on bytes in memory.

    The file is read only in the caller's thread. A thread of Arrow's pool may still hold the bytes
    after the table has been returned, and needs the Python interpreter to release them. If the
    interpreter exits at that moment, the process aborts ("terminate called without an active
    exception"). `pq.read_table` uses such threads even with `use_threads=False`.
    """
    return file.read(use_threads=False)


def _is_decompression_bomb(decompressed_bytes: int, num_bytes: int) -> bool:
    return decompressed_bytes > _MIN_BOMB and decompressed_bytes > MAX_RATIO * num_bytes


def measure_row_sizes(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the approximate memory in bytes of each row as Python objects, including its texts."""
    sizes = np.zeros(len(batch), dtype=np.int64)
    for column in batch.columns:
        sizes += _measure_item_sizes(column)
    return sizes


def _measure_item_sizes(array: pa.Array) -> NDArray[np.int64]:
    arrow_type = array.type
    if pa.types.is_dictionary(arrow_type):
        lengths = np.append(
            _measure_item_sizes(array.dictionary), _ITEM
        )  # the last size is that of null
        indices = pc.fill_null(array.indices, len(array.dictionary))
        return np.asarray(lengths[indices.to_numpy(zero_copy_only=False).astype(np.int64)])
    if _is_text_type(arrow_type):
        lengths = pc.fill_null(pc.binary_length(array), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False).astype(np.int64) + _ITEM)
    if pa.types.is_struct(arrow_type):
        fields = [_measure_item_sizes(array.field(i)) for i in range(arrow_type.num_fields)]
        return sum(fields, np.full(len(array), _ITEM, dtype=np.int64))
    if pa.types.is_map(arrow_type):
        return _measure_list_sizes(
            array, _measure_item_sizes(array.keys) + _measure_item_sizes(array.items)
        )
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return _measure_list_sizes(array, _measure_item_sizes(array.values))
    return np.full(len(array), _ITEM + array.nbytes // max(1, len(array)), dtype=np.int64)


def _measure_list_sizes(array: Any, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each list of an array, the sum of its items' sizes in bytes."""
    until = np.concatenate([[0], np.cumsum(sizes)])
    offsets = array.offsets.to_numpy()
    return np.asarray(until[offsets[1:]] - until[offsets[:-1]] + _ITEM, dtype=np.int64)


def _sum_decompressed_bytes(metadata: pq.FileMetaData, group_index: int) -> int:
    """Return the decompressed size of a row group in bytes.

    List items count with at least eight bytes each.
    """
    group, total = metadata.row_group(group_index), 0
    for index in range(metadata.num_columns):
        column = group.column(index)
        is_nested = metadata.schema.column(index).max_repetition_level > 0
        total += max(0, column.total_uncompressed_size, 8 * column.num_values if is_nested else 0)
    return total


def _iter_batches(file: pq.ParquetFile, source: Any) -> Iterator[pa.RecordBatch]:
    metadata = file.metadata
    texts = _list_text_columns(metadata)
    for group_index in range(metadata.num_row_groups):
        per_row = _sum_decompressed_bytes(metadata, group_index) // max(
            1, metadata.row_group(group_index).num_rows
        )
        rows = max(1, min(_BATCH_ROWS, MAX_ROW // max(1, per_row)))
        # Dictionaries take longer to read, so they are used only if texts could become large.
        careful = (
            _bound_decoded_text_bytes(source, metadata, group_index, min_bytes=_CAREFUL) > _CAREFUL
        )
        opened = _open_without_read_ahead(source, texts if careful else [])
        yield from opened.iter_batches(batch_size=rows, row_groups=[group_index], use_threads=False)


def _open_without_read_ahead(source: Any, dictionaries: list[str]) -> pq.ParquetFile:
    """Open a file without read-ahead, so that the given columns are read as Arrow dictionaries."""
    return pq.ParquetFile(
        source, read_dictionary=dictionaries, pre_buffer=False, buffer_size=_BUFFER
    )


def _list_text_columns(metadata: pq.FileMetaData) -> list[str]:
    columns = map(metadata.schema.column, range(metadata.num_columns))
    return [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]


def _bound_decoded_text_bytes(
    source: Any, metadata: pq.FileMetaData, group_index: int, *, min_bytes: int
) -> int:
    """Return an upper bound for the size of a row group's texts without dictionary encoding.

    Args:
        source: path or content of the file.
        metadata: footer of the file.
        group_index: index of the row group.
        min_bytes: size in bytes; columns that cannot exceed it are ignored.
    """
    group = metadata.row_group(group_index)
    texts = set(_list_text_columns(metadata))
    columns = [
        column
        for column in map(group.column, range(metadata.num_columns))
        if column.has_dictionary_page
        and column.path_in_schema in texts
        and column.num_values * column.total_uncompressed_size > min_bytes
    ]
    if not columns:
        return 0
    paths = [column.path_in_schema for column in columns]
    probe = _open_without_read_ahead(source, paths).iter_batches(
        batch_size=1, row_groups=[group_index], columns=paths, use_threads=False
    )
    first = next(probe, None)  # one row brings the whole dictionaries, which precede all rows
    if first is None:
        return 0
    longest = max(map(_measure_longest_text, first.columns), default=0)
    return longest * sum(int(column.num_values) for column in columns)


def _measure_longest_text(array: Any) -> int:
    """Return the length in bytes of the longest text in the dictionaries of an array."""
    arrow_type = array.type
    if pa.types.is_dictionary(arrow_type):
        return int(pc.max(pc.binary_length(array.dictionary)).as_py() or 0)
    if pa.types.is_struct(arrow_type):
        return max(
            (_measure_longest_text(array.field(i)) for i in range(arrow_type.num_fields)), default=0
        )
    if pa.types.is_map(arrow_type):
        return max(_measure_longest_text(array.keys), _measure_longest_text(array.items))
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return _measure_longest_text(array.values)
    return 0


def _decode_rows(batch: pa.RecordBatch, begin: int, end: int) -> Iterator[list[Any]]:
    """Yield the rows from `begin` up to `end` as Python objects.

    If a row cannot be decoded, the rows are yielded one by one, with the exception in place of that
    row.
    """
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


def _is_text_type(arrow_type: pa.DataType) -> bool:
    tests = (
        *(pa.types.is_string, pa.types.is_large_string),
        *(pa.types.is_binary, pa.types.is_large_binary),
    )
    return any(test(arrow_type) for test in tests)
