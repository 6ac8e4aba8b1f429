"""How much people have done, how fast, and how far they agree where two labelled one solution."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mclabel.annotate.events import Event
from mclabel.annotate.items import Item
from mclabel.evaluation.agreement import nominal_alpha
from mclabel.evaluation.bootstrap import (
    FEW_PROBLEMS,
    Estimate,
    ratio_estimate,
    resample_weights,
    sums_estimate,
)


@dataclass(frozen=True, kw_only=True)
class PersonSummary:
    """What one person has done."""

    name: str
    num_done: int
    num_items: int
    """Solutions to label, done or not."""
    num_unsure: int
    """Of those done: without a first error, as the person was unsure, gave up or found the problem
    bad."""
    median_s: float | None
    """Median seconds a solution was in sight."""


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
        for one in self.people:
            pace = "" if one.median_s is None else f", median {one.median_s:.0f} s"
            yield (
                f"{one.name}: {one.num_done} of {one.num_items} solutions{pace}; "
                f"{one.num_unsure} unsure, given up or bad problems"
            )
        if not self.num_twice:
            yield "No solution has a first error by two people yet."
            return
        few = f" (fewer than {FEW_PROBLEMS}: too narrow)" if self.num_twice < FEW_PROBLEMS else ""
        yield f"Labelled by two people: {self.num_twice} solutions{few}"
        yield f"  same first error: {_shown(self.agreement)}"
        yield f"  Krippendorff's alpha: {_shown(self.alpha)}"


def summarise(
    items: Sequence[Item], events: Mapping[tuple[str, str], Event], people: Sequence[str]
) -> Summary:
    """Count and compare.

    Args:
        items: to be labelled.
        events: the last of each person on each solution.
        people: by name.
    """
    said: dict[str, list[Hashable]] = defaultdict(list)
    for (_, solution), event in sorted(events.items()):
        if event.is_sure:
            said[solution].append(event.first_error)
    twice = [ratings for ratings in said.values() if len(ratings) > 1]
    weights = resample_weights(len(twice), 0)
    same = np.array([float(len(set(ratings)) == 1) for ratings in twice])
    table, statistic = nominal_alpha(twice)
    return Summary(
        people=tuple(_person(name, items, events) for name in people),
        num_items=len(items),
        num_done=len({solution for _, solution in events}),
        num_twice=len(twice),
        agreement=ratio_estimate(same, np.ones(len(twice)), weights),
        alpha=sums_estimate(table, weights, statistic),
    )


def _person(
    name: str, items: Sequence[Item], events: Mapping[tuple[str, str], Event]
) -> PersonSummary:
    own = [event for (person, _), event in events.items() if person == name]
    return PersonSummary(
        name=name,
        num_done=len(own),
        num_items=sum(name in item.people for item in items),
        num_unsure=sum(not event.is_sure for event in own),
        median_s=statistics.median(event.ms for event in own) / 1000 if own else None,
    )


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "no variation to measure"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
