"""Reads and writes messages (frames) on the pipes between a sandboxed program and its supervisor.

The supervisor is the process that starts the program and forwards its messages. A frame is a kind
(one byte), a length (four bytes) and the content. The module uses only the standard library.
"""

from __future__ import annotations

import os
import struct
from typing import NoReturn

_HEADER = struct.Struct(">cI")
_READ, _WRITE = 3, 4


def write_frame(kind: bytes, content: bytes) -> None:
    """Write a frame to the supervisor.

    Args:
        kind: kind of the frame, one byte.
        content: content of the frame.
    """
    remaining = memoryview(_HEADER.pack(kind, len(content)) + content)
    while remaining:
        remaining = remaining[os.write(_WRITE, remaining) :]


def read_frame() -> tuple[bytes, bytes] | None:
    """Return the kind and the content of the next frame; None at the end of the pipe."""
    header = _read_exactly(_HEADER.size)
    if header is None:
        return None
    kind, size = _HEADER.unpack(header)
    content = _read_exactly(size)
    return None if content is None else (kind, content)


def _read_exactly(size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        if not (part := os.read(_READ, size - len(received))):
            return None
        received += part
    return bytes(received)


def write_frame_and_exit(kind: bytes, text: str) -> NoReturn:
    """Write a last frame and exit the process immediately."""
    write_frame(kind, text.encode("utf-8", "replace"))
    os._exit(1)
