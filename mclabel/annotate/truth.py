"""What people said as the truth about a run's solutions, and as rows of PRM800K."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mclabel.annotate.events import WITH_REASON, Event
from mclabel.annotate.folder import Annotated
from mclabel.annotate.items import Item
from mclabel.data.readers.judged import JudgedSolution

RATING_NUMBERS = {"good": 1, "okay": 0, "bad": -1, "unsure": None}
LOSSES = (
    "ratings end at the first bad step: those after it, notes, reasons for giving up and "
    "probabilities of being drawn are lost"
)


@dataclass(frozen=True, kw_only=True)
class PeoplesTruth:
    """The first errors that people named, and how many solutions have none."""

    judged: tuple[JudgedSolution, ...]
    """By item. Where two people differ, both first errors are accepted, until the overseer settles
    it; of gold that was drawn, those of the gold."""
    num_unsure: int
    """Solutions that were submitted without a first error: unsure, given up, bad problem."""
    num_open: int
    """Solutions that nobody has submitted yet."""


def peoples_truth(folder: str) -> PeoplesTruth:
    """Read the last opinions of a folder of annotations.

    Raises:
        DataError: a file is damaged.
    """
    annotated = Annotated.read(folder)
    judged, num_drawn, num_open = [], 0, 0
    for item in annotated.items:
        if item.probability is None:
            continue
        num_drawn += 1
        events = annotated.said(item)
        num_open += item.gold is None and not events
        errors = [event.first_error for event in events if event.is_sure]
        if item.gold is not None:
            errors = list(item.gold)
        if errors:
            judged.append(
                JudgedSolution(
                    id=item.id,
                    problem=item.problem,
                    steps=item.steps,
                    first_error=errors[0],
                    also=frozenset(errors[1:]),
                    weight=1 / item.probability,
                )
            )
    return PeoplesTruth(
        judged=tuple(judged),
        num_unsure=num_drawn - num_open - len(judged),
        num_open=num_open,
    )


def prm800k_rows(annotated: Annotated, *, screening: bool = False) -> Iterator[dict[str, Any]]:
    """A row of PRM800K (arXiv 2305.20050) for each person's last opinion on each solution.

    Args:
        annotated: the folder.
        screening: whether the questions of the screening are written, too.
    """
    for item in annotated.items:
        for event in exported(annotated, item, screening=screening):
            yield _row(item, event, annotated.is_screening(event.person, item))


def exported(annotated: Annotated, item: Item, *, screening: bool) -> list[Event]:
    """The opinions on an item that are written: of the screening only where that is asked for."""
    return [
        event
        for event in annotated.all_said(item)
        if (screening if annotated.is_screening(event.person, item)
            else event.person in annotated.who_counts)
    ]  # fmt: skip


def _row(item: Item, event: Event, is_screening: bool) -> dict[str, Any]:
    steps = [text.removesuffix("\n") for text in item.steps]
    rated = []
    for text, word in zip(steps, event.ratings, strict=True):
        # who gave up has not said that a step is the first error, and readers would take it so
        if word is None or (word == "bad" and event.finish in WITH_REASON):
            break
        bad = word == "bad"
        completion = {"text": text, "rating": RATING_NUMBERS[word], "flagged": False}
        rated.append(
            {
                "completions": [completion],
                "human_completion": None,
                "chosen_completion": None if bad else 0,
            }
        )
        if bad:
            break
    return {
        "labeler": event.person,
        "timestamp": datetime.fromtimestamp(event.at / 1000, UTC).isoformat(),
        "generation": None,
        "is_quality_control_question": item.gold is not None and not is_screening,
        "is_initial_screening_question": is_screening,
        "question": {
            "problem": item.problem,
            "ground_truth_solution": None,
            "ground_truth_answer": item.answer,
            "pre_generated_steps": steps,
            "pre_generated_answer": item.prediction,
            "pre_generated_verifier_score": None,
        },
        "label": {"steps": rated, "total_time": event.ms, "finish_reason": event.finish},
    }
