"""A folder of annotations, read as a whole: who said what, how far people agree, and what they
take for true.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mclabel.annotate.events import WITH_REASON, Event, first_opinions, last_opinions
from mclabel.annotate.gold import Rate, gold_rate
from mclabel.annotate.items import OVERSEER, Item, Settings
from mclabel.annotate.storage import read_folder
from mclabel.core.stats.bootstrap import (
    FEW_PROBLEMS,
    Estimate,
    nominal_alpha,
    ratio_estimate,
    resample_weights,
    sums_estimate,
)
from mclabel.data.readers.judged import JudgedSolution


@dataclass(frozen=True, kw_only=True)
class Annotated:
    """Items, and what people said of them."""

    settings: Settings
    items: Sequence[Item]
    events: Sequence[Event]
    """All opinions, in the order in which they were recorded."""

    @classmethod
    def read(cls, folder: str) -> Annotated:
        """Read a folder.

        Raises:
            DamagedFile: it is not what was written.
        """
        stored = read_folder(folder)
        return cls(
            settings=stored.settings,
            items=stored.items,
            events=stored.events,
        )

    @cached_property
    def latest(self) -> Mapping[tuple[str, str], Event]:
        """The last opinion of each person on each item."""
        return last_opinions(self.events)

    @cached_property
    def firsts(self) -> Mapping[tuple[str, str], Event]:
        """The first one, which counts on gold."""
        return first_opinions(self.events)

    def all_said(self, item: Item) -> list[Event]:
        """The last opinions on an item, the overseer's at the end."""
        people = [*item.people, OVERSEER]
        return [e for person in people if (e := self.latest.get((person, item.id))) is not None]

    def said(self, item: Item) -> list[Event]:
        """Those that count: the overseer's alone where there is one."""
        events = self.all_said(item)
        return [event for event in events if event.person == OVERSEER] or events

    @property
    def disagreements(self) -> list[tuple[Item, list[Event]]]:
        """Items on which people differ, gold left out; open ones first."""
        disagreements = []
        for item in self.items:
            events = self.all_said(item)
            answers = {answer_of(event) for event in events if event.person != OVERSEER}
            if item.gold is None and len(answers) > 1:
                disagreements.append((item, events))
        return sorted(disagreements, key=lambda pair: pair[1][-1].person == OVERSEER)


def answer_of(event: Event) -> str:
    """Return what an opinion comes to, in words."""
    if not event.is_sure:
        return event.finish.replace("_", " ") if event.finish in WITH_REASON else "unsure"
    return "no error" if event.first_error is None else f"step {event.first_error}"


@dataclass(frozen=True, kw_only=True)
class PersonSummary:
    """Work of one person."""

    name: str
    num_done: int
    num_items: int
    """Solutions to label, done or not."""
    num_unsure: int
    """Number of these without a first error, because the person was unsure, gave up or found
    the problem bad.
    """
    median_s: float | None
    """Median seconds a solution was in sight."""
    hidden: Rate
    """Rate of right first opinions on hidden gold."""

    def lines(self) -> Iterator[str]:
        """Lines to print on a terminal."""
        pace = "" if self.median_s is None else f", median {self.median_s:.0f} s"
        yield (
            f"{self.name}: {self.num_done} of {self.num_items} solutions{pace}; "
            f"{self.num_unsure} unsure, given up or bad problems"
        )
        if self.hidden.num:
            yield f"  hidden gold: {self.hidden.shown}"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """All people, and their agreement on the first error."""

    people: tuple[PersonSummary, ...]
    num_items: int
    num_done: int
    """Solutions that anybody has labelled."""
    num_twice: int
    """Solutions whose first error two people have said."""
    agreement: Estimate
    """Share of these where both say the same."""
    alpha: Estimate
    """Krippendorff's alpha of the first error, taken as a name; interval by item."""

    def lines(self) -> Iterator[str]:
        """Lines to print on a terminal."""
        for person in self.people:
            yield from person.lines()
        if not self.num_twice:
            yield "No solution has a first error by two people yet."
            return
        few = f" (fewer than {FEW_PROBLEMS}: too narrow)" if self.num_twice < FEW_PROBLEMS else ""
        yield f"Labelled by two people: {self.num_twice} solutions{few}"
        yield f"  same first error: {_shown(self.agreement)}"
        yield f"  Krippendorff's alpha: {_shown(self.alpha)}"


def summarise(annotated: Annotated) -> Summary:
    """Count and compare. Agreement is without gold, and without the overseer."""
    by_solution: dict[str, list[Hashable]] = defaultdict(list)
    gold = {item.id for item in annotated.items if item.gold is not None}
    for (person, solution), event in sorted(annotated.latest.items()):
        if event.is_sure and person != OVERSEER and solution not in gold:
            by_solution[solution].append(event.first_error)
    twice = [ratings for ratings in by_solution.values() if len(ratings) > 1]
    weights = resample_weights(len(twice), 0)
    same = np.array([float(len(set(ratings)) == 1) for ratings in twice])
    table, statistic = nominal_alpha(twice)
    return Summary(
        people=tuple(_person(name, annotated) for name in annotated.settings.people),
        num_items=len(annotated.items),
        num_done=len({solution for _, solution in annotated.latest}),
        num_twice=len(twice),
        agreement=ratio_estimate(same, np.ones(len(twice)), weights),
        alpha=sums_estimate(table, weights, statistic),
    )


def _person(name: str, annotated: Annotated) -> PersonSummary:
    own = [event for (person, _), event in annotated.latest.items() if person == name]
    return PersonSummary(
        name=name,
        num_done=len(own),
        num_items=sum(name in item.people for item in annotated.items),
        num_unsure=sum(not event.is_sure for event in own),
        median_s=statistics.median(event.ms for event in own) / 1000 if own else None,
        hidden=gold_rate(annotated.items, annotated.firsts, name),
    )


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "no variation to measure"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


@dataclass(frozen=True, kw_only=True)
class PeoplesTruth:
    """The first errors that people named, and how many solutions have none."""

    judged: tuple[JudgedSolution, ...]
    """Judged solutions, by item. If two people differ, both first errors are accepted until the
    overseer settles it; a drawn gold item has the first errors of the gold.
    """
    num_unsure: int
    """Solutions that were submitted without a first error: unsure, given up, bad problem."""
    num_open: int
    """Solutions that nobody has submitted yet."""


def peoples_truth(annotated: Annotated) -> PeoplesTruth:
    """Return what the last opinions of a folder say of the solutions that were drawn."""
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
