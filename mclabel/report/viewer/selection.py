"""All solutions that a filter finds: what their labels sum up to, and their labels as rows.

The cost of both is bounded: a summary adds up a few numbers of each solution, and rows are given
in parts.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import pyarrow as pa

from mclabel.report.viewer.index import BINS, Index
from mclabel.report.viewer.listing import Listing, Question

MAX_PLACE = 11
"""First errors after this step are counted together."""
MAX_PART = 1000
"""Solutions of a part."""
MAX_PART_STEPS = 20_000
"""Steps of a part, unless its first solution has more."""
_KEPT = 16
"""Summaries that are kept."""

_NAMES = {-1: "none", -2: "undecided"}
"""What is counted beside places."""

_EXPORTED = (
    "id, problem_id, solution_id, sample_index, outcome, first_error, decided, truth, has_truth, "
    "num_steps, vals, hard"
)


class Selection:
    """Summaries and parts of what questions find, for any number of threads."""

    def __init__(self, index: Index, listing: Listing) -> None:
        self._index, self._listing = index, listing
        self._kept: OrderedDict[tuple[int, Question], dict[str, Any]] = OrderedDict()
        self._lock = Lock()

    def summary(self, question: Question) -> dict[str, Any]:
        """Counts over everything found.

        Returns:
            `total`, `num_problems`, `num_steps`, `num_with_truth` solutions; `outcomes` by name;
            `errors` and `truths`, solutions by the index of the first error as labelled and in
            truth, those from MAX_PLACE + 1 on together, `none` for none, `undecided` where that is
            not known; `values`, steps but the last of each solution by tenth of their value.
        """
        question = replace(question, sort="")  # the order does not matter
        key = (self._index.version, question)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = self._summary(question)
        with self._lock:
            self._kept[key] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found

    def part(self, question: Question, offset: int) -> dict[str, Any]:
        """Ids and labels of what is found, from `offset` on, and `total`.

        Returns:
            `rows`, at least one where there is one, at most MAX_PART; a reader goes on at `offset`
            and as many.
        """
        ids = self._listing.ids(question)
        wanted = ids[offset : offset + MAX_PART]
        rows = self._index.query(
            f"SELECT {_EXPORTED} FROM solutions SEMI JOIN asked USING (id)",
            asked=pa.table({"id": wanted}),
        )
        by_id = {row.pop("id"): row for row in rows}
        part: list[dict[str, Any]] = []
        num_steps = 0
        for row in (by_id[int(i)] for i in wanted):
            num_steps += row["num_steps"]
            if part and num_steps > MAX_PART_STEPS:
                break
            part.append(_exported(row))
        return {"total": len(ids), "offset": offset, "rows": part}

    def _summary(self, question: Question) -> dict[str, Any]:
        asked = pa.table({"id": self._listing.ids(question)})
        problems = self._index.query(
            "SELECT count(DISTINCT hash(problem_id)) AS num_problems "
            "FROM solutions SEMI JOIN asked USING (id)",
            asked=asked,
        )[0]
        sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in ("num_steps", *BINS))
        groups = self._index.query(
            f"SELECT outcome, has_truth, {_place('first_error', 'decided')} AS error, "
            f"{_place('truth', 'has_truth')} AS truth, count(*) AS total, {sums} "
            "FROM solutions SEMI JOIN asked USING (id) GROUP BY ALL",
            asked=asked,
        )
        with_truth = [group for group in groups if group["has_truth"]]
        return {
            "total": sum(group["total"] for group in groups),
            "num_steps": sum(group["num_steps"] for group in groups),
            "num_with_truth": sum(group["total"] for group in with_truth),
            "values": [sum(group[name] for group in groups) for name in BINS],
            **problems,
            "outcomes": _totals(groups, "outcome"),
            "errors": _totals(groups, "error"),
            "truths": _totals(with_truth, "truth"),
        }


def _place(column: str, known: str) -> str:
    """SQL: an index up to one after MAX_PLACE, or one of `_NAMES`."""
    none = f"CASE WHEN {known} THEN -1 ELSE -2 END"
    place = f"least({column}, {MAX_PLACE + 1})"  # passes over NULL
    return f"(CASE WHEN {column} IS NULL THEN {none} ELSE {place} END)::TINYINT"


def _totals(groups: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    """Solutions by what `name` is in their group."""
    totals: Counter[str] = Counter()
    for group in groups:
        totals[_NAMES.get(group[name], str(group[name]))] += group["total"]
    return dict(totals)


def _exported(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as it is written to a file; `truth` is there where it is known."""
    return {
        "problem_id": row["problem_id"],
        "solution_id": row["solution_id"],
        "sample_index": row["sample_index"],
        "outcome": row["outcome"],
        "first_error": row["first_error"],
        "decided": row["decided"],
        **({"true_first_error": row["truth"]} if row["has_truth"] else {}),
        "hard": [None if hard is None else bool(hard) for hard in row["hard"]],
        "values": [None if value is None else round(value, 6) for value in row["vals"]],
    }
