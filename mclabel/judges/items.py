"""Solutions as the items of a judge's job: the rows of a file, or the solutions of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator

from mclabel.data.shards.labels import read_labels
from mclabel.data.shards.rejects import RejectReason
from mclabel.data.shards.store import Store
from mclabel.judges.base import JudgedItem
from mclabel.prm.scoring.items import FILES, SolutionItem, Solutions, file_items, labeled_item
from mclabel.prm.scoring.layout import OUR_SPLIT, split_text

REFERENCES = ("reference_solution", "reference", "answer")
"""Columns of a file that hold a problem's reference, the first that is there."""


def read_judged_input(source: str, *, strict: bool = False, split: str = OUR_SPLIT) -> Solutions:
    """The solutions of a file, or of a labelling run, with the references that they have.

    Args:
        source: `.jsonl`, `.json`, `.parquet` or `.csv` file or the URL of one, of which a row has
            `problem`, and `solution` (one text) or `steps` (list of texts); else the folder or URL
            of a run.
        split: where the steps of a solution given as one text end.
        strict: whether a row that cannot be used is an error.

    Raises:
        DataError: the input cannot be read, or holds nothing that can be judged.
        ShardError: the run holds no labels, or they are damaged.
    """
    if source.endswith(FILES):
        return Solutions(lambda: _file_rows(source, split), source=source, strict=strict)
    store = Store(source)
    return Solutions(lambda: _run_rows(store), source=source, strict=strict)


def _file_rows(source: str, split: str) -> Iterator[SolutionItem | tuple[int, RejectReason]]:
    for found in file_items(source):
        if not isinstance(found, SolutionItem):
            yield found
            continue
        row = json.loads(found.row)
        texts = (row.get(name) for name in REFERENCES)
        reference = next((t for t in texts if isinstance(t, str) and t.strip()), None)
        yield _judged(found, steps_of(found, split), reference)


def _run_rows(store: Store) -> Iterator[SolutionItem]:
    for number, labeled in enumerate(read_labels(store), 1):
        if labeled.solution.steps:
            item = labeled_item(number, labeled)
            yield _judged(item, steps_of(item, "line"), labeled.problem.answer)


def steps_of(item: SolutionItem, split: str) -> tuple[str, ...]:
    """The texts of a solution's steps; one that is a whole text is split."""
    return tuple(split_text(item.steps, split)) if isinstance(item.steps, str) else item.steps


def _judged(item: SolutionItem, steps: tuple[str, ...], reference: str | None) -> JudgedItem:
    return JudgedItem(
        id=item.id,
        number=item.number,
        place=item.place,
        row=item.row,
        problem=item.problem,
        steps=steps,
        reference=reference,
    )
