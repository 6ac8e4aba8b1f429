"""Rows of a file that cannot be used: left out with their reasons, or an error at the first."""

from __future__ import annotations

from mclabel.core.errors import DataError, RejectReason, bounded
from mclabel.data.readers.rows import row_place
from mclabel.run.shards.rejects import Reject


class RowRejects:
    """What is left out of one file, in its order."""

    def __init__(self, source: str, *, strict: bool = False) -> None:
        """Begin with nothing left out.

        Args:
            source: path or URL of the file.
            strict: whether a row that cannot be used is an error.
        """
        self.source, self._strict = source, strict
        self.found: list[Reject] = []

    def add(
        self, why: RejectReason, number: int | None = None, problem_id: str | None = None
    ) -> None:
        """Leave a row out.

        Args:
            why: it cannot be used.
            number: of the row, as `scan_rows` counts; None for what concerns the file as a whole.
            problem_id: id of its problem; None if it is unknown.

        Raises:
            DataError: one row is too many, as rejects are strict.
        """
        if self._strict:
            place = self.source if number is None else row_place(self.source, number)
            raise DataError(f"{place}: {bounded(why.detail)}")
        self.found.append(
            Reject(
                problem_id=None if problem_id is None else bounded(problem_id),
                row=number,
                source=self.source,
                reason=why.reason,
                detail=bounded(why.detail),
            )
        )

    def none_left(self) -> str:
        """The message that no row can be used; names the first."""
        if not self.found:
            return f"{self.source}: holds no rows"
        first = self.found[0]
        return (
            f"{self.source}: none of its {len(self.found)} rows can be used; "
            f"{row_place(self.source, first.row or 0)}: {first.detail}"
        )
