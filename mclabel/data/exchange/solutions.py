"""Labelled solutions as the texts that other formats hold, and back.

On the way back a label is what the file has: its `source` is `given`, counts are zero, intervals
unknown. There are no token ids: a scorer's tokenizer reads the texts.
"""

from __future__ import annotations

from mclabel.core.records import (
    Counts,
    LabeledSolution,
    Outcome,
    Problem,
    Solution,
    Step,
    StepLabel,
)
from mclabel.core.seeds import content_id, text_prefix_ids
from mclabel.data.exchange.formats import LabeledTexts

_EXTRAS = ("task", "id", "generator", "prm800k")
"""Fields of a problem's metadata that other formats have, too."""


def solution_texts(row: LabeledSolution) -> LabeledTexts:
    """The part of a labelled solution that other formats can hold."""
    meta = dict(row.problem.meta)
    right = {Outcome.RIGHT: True, Outcome.WRONG: False}.get(row.solution.outcome)
    return LabeledTexts(
        problem=row.problem.text,
        steps=tuple(step.text.removesuffix("\n") for step in row.solution.steps),
        ratings=tuple(
            None
            if label.hard is None
            else 0.5
            if label.source == "given" and label.value == 0.5
            else float(label.hard)
            for label in row.steps
        ),
        answer=row.problem.answer,
        prediction=row.solution.prediction,
        right=right,
        extra=tuple(sorted((key, meta[key]) for key in _EXTRAS if key in meta)),
        id=_imported_id(row) or row.solution.id,
    )


def _imported_id(row: LabeledSolution) -> str | None:
    """The id that the solution had in the file it was imported from; None if it was not.

    An `id` that other problems have in their metadata is shared by their solutions.
    """
    imported = any(step.source == "given" for step in row.steps)
    return row.problem.meta.get("id") if imported else None


def labeled_solution(
    texts: LabeledTexts, *, sample_index: int, outcome: Outcome
) -> LabeledSolution:
    """A solution of another format as a labelled one.

    Args:
        texts: what the format has of the solution.
        sample_index: number of the solution among those of its problem.
        outcome: verdict on its answer.
    """
    last = len(texts.steps) - 1
    steps = [step if i == last else f"{step}\n" for i, step in enumerate(texts.steps)]
    problem = Problem(
        id=content_id("problem", texts.problem, texts.answer),
        text=texts.problem,
        answer=texts.answer,
        meta=dict(texts.extra),
    )
    prefixes = text_prefix_ids(problem.id, steps)
    labels = tuple(
        StepLabel(
            prefix_id=prefix,
            counts=Counts(),
            source="none" if rating is None else "given",
            hard=None if rating is None else rating > 0,
            value=rating,
            low=None,
            high=None,
        )
        for prefix, rating in zip(prefixes, texts.ratings, strict=True)
    )
    return LabeledSolution(
        problem=problem,
        solution=Solution(
            id=content_id("solution", problem.id, sample_index),
            problem_id=problem.id,
            sample_index=sample_index,
            text="".join(steps),
            ids=(),
            steps=tuple(Step(text=step, end=0) for step in steps),
            finish_reason="stop",
            origin="given",
            prediction=texts.prediction,
            outcome=outcome,
        ),
        prompt_ids=(),
        steps=labels,
        first_error=next((i for i, r in enumerate(texts.ratings) if r == 0), None),
        root=Counts(),
        siblings=Counts(),
    )
