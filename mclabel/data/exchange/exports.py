"""Labelled solutions in other people's formats, one JSON object a row.

TRL's stepwise supervision, Math-Shepherd (arXiv 2312.08935), RLHFlow, PRM800K (arXiv 2305.20050)
and ProcessBench (arXiv 2412.06559). What each cannot hold, `exchange.LOSSES` says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mclabel.data.exchange.formats import SHEPHERD_TAG, Format, LabeledTexts
from mclabel.errors import DataError
from mclabel.records import LabeledSolution, Outcome
from mclabel.seeds import content_id

RATINGS = {0.0: -1, 0.5: 0, 1.0: 1}


def labeled_texts(row: LabeledSolution) -> LabeledTexts:
    """What of a labelled solution other formats can hold."""
    meta = dict(row.problem.meta)
    right = {Outcome.RIGHT: True, Outcome.WRONG: False}.get(row.solution.outcome)
    return LabeledTexts(
        problem=row.problem.text,
        steps=tuple(_bare(step.text) for step in row.solution.steps),
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


_EXTRAS = ("task", "id", "generator")


def _imported_id(row: LabeledSolution) -> str | None:
    """The id that the solution had in the file it was imported from. An `id` that other problems
    carry in their metadata is shared by their solutions.
    """
    imported = any(step.source == "given" for step in row.steps)
    return row.problem.meta.get("id") if imported else None


def export_row(texts: LabeledTexts, to: Format) -> dict[str, Any] | None:
    """One row of another format; None for a solution that it cannot hold.

    Raises:
        DataError: a text contains what the format uses as a mark.
    """
    return _EXPORTS[to](texts)


def _bare(step: str) -> str:
    return step.removesuffix("\n")


def _labeled_head(texts: LabeledTexts) -> list[tuple[str, bool]]:
    """Steps with their labels, up to the first that has none; neutral counts as sound."""
    head: list[tuple[str, bool]] = []
    for step, rating in zip(texts.steps, texts.ratings, strict=True):
        if rating is None:
            break
        head.append((step, rating > 0))
    return head


def _trl(texts: LabeledTexts) -> dict[str, Any] | None:
    head = _labeled_head(texts)
    if not head:
        return None
    return {
        "prompt": texts.problem,
        "completions": [step for step, _ in head],
        "labels": [label for _, label in head],
    }


def _math_shepherd(texts: LabeledTexts) -> dict[str, Any] | None:
    head = _numbered(texts, SHEPHERD_TAG)
    if not head:
        return None
    marked = "\n".join(f"{step} {SHEPHERD_TAG}" for step, _ in head)
    labels = "\n".join(f"{step} {'+' if label else '-'}" for step, label in head)
    return {
        "input": f"{texts.problem} {marked}",
        "label": f"{texts.problem} {labels}",
        "task": dict(texts.extra).get("task", "mclabel"),
    }


def _rlhflow(texts: LabeledTexts) -> dict[str, Any] | None:
    head = _numbered(texts)
    if not head:
        return None
    turns = []
    for index, (step, label) in enumerate(head):
        content = f"{texts.problem} {step}" if index == 0 else step
        turns.append({"role": "user", "content": content})
        turns.append({"role": "assistant", "content": "+" if label else "-"})
    return {"conversations": turns}


def _numbered(texts: LabeledTexts, *marks: str) -> list[tuple[str, bool]]:
    """Labelled steps, each with its `Step i: ` before it, which tells the problem from step 1."""
    for text in (texts.problem, *texts.steps):
        for mark in (*marks, "Step 1: "):
            if mark in text:
                raise DataError(
                    f"problem {texts.problem[:60]!r}: contains {mark!r}, which the format uses as "
                    "a mark. Choose another format"
                )
    return [
        (f"Step {number}: {step}", label)
        for number, (step, label) in enumerate(_labeled_head(texts), 1)
    ]


def _prm800k(texts: LabeledTexts) -> dict[str, Any] | None:
    rated = []
    for step, rating in zip(texts.steps, texts.ratings, strict=True):
        if rating is None:
            break
        completion = {"text": step, "rating": RATINGS[rating], "flagged": False}
        rated.append(
            {"completions": [completion], "human_completion": None, "chosen_completion": 0}
        )
        if rating == 0:
            rated[-1]["chosen_completion"] = None
            break
    if not rated:
        return None
    error = rated[-1]["chosen_completion"] is None
    ended = len(rated) == len(texts.steps)
    return {
        "labeler": "mclabel",
        "timestamp": None,
        "generation": None,
        "is_quality_control_question": False,
        "is_initial_screening_question": False,
        "question": {
            "problem": texts.problem,
            "ground_truth_solution": None,
            "ground_truth_answer": texts.answer,
            "pre_generated_steps": list(texts.steps),
            "pre_generated_answer": texts.prediction,
            "pre_generated_verifier_score": None,
        },
        "label": {
            "steps": rated,
            "total_time": 0,
            "finish_reason": "found_error" if error else "solution" if ended else "give_up",
        },
    }


def _processbench(texts: LabeledTexts) -> dict[str, Any] | None:
    head = [label for _, label in _labeled_head(texts)]
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


_EXPORTS: Mapping[Format, Callable[[LabeledTexts], dict[str, Any] | None]] = {
    "trl": _trl,
    "math-shepherd": _math_shepherd,
    "rlhflow": _rlhflow,
    "prm800k": _prm800k,
    "processbench": _processbench,
}


def json_line(row: Mapping[str, Any]) -> str:
    """A row as it stands in a JSON Lines file."""
    return json.dumps(row, ensure_ascii=False) + "\n"
