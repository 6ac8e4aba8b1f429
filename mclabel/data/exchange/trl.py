"""The format of TRL's stepwise supervision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from mclabel.data.exchange.formats import LabeledTexts, labeled_texts


class Trl:
    """The format of TRL's stepwise supervision."""

    losses: ClassVar[str] = (
        "labels are booleans: values, counts, intervals, the gold answer, the outcome and "
        "ids are lost; steps without a label, and those after them, are left out"
    )
    is_cut: ClassVar[bool] = True

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """The row of a solution; None if the format cannot hold it."""
        head = texts.labeled_head
        if not head:
            return None
        return {
            "prompt": texts.problem,
            "completions": [step for step, _ in head],
            "labels": [label for _, label in head],
        }

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """The solution of a row."""
        steps, labels = row["completions"], row["labels"]
        if not all(isinstance(label, bool) for label in labels):
            raise ValueError("labels must be booleans")
        yield labeled_texts(row["prompt"], steps, [float(label) for label in labels])
