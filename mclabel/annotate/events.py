"""One person's opinion on one solution: what an event holds, and the rules that it keeps.

`mclabel.annotate.storage` has the file of events. Their order in it decides which opinion is the
last one: the clocks of people's machines do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from mclabel.annotate.items import OVERSEER, Item
from mclabel.core.errors import DataError
from mclabel.core.settings import read_record

Rating = Literal["good", "okay", "bad", "unsure"]
Finish = Literal["found_error", "solution", "give_up", "bad_problem"]
WITH_REASON = ("give_up", "bad_problem")
"""Ways to finish that need a note."""
MAX_NOTE = 2000
"""Characters."""
MAX_MS = 10**11
"""Milliseconds that a solution can have been in sight: three years."""
MAX_AT = 4_102_444_800_000
"""The year 2100, in milliseconds since 1970. A clock that was reset stands at 1970."""
MAX_REVISION = 1_000_000
_Text = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Event:
    """One person's opinion on one solution."""

    id: Annotated[str, Field(pattern="^[A-Za-z0-9-]{8,64}$")]
    """Made by the page; unique."""
    person: _Text
    solution: _Text
    """Id of the solution."""
    digest: _Text
    """Hash of the texts that were shown."""
    ratings: tuple[Rating | None, ...]
    """Rating of each step; None for a step that was not rated."""
    finish: Finish
    note: Annotated[str, Field(max_length=MAX_NOTE)]
    ms: Annotated[int, Field(ge=0, le=MAX_MS)]
    """Milliseconds that the solution was in sight."""
    at: Annotated[int, Field(ge=0, le=MAX_AT)]
    """Time of the event by the person's clock, in milliseconds since 1970. Nothing depends on
    it.
    """
    revision: Annotated[int, Field(ge=1, le=MAX_REVISION)]
    """Counts the opinions of this person on this solution, from 1. From 2 on, the labels of the
    run had been shown."""

    @property
    def is_sure(self) -> bool:
        """Return whether the event says where the first error is, or that there is none."""
        ends = next((r for r in self.ratings if r in ("bad", "unsure", None)), "none")
        return self.finish not in WITH_REASON and ends in ("bad", "none")

    @property
    def first_error(self) -> int | None:
        """Index of the first step rated bad, None for none; it means something if `is_sure`."""
        return self.ratings.index("bad") if "bad" in self.ratings else None


def parse_event(content: Any) -> Event:
    """Return the event that a JSON value holds.

    Raises:
        DataError: names a field that is wrong, its value and its rule.
    """
    try:
        event = read_record(Event, content)
    except ValueError as error:
        raise DataError(str(error)) from None
    bad = event.first_error
    rated = event.ratings if bad is None else event.ratings[: bad + 1]
    if event.finish == "found_error" and bad is None:
        raise DataError("finish='found_error': no step is rated bad, and one must be")
    if event.finish == "solution" and bad is not None:
        raise DataError(f"finish='solution': step {bad} is rated bad, so it must be found_error")
    if event.finish not in WITH_REASON and None in rated:
        missing = rated.index(None)
        raise DataError(
            f"ratings: step {missing} is not rated, and all up to the first bad one must be"
        )
    if event.finish in WITH_REASON and not event.note.strip():
        raise DataError(f"finish={event.finish!r}: needs a reason as its note")
    return event


def event_fault(event: Event, item: Item, before: Event | None) -> str | None:
    """Return in what an event disagrees with its item or with an earlier opinion, if it does.

    Args:
        event: one that keeps the rules of its fields.
        item: the one with the event's solution.
        before: the last opinion of the same person on the same solution; None if there is none.
    """
    if event.digest != item.digest:
        return (
            f"digest={event.digest[:80]!r}: is of other texts than those of solution {item.id}, "
            f"which have {item.digest!r}"
        )
    if len(event.ratings) != len(item.steps):
        return (
            f"ratings: {len(event.ratings)} given, and solution {item.id} has steps 0 to "
            f"{len(item.steps) - 1}"
        )
    if event.person not in (*item.people, OVERSEER):
        return f"person={event.person[:80]!r}: does not label solution {item.id}"
    if before is not None and event.revision <= before.revision:
        return (
            f"revision={event.revision}: must be above {before.revision}, which "
            f"{event.person[:80]} has already submitted on solution {item.id}"
        )
    return None


def last_opinions(events: Iterable[Event]) -> dict[tuple[str, str], Event]:
    """Return the last event of each person on each solution, by their ids."""
    return {(event.person, event.solution): event for event in events}


def first_opinions(events: Iterable[Event]) -> dict[tuple[str, str], Event]:
    """Return the first event of each person on each solution, by their ids.

    Only revision 1 was made before the labels of the run could be seen: where it is not on record,
    there is no first opinion.
    """
    return {(event.person, event.solution): event for event in events if event.revision == 1}
