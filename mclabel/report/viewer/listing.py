"""Filters, search and order of the solutions in the viewer's list, and summaries of them.

For the solutions that match a filter, this module computes a summary of the labels, and exports
rows. The cost is limited: a summary adds a few numbers per solution, and rows are sent in parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mclabel.core.errors import DataError
from mclabel.core.records import Outcome
from mclabel.evaluate.grouping import GROUP_KEYS
from mclabel.report.viewer.cache import ResultCache
from mclabel.report.viewer.index import BINS, Index

MAX_PAGE = 200
"""Maximum number of solutions in a page of the list."""
MAX_FACET_VALUES = 40
"""Maximum number of values of a metadata field that the filter offers."""
MAX_WORDS = 12
"""Maximum number of words and phrases in a search; further ones are ignored."""
_MAX_CACHED = 16
"""Number of cached query results, so that paging through a result needs no new search."""

MARKS = {
    "lucky": "outcome = 'right' AND "
    "CASE WHEN has_truth THEN truth IS NOT NULL ELSE first_error IS NOT NULL END",
    "truth": "decided AND has_truth AND truth IS DISTINCT FROM first_error",
    "runs": "id IN (SELECT id FROM differing)",
    "truncated": "outcome = 'truncated' OR num_truncated > 0",
    "unknown": "outcome = 'ungraded' OR num_ungraded > 0",
    "undecided": f"outcome IN ('{Outcome.RIGHT}', '{Outcome.WRONG}') AND NOT decided",
    "unkept": "NOT kept",
}
"""SQL conditions of the marks of solutions. `lucky`: a right answer through a wrong step, according
to the truth if it is known, else to the labels. `truth`: the labelled first error differs from the
true one. `runs`: another run labels another first error. `undecided`: the outcome is right or
wrong, but the labels do not decide on the first error. `unkept`: a consensus of sources was
required but not reached."""

ERRORS = {
    "any": "first_error IS NOT NULL",
    "none": "first_error IS NULL AND decided",
    "undecided": "first_error IS NULL AND NOT decided",
}
"""SQL conditions of the states of the first error. Each solution is in exactly one state."""

SORTS = {
    "": "id",
    "width": "width DESC NULLS LAST, id",
    "fall": "fall DESC NULLS LAST, id",
    "steps": "num_steps DESC, id",
    "tokens": "num_tokens DESC NULLS LAST, id",
}
"""SQL orders of the list, by name. `width`: widest interval first. `fall`: largest fall of the
value from one step to the next first."""

_LISTED_COLUMNS = (
    "id, solution_id, given_id, left(problem_id, 200) AS problem_id, sample_index, problem, "
    "answer, prediction, outcome, first_error, decided, truth, has_truth, num_steps, vals, hard, "
    "width, num_truncated, num_ungraded, kept, "
    "outcome = 'right' AND has_truth AND truth IS NOT NULL AS lucky"
)


def is_number(text: str) -> bool:
    """Return whether a text from a URL is a whole number of one to nine ASCII digits."""
    return text.isascii() and text.isdecimal() and len(text) <= 9


@dataclass(frozen=True, kw_only=True)
class ListingQuery:
    """A query for solutions in the viewer's list."""

    run: int = 0
    words: str = ""
    """Search words. All of them must occur in the texts or ids; "quoted" phrases match literally.
    """
    outcome: str = ""
    error: str = ""
    """One of `ERRORS`, or the 0-based index of the first error."""
    mark: str = ""
    width: float = 0.0
    """Minimum width of the widest interval."""
    sort: str = ""
    facets: tuple[tuple[str, str], ...] = field(default=())

    @classmethod
    def parse(cls, query: Mapping[str, str], num_runs: int) -> ListingQuery:
        """Parse a query from the parameters of a URL.

        Raises:
            DataError: a parameter has a value that is not allowed.
        """
        try:
            parsed = cls(
                run=int(query.get("run", 0)),
                words=query.get("q", "")[:500],
                outcome=query.get("outcome", ""),
                error=query.get("error", ""),
                mark=query.get("mark", ""),
                width=float(query.get("width") or 0),
                sort=query.get("sort", ""),
                facets=tuple((name, query[name]) for name in GROUP_KEYS if query.get(name)),
            )
        except ValueError as error:
            raise DataError(f"run, width: must be numbers ({error})") from error
        allowed = {
            "run": parsed.run in range(num_runs),
            "outcome": parsed.outcome in ("", *Outcome),
            "error": parsed.error in ("", *ERRORS) or is_number(parsed.error),
            "mark": parsed.mark == "" or parsed.mark in MARKS,
            "sort": parsed.sort in SORTS,
            "width": 0 <= parsed.width <= 1,
        }
        if invalid_names := [name for name, is_allowed in allowed.items() if not is_allowed]:
            raise DataError(
                f"{invalid_names[0]}={query.get(invalid_names[0])!r}: is not a value of this "
                "parameter. Choose the filters on the page"
            )
        return parsed

    def build_where_clause(self) -> tuple[str, list[Any]]:
        """Return the SQL condition of the query, and the arguments for its placeholders."""
        parts, arguments = ["run = ?"], list[Any]([self.run])
        if self.outcome:
            parts.append("outcome = ?")
            arguments.append(self.outcome)
        if self.error in ERRORS:
            parts.append(ERRORS[self.error])
        elif self.error:
            parts.append("first_error = ?")
            arguments.append(int(self.error))
        if self.mark:
            parts.append(MARKS[self.mark])
        if self.width:
            parts.append("width >= ?")
            arguments.append(self.width)
        for name, value in self.facets:
            parts.append(f"{name} = ?")
            arguments.append(value)
        for word in _split_search_text(self.words):
            parts.append("contains(search, ?)")
            arguments.append(word)
        return " AND ".join(f"({part})" for part in parts), arguments


class Listing:
    """Thread-safe access to the solutions that match a query, page by page."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._cache: ResultCache[NDArray[np.int32]] = ResultCache(_MAX_CACHED)

    def list_ids(self, query: ListingQuery) -> NDArray[np.int32]:
        """Return the ids in the index of all solutions that match a query, in the query's order."""
        return self._cache.get((self._index.version, query), partial(self._query_ids, query))

    def _query_ids(self, query: ListingQuery) -> NDArray[np.int32]:
        condition, arguments = query.build_where_clause()
        sql = f"SELECT id FROM solutions WHERE {condition} ORDER BY {SORTS[query.sort]}"
        ids: NDArray[np.int32] = self._index.column(sql, arguments)
        return ids

    def list_page(self, query: ListingQuery, offset: int, limit: int) -> dict[str, Any]:
        """Return one page of the result: the `total` number of solutions, and the `rows` from
        `offset` on.

        Args:
            query: query for solutions.
            offset: 0-based offset of the first row.
            limit: maximum number of rows; MAX_PAGE is an upper bound.
        """
        ids = self.list_ids(query)
        page_ids = [
            int(index_id) for index_id in ids[max(0, offset) :][: max(1, min(limit, MAX_PAGE))]
        ]
        placeholders = ", ".join("?" * len(page_ids)) or "NULL"
        rows = self._index.query(
            f"SELECT {_LISTED_COLUMNS} FROM solutions WHERE id IN ({placeholders})", page_ids
        )
        by_id = {row.pop("id"): row for row in rows}
        return {
            "total": len(ids),
            "offset": max(0, offset),
            "rows": [by_id[index_id] for index_id in page_ids],
        }

    def locate_solution(self, query: ListingQuery, solution_id: str) -> dict[str, Any]:
        """Return a solution's 0-based `offset` in the result, and the ids of its neighbours.

        They are None if the solution does not match the query, and a missing neighbour is None.
        """
        ids = self.list_ids(query)
        matches = self._index.query(
            "SELECT id FROM solutions WHERE run = ? AND solution_id = ?",
            [query.run, solution_id],
        )
        positions = (
            np.flatnonzero(ids == matches[0]["id"]) if matches else np.array([], dtype=np.int64)
        )
        if not len(positions):
            return {"offset": None, "total": len(ids), "previous": None, "next": None}
        offset = int(positions[0])
        neighbour_ids = {
            "previous": int(ids[offset - 1]) if offset else None,
            "next": int(ids[offset + 1]) if offset + 1 < len(ids) else None,
        }
        names = {
            row["id"]: row["solution_id"]
            for row in self._index.query(
                "SELECT id, solution_id FROM solutions WHERE id IN (?, ?)",
                list(neighbour_ids.values()),
            )
        }
        return {
            "offset": offset,
            "total": len(ids),
            **{
                direction: None if neighbour_id is None else names[neighbour_id]
                for direction, neighbour_id in neighbour_ids.items()
            },
        }


def count_facets(index: Index, run: int) -> dict[str, Any]:
    """Return the number of solutions of a run for each value of each filter."""
    marks, errors = (_count_by_condition(index, run, conditions) for conditions in (MARKS, ERRORS))
    counts_by_field: dict[str, dict[str, int]] = {}
    most_frequent_first = "n DESC, kind"
    orders = {"outcome": most_frequent_first, "first_error": "kind"} | dict.fromkeys(
        GROUP_KEYS, most_frequent_first
    )
    for name, order in orders.items():
        rows = index.query(
            f"SELECT {name} AS kind, count(*) AS n FROM solutions WHERE run = ? AND {name} IS NOT "
            f"NULL GROUP BY ALL ORDER BY {order} LIMIT {MAX_FACET_VALUES}",
            [run],
        )
        if rows:
            counts_by_field[name] = {str(row["kind"]): row["n"] for row in rows}
    return {"total": sum(errors.values()), "marks": marks, "errors": errors, "by": counts_by_field}


def _count_by_condition(index: Index, run: int, conditions: Mapping[str, str]) -> dict[str, int]:
    """Return the number of solutions of a run that satisfy each SQL condition, by its name."""
    sums = ", ".join(f'count(*) FILTER ({sql}) AS "{name}"' for name, sql in conditions.items())
    return index.query(f"SELECT {sums} FROM solutions WHERE run = ?", [run])[0]


def _split_search_text(text: str) -> list[str]:
    """Split a search text into lowercase words and quoted phrases, at most MAX_WORDS."""
    words = []
    for number, part in enumerate(text.lower().split('"')):
        words += [part] if number % 2 else part.split()
    return [word for word in words if word.strip()][:MAX_WORDS]


MAX_STEP_INDEX = 11
"""Largest 0-based step that is counted separately; later first errors are counted together."""
MAX_PART = 1000
"""Maximum number of solutions in a part of an export."""
MAX_PART_STEPS = 20_000
"""Maximum number of steps in a part of an export, unless its first solution has more."""

_CODE_NAMES = {-1: "none", -2: "undecided"}
"""Names of the negative codes that SQL uses in place of a step's index."""

_EXPORTED_COLUMNS = (
    "id, problem_id, solution_id, sample_index, outcome, first_error, decided, truth, has_truth, "
    "num_steps, vals, hard"
)


class Selection:
    """Thread-safe summaries and exports of the solutions that match a query."""

    def __init__(self, index: Index, listing: Listing) -> None:
        self._index, self._listing = index, listing
        self._cache: ResultCache[dict[str, Any]] = ResultCache(_MAX_CACHED)

    def compute_counts(self, query: ListingQuery) -> dict[str, Any]:
        """Return counts over all solutions that match a query.

        Returns:
            `total` solutions, `num_problems`, `num_steps`, and `num_with_truth` solutions whose
            truth is known. `outcomes` counts solutions by outcome. `errors` and `truths` count
            solutions by the 0-based index of the labelled and of the true first error. Indices
            above MAX_STEP_INDEX are counted together; `none` means no error, `undecided` no
            verdict. `values` counts steps, without the last of each solution, by tenths of their
            value.
        """
        query = replace(query, sort="")  # the order does not matter
        return self._cache.get((self._index.version, query), partial(self._compute_summary, query))

    def export_part(self, query: ListingQuery, offset: int) -> dict[str, Any]:
        """Return ids and labels of the solutions that match a query, from `offset` on.

        Returns:
            The `total` of matching solutions, `offset`, and 1 to MAX_PART `rows`, or none after the
            end. The next part begins at `offset` plus the number of rows.
        """
        ids = self._listing.list_ids(query)
        part_ids = ids[offset : offset + MAX_PART]
        rows = self._index.query(
            f"SELECT {_EXPORTED_COLUMNS} FROM solutions SEMI JOIN matching USING (id)",
            matching=pa.table({"id": part_ids}),
        )
        by_id = {row.pop("id"): row for row in rows}
        part: list[dict[str, Any]] = []
        num_steps = 0
        for row in (by_id[int(index_id)] for index_id in part_ids):
            num_steps += row["num_steps"]
            if part and num_steps > MAX_PART_STEPS:
                break
            part.append(
                {
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
            )
        return {"total": len(ids), "offset": offset, "rows": part}

    def _compute_summary(self, query: ListingQuery) -> dict[str, Any]:
        matching = pa.table({"id": self._listing.list_ids(query)})
        problems = self._index.query(
            "SELECT count(DISTINCT hash(problem_id)) AS num_problems "
            "FROM solutions SEMI JOIN matching USING (id)",
            matching=matching,
        )[0]
        sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in ("num_steps", *BINS))
        groups = self._index.query(
            f"SELECT outcome, has_truth, "
            f"{_build_step_index_sql('first_error', 'decided')} AS error, "
            f"{_build_step_index_sql('truth', 'has_truth')} AS truth, count(*) AS total, {sums} "
            "FROM solutions SEMI JOIN matching USING (id) GROUP BY ALL",
            matching=matching,
        )
        with_truth = [group for group in groups if group["has_truth"]]
        return {
            "total": sum(group["total"] for group in groups),
            "num_steps": sum(group["num_steps"] for group in groups),
            "num_with_truth": sum(group["total"] for group in with_truth),
            "values": [sum(group[name] for group in groups) for name in BINS],
            **problems,
            "outcomes": _sum_totals_by_column(groups, "outcome"),
            "errors": _sum_totals_by_column(groups, "error"),
            "truths": _sum_totals_by_column(with_truth, "truth"),
        }


def _build_step_index_sql(column: str, condition: str) -> str:
    """Return an SQL expression for a step's index, or for a code in `_CODE_NAMES`.

    The index is at most MAX_STEP_INDEX + 1.
    """
    missing_code = f"CASE WHEN {condition} THEN -1 ELSE -2 END"
    step_index = f"least({column}, {MAX_STEP_INDEX + 1})"  # passes over NULL
    return f"(CASE WHEN {column} IS NULL THEN {missing_code} ELSE {step_index} END)::TINYINT"


def _sum_totals_by_column(groups: Sequence[Mapping[str, Any]], name: str) -> dict[str, int]:
    """Return the number of solutions by the value of the column `name`, summed over groups."""
    totals: Counter[str] = Counter()
    for group in groups:
        totals[_CODE_NAMES.get(group[name], str(group[name]))] += group["total"]
    return dict(totals)
