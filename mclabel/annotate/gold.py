"""Solutions whose first errors are known, mixed into what people label; and rates of right answers.

Each person's queue is a function of items and settings alone. Gold lies at random places in it, and
nothing on the page says which it is. A person's first opinion on a solution is the one that counts:
nobody can try twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mclabel.annotate.events import Event
from mclabel.annotate.items import GOLD, Item, Settings, item_of
from mclabel.core.errors import DataError
from mclabel.core.records import Index, LabeledSolution, Many
from mclabel.core.seeds import content_id
from mclabel.core.settings import read_record
from mclabel.core.stats.intervals import clopper_pearson
from mclabel.data.readers.rows import file_rows


@dataclass(frozen=True, kw_only=True)
class GoldLine:
    """A line of a file of gold: a solution of the run by its id, or texts of its own."""

    first_errors: Many[Index | None] | None
    """All that are reasonable; None, here or in the list, is that there is none."""
    solution_id: str = ""
    problem: str = ""
    answer: str = ""
    steps: Many[str] = ()

    @property
    def errors(self) -> tuple[int | None, ...]:
        """All first errors that are reasonable, each once."""
        return (None,) if self.first_errors is None else tuple(dict.fromkeys(self.first_errors))

    @property
    def fault(self) -> str | None:
        """Return what is wrong with it, if anything is."""
        texts = (self.problem, self.answer, *self.steps)
        own = bool(self.steps) and all(text.strip() for text in texts)
        if not self.errors:
            return "first_errors=[]: must name a step, or be null"
        if own if self.solution_id else not own:
            return "must have solution_id, or problem, answer and steps that are not empty"
        return None


def read_gold(path: str | Path) -> list[GoldLine]:
    """The lines of a file of gold.

    Raises:
        DataError: names a line that is none, or two that are the same.
    """
    gold_lines: dict[object, GoldLine] = {}
    for place, row in file_rows(str(path)):
        try:
            line = read_record(GoldLine, dict(row))
            fault = line.fault
        except ValueError as error:
            fault = str(error)
        if fault is None and (key := line.solution_id or (line.problem, line.steps)) in gold_lines:
            fault = "is of the same solution as an earlier line. Give each one once"
        if fault is not None:
            raise DataError(f"--gold {place}: {fault}. docs/annotate.md shows lines of gold")
        gold_lines[key] = line
    if not gold_lines:
        raise DataError(f"--gold {path}: holds no lines. docs/annotate.md shows lines of gold")
    return list(gold_lines.values())


def gold_digest(lines: Sequence[GoldLine]) -> str:
    """Return a digest by which the same gold is recognised."""
    return content_id("gold", [{**vars(line), "steps": list(line.steps)} for line in lines])


def with_gold(
    items: Sequence[Item],
    lines: Sequence[GoldLine],
    rows: Callable[[], Iterable[LabeledSolution]],
    settings: Settings,
) -> list[Item]:
    """Items with gold among them, and who labels which of it.

    A drawn solution that is gold keeps its probability, and its gold is its truth.

    Args:
        items: that were drawn.
        lines: lines of the gold.
        rows: reads the run.
        settings: settings of the folder.

    Raises:
        DataError: gold is of a solution or step that the run does not have.
    """
    drawn = {item.id: item for item in items}
    wanted = {solution_id.solution_id for solution_id in lines}
    named = {row.solution.id: row for row in rows() if row.solution.id in wanted}
    gold: dict[str, Item] = {}
    for line in lines:
        item = _gold_item(line, drawn, named)
        if bad := [e for e in line.errors if e is not None and e >= len(item.steps)]:
            raise DataError(
                f"--gold: first_errors of solution {item.id} has step {bad[0]}, and there are "
                f"steps 0 to {len(item.steps) - 1}. Count steps from 0"
            )
        gold[item.id] = replace(item, gold=line.errors, people=())
    others = [item for item in items if item.id not in gold]
    given: dict[str, list[str]] = {solution_id: [] for solution_id in gold}
    for person in settings.people:
        num_own = sum(person in item.people for item in others)
        num_hidden = round(settings.gold_share / (1 - settings.gold_share) * num_own)
        for gold_id in _ranked(gold, person, settings)[:num_hidden]:
            given[gold_id].append(person)
    return [*others, *(replace(item, people=tuple(given[item.id])) for item in gold.values())]


def _gold_item(
    line: GoldLine, drawn: Mapping[str, Item], rows: Mapping[str, LabeledSolution]
) -> Item:
    if not line.solution_id:
        digest = content_id("annotated", line.problem, list(line.steps))
        return Item(
            id=_own_id(digest),
            problem=line.problem,
            answer=line.answer,
            steps=line.steps,
            prediction=None,
            digest=digest,
            stratum=GOLD,
            probability=None,
            people=(),
        )
    if line.solution_id in drawn:
        return drawn[line.solution_id]
    row = rows.get(line.solution_id)
    if row is None or not row.steps:
        raise DataError(
            f"--gold: solution_id={line.solution_id[:80]!r} is no solution of "
            "the run with steps. Give its id, or problem, answer and steps"
        )
    return item_of(row, GOLD, None, ())


def is_of_run(item: Item) -> bool:
    """Return whether an item is a solution of the run, and not gold with texts of its own."""
    return item.id != _own_id(item.digest)


def _own_id(digest: str) -> str:
    return content_id("gold", digest)


def _ranked(gold: Iterable[str], person: str, settings: Settings) -> list[str]:
    return sorted(gold, key=lambda gold_id: content_id("gold", settings.seed, person, gold_id))


def queues(items: Sequence[Item], settings: Settings) -> dict[str, tuple[str, ...]]:
    """Return the ids of what each person labels, in order."""
    own: dict[str, list[str]] = {person: [] for person in settings.people}
    gold: dict[str, list[str]] = {person: [] for person in settings.people}
    for item in items:
        for person in item.people:
            (own if item.gold is None else gold)[person].append(item.id)
    return {person: _mixed(own[person], gold[person], person, settings) for person in own}


def _mixed(own: list[str], gold: list[str], person: str, settings: Settings) -> tuple[str, ...]:
    total = len(own) + len(gold)
    chance = random.Random(content_id("mixed", settings.seed, person))
    places = set(chance.sample(range(total), len(gold)))
    sources = iter(_ranked(gold, person, settings)), iter(own)
    return tuple(next(sources[place not in places]) for place in range(total))


@dataclass(frozen=True, kw_only=True)
class Rate:
    """Share of a person's first opinions on gold that are right, with its Clopper-Pearson
    interval.
    """

    num: int
    num_right: int
    low: float | None = None
    high: float | None = None

    @property
    def shown(self) -> str:
        """For a terminal."""
        share = self.num_right / self.num
        return (
            f"{self.num_right} of {self.num} right, {share:.2f} [{self.low:.2f}, {self.high:.2f}]"
        )


def gold_rate(items: Iterable[Item], firsts: Mapping[tuple[str, str], Event], person: str) -> Rate:
    """Return how often a person's first opinions on gold were right.

    Args:
        items: items of the folder.
        firsts: first opinions, by person and item.
        person: name of the person.
    """
    answers = [
        (event, item.gold)
        for item in items
        if item.gold is not None and (event := firsts.get((person, item.id))) is not None
    ]
    if not answers:
        return Rate(num=0, num_right=0)
    num_right = sum(event.is_sure and event.first_error in gold for event, gold in answers)
    low, high = clopper_pearson(num_right, len(answers))
    return Rate(num=len(answers), num_right=num_right, low=low, high=high)
