"""Gold for annotation: solutions with known first errors, hidden among those that people label.

The module also computes each person's rate of right opinions on gold. Which solutions a person
gets, and in which order (the queue), depends only on items and settings. Gold has random positions
in the queue, and the page does not mark it. Only a person's first opinion on a gold solution
counts, so later corrections do not help.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mclabel.annotate.events import Event
from mclabel.annotate.items import GOLD, AnnotationSettings, Draw, Item, make_item
from mclabel.core.errors import DataError
from mclabel.core.records import Index, LabeledSolution, TupleOf
from mclabel.core.seeds import content_id
from mclabel.core.settings import read_record
from mclabel.core.stats.intervals import clopper_pearson
from mclabel.data.readers.rows import read_file_rows


@dataclass(frozen=True, kw_only=True)
class GoldLine:
    """A line of a gold file, with the id of a solution of the run or the texts of another one."""

    first_errors: TupleOf[Index | None] | None
    """0-based indices of all steps that are acceptable as the first error. None in place of the
    list, or as an element, means that the solution has no error."""
    solution_id: str = ""
    problem: str = ""
    answer: str = ""
    steps: TupleOf[str] = ()

    @property
    def acceptable_errors(self) -> tuple[int | None, ...]:
        """All acceptable first errors without duplicates; an element None means no error."""
        return (None,) if self.first_errors is None else tuple(dict.fromkeys(self.first_errors))

    @property
    def fault(self) -> str | None:
        """Message about the rule that the line breaks; None if the line is valid."""
        texts = (self.problem, self.answer, *self.steps)
        own = bool(self.steps) and all(text.strip() for text in texts)
        if not self.acceptable_errors:
            return "first_errors=[]: must have the index of a step, or be null for no error"
        if own if self.solution_id else not own:
            return "must have either solution_id alone, or non-empty problem, answer and steps"
        return None


def read_gold_lines(path: str | Path) -> list[GoldLine]:
    """Read the lines of a gold file.

    Raises:
        DataError: a line is invalid, two lines are about the same solution, or there are no lines.
    """
    gold_lines: dict[object, GoldLine] = {}
    for place, row in read_file_rows(str(path)):
        try:
            line = read_record(GoldLine, dict(row))
            fault = line.fault
        except ValueError as error:
            fault = str(error)
        if fault is None and (key := line.solution_id or (line.problem, line.steps)) in gold_lines:
            fault = "is about the same solution as an earlier line. Give each solution once"
        if fault is not None:
            raise DataError(f"--gold {place}: {fault}. docs/annotate.md shows lines of gold")
        gold_lines[key] = line
    if not gold_lines:
        raise DataError(f"--gold {path}: has no lines. docs/annotate.md shows lines of gold")
    return list(gold_lines.values())


def hash_gold_lines(lines: Sequence[GoldLine]) -> str:
    """Return a hash of the gold, which shows whether a resumed folder uses the same gold."""
    return content_id("gold", [{**vars(line), "steps": list(line.steps)} for line in lines])


def add_gold_items(
    items: Sequence[Item],
    lines: Sequence[GoldLine],
    rows: Callable[[], Iterable[LabeledSolution]],
    settings: AnnotationSettings,
) -> list[Item]:
    """Add gold to the drawn items, and assign it to people.

    A drawn solution that is also gold keeps its sampling probability, and the first errors in the
    gold file count as true.

    Args:
        items: items that were drawn from the run.
        lines: lines of the gold file.
        rows: function that reads the labelled solutions of the run anew.
        settings: settings of the folder.

    Raises:
        DataError: a line names a solution or a step that the run does not have.
    """
    drawn = {item.id: item for item in items}
    named_ids = {line.solution_id for line in lines}
    named = {row.solution.id: row for row in rows() if row.solution.id in named_ids}
    gold: dict[str, Item] = {}
    for line in lines:
        item = _make_gold_item(line, drawn, named)
        if bad := [e for e in line.acceptable_errors if e is not None and e >= len(item.steps)]:
            raise DataError(
                f"--gold: first_errors of solution {item.id} has step {bad[0]}, but its steps are "
                f"0 to {len(item.steps) - 1}. Count steps from 0"
            )
        gold[item.id] = replace(item, gold=line.acceptable_errors, people=())
    others = [item for item in items if item.id not in gold]
    given: dict[str, list[str]] = {solution_id: [] for solution_id in gold}
    for person in settings.people:
        num_own = sum(person in item.people for item in others)
        num_hidden = round(settings.gold_share / (1 - settings.gold_share) * num_own)
        for gold_id in _shuffle_gold_ids_for_person(gold, person, settings)[:num_hidden]:
            given[gold_id].append(person)
    return [*others, *(replace(item, people=tuple(given[item.id])) for item in gold.values())]


def _make_gold_item(
    line: GoldLine, drawn_items: Mapping[str, Item], rows: Mapping[str, LabeledSolution]
) -> Item:
    if not line.solution_id:
        digest = content_id("annotated", line.problem, list(line.steps))
        return Item(
            id=_make_gold_id(digest),
            problem=line.problem,
            answer=line.answer,
            steps=line.steps,
            prediction=None,
            digest=digest,
            stratum=GOLD,
            probability=None,
            people=(),
        )
    if line.solution_id in drawn_items:
        return drawn_items[line.solution_id]
    row = rows.get(line.solution_id)
    if row is None or not row.steps:
        raise DataError(
            f"--gold: solution_id={line.solution_id[:80]!r} is not a solution with steps in the "
            "run. Give the id of a solution with steps, or give problem, answer and steps"
        )
    return make_item(row, Draw(stratum=GOLD, probability=None), people=())


def is_run_solution(item: Item) -> bool:
    """Return whether an item is a solution of the run, and not one with texts in the gold file."""
    return item.id != _make_gold_id(item.digest)


def _make_gold_id(digest: str) -> str:
    return content_id("gold", digest)


def _shuffle_gold_ids_for_person(
    gold: Iterable[str], person: str, settings: AnnotationSettings
) -> list[str]:
    return sorted(gold, key=lambda gold_id: content_id("gold", settings.seed, person, gold_id))


def build_queues(items: Sequence[Item], settings: AnnotationSettings) -> dict[str, tuple[str, ...]]:
    """Return the solution ids in each person's queue, by the person's name, in order."""
    own: dict[str, list[str]] = {person: [] for person in settings.people}
    gold: dict[str, list[str]] = {person: [] for person in settings.people}
    for item in items:
        for person in item.people:
            (own if item.gold is None else gold)[person].append(item.id)
    return {
        person: _insert_gold_at_random(own[person], gold[person], person, settings)
        for person in own
    }


def _insert_gold_at_random(
    own_ids: list[str], gold_ids: list[str], person: str, settings: AnnotationSettings
) -> tuple[str, ...]:
    total = len(own_ids) + len(gold_ids)
    rng = random.Random(content_id("mixed", settings.seed, person))
    gold_places = set(rng.sample(range(total), len(gold_ids)))
    sources = iter(_shuffle_gold_ids_for_person(gold_ids, person, settings)), iter(own_ids)
    return tuple(next(sources[place not in gold_places]) for place in range(total))


@dataclass(frozen=True, kw_only=True)
class GoldAccuracy:
    """Share of right opinions among a person's first opinions on gold.

    The share has a Clopper-Pearson interval.
    """

    num: int
    """Number of first opinions on gold."""
    num_right: int
    low: float | None = None
    """Lower end of the 95% interval; None if `num` is 0."""
    high: float | None = None
    """Upper end of the 95% interval; None if `num` is 0."""

    @property
    def text(self) -> str:
        """The counts and the rate with its interval, as text for a terminal."""
        return (
            f"{self.num_right} of {self.num} right, {self.num_right / self.num:.2f} "
            f"[{self.low:.2f}, {self.high:.2f}]"
        )


def compute_gold_accuracy(
    items: Iterable[Item], first_events: Mapping[tuple[str, str], Event], person: str
) -> GoldAccuracy:
    """Return the share of right opinions among a person's first opinions on gold.

    Args:
        items: items of the folder.
        first_events: first opinions, by (person, solution id).
        person: name of the person.
    """
    answers = [
        (event, item.gold)
        for item in items
        if item.gold is not None and (event := first_events.get((person, item.id))) is not None
    ]
    if not answers:
        return GoldAccuracy(num=0, num_right=0)
    num_right = sum(event.is_sure and event.first_error in gold for event, gold in answers)
    low, high = clopper_pearson(num_right, len(answers))
    return GoldAccuracy(num=len(answers), num_right=num_right, low=low, high=high)
