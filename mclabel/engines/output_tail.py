"""What child processes print, passed on and the last of it kept.

An engine that computes in processes of its own dies there; its caller learns only that it did.
The reason stands in what the child printed.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

KEPT = 64 * 2**10  # bytes
MAX_REASON = 500  # characters
REASON = re.compile(
    r"\b((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Za-z_]\w{0,60}(?:Error|Exception|Interrupt): \S.*)"
)
"""Bounded repeats: any text is searched in linear time."""
_LINE_ENDS = re.compile(rb"(?<=\n)|(?<=\r)(?=[^\n])")
"""A progress bar ends its lines with a return alone, which what follows has to show."""


class OutputTail:
    """Within its context, children are started with outputs that pass through this process.

    They keep those outputs when the context ends, and a thread copies for as long as they live.
    What Python prints in this process goes where it went before, so that a progress bar goes on.
    """

    def __init__(self, is_shown: Callable[[str], bool] | None = None) -> None:
        """Keep nothing yet.

        Args:
            is_shown: called with every line that a child prints; whether it is passed on. None
                passes all on.
        """
        self._is_shown = is_shown
        self._tail = bytearray()
        self._copying: threading.Thread | None = None

    def __enter__(self) -> OutputTail:
        sys.stdout.flush()
        sys.stderr.flush()
        self._saved = (os.dup(1), os.dup(2))
        reader, writer = os.pipe()
        self._streams = (sys.stdout, sys.stderr)
        self._own = tuple(map(_beside, self._streams, (1, 2), self._saved))
        sys.stdout, sys.stderr = self._own
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(writer)
        self._copying = threading.Thread(
            target=self._copy, args=(reader, os.dup(self._saved[1])), daemon=True
        )
        self._copying.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for saved, number in zip(self._saved, (1, 2), strict=True):
            os.dup2(saved, number)
            os.close(saved)
        if sys.stdout is self._own[0]:  # else a progress bar has begun or ended meanwhile
            sys.stdout = self._streams[0]
        if sys.stderr is self._own[1]:
            sys.stderr = self._streams[1]
        if error is not None and self._copying is not None:
            self._copying.join(timeout=5.0)  # the children that failed are about to end

    @property
    def reason(self) -> str | None:
        """The first error that a child's output names, as children that wait fail after it."""
        found = REASON.search(self._tail.decode(errors="replace"))
        return found[1][:MAX_REASON] if found else None

    def _copy(self, reader: int, out: int) -> None:
        with os.fdopen(reader, "rb", buffering=0) as file, os.fdopen(out, "wb", buffering=0) as to:
            begun = b""
            while piece := file.read(4096):
                self._tail += piece
                del self._tail[:-KEPT]
                if self._is_shown is None:
                    to.write(piece)
                    continue
                *lines, begun = _LINE_ENDS.split(begun + piece)
                shown = [line for line in lines if self._is_shown(line.decode(errors="replace"))]
                if len(begun) > KEPT:
                    shown, begun = [*shown, begun], b""
                to.write(b"".join(shown))
            to.write(begun)


def _beside(stream: TextIO, number: int, saved: int) -> TextIO:
    """A stream to the file that `saved` stands for, if a stream writes to that of a number.

    It stays open for whoever has taken it over.
    """
    try:
        if stream.fileno() != number:
            return stream
    except (OSError, ValueError):  # it has no file, as in tests, or is closed
        return stream
    copy = os.dup(saved)
    return open(copy, "w", buffering=1, encoding=stream.encoding, errors=stream.errors)
