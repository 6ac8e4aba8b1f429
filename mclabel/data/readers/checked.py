"""Checks the rows that a user's own reader yields.

What a row holds is looked at later: a row without a problem is left out, and does not end a job.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from mclabel.boundary import Boundary, shown

_END = object()
"""Comes after the last row."""


class CheckedReader:
    """A reader whose rows are checked."""

    def __init__(self, reader: Any, around: Boundary) -> None:
        """Wrap a reader.

        Args:
            reader: that is made.
            around: its boundary.
        """
        self._reader, self._around = reader, around

    def rows(self) -> Iterable[tuple[int, Any]]:
        """Every row with its number; see `Reader`.

        Raises:
            ComponentError: the reader fails, or does not give numbered rows.
        """
        around = self._around
        found = around.call("rows", self._reader.rows, rule=not_one_by_one, slow=True)
        return self._numbered(around.call("rows", iter, found, slow=True))

    def _numbered(self, rows: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        before = 0
        while True:
            place = f"rows, after row {before}," if before else "rows"
            row = self._around.call(place, next, rows, _END, slow=True)
            if row is _END:
                return
            if not isinstance(row, tuple) or len(row) != 2 or type(row[0]) is not int:
                fault = f"gave {shown(row)} after row {before}, must give pairs of a row's number"
                raise self._around.broken("rows", f"{fault} and the row")
            if row[0] <= before:
                fault = f"gave row {row[0]} after row {before}: row numbers must increase from 1"
                raise self._around.broken("rows", fault)
            before = row[0]
            yield row


def not_one_by_one(found: object, *given: object) -> str | None:
    """A `Rule` of what yields one thing after the other."""
    if fault := not_plain(found):
        return fault
    if not isinstance(found, Iterable) or isinstance(found, str | bytes | dict):
        return f"gave {shown(found)}, must yield one after the other"
    return None


def not_plain(found: object, *given: object) -> str | None:
    """A `Rule` of what is no coroutine."""
    if inspect.iscoroutine(found):
        found.close()
    elif not inspect.isasyncgen(found):
        return None
    return f"gave a {type(found).__name__}, must be a plain function or method (def)"
