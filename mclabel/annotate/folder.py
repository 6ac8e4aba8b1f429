"""Analysis of a folder of annotations: opinions of people, their agreement, and first errors.
*Gold* solutions are those with known first errors; the *overseer* runs the annotation.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mclabel.annotate.events import (
    WITH_REASON,
    Event,
    collect_first_opinions,
    collect_last_opinions,
)
from mclabel.annotate.gold import GoldAccuracy, compute_gold_accuracy
from mclabel.annotate.items import OVERSEER, AnnotationSettings, Item
from mclabel.annotate.storage import read_folder
from mclabel.core.stats.bootstrap import (
    FEW_PROBLEMS,
    Estimate,
    draw_resample_weights,
    estimate_from_sums,
    estimate_ratio,
    make_nominal_alpha,
)
from mclabel.data.readers.judged import JudgedSolution


@dataclass(frozen=True, kw_only=True)
class AnnotationFolder:
    """The content of a folder of annotations: its settings, items and opinions."""

    settings: AnnotationSettings
    items: Sequence[Item]
    events: Sequence[Event]
    """All opinions, in the order in which they were recorded."""

    @classmethod
    def read(cls, folder: str) -> AnnotationFolder:
        """Read a folder of annotations.

        Raises:
            DamagedFile: a file is missing, or its content was changed.
        """
        stored = read_folder(folder)
        return cls(
            settings=stored.settings,
            items=stored.items,
            events=stored.events,
        )

    @cached_property
    def last_events(self) -> Mapping[tuple[str, str], Event]:
        """Last opinion of each person on each item, by (person, solution id)."""
        return collect_last_opinions(self.events)

    @cached_property
    def first_events(self) -> Mapping[tuple[str, str], Event]:
        """First opinion of each person on each item, by (person, solution id).

        Only first opinions count for a person's rate of right opinions on gold.
        """
        return collect_first_opinions(self.events)

    def list_last_opinions(self, item: Item) -> list[Event]:
        """Return the last opinion of each person on an item; that of the overseer comes last."""
        people = [*item.people, OVERSEER]
        return [
            e for person in people if (e := self.last_events.get((person, item.id))) is not None
        ]

    def list_decisive_opinions(self, item: Item) -> list[Event]:
        """Return the opinions that determine the truth of an item.

        If the overseer has an opinion, it alone is returned; otherwise the last opinion of each
        person.
        """
        events = self.list_last_opinions(item)
        return [event for event in events if event.person == OVERSEER] or events

    @property
    def disagreements(self) -> list[tuple[Item, list[Event]]]:
        """Items without gold on which people name different first errors, each with its opinions.

        Items without an overseer's opinion come first.
        """
        disagreements = []
        for item in self.items:
            events = self.list_last_opinions(item)
            answers = {describe_opinion(event) for event in events if event.person != OVERSEER}
            if item.gold is None and len(answers) > 1:
                disagreements.append((item, events))
        return sorted(disagreements, key=lambda pair: pair[1][-1].person == OVERSEER)


def describe_opinion(event: Event) -> str:
    """Return an opinion in words, such as `no error`, `step 3` or `give up`."""
    if not event.is_sure:
        return event.finish.replace("_", " ") if event.finish in WITH_REASON else "unsure"
    return "no error" if event.first_error is None else f"step {event.first_error}"


@dataclass(frozen=True, kw_only=True)
class PersonSummary:
    """Progress and quality of one person's work."""

    name: str
    num_done: int
    """Number of solutions that the person has labelled."""
    num_items: int
    """Number of solutions that are assigned to the person."""
    num_unsure: int
    """Number of labelled solutions without a verdict on the first error: the person was unsure,
    gave up, or marked the problem as bad."""
    median_s: float | None
    """Median seconds for which a solution was visible; None if none is labelled."""
    hidden: GoldAccuracy
    """Share of right opinions among the person's first opinions on hidden gold."""

    def lines(self) -> Iterator[str]:
        """Yield the lines to print on a terminal."""
        pace = "" if self.median_s is None else f", median {self.median_s:.0f} s"
        yield (
            f"{self.name}: {self.num_done} of {self.num_items} solutions{pace}; "
            f"{self.num_unsure} without a verdict (unsure, given up or bad problem)"
        )
        if self.hidden.num:
            yield f"  hidden gold: {self.hidden.text}"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Summary of all people's work, and their agreement on the first error."""

    people: tuple[PersonSummary, ...]
    num_items: int
    num_done: int
    """Number of solutions that at least one person has labelled."""
    num_twice: int
    """Number of solutions with a verdict on the first error from at least two people, without
    gold."""
    agreement: Estimate
    """Share of the `num_twice` solutions on which all verdicts are the same."""
    alpha: Estimate
    """Krippendorff's alpha of the first error as a nominal variable; its interval resamples
    items."""

    def lines(self) -> Iterator[str]:
        """Yield the lines to print on a terminal."""
        for person in self.people:
            yield from person.lines()
        if not self.num_twice:
            yield "No solution has a verdict on the first error by two people yet."
            return
        few = f" (fewer than {FEW_PROBLEMS}: too narrow)" if self.num_twice < FEW_PROBLEMS else ""
        yield f"Verdicts by at least two people: {self.num_twice} solutions{few}"
        yield f"  same first error: {_format_estimate(self.agreement)}"
        yield f"  Krippendorff's alpha: {_format_estimate(self.alpha)}"


def summarise(annotated: AnnotationFolder) -> Summary:
    """Summarise the work and the agreement of people. Agreement ignores gold and the overseer."""
    by_solution: dict[str, list[Hashable]] = defaultdict(list)
    gold = {item.id for item in annotated.items if item.gold is not None}
    for (person, solution), event in sorted(annotated.last_events.items()):
        if event.is_sure and person != OVERSEER and solution not in gold:
            by_solution[solution].append(event.first_error)
    twice = [ratings for ratings in by_solution.values() if len(ratings) > 1]
    weights = draw_resample_weights(len(twice), 0)
    same = np.array([float(len(set(ratings)) == 1) for ratings in twice])
    table, statistic = make_nominal_alpha(twice)
    return Summary(
        people=tuple(_summarise_person(name, annotated) for name in annotated.settings.people),
        num_items=len(annotated.items),
        num_done=len({solution for _, solution in annotated.last_events}),
        num_twice=len(twice),
        agreement=estimate_ratio(same, np.ones(len(twice)), weights),
        alpha=estimate_from_sums(table, weights, statistic),
    )


def _summarise_person(name: str, annotated: AnnotationFolder) -> PersonSummary:
    own = [event for (person, _), event in annotated.last_events.items() if person == name]
    return PersonSummary(
        name=name,
        num_done=len(own),
        num_items=sum(name in item.people for item in annotated.items),
        num_unsure=sum(not event.is_sure for event in own),
        median_s=statistics.median(event.ms for event in own) / 1000 if own else None,
        hidden=compute_gold_accuracy(annotated.items, annotated.first_events, name),
    )


def _format_estimate(estimate: Estimate) -> str:
    if estimate.value is None:
        return "no variation to measure"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


@dataclass(frozen=True, kw_only=True)
class HumanTruth:
    """First errors according to people, to be used as the truth of the drawn solutions."""

    judged: tuple[JudgedSolution, ...]
    """Drawn solutions with a verdict on the first error, in the order of the items. If two people
    differ, both first errors are accepted until the overseer decides. A drawn gold item has the
    first errors of the gold file."""
    num_unsure: int
    """Number of drawn solutions that were submitted without a verdict: people were unsure, gave up
    or marked the problem as bad."""
    num_open: int
    """Number of drawn solutions that nobody has submitted yet."""


def collect_human_truth(annotated: AnnotationFolder) -> HumanTruth:
    """Return the first errors of the drawn solutions, from the last opinions in a folder."""
    judged, num_drawn, num_open = [], 0, 0
    for item in annotated.items:
        if item.probability is None:
            continue
        num_drawn += 1
        events = annotated.list_decisive_opinions(item)
        num_open += item.gold is None and not events
        errors = item.gold or [event.first_error for event in events if event.is_sure]
        if errors:
            judged.append(
                JudgedSolution(
                    id=item.id,
                    problem=item.problem,
                    steps=item.steps,
                    first_error=errors[0],
                    other_first_errors=frozenset(errors[1:]),
                    weight=1 / item.probability,
                )
            )
    return HumanTruth(
        judged=tuple(judged),
        num_unsure=num_drawn - num_open - len(judged),
        num_open=num_open,
    )
