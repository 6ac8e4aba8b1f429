"""Which solutions people label, who labels which, and with what probability each was drawn.

Solutions are drawn within strata: outcome, labelled error (or none, or undecided), number of steps.
A stratum gets a share by the square root of its size, so that rare cases are seen often enough, and
every solution has a known probability above 0 of being drawn. Weights of 1 / probability make
figures ones of the whole run again. The draw depends on ids and seed alone: not on the order of
shards.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import LabeledSolution
from mclabel.core.seeds import content_id
from mclabel.core.settings import MAX_SEED, MAX_TOTAL
from mclabel.data.readers.solutions import Selected

_BUCKETS = ((3, "1 to 3 steps"), (6, "4 to 6 steps"), (12, "7 to 12 steps"))
_MANY = "over 12 steps"
GOLD, SELECTED = "gold", "selected"
"""Strata of gold that was not drawn, and of what a selection names."""
OVERSEER = "overseer"
"""The name of whoever runs the labelling; no person's."""
MIN_PROBABILITY = 1e-12
"""A solution drawn with a smaller one would outweigh any run."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A solution that people label, with its texts: the folder can be used without the run."""

    id: str
    """Id of the solution."""
    problem: str
    answer: str
    """The gold answer."""
    steps: tuple[str, ...]
    prediction: str | None
    digest: str
    """Hash of the texts of problem and steps."""
    stratum: str
    probability: float | None
    """Chance of being drawn from the run, in (0, 1]; None of gold that was not drawn."""
    people: tuple[str, ...]
    """Names of the people who label it."""
    gold: tuple[int | None, ...] | None = None
    """The first errors that are known to be reasonable, None for none; None where it is no gold."""

    @property
    def fault(self) -> str | None:
        """The first field that breaks a rule, with its value and the rule; None if none does."""
        if not self.id or not self.steps:
            return f"id={self.id[:80]!r}: an item must have an id, and one step at least"
        if self.digest != (wanted := texts_digest(self.problem, self.steps)):
            return f"digest={self.digest[:80]!r}: its problem and steps have {wanted!r}"
        chance = self.probability
        if chance is not None and not MIN_PROBABILITY <= chance <= 1:
            return f"probability={chance}: must be a probability in [{MIN_PROBABILITY:g}, 1]"
        wrong = [e for e in self.gold or () if e is not None and not 0 <= e < len(self.steps)]
        if wrong or self.gold == ():
            return f"gold={list(self.gold or ())}: must name steps 0 to {len(self.steps) - 1}"
        if len(set(self.people)) < len(self.people) or OVERSEER in self.people:
            return f"people={list(self.people)}: must be different names, without {OVERSEER}"
        return None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The way that a folder of annotations was begun; it goes on with the same."""

    id: str
    """Random id of the folder; browsers keep unsent opinions under it."""
    run: str
    """Folder or URL of the run."""
    run_id: str
    people: tuple[str, ...] = ("me",)
    sample: int = 200
    """Number of solutions to draw."""
    seed: int = 0
    overlap: float = 0.1
    """Share of the solutions that two people label."""
    guidelines: str | None = None
    """Text of the rules that people are shown."""
    gold: str | None = None
    """Digest of the gold that is mixed in; None for none."""
    gold_share: float = 0.1
    """Share of each person's solutions that are gold, in [0, 1)."""
    select: str | None = None
    """Digest of the manifest of `mclabel select` that names the solutions; None draws them."""

    @property
    def fault(self) -> str | None:
        """The first field that breaks a rule, with its value and the rule; None if none does."""
        people = list(self.people)
        if not all(people) or len(set(people)) < max(1, len(people)) or OVERSEER in people:
            return f"people={people}: must be different names, at least one, without {OVERSEER}"
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if not low <= value <= high:
                return f"{name}={value}: must be from {low} to {high}"
        return "gold_share=1: must be below 1" if self.gold_share == 1 else None


_RANGES = (
    *(("sample", 1, MAX_TOTAL), ("seed", 0, MAX_SEED)),
    *(("overlap", 0, 1), ("gold_share", 0, 1)),
)
"""Settings that are numbers, with the least and the largest value of each."""


def text_digest(row: LabeledSolution) -> str:
    """Digest of what people are shown of a solution."""
    return texts_digest(row.problem.text, [step.text for step in row.solution.steps])


def texts_digest(problem: str, steps: Sequence[str]) -> str:
    """Return the digest of the texts of a problem and of a solution's steps."""
    return content_id("annotated", problem, list(steps))


def draw_items(
    rows: Callable[[], Iterable[LabeledSolution]],
    settings: Settings,
    selected: Selected | None = None,
) -> list[Item]:
    """The solutions to label, in the order in which they are shown.

    Args:
        rows: reads the run; called twice, so that no run must fit into memory.
        settings: settings of the draw.
        selected: takes these solutions, with their probabilities, in place of a draw.

    Raises:
        DataError: the run has no solution with steps, or not those that were selected.
    """
    if selected is None:
        drawn = _drawn(rows(), settings)
    else:
        drawn = _selected(rows(), selected, settings.run)
    order = sorted(drawn, key=lambda item_id: content_id("order", settings.seed, item_id))
    people = dict(zip(order, _people(len(order), settings), strict=True))
    items = {
        row.solution.id: item_of(row, *drawn[row.solution.id], people[row.solution.id])
        for row in rows()
        if row.solution.id in drawn
    }
    return [items[item_id] for item_id in order]


def _drawn(rows: Iterable[LabeledSolution], settings: Settings) -> dict[str, tuple[str, float]]:
    """Stratum and probability of each solution that is drawn."""
    strata: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        if row.steps:
            strata[_stratum(row)].append(row.solution.id)
    if not strata:
        raise DataError(f"{settings.run}: holds no solution with steps. Give another run")
    while len(strata) > max(1, settings.sample):  # every stratum must have one
        strata = _coarser(strata)
    counts = _allocate({name: len(ids) for name, ids in strata.items()}, settings.sample)
    drawn: dict[str, tuple[str, float]] = {}
    for name, ids in strata.items():
        ranked = sorted(ids, key=lambda item_id: content_id("draw", settings.seed, item_id))
        label = ", ".join(name) or "all"
        drawn |= {item_id: (label, counts[name] / len(ids)) for item_id in ranked[: counts[name]]}
    return drawn


def _selected(
    rows: Iterable[LabeledSolution], selected: Selected, run: str
) -> dict[str, tuple[str, float]]:
    there = set()
    for row in rows:
        if row.solution.id in selected.texts and row.steps:
            selected.check_text(row.solution.id, row.problem.text, row.solution.text)
            there.add(row.solution.id)
    selected.check_found(there, run)
    return {item_id: (SELECTED, chance) for item_id, chance in selected.probabilities.items()}


def check_same(wanted: Mapping[str, Any], recorded: Settings, folder: str) -> None:
    """Refuse to go on with a folder under other settings than it was begun with.

    Raises:
        ConfigError: names what differs.
    """
    differ = [
        f"{name}={str(value)[:80]!r}, was {str(getattr(recorded, name))[:80]!r}"
        for name, value in wanted.items()
        if value != getattr(recorded, name)
    ]
    if differ:
        raise ConfigError(
            f"-o {folder}: was begun with other settings: {'; '.join(differ)}. Leave them out to "
            "go on, or give another folder"
        )


def _stratum(row: LabeledSolution) -> tuple[str, ...]:
    labelled = "undecided"
    if row.is_decided:
        labelled = "no error" if row.first_error is None else "error"
    size = next((name for most, name in _BUCKETS if len(row.steps) <= most), _MANY)
    return str(row.solution.outcome), labelled, size


def _coarser(strata: Mapping[tuple[str, ...], list[str]]) -> dict[tuple[str, ...], list[str]]:
    """Strata without their last property."""
    strata_ids: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, ids in strata.items():
        strata_ids[name[:-1]] += ids
    return strata_ids


def _allocate(sizes: Mapping[tuple[str, ...], int], sample: int) -> dict[tuple[str, ...], int]:
    """Return how many to draw of each stratum: one at least, the rest by the square root of its
    size.
    """
    counts = dict.fromkeys(sizes, 1)
    heap = [(-math.sqrt(size), name) for name, size in sizes.items() if size > 1]
    heapq.heapify(heap)
    for _ in range(sample - len(counts)):
        if not heap:
            break
        _, name = heapq.heappop(heap)
        counts[name] += 1
        if counts[name] < sizes[name]:
            heapq.heappush(heap, (-math.sqrt(sizes[name]) / counts[name], name))
    return counts


def _people(num_items: int, settings: Settings) -> list[tuple[str, ...]]:
    """Return who labels each item; those that two people label come spread over the whole order."""
    people, num = settings.people, len(settings.people)
    share = settings.overlap if num > 1 else 0.0
    by_item, num_twice = [], 0
    for index in range(num_items):
        first = index % num
        given = [people[first]]
        if math.floor((index + 1) * share + 0.5) > num_twice:
            given.append(people[(first + 1 + num_twice % (num - 1)) % num])
            num_twice += 1
        by_item.append(tuple(given))
    return by_item


def item_of(
    row: LabeledSolution, stratum: str, probability: float | None, people: tuple[str, ...]
) -> Item:
    """A solution of the run as an item."""
    return Item(
        id=row.solution.id,
        problem=row.problem.text,
        answer=row.problem.answer,
        steps=tuple(step.text for step in row.solution.steps),
        prediction=row.solution.prediction,
        digest=text_digest(row),
        stratum=stratum,
        probability=probability,
        people=people,
    )
