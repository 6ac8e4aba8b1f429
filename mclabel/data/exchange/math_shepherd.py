"""The format of Math-Shepherd (arXiv 2312.08935)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from mclabel.data.exchange.formats import (
    LabeledTexts,
    labeled_texts,
    numbered_head,
    sign,
    split_problem,
    unnumbered,
)

SHEPHERD_TAG = "ки"
"""Stands after every step of the inputs, where the labels have `+` or `-`."""
_TAGGED = re.compile(rf" ?{SHEPHERD_TAG}[ \t]*(?:\r?\n|$)")


class MathShepherd:
    """The format of Math-Shepherd (arXiv 2312.08935)."""

    losses: ClassVar[str] = (
        "labels are + or -: values, counts, intervals, the gold answer, the outcome and ids "
        "are lost; steps without a label, and those after them, are left out"
    )
    is_cut: ClassVar[bool] = True

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """The row of a solution; None if the format cannot hold it."""
        head = numbered_head(texts, SHEPHERD_TAG)
        if not head:
            return None
        marked = "\n".join(f"{step} {SHEPHERD_TAG}" for step, _ in head)
        labels = "\n".join(f"{step} {'+' if label else '-'}" for step, label in head)
        return {
            "input": f"{texts.problem} {marked}",
            "label": f"{texts.problem} {labels}",
            "task": dict(texts.extra).get("task", "mclabel"),
        }

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """The solution of a row."""
        parts = _TAGGED.split(row["input"])
        labels, start = [], 0
        for part in parts[:-1]:
            start = row["label"].index(part, start) + len(part)
            labels.append(row["label"][start : start + 2].strip()[:1])
        if parts[-1].strip() or not labels:
            raise ValueError(f"a step of the input does not end in {SHEPHERD_TAG!r}")
        problem, first = split_problem(parts[0])
        steps = [unnumbered(step) for step in (first, *parts[1:-1])]
        extra = (("task", str(row["task"])),) if "task" in row else ()
        yield labeled_texts(problem, steps, [sign(label) for label in labels], extra=extra)
