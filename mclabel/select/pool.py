"""The pool that solutions are chosen from: of each, what is needed to choose, and no text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from mclabel.core.errors import DataError
from mclabel.core.records import Outcome
from mclabel.core.seeds import content_id
from mclabel.data.readers.judged import answer_right_of
from mclabel.data.readers.selected import Selected, text_id
from mclabel.prm.scoring.items import FILES, SolutionItem, file_items
from mclabel.run.shards.labels import label_tables
from mclabel.run.shards.store import Store


class PoolRow(NamedTuple):
    """A solution of a pool."""

    id: str
    """Id in a run; in a file the number of the row, from 1."""
    problem_id: str
    """Of a file without `problem_id`, a hash of the problem's text."""
    text_id: str
    outcome: Outcome | None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A pool, in the order of its ids."""

    rows: list[PoolRow]
    problems: NDArray[np.int64]
    """Number of the problem of each solution."""
    left_out: frozenset[str] = frozenset()
    """By their `text_id`, solutions that earlier selections have chosen."""

    @property
    def id(self) -> str:
        """A hash of what is in it, in whatever order it was read."""
        return content_id("pool", [(row.id, row.text_id, row.outcome) for row in self.rows])

    @property
    def num_problems(self) -> int:
        """Number of distinct problems."""
        return int(self.problems.max()) + 1

    @property
    def is_wrong(self) -> NDArray[np.bool_]:
        """Of each solution, whether its answer is wrong or ungraded."""
        wrong = (Outcome.WRONG, Outcome.UNGRADED)
        return np.array([row.outcome in wrong for row in self.rows], dtype=bool)


def read_pool(source: str, without: Sequence[Selected] = ()) -> Pool:
    """The solutions of a file or a labelling run.

    Args:
        source: as `mclabel score` takes it.
        without: earlier selections, whose solutions, and those of the same text, are left out.

    Raises:
        DataError: the file cannot be read, or has no solution that can be used.
        ShardError: the run has no labels, or they are damaged.
    """
    found = _file_rows(source) if is_file(source) else _run_rows(source)
    gone = frozenset(text for one in without for text in one.texts.values())
    read = sorted(found, key=lambda row: row.id)
    rows = [row for row in read if row.text_id not in gone]
    if read and not rows:
        raise DataError(f"{source}: exclude leaves nothing of it. Give a larger pool")
    if not rows:
        raise DataError(
            f"{source}: holds no solutions with a problem and steps. Give a file with problem and "
            "solution in each row, or a run of mclabel label"
        )
    numbers: dict[str, int] = {}
    problems = [numbers.setdefault(row.problem_id, len(numbers)) for row in rows]
    return Pool(rows=rows, problems=np.array(problems, dtype=np.int64), left_out=gone)


def is_file(source: str) -> bool:
    """Whether a source is a file of solutions, and no run."""
    return source.endswith(FILES)


def outcome_of(row: Mapping[str, Any], place: str) -> Outcome | None:
    """How a solution ended, by its row's `outcome` or `final_answer_correct`; None if unknown.

    Raises:
        DataError: the columns hold something else.
    """
    try:
        said = row.get("outcome")
        if said not in (None, ""):
            return Outcome(said)
        right = answer_right_of(row.get("final_answer_correct"))
    except ValueError as error:
        words = ", ".join(Outcome)
        raise DataError(
            f"{place}: {error}. Give outcome ({words}) or final_answer_correct (true, false)"
        ) from error
    return None if right is None else Outcome.RIGHT if right else Outcome.WRONG


def text_id_of(item: SolutionItem) -> str:
    """The `text_id` of a solution that was read from a file or from scores."""
    return text_id(item.problem, item.steps if isinstance(item.steps, str) else "".join(item.steps))


def _file_rows(source: str) -> Iterator[PoolRow]:
    for item in file_items(source):
        if not isinstance(item, SolutionItem):
            continue  # what scoring, and labelling, leave out, too
        row = json.loads(item.row)
        named = row.get("problem_id")
        yield PoolRow(
            item.id,
            content_id("problem", item.problem) if named in (None, "") else str(named),
            text_id_of(item),
            outcome_of(row, item.place),
        )


def _run_rows(source: str) -> Iterator[PoolRow]:
    columns = ["solution_id", "problem_id", "problem", "solution", "outcome"]
    for _, table in label_tables(Store(source)):
        table = table.filter(pc.greater(pc.list_value_length(table["steps"]), 0))
        for row in table.select(columns).to_pylist():
            text = text_id(row["problem"], row["solution"])
            yield PoolRow(row["solution_id"], row["problem_id"], text, Outcome(row["outcome"]))
