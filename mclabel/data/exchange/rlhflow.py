"""The format of RLHFlow: a conversation whose answers are `+` and `-`."""

from __future__ import annotations

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


class Rlhflow:
    """The format of RLHFlow: a conversation whose answers are `+` and `-`."""

    losses: ClassVar[str] = (
        "labels are + or -: values, counts, intervals, the gold answer, the outcome and ids "
        "are lost; steps without a label, and those after them, are left out"
    )
    is_cut: ClassVar[bool] = True

    def write(self, texts: LabeledTexts) -> dict[str, Any] | None:
        """The row of a solution; None if the format cannot hold it."""
        head = numbered_head(texts)
        if not head:
            return None
        turns = []
        for index, (step, label) in enumerate(head):
            content = f"{texts.problem} {step}" if index == 0 else step
            turns.append({"role": "user", "content": content})
            turns.append({"role": "assistant", "content": "+" if label else "-"})
        return {"conversations": turns}

    def read(self, row: Mapping[str, Any]) -> Iterator[LabeledTexts]:
        """The solution of a row, whose steps may lack their numbers."""
        turns = row["conversations"]
        roles = [turn["role"] for turn in turns]
        if roles != ["user", "assistant"] * (len(turns) // 2):
            raise ValueError("turns must alternate between user and assistant")
        problem, first = split_problem(turns[0]["content"], may_lack_mark=True)
        steps = [first, *(turn["content"] for turn in turns[2::2])]
        signs = [sign(turn["content"].strip()) for turn in turns[1::2]]
        yield labeled_texts(problem, [unnumbered(step) for step in steps], signs)
