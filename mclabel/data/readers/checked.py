"""Checks the rows that a user's own reader yields.

What a row holds is looked at later: a row without a problem is left out, and does not end a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mclabel.boundary import Boundary, shown

_END = object()
"""Comes after the last row."""


class CheckedReader:
    """A reader whose rows are checked."""

    def __init__(self, reader: Any, around: Boundary) -> None:
        """Stand before a reader.

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
        found = self._around.call("rows", self._reader.rows, slow=True)
        rows = one_by_one(self._around, "rows", found)
        return self._numbered(self._around.call("rows", iter, rows, slow=True))

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


def one_by_one(around: Boundary, method: str, found: Any) -> Iterable[Any]:
    """What a method gave, which must yield one thing after the other.

    Raises:
        ComponentError: it does not.
    """
    if isinstance(found, Iterable) and not isinstance(found, str | bytes | Mapping):
        return found
    raise around.broken(method, f"gave {shown(found)}, must yield one after the other")
