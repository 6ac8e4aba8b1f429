"""How much people have done, how fast, and how far they agree where two labelled one solution."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import numpy as np

from mclabel.annotate.folder import Annotated
from mclabel.annotate.gold import Rate
from mclabel.annotate.items import OVERSEER
from mclabel.core.stats.bootstrap import (
    FEW_PROBLEMS,
    Estimate,
    nominal_alpha,
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
    screening: Rate
    hidden: Rate
    """Of gold behind the screening."""
    admitted: bool | None
    """None until the screening is over; True where there is none."""

    def lines(self) -> Iterator[str]:
        """Lines to print on a terminal."""
        pace = "" if self.median_s is None else f", median {self.median_s:.0f} s"
        yield (
            f"{self.name}: {self.num_done} of {self.num_items} solutions{pace}; "
            f"{self.num_unsure} unsure, given up or bad problems"
        )
        if self.screening.num:
            verdict = {True: "admitted", False: "not admitted", None: "still open"}[self.admitted]
            yield f"  screening: {self.screening.shown}; {verdict}"
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
        for one in self.people:
            yield from one.lines()
        if not self.num_twice:
            yield "No solution has a first error by two people yet."
            return
        few = f" (fewer than {FEW_PROBLEMS}: too narrow)" if self.num_twice < FEW_PROBLEMS else ""
        yield f"Labelled by two people: {self.num_twice} solutions{few}"
        yield f"  same first error: {_shown(self.agreement)}"
        yield f"  Krippendorff's alpha: {_shown(self.alpha)}"


def summarise(annotated: Annotated) -> Summary:
    """Count and compare. Agreement is of people whose labels count, and without gold."""
    said: dict[str, list[Hashable]] = defaultdict(list)
    gold = {item.id for item in annotated.items if item.gold is not None}
    people = annotated.who_counts - {OVERSEER}
    for (person, solution), event in sorted(annotated.latest.items()):
        if event.is_sure and person in people and solution not in gold:
            said[solution].append(event.first_error)
    twice = [ratings for ratings in said.values() if len(ratings) > 1]
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
    standing = annotated.standings[name]
    return PersonSummary(
        name=name,
        num_done=len(own),
        num_items=len(annotated.queues[name].ids),
        num_unsure=sum(not event.is_sure for event in own),
        median_s=statistics.median(event.ms for event in own) / 1000 if own else None,
        screening=standing.screening,
        hidden=standing.hidden,
        admitted=standing.admitted,
    )


def _shown(estimate: Estimate) -> str:
    if estimate.value is None:
        return "no variation to measure"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
