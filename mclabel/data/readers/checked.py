"""Checks the rows that a user's own reader yields.

What the protocol does not allow ends in a `ComponentError` that names the reader and what it gave
(`mclabel.boundary`). What a row holds is looked at later: a row without a problem is left out, and
does not end a job.
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

    def __init__(self, reader: Any, boundary: Boundary) -> None:
        """Wrap a reader.

        Args:
            reader: that is made.
            boundary: of it.
        """
        self._reader, self._boundary = reader, boundary

    def rows(self) -> Iterable[tuple[int, Any]]:
        """Every row with its number; see `Reader`.

        Raises:
            ComponentError: the reader fails, or does not give numbered rows.
        """
        with self._boundary.calling("rows", may_take_long=True):
            found = self._reader.rows()
        if inspect.iscoroutine(found) or inspect.isasyncgen(found):
            if inspect.iscoroutine(found):
                found.close()
            raise self._broken(f"gave a {type(found).__name__}, must be a plain function (def)")
        if not isinstance(found, Iterable) or isinstance(found, str | bytes):
            raise self._broken(f"gave {shown(found)}, must yield rows, one after the other")
        return self._numbered(found)

    def _numbered(self, found: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        with self._boundary.calling("rows", may_take_long=True):
            rows = iter(found)
        before = 0
        while True:
            place = f"rows, after row {before}," if before else "rows"
            with self._boundary.calling(place, may_take_long=True):
                row = next(rows, _END)
            if row is _END:
                return
            if not isinstance(row, tuple) or len(row) != 2 or type(row[0]) is not int:
                raise self._broken(
                    f"gave {shown(row)} after row {before}, must give pairs of a row's number and "
                    "the row"
                )
            if row[0] <= before:
                raise self._broken(
                    f"gave row {row[0]} after row {before}: row numbers must increase from 1"
                )
            before = row[0]
            yield row

    def _broken(self, fault: str) -> Exception:
        return self._boundary.broken("rows", fault)
