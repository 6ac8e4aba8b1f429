"""Solutions whose first errors are known, mixed into what people label: whom they admit, and rates.

Each person's queue is a function of items and settings alone. It begins with the screening, whose
questions are all gold; the other gold lies at random places behind it, and nothing on the page says
which it is. A person's first opinion on a solution is the one that counts: nobody can try twice.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mclabel.annotate.events import Event
from mclabel.annotate.items import GOLD, OVERSEER, Item, Settings, item_of
from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import Index, LabeledSolution, Many
from mclabel.core.seeds import content_id
from mclabel.core.settings import read_record
from mclabel.core.stats.intervals import clopper_pearson
from mclabel.data.readers.rows import file_rows

NOT_ADMITTED = (
    "Thank you for taking part. Your answers in the screening differ too often from the known "
    "ones, so you have no more solutions to label. Whoever runs this can tell you more."
)


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
        """What is wrong with it, if anything is."""
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
    found: dict[object, GoldLine] = {}
    for place, row in file_rows(str(path)):
        try:
            line = read_record(GoldLine, dict(row))
            fault = line.fault
        except ValueError as error:
            fault = str(error)
        if fault is None and (key := line.solution_id or (line.problem, line.steps)) in found:
            fault = "is of the same solution as an earlier line. Give each one once"
        if fault is not None:
            raise DataError(f"--gold {place}: {fault}. docs/annotate.md shows lines of gold")
        found[key] = line
    if not found:
        raise DataError(f"--gold {path}: holds no lines. docs/annotate.md shows lines of gold")
    return list(found.values())


def gold_digest(lines: Sequence[GoldLine]) -> str:
    """By which gold is known again."""
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
        lines: of the gold.
        rows: reads the run.
        settings: of the folder.

    Raises:
        ConfigError: the screening asks for more gold than there is.
        DataError: gold is of a solution or step that the run does not have.
    """
    if len(lines) < settings.screening:
        raise ConfigError(
            f"--screening {settings.screening}: needs as many solutions of known gold, and there "
            f"are {len(lines)}. Give a --gold with more lines, or a smaller --screening"
        )
    drawn = {item.id: item for item in items}
    wanted = {one.solution_id for one in lines}
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
    given: dict[str, list[str]] = {one: [] for one in gold}
    for person in settings.people:
        num_own = sum(person in item.people for item in others)
        num_hidden = round(settings.gold_share / (1 - settings.gold_share) * num_own)
        for one in _ranked(gold, person, settings)[: settings.screening + num_hidden]:
            given[one].append(person)
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
    """Whether an item is a solution of the run, and not gold with texts of its own."""
    return item.id != _own_id(item.digest)


def _own_id(digest: str) -> str:
    return content_id("gold", digest)


def _ranked(gold: Iterable[str], person: str, settings: Settings) -> list[str]:
    return sorted(gold, key=lambda one: content_id("gold", settings.seed, person, one))


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What a person labels, in order."""

    ids: tuple[str, ...]
    screening: tuple[str, ...]
    """The first of these, all gold."""
    hidden: frozenset[str]
    """Gold among the others."""


def queues(items: Sequence[Item], settings: Settings) -> dict[str, Queue]:
    """Each person's queue."""
    own: dict[str, list[str]] = {person: [] for person in settings.people}
    gold: dict[str, list[str]] = {person: [] for person in settings.people}
    for item in items:
        for person in item.people:
            (own if item.gold is None else gold)[person].append(item.id)
    return {person: _queue(own[person], gold[person], person, settings) for person in own}


def _queue(own: list[str], gold: list[str], person: str, settings: Settings) -> Queue:
    ranked = _ranked(gold, person, settings)
    screening, hidden = ranked[: settings.screening], ranked[settings.screening :]
    total = len(own) + len(hidden)
    chance = random.Random(content_id("mixed", settings.seed, person))
    places = set(chance.sample(range(total), len(hidden)))
    sources = iter(hidden), iter(own)
    mixed = [next(sources[place not in places]) for place in range(total)]
    return Queue(ids=(*screening, *mixed), screening=tuple(screening), hidden=frozenset(hidden))


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How often a person's first opinion on gold was right, with its Clopper-Pearson interval."""

    num: int
    num_right: int
    low: float | None = None
    high: float | None = None

    @property
    def shown(self) -> str:
        """For a terminal."""
        if not self.num:
            return "none yet"
        share = self.num_right / self.num
        return (
            f"{self.num_right} of {self.num} right, {share:.2f} [{self.low:.2f}, {self.high:.2f}]"
        )


@dataclass(frozen=True, kw_only=True)
class Standing:
    """How a person does on gold."""

    screening: Rate
    hidden: Rate
    admitted: bool | None
    """None until the screening is over; True where there is none."""


def standing(
    queue: Queue,
    gold: Mapping[str, tuple[int | None, ...]],
    first: Callable[[str], Event | None],
    settings: Settings,
) -> Standing:
    """How a person does on gold.

    Args:
        queue: of the person.
        gold: first errors, by id of the item.
        first: the person's first opinion on an item.
        settings: of the folder.
    """
    screening, hidden = (_rate(ids, gold, first) for ids in (queue.screening, queue.hidden))
    admitted = None
    if screening.num >= settings.screening:
        admitted = not settings.screening or screening.num_right >= num_needed(settings)
    return Standing(screening=screening, hidden=hidden, admitted=admitted)


def standings(
    items: Sequence[Item],
    queues: Mapping[str, Queue],
    settings: Settings,
    firsts: Mapping[tuple[str, str], Event],
) -> dict[str, Standing]:
    """How everybody does on gold.

    Args:
        items: of the folder.
        queues: of each person.
        settings: of the folder.
        firsts: first opinions, by person and item.
    """
    gold = {item.id: item.gold for item in items if item.gold is not None}
    found = {}
    for person, queue in queues.items():
        own = {one: firsts.get((person, one)) for one in (*queue.screening, *queue.hidden)}
        found[person] = standing(queue, gold, own.get, settings)
    return found


def who_counts(standings: Mapping[str, Standing]) -> frozenset[str]:
    """People whose labels count: those who are admitted, and who oversees them."""
    return frozenset([OVERSEER, *(name for name, one in standings.items() if one.admitted)])


def _rate(
    ids: Iterable[str],
    gold: Mapping[str, tuple[int | None, ...]],
    first: Callable[[str], Event | None],
) -> Rate:
    said = [(one, event) for one in ids if (event := first(one)) is not None]
    right = sum(event.is_sure and event.first_error in gold[one] for one, event in said)
    if not said:
        return Rate(num=0, num_right=0)
    low, high = clopper_pearson(right, len(said))
    return Rate(num=len(said), num_right=right, low=low, high=high)


def num_needed(settings: Settings) -> int:
    """Right answers in the screening from which a person is admitted."""
    return math.ceil(settings.admit * settings.screening - 1e-9)


def check_settings(given: Mapping[str, Any]) -> None:
    """Refuse settings of gold that cannot be meant.

    Raises:
        ConfigError: names the option.
    """
    if given.get("gold_share", 0) >= 1:
        raise ConfigError(f"--gold-share {given['gold_share']}: must be below 1, such as 0.1")
    if given.get("screening") and not given.get("gold"):
        raise ConfigError(
            f"--screening {given['screening']}: needs --gold FILE, whose items it asks"
        )
