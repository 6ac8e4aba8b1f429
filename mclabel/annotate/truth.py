"""What people said as the truth about a run's solutions, and as rows of PRM800K."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mclabel.annotate.events import WITH_REASON, Event, latest, read_events
from mclabel.annotate.items import Item, read_items
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
    """By item. Where two people differ, both first errors are accepted."""
    num_unsure: int
    """Solutions that were submitted without a first error: unsure, given up, bad problem."""
    num_open: int
    """Solutions that nobody has submitted yet."""


def peoples_truth(folder: str) -> PeoplesTruth:
    """Read the last opinions of a folder of annotations.

    Raises:
        DataError: a file is damaged.
    """
    by_item: dict[str, list[Event]] = defaultdict(list)
    for event in latest(read_events(folder)).values():
        by_item[event.solution].append(event)
    items = read_items(folder)
    judged = []
    for item in items:
        errors = [one.first_error for one in _in_order(item, by_item[item.id]) if one.is_sure]
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
    num_open = sum(not by_item[item.id] for item in items)
    return PeoplesTruth(
        judged=tuple(judged),
        num_unsure=len(items) - num_open - len(judged),
        num_open=num_open,
    )


def prm800k_rows(folder: str) -> Iterator[dict[str, Any]]:
    """A row of PRM800K (arXiv 2305.20050) for each person's last opinion on each solution.

    Raises:
        DataError: a file is damaged.
    """
    opinions = latest(read_events(folder))
    for item in read_items(folder):
        for person in item.people:
            if (event := opinions.get((person, item.id))) is not None:
                yield _row(item, event)


def _in_order(item: Item, events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: item.people.index(event.person))


def _row(item: Item, event: Event) -> dict[str, Any]:
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
        "is_quality_control_question": False,
        "is_initial_screening_question": False,
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
