"""Digests that are stored in the files themselves, so that damage is found when a file is read.

A Parquet file stores in its footer the SHA-256 of all its bytes, computed with zeros in place of
the digest. (Parquet's page checksums do not cover the footer.) A JSON object stores the SHA-256 of
its content under `digest`; white space does not matter.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.core.seeds import canonical_json

KEY = "digest"
_PARQUET_KEY = "mclabel.digest"
_MAGIC = b"PAR1"
_ZEROS = b"0" * 64
_MARK = re.compile(re.escape(_PARQUET_KEY.encode()) + rb"\x18\x47sha256:([0-9a-f]{64})\x00")
"""Pattern of the digest's key and value in the footer (Thrift's compact protocol)."""
MIN_SHARD_BYTES = 1 << 10
"""Size in bytes that every undamaged shard exceeds, as its schema alone takes more."""

Check = Literal["sound", "damaged", "none"]
"""Result of comparing a file with the digest that it stores: `sound` means equal, `damaged`
different, and `none` that the file stores no digest, because another program wrote it."""


def encode_parquet_with_digest(table: pa.Table, **options: Any) -> bytes:
    """Return a table as the bytes of a Parquet file that stores its digest.

    Args:
        table: content of the file.
        options: options for `pyarrow.parquet.ParquetWriter`.
    """
    placeholder = secrets.token_hex(32)
    content = _encode_parquet(table, placeholder, options)
    mark = _MARK.search(content, _find_footer_start(content))
    if mark is None or mark[1] != placeholder.encode():
        # The first match is a text in a column's statistics that looks like a digest.
        content = _encode_parquet(table, placeholder, {**options, "write_statistics": False})
        mark = _MARK.search(content, _find_footer_start(content))
    assert mark is not None and mark[1] == placeholder.encode()
    start, end = mark.span(1)
    digest = _hash_sha256(content[:start], _ZEROS, content[end:])
    return b"".join((content[:start], digest.encode(), content[end:]))


def check_parquet_digest(file_bytes: bytes) -> Check:
    """Compare the bytes of a Parquet file with the digest that it stores."""
    start = _find_footer_start(file_bytes)
    if start < 0:
        return "damaged"
    mark = _MARK.search(file_bytes, start)
    if mark is None:
        return "none"
    whole = memoryview(file_bytes)
    digest = _hash_sha256(whole[: mark.start(1)], _ZEROS, whole[mark.end(1) :])
    return "sound" if digest.encode() == mark[1] else "damaged"


def read_parquet_digest(file_bytes: bytes) -> str | None:
    """Return the digest that a Parquet file stores, without checking it; None if it stores none."""
    start = _find_footer_start(file_bytes)
    mark = _MARK.search(file_bytes, start) if start >= 0 else None
    return None if mark is None else mark[1].decode()


def is_truncated_parquet(tail: bytes) -> bool:
    """Return whether a Parquet file is truncated.

    Args:
        tail: last bytes of the file, at least four.
    """
    return not tail.endswith(_MAGIC)


def add_digest(json_object: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its digest added under `digest`."""
    return {**json_object, KEY: f"sha256:{hashlib.sha256(canonical_json(json_object)).hexdigest()}"}


def parse_checked_object(raw: bytes | str) -> tuple[dict[str, Any], Check]:
    """Parse a JSON object, and compare its content with the digest that it stores.

    Returns:
        The object without its digest, and the result of the comparison.

    Raises:
        ValueError: the text is not a JSON object.
    """
    try:
        content = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError(f"must be an object, is a {type(content).__name__}")
    digest = content.pop(KEY, None)
    if digest is None:
        return content, "none"
    return content, "sound" if add_digest(content)[KEY] == digest else "damaged"


class LinesDigest:
    """Computes the digest of a JSON Lines file, which is stored in the file's first line."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, content: Mapping[str, Any]) -> None:
        """Add the object of the next line, without a digest."""
        self._hash.update(canonical_json(content) + b"\n")

    @property
    def text(self) -> str:
        """Digest of the lines added so far."""
        return f"sha256:{self._hash.hexdigest()}"


def check_lines_digest(raw: bytes) -> Check:
    """Compare the lines of a JSON Lines file with the digest that its first line stores."""
    digest, carried = LinesDigest(), None
    for number, line in enumerate(raw.splitlines()):
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            return "damaged"
        if not isinstance(content, dict):
            return "damaged"
        if not number:
            carried = content.pop(KEY, None)
        digest.add(content)
    if not raw:
        return "damaged"
    if carried is None:
        return "none"
    return "sound" if carried == digest.text else "damaged"


def parse_log_lines(raw: bytes) -> Iterator[dict[str, Any] | None]:
    """Yield the object of each line of a log whose lines store digests; None for a damaged line."""
    for line in raw.splitlines():
        try:
            content, check = parse_checked_object(line)
        except ValueError:
            yield None
        else:
            yield content if check == "sound" else None


def _encode_parquet(table: pa.Table, placeholder: str, options: Mapping[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_PARQUET_KEY: f"sha256:{placeholder}"})
    return bytes(sink.getvalue().to_pybytes())


def _find_footer_start(file_bytes: bytes) -> int:
    """Return the byte offset of the footer; negative if the file has none."""
    if (
        not file_bytes.startswith(_MAGIC)
        or is_truncated_parquet(file_bytes)
        or len(file_bytes) < 12
    ):
        return -1
    return len(file_bytes) - 8 - int.from_bytes(file_bytes[-8:-4], "little")


def _hash_sha256(*parts: bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
