"""Digests that files carry of themselves, so that damage is found before anything rests on it.

A Parquet file holds the SHA-256 of all its bytes in its footer, computed with zeros in the digest's
place: page checksums would leave out the footer. A JSON object holds the SHA-256 of its content
under `digest`, whatever its white space.
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
"""Key and value as they stand in the footer (Thrift's compact protocol)."""
SMALLEST = 1 << 10
"""Bytes; the schema alone of any shard takes more."""

Check = Literal["sound", "damaged", "none"]
"""`none`: the file carries no digest, so that another program has written it."""


def parquet_with_digest(table: pa.Table, **options: Any) -> bytes:
    """Return a Parquet file that carries its digest.

    Args:
        table: its content.
        options: options for `pyarrow.parquet.ParquetWriter`.
    """
    placeholder = secrets.token_hex(32)
    content = _parquet(table, placeholder, options)
    mark = _MARK.search(content, _footer_start(content))
    if mark is None or mark[1] != placeholder.encode():
        # A text that looks like a digest stands before it, in a column's statistics.
        content = _parquet(table, placeholder, {**options, "write_statistics": False})
        mark = _MARK.search(content, _footer_start(content))
    assert mark is not None and mark[1] == placeholder.encode()
    start, end = mark.span(1)
    digest = _sha256(content[:start], _ZEROS, content[end:])
    return b"".join((content[:start], digest.encode(), content[end:]))


def check_parquet(content: bytes) -> Check:
    """Check whether a file is the one that was written."""
    start = _footer_start(content)
    if start < 0:
        return "damaged"
    mark = _MARK.search(content, start)
    if mark is None:
        return "none"
    whole = memoryview(content)
    digest = _sha256(whole[: mark.start(1)], _ZEROS, whole[mark.end(1) :])
    return "sound" if digest.encode() == mark[1] else "damaged"


def parquet_digest(content: bytes) -> str | None:
    """Return the digest that a file carries, right or not; None if it carries none."""
    start = _footer_start(content)
    mark = _MARK.search(content, start) if start >= 0 else None
    return None if mark is None else mark[1].decode()


def is_cut_off(tail: bytes) -> bool:
    """Return whether a Parquet file that ends with these bytes lacks its end."""
    return not tail.endswith(_MAGIC)


def with_digest(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its digest."""
    return {**content, KEY: f"sha256:{hashlib.sha256(canonical_json(content)).hexdigest()}"}


def read_object(raw: bytes | str) -> tuple[dict[str, Any], Check]:
    """Read a JSON object without its digest, and check whether it is the one that was written.

    Raises:
        ValueError: no JSON object.
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
    return content, "sound" if with_digest(content)[KEY] == digest else "damaged"


class LinesDigest:
    """The digest of a file of JSON lines, which its first line carries."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, content: Mapping[str, Any]) -> None:
        """Take in a line's object, without any digest."""
        self._hash.update(canonical_json(content) + b"\n")

    @property
    def text(self) -> str:
        """The digest of what was added."""
        return f"sha256:{self._hash.hexdigest()}"


def check_lines(raw: bytes) -> Check:
    """Check whether a file of JSON lines is the one that was written."""
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


def log_lines(raw: bytes) -> Iterator[dict[str, Any] | None]:
    """Yield the objects of a log whose lines carry digests; None for a line that has changed."""
    for line in raw.splitlines():
        try:
            content, check = read_object(line)
        except ValueError:
            yield None
        else:
            yield content if check == "sound" else None


def _parquet(table: pa.Table, placeholder: str, options: Mapping[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({_PARQUET_KEY: f"sha256:{placeholder}"})
    return bytes(sink.getvalue().to_pybytes())


def _footer_start(content: bytes) -> int:
    """Return the offset of the footer; negative if the file has none."""
    if not content.startswith(_MAGIC) or is_cut_off(content) or len(content) < 12:
        return -1
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def _sha256(*parts: bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
