"""Solutions as the items of a judge's job: the rows of a file, or the solutions of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

from mclabel.data.boundaries import newline_ends
from mclabel.data.readers.rows import RejectReason
from mclabel.data.shards.labels import read_labels
from mclabel.data.shards.store import Store
from mclabel.judges.base import JudgedItem
from mclabel.prm.scoring.items import FILES, SolutionItem, Solutions, file_items, labeled_item

REFERENCES = ("reference_solution", "reference", "answer")
"""Columns of a file that hold a problem's reference, the first that is there."""


def read_judged_input(source: str, *, strict: bool = False) -> Solutions:
    """The solutions of a file, or of a labelling run, with the references that they have.

    Args:
        source: as of `mclabel.prm.scoring.items.read_scored_input`.
        strict: whether a row that cannot be used is an error.

    Raises:
        DataError: the input cannot be read, or holds nothing that can be judged.
        ShardError: the run holds no labels, or they are damaged.
    """
    if source.endswith(FILES):
        return Solutions(lambda: _file_rows(source), source=source, strict=strict)
    store = Store(source)
    return Solutions(lambda: _run_rows(store), source=source, strict=strict)


def _file_rows(source: str) -> Iterator[SolutionItem | tuple[int, RejectReason]]:
    for found in file_items(source):
        if not isinstance(found, SolutionItem):
            yield found
            continue
        row = json.loads(found.row)
        texts = (row.get(name) for name in REFERENCES)
        yield _judged(found, next((t for t in texts if isinstance(t, str) and t.strip()), None))


def _run_rows(store: Store) -> Iterator[SolutionItem]:
    for number, labeled in enumerate(read_labels(store), 1):
        if labeled.solution.steps:
            yield _judged(labeled_item(number, labeled), labeled.problem.answer)


def steps_of(item: SolutionItem) -> tuple[str, ...]:
    """The texts of a solution's steps; one that is a whole text has a step a line."""
    if not isinstance(item.steps, str):
        return item.steps
    ends = newline_ends(item.steps)
    return tuple(item.steps[a:b] for a, b in pairwise((0, *ends)))


def _judged(item: SolutionItem, reference: str | None) -> JudgedItem:
    return JudgedItem(
        id=item.id,
        number=item.number,
        place=item.place,
        row=item.row,
        problem=item.problem,
        steps=steps_of(item),
        reference=reference,
    )
