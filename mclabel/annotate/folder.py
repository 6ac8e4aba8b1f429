"""A folder of annotations, read as a whole: who said what, and what of it counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from mclabel.annotate.events import WITH_REASON, Event, first, latest, read_events
from mclabel.annotate.gold import Queue, Standing, queues, standings, who_counts
from mclabel.annotate.items import OVERSEER, Item, Settings, read_items, read_settings
from mclabel.core.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Annotated:
    """Items, and what people said of them."""

    settings: Settings
    items: Sequence[Item]
    queues: Mapping[str, Queue]
    """What each person labels."""
    latest: Mapping[tuple[str, str], Event]
    """The last opinion of each person on each item."""
    firsts: Mapping[tuple[str, str], Event]
    """The first one, which counts on gold."""

    @classmethod
    def read(cls, folder: str) -> Annotated:
        """Read a folder.

        Raises:
            DataError: a file is damaged, or an event is of a solution or step that is not there.
        """
        events = read_events(folder)
        items = read_items(folder)
        _check(folder, events, {item.id: len(item.steps) for item in items})
        settings = read_settings(folder)
        return cls(
            settings=settings,
            items=items,
            queues=queues(items, settings),
            latest=latest(events),
            firsts=first(events),
        )

    @cached_property
    def standings(self) -> Mapping[str, Standing]:
        """How each person does on gold."""
        return standings(self.items, self.queues, self.settings, self.firsts)

    @cached_property
    def who_counts(self) -> frozenset[str]:
        """Whose labels count."""
        return who_counts(self.standings)

    def all_said(self, item: Item) -> list[Event]:
        """The last opinions on an item, the overseer's at the end."""
        people = [*item.people, OVERSEER]
        return [e for one in people if (e := self.latest.get((one, item.id))) is not None]

    def said(self, item: Item) -> list[Event]:
        """Those that count: the overseer's alone where there is one."""
        counted = [event for event in self.all_said(item) if event.person in self.who_counts]
        settled = [event for event in counted if event.person == OVERSEER]
        return settled or counted

    def is_screening(self, person: str, item: Item) -> bool:
        """Whether an item is one of a person's screening."""
        return person != OVERSEER and item.id in self.queues[person].screening

    @property
    def disagreements(self) -> list[tuple[Item, list[Event]]]:
        """Items on which people whose labels count differ, gold left out; open ones first."""
        found = []
        for item in self.items:
            events = [one for one in self.all_said(item) if one.person in self.who_counts]
            answers = {answer_of(one) for one in events if one.person != OVERSEER}
            if item.gold is None and len(answers) > 1:
                found.append((item, events))
        return sorted(found, key=lambda one: one[1][-1].person == OVERSEER)


def answer_of(event: Event) -> str:
    """What an opinion comes to, in words."""
    if not event.is_sure:
        return event.finish.replace("_", " ") if event.finish in WITH_REASON else "unsure"
    return "no error" if event.first_error is None else f"step {event.first_error}"


def _check(folder: str, events: Iterable[Event], num_steps: Mapping[str, int]) -> None:
    for event in events:
        if event.solution not in num_steps:
            raise DataError(
                f"{folder}: event {event.id} is on solution {event.solution[:80]!r}, which "
                "items.jsonl does not have. Restore both files from one copy"
            )
        if len(event.ratings) != num_steps[event.solution]:
            raise DataError(
                f"{folder}: event {event.id} rates {len(event.ratings)} steps, and solution "
                f"{event.solution} has steps 0 to {num_steps[event.solution] - 1}. Restore "
                "events.jsonl and items.jsonl from one copy"
            )
