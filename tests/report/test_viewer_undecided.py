"""Texts in the viewer and in the report's example for an unknown first error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, product
from pathlib import Path

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.arith.program import Program, write_reference_solution
from mclabel.report.viewer.detail import Details
from mclabel.report.viewer.index import Index
from mclabel.report.viewer.listing import ERRORS, Listing, ListingQuery, Selection, count_facets
from mclabel.run.kinds import find_runs
from tests.support.shown import solution, write_run


@contextmanager
def open_index(folder: Path, *runs: list[LabeledSolution]) -> Iterator[Index]:
    index = Index(find_runs([write_run(folder / str(n), run, None) for n, run in enumerate(runs)]))
    try:
        index.refresh()
        yield index
    finally:
        index.close()


def make_row(
    number: int, *hard: bool | None, outcome: Outcome = Outcome.RIGHT, error: int | None = None
) -> LabeledSolution:
    """Return a solution with these hard labels whose true steps have no error."""
    [problem] = generate_problems(1, seed=0, split="test")
    row = solution(
        number,
        [
            *write_reference_solution(Program.from_json(problem.meta["program"])).splitlines(True),
            *["\n"] * len(hard),
        ][: len(hard)],
        [4] * len(hard),
        outcome=outcome,
        meta=dict(problem.meta),
    )
    return replace(
        row,
        steps=tuple(replace(s, hard=h) for s, h in zip(row.steps, hard, strict=True)),
        first_error=error,
    )


def list_ids(index: Index, **query: str) -> list[str]:
    page = Listing(index).list_page(ListingQuery(**query), 0, 100)  # type: ignore[arg-type]
    return [row["solution_id"].removeprefix("solution-") for row in page["rows"]]


def test_the_index_holds_what_the_records_say(tmp_path: Path) -> None:
    kinds = [hard for size in range(4) for hard in product((True, False, None), repeat=size)]
    errors = [
        [None, *(i for i, is_sound in enumerate(hard) if is_sound is False)] for hard in kinds
    ]
    number = count()
    rows = [
        make_row(next(number), *hard, outcome=outcome, error=error)
        for hard, places in zip(kinds, errors, strict=True)
        for outcome in Outcome
        for error in places
    ]
    with open_index(tmp_path, rows) as index:
        decided_by_id = {r["solution_id"]: r["decided"] for r in index.query("FROM solutions")}
    assert decided_by_id == {row.solution.id: row.is_decided for row in rows}
    assert set(decided_by_id.values()) == {True, False}


def test_undecided_is_neither_without_an_error_nor_other_than_the_truth(tmp_path: Path) -> None:
    rows = [
        make_row(0, True, True),
        make_row(1, False, True, error=0),
        make_row(2, None, True),
        make_row(3, True, None, outcome=Outcome.UNGRADED),  # undecided, though all labels are known
        make_row(4, True, None),  # the last step's label is not evidence of an error
    ]
    with open_index(tmp_path, rows) as index:
        assert {name: list_ids(index, error=name) for name in ERRORS} == {
            "any": ["1"],
            "none": ["0", "4"],
            "undecided": ["2", "3"],
        }
        assert list_ids(index, mark="undecided") == ["2"]
        assert list_ids(index, mark="truth") == ["1"]
        facets = count_facets(index, 0)
        assert facets["total"] == 5 and facets["errors"] == {"any": 1, "none": 2, "undecided": 2}
        assert {name: facets["marks"][name] for name in ("undecided", "truth")} == {
            "undecided": 1,
            "truth": 1,
        }
        listing = Listing(index)
        selection = Selection(index, listing)
        summary = selection.compute_counts(ListingQuery())
        assert summary["errors"] == {"0": 1, "none": 2, "undecided": 2}
        assert summary["truths"] == {"none": 5}
        served = [
            listing.list_page(ListingQuery(), 0, 9)["rows"],
            selection.export_part(ListingQuery(), 0)["rows"],
            [Details(index).solution(0, row.solution.id) for row in rows],
        ]
        for served_rows in served:
            assert [row["decided"] for row in served_rows] == [True, True, False, False, True]


def test_runs_are_compared_where_both_are_decided(tmp_path: Path) -> None:
    first = [make_row(0, True, False, True, error=1), make_row(1, *[True] * 4)]
    with open_index(
        tmp_path,
        first,
        [make_row(0, None, True, True), make_row(1, True, False, True, True, error=1)],
    ) as index:
        assert list_ids(index, mark="runs") == ["1"]
        seen = Details(index).solution(0, "solution-0")
        assert [other_run["decided"] for other_run in seen["others"]] == [False]
        assert seen["samples"][0]["decided"] is True
