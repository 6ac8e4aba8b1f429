"""Which source knows what of a labelled solution."""

from __future__ import annotations

import pytest

from mclabel.data.readers.judged import JudgedSolution
from mclabel.errors import DataError
from mclabel.evaluation.label_quality import arith_truth
from mclabel.evaluation.truth import as_judged, exact_truth, judged_truth
from mclabel.records import Outcome
from tests.support.labelled import arith_rows
from tests.support.rows import row, step

THREE = [step()] * 3


def judged(identity: str, problem: str, steps: list[str], error: int | None) -> JudgedSolution:
    return JudgedSolution(id=identity, problem=problem, steps=tuple(steps), first_error=error)


def test_exact_truth_of_arith() -> None:
    rows = arith_rows(12)
    truth = exact_truth(rows)
    assert truth.known(rows) == rows
    assert [truth.of(one) for one in rows] == [arith_truth(one) for one in rows]
    assert {truth.of(one) for one in rows} >= {None}
    with pytest.raises(DataError, match=r"solution a\.0 of problem a: .*not of the arith domain"):
        exact_truth([*rows, row("a", THREE)])


def test_people_are_found_by_text_whatever_the_whitespace() -> None:
    rows = [
        row("a", THREE, texts=["one\n", "two\n", "three"]),
        row("a", THREE, sample=1, texts=["one\n", "2\n", "three"]),
        row("b", THREE, texts=["one\n", "two\n", "three"]),
    ]
    truth = judged_truth(
        "processbench",
        rows,
        [
            judged("x", "Problem  a", ["one", "two", "three"], 2),
            judged("y", "Problem b", ["one two three"], 0),  # in one piece: ends in the last step
            judged("z", "Problem c", ["one", "two", "three"], 0),
        ],
    )
    assert truth.first_errors == {"a.0": 2, "b.0": 2}
    assert truth.known(rows) == [rows[0], rows[2]]


def test_people_are_found_by_id_where_it_can_mean_one_solution_alone() -> None:
    rows = [row(p, THREE, origin="given") for p in "abc"]
    rows += [row("b", THREE, sample=1, origin="given"), row("d", THREE)]
    other = ["other", "texts", "here"]
    people = [
        judged("a", "p", other, 1),
        judged("b", "p", other, 1),  # two solutions
        judged("c", "p", other[:2], 1),  # another number of steps
        judged("d", "p", other, 1),  # sampled: another solution
    ]
    assert judged_truth("processbench", rows, people).first_errors == {"a.0": 1}


def test_another_run_its_own_solution_first() -> None:
    texts = ["one\n", "two\n", "three"]
    other = [
        row("a", THREE, 1, sample=0, texts=texts),
        row("a", THREE, 2, sample=1, texts=texts),
        row("a", THREE, 0, sample=2, texts=["cut\n", "two\n", "three"], outcome=Outcome.TRUNCATED),
        row("a", (), sample=3, texts=[]),
    ]
    rows = [row("a", THREE, sample=n, texts=texts) for n in (0, 1, 7)]
    rows.append(row("a", THREE, sample=2, texts=["cut\n", "two\n", "three"]))
    found = judged_truth("run", rows, as_judged(other)).first_errors
    assert found == {"a.0": 1, "a.1": 2, "a.7": 1}
