"""The format of ProcessBench (arXiv 2412.06559)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from mclabel.core.seeds import content_id
from mclabel.data.exchange.formats import LabeledTexts, labeled_texts
from mclabel.data.readers.judged import answer_right_of, first_error_of


class ProcessBench:
    """The format of ProcessBench (arXiv 2412.06559)."""

    losses: ClassVar[str] = (
        "one first error a solution: values, counts, intervals and the gold answer are "
        "lost; the labels after the first error are lost; solutions without an "
        "error of which some step has no label, or without an outcome, are left out"
    )
    is_cut: ClassVar[bool] = False

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """The row of a solution; None if the format cannot hold it."""
        head = [label for _, label in texts.labeled_head]
        error = head.index(False) if False in head else None
        if texts.right is None or (error is None and len(head) < len(texts.steps)):
            return None
        extra = dict(texts.extra)
        return {
            "id": texts.id or content_id("solution", texts.problem, texts.steps),
            "generator": extra.get("generator", "mclabel"),
            "problem": texts.problem,
            "steps": list(texts.steps),
            "final_answer_correct": texts.right,
            "label": -1 if error is None else error,
        }

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """The solution of a row."""
        steps = row["steps"]
        error = first_error_of(row["label"], len(steps))
        ratings: list[float | None] = [1.0] * len(steps)
        if error is not None:
            ratings[error:] = [0.0, *[None] * (len(steps) - error - 1)]
        extra = tuple((key, str(row[key])) for key in ("generator", "id") if key in row)
        right = answer_right_of(row["final_answer_correct"])
        yield labeled_texts(row["problem"], steps, ratings, right=right, extra=extra)
