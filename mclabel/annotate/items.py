"""Sampling of the solutions that people label, and their assignment to people.

Solutions are drawn within strata, which are defined by the outcome, the label (error, no error or
undecided) and the number of steps. The sample size of a stratum grows with the square root of its
size, so that rare cases are drawn often enough. Every solution has a known sampling probability
above 0. Weights of 1 / probability make statistics of the sample estimates for the whole run. The
draw depends only on ids and seed, not on the order of shards.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from mclabel.core.errors import ConfigError, DataError
from mclabel.core.records import LabeledSolution
from mclabel.core.seeds import content_id
from mclabel.core.settings import MAX_SEED, MAX_TOTAL
from mclabel.data.readers.solutions import SelectionManifest

_STEP_COUNT_CLASSES = ((3, "1 to 3 steps"), (6, "4 to 6 steps"), (12, "7 to 12 steps"))
_MANY = "over 12 steps"
GOLD, SELECTED = "gold", "selected"
"""Strata of gold that was not drawn, and of solutions from a manifest of `mclabel select`."""
OVERSEER = "overseer"
"""Reserved name of the user who runs the annotation; no person may have it."""
MIN_PROBABILITY = 1e-12
"""Smallest accepted sampling probability. A smaller one would give a single solution a weight
larger than any run."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A solution that people label, with its texts, so that the folder does not need the run."""

    id: str
    """Id of the solution."""
    problem: str
    answer: str
    """Gold answer of the problem."""
    steps: tuple[str, ...]
    prediction: str | None
    """Final answer that was read from the solution; None if it has none."""
    digest: str
    """Hash of the texts of the problem and of the steps."""
    stratum: str
    """Stratum from which the solution was drawn, or `gold` or `selected`."""
    probability: float | None
    """Probability of being drawn from the run, in (0, 1]; None for gold that was not drawn."""
    people: tuple[str, ...]
    """Names of the people who label the solution."""
    gold: tuple[int | None, ...] | None = None
    """0-based indices of the acceptable first errors if the solution is gold; an element None means
    no error. None in place of the tuple means that the solution is not gold."""

    @property
    def fault(self) -> str | None:
        """Message with the first field that breaks a rule; None if all fields are valid."""
        if not self.id or not self.steps:
            return f"id={self.id[:80]!r}: an item must have an id and at least one step"
        if self.digest != (expected := hash_problem_and_steps(self.problem, self.steps)):
            return f"digest={self.digest[:80]!r}: must be {expected!r}, the digest of its texts"
        probability = self.probability
        if probability is not None and not MIN_PROBABILITY <= probability <= 1:
            return f"probability={probability}: must be a probability in [{MIN_PROBABILITY:g}, 1]"
        invalid = [e for e in self.gold or () if e is not None and not 0 <= e < len(self.steps)]
        if invalid or self.gold == ():
            return f"gold={list(self.gold or ())}: must have steps from 0 to {len(self.steps) - 1}"
        if len(set(self.people)) < len(self.people) or OVERSEER in self.people:
            return f"people={list(self.people)}: must be different names, without {OVERSEER}"
        return None


@dataclass(frozen=True, kw_only=True)
class AnnotationSettings:
    """Settings with which a folder of annotations was created; they cannot change later."""

    id: str
    """Random id of the folder. Browsers store unsent opinions under this id."""
    run: str
    """Folder or URL of the run."""
    run_id: str
    """Identity of the run, to detect that another run is given later."""
    people: tuple[str, ...] = ("me",)
    sample: int = 200
    """Number of solutions to draw."""
    seed: int = 0
    overlap: float = 0.1
    """Share of the solutions that two people label, in [0, 1]."""
    guidelines: str | None = None
    """Text of the annotation guidelines on the page; None for none."""
    gold: str | None = None
    """Hash of the gold file (solutions with known first errors); None if there is no gold."""
    gold_share: float = 0.1
    """Share of gold among each person's solutions, in [0, 1)."""
    select: str | None = None
    """Hash of the manifest of `mclabel select` that lists the solutions; None draws them."""

    @property
    def fault(self) -> str | None:
        """Message with the first field that breaks a rule; None if all fields are valid."""
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
"""Name, smallest value and largest value of each numeric setting."""


def hash_solution_texts(row: LabeledSolution) -> str:
    """Return the hash of the texts that people see: the problem and the steps of a solution."""
    return hash_problem_and_steps(row.problem.text, [step.text for step in row.solution.steps])


def hash_problem_and_steps(problem: str, steps: Sequence[str]) -> str:
    """Return the hash of a problem's text and the texts of a solution's steps."""
    return content_id("annotated", problem, list(steps))


def draw_items(
    rows: Callable[[], Iterable[LabeledSolution]],
    settings: AnnotationSettings,
    selected: SelectionManifest | None = None,
) -> list[Item]:
    """Draw the solutions to label, and return them in the order of the page.

    Args:
        rows: function that reads the run. It is called twice, so a run need not fit into memory.
        settings: settings of the draw.
        selected: solutions to take in place of a draw, with their probabilities; None draws.

    Raises:
        DataError: the run has no solution with steps, or lacks a selected solution.
    """
    drawn = (
        _draw_solutions(rows(), settings)
        if selected is None
        else _list_selected_solutions(rows(), selected, settings.run)
    )
    order = sorted(drawn, key=lambda item_id: content_id("order", settings.seed, item_id))
    people = dict(zip(order, _assign_people(len(order), settings), strict=True))
    items = {
        row.solution.id: make_item(row, drawn[row.solution.id], people[row.solution.id])
        for row in rows()
        if row.solution.id in drawn
    }
    return [items[item_id] for item_id in order]


class Draw(NamedTuple):
    """The way in which a solution came into the folder."""

    stratum: str
    """Stratum from which the solution was drawn, or `gold` or `selected`."""
    probability: float | None
    """Sampling probability in (0, 1]; None for gold that was not drawn."""


def _draw_solutions(
    rows: Iterable[LabeledSolution], settings: AnnotationSettings
) -> dict[str, Draw]:
    """Draw solutions within strata, and return the draw of each by the solution's id."""
    strata: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        if row.steps:
            strata[_classify_stratum(row)].append(row.solution.id)
    if not strata:
        raise DataError(f"{settings.run}: contains no solution with steps. Give another run")
    while len(strata) > max(1, settings.sample):  # one solution of each stratum must be drawn
        strata = _merge_strata(strata)
    counts = _allocate_sample({name: len(ids) for name, ids in strata.items()}, settings.sample)
    return {
        item_id: Draw(stratum=", ".join(name) or "all", probability=counts[name] / len(ids))
        for name, ids in strata.items()
        for item_id in sorted(ids, key=partial(content_id, "draw", settings.seed))[: counts[name]]
    }


def _list_selected_solutions(
    rows: Iterable[LabeledSolution], selected: SelectionManifest, run: str
) -> dict[str, Draw]:
    """Check that a run has all selected solutions, and return the draw of each by its id."""
    found_ids = set()
    for row in rows:
        if row.solution.id in selected.text_hashes and row.steps:
            selected.check_text(row.solution.id, row.problem.text, row.solution.text)
            found_ids.add(row.solution.id)
    selected.check_none_missing(found_ids, run)
    return {
        item_id: Draw(stratum=SELECTED, probability=probability)
        for item_id, probability in selected.probabilities.items()
    }


def check_same_settings(
    given: Mapping[str, Any], recorded: AnnotationSettings, folder: str
) -> None:
    """Check that a folder is continued with the settings with which it was created.

    Args:
        given: settings that the user has given, by name.
        recorded: settings with which the folder was created.
        folder: path of the folder, for the message.

    Raises:
        ConfigError: settings differ; the message lists them with both values.
    """
    differences = [
        f"{name}={str(value)[:80]!r}, was {str(getattr(recorded, name))[:80]!r}"
        for name, value in given.items()
        if value != getattr(recorded, name)
    ]
    if differences:
        raise ConfigError(
            f"-o {folder}: was created with other settings: {'; '.join(differences)}. Leave these "
            "options out to continue, or give another folder"
        )


def _classify_stratum(row: LabeledSolution) -> tuple[str, ...]:
    """Return the name of a solution's stratum: its outcome, label and number of steps."""
    label = "undecided"
    if row.is_decided:
        label = "no error" if row.first_error is None else "error"
    steps = next((name for most, name in _STEP_COUNT_CLASSES if len(row.steps) <= most), _MANY)
    return str(row.solution.outcome), label, steps


def _merge_strata(strata: Mapping[tuple[str, ...], list[str]]) -> dict[tuple[str, ...], list[str]]:
    """Merge strata whose names differ only in the last property, which is removed."""
    merged: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, ids in strata.items():
        merged[name[:-1]] += ids
    return merged


def _allocate_sample(
    sizes: Mapping[tuple[str, ...], int], sample: int
) -> dict[tuple[str, ...], int]:
    """Return the number of solutions to draw from each stratum, at least one.

    The rest of the sample is divided in proportion to the square roots of the strata's sizes.
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


def _assign_people(num_items: int, settings: AnnotationSettings) -> list[tuple[str, ...]]:
    """Return the people of each item. Items with two people are spread evenly over all items."""
    people, num_people = settings.people, len(settings.people)
    share = settings.overlap if num_people > 1 else 0.0
    people_of_items, num_shared = [], 0
    for index in range(num_items):
        first = index % num_people
        assigned = [people[first]]
        if math.floor((index + 1) * share + 0.5) > num_shared:
            assigned.append(people[(first + 1 + num_shared % (num_people - 1)) % num_people])
            num_shared += 1
        people_of_items.append(tuple(assigned))
    return people_of_items


def make_item(row: LabeledSolution, draw: Draw, people: tuple[str, ...]) -> Item:
    """Make the item of a solution of the run.

    Args:
        row: the solution with its labels.
        draw: stratum and sampling probability of the solution.
        people: names of the people who label the solution.
    """
    return Item(
        id=row.solution.id,
        problem=row.problem.text,
        answer=row.problem.answer,
        steps=tuple(step.text for step in row.solution.steps),
        prediction=row.solution.prediction,
        digest=hash_solution_texts(row),
        stratum=draw.stratum,
        probability=draw.probability,
        people=people,
    )
