"""Frames on the pipes between a process in the box and what keeps it. Standard library only."""

from __future__ import annotations

import os
import struct
from typing import NoReturn

_HEADER = struct.Struct(">cI")
_READ, _WRITE = 3, 4


def write_frame(kind: bytes, content: bytes) -> None:
    """Write a frame to the process above: its kind, its length and its content."""
    left = memoryview(_HEADER.pack(kind, len(content)) + content)
    while left:
        left = left[os.write(_WRITE, left) :]


def read_frame() -> tuple[bytes, bytes] | None:
    """Read the next frame; None if there will be none."""
    header = _exactly(_HEADER.size)
    if header is None:
        return None
    kind, size = _HEADER.unpack(header)
    content = _exactly(size)
    return None if content is None else (kind, content)


def _exactly(size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        if not (part := os.read(_READ, size - len(found))):
            return None
        found += part
    return bytes(found)


def end_with(kind: bytes, text: str) -> NoReturn:
    """Write a last frame and end the process at once."""
    write_frame(kind, text.encode("utf-8", "replace"))
    os._exit(1)
