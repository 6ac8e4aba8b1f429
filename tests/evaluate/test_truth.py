"""Sources of truth: which source has the true first error of a labelled solution."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mclabel.core.errors import DataError
from mclabel.core.records import Outcome
from mclabel.data.readers.judged import JudgedSolution, to_judged_solutions
from mclabel.evaluate.labels.quality import find_exact_first_error
from mclabel.evaluate.labels.truth import (
    check_same_problem_texts,
    find_exact_truth,
    make_truth_from_judgements,
)
from tests.support.labelled import arith_rows
from tests.support.rows import row, step

THREE = [step()] * 3


def make_judged_solution(
    identity: str, problem: str, steps: list[str], error: int | None
) -> JudgedSolution:
    return JudgedSolution(id=identity, problem=problem, steps=tuple(steps), first_error=error)


def test_exact_truth_of_arith() -> None:
    rows = arith_rows(12)
    truth = find_exact_truth(rows)
    assert truth.select_known_rows(rows) == rows
    assert [truth.first_error(labelled) for labelled in rows] == [
        find_exact_first_error(labelled) for labelled in rows
    ]
    assert {truth.first_error(labelled) for labelled in rows} >= {None}
    with pytest.raises(DataError, match=r"solution a\.0 of problem a: .*not belong to a built-in"):
        find_exact_truth([*rows, row("a", THREE)])


def test_people_are_found_by_text_whatever_the_whitespace() -> None:
    rows = [
        row("a", THREE, texts=["one\n", "two\n", "three"]),
        row("a", THREE, sample=1, texts=["one\n", "2\n", "three"]),
        row("b", THREE, texts=["one\n", "two\n", "three"]),
    ]
    truth = make_truth_from_judgements(
        "processbench",
        rows,
        [
            make_judged_solution("x", "Problem  a", ["one", "two", "three"], 2),
            # a single step, so the error is in the last step
            make_judged_solution("y", "Problem b", ["one two three"], 0),
            make_judged_solution("z", "Problem c", ["one", "two", "three"], 0),
        ],
    )
    assert truth.first_errors == {"a.0": 2, "b.0": 2}
    assert truth.select_known_rows(rows) == [rows[0], rows[2]]


def test_any_accepted_first_error_is_right() -> None:
    texts = ["one\n", "two\n", "three"]
    rows = [row("a", THREE, first_error=error, texts=texts) for error in (0, 1, None)]
    truths = [
        make_truth_from_judgements(
            "processbench",
            [labelled],
            [
                replace(
                    make_judged_solution("x", "Problem a", texts, 2),
                    other_first_errors=frozenset({1, None}),
                )
            ],
        )
        for labelled in rows
    ]
    assert [truth.first_errors for truth in truths] == [{"a.0": 2}, {"a.0": 1}, {"a.0": None}]


def test_people_are_found_by_id_where_a_tokenizer_has_changed_signs() -> None:
    # a ligature, which the annotators' text has as two letters
    texts = ["\ufb01rst\n", "second\n", "third"]
    rows = [row(p, THREE, texts=texts, origin="given") for p in "ab"]
    rows += [row("b", THREE, sample=1, texts=texts, origin="given"), row("c", THREE, texts=texts)]
    people = [
        make_judged_solution(p, f"Problem {p}", ["first", "second", "third"], 1) for p in "abc"
    ]
    # b has two solutions, and c's solution was sampled.
    assert make_truth_from_judgements("processbench", rows, people).first_errors == {"a.0": 1}


@pytest.mark.parametrize(
    ("problem", "steps"),
    [
        ("Problem a", ["other", "texts", "here"]),
        ("Problem 7", ["one", "two", "3"]),
        ("Problem a", ["other", "texts"]),
    ],
)
def test_an_id_that_names_other_texts_is_an_error(problem: str, steps: list[str]) -> None:
    texts = ["one\n", "two\n", "three"]
    rows = [row(p, THREE, texts=texts, origin="given") for p in "ab"]
    people = [
        make_judged_solution("a", problem, steps, 1),
        make_judged_solution("b", "Problem b", texts, 1),
    ]
    with pytest.raises(DataError, match=r"other texts for 1 of the 2 .* a\.0 of problem a"):
        make_truth_from_judgements("processbench", rows, people)


def test_a_run_over_other_problems_under_the_same_ids_is_an_error() -> None:
    rows = [row("a", THREE), row("b", THREE)]
    others = [replace(rows[1], problem=replace(rows[1].problem, text="Another"))]
    check_same_problem_texts(rows, [rows[0]], "runs/x")
    with pytest.raises(DataError, match=r"run:runs/x: has other texts for .* 1 of the 2 .* b\.0"):
        check_same_problem_texts(rows, others, "runs/x")


def test_another_run_its_own_solution_first() -> None:
    texts = ["one\n", "two\n", "three"]
    other_run = [
        row("a", THREE, 1, sample=0, texts=texts),
        row("a", THREE, 2, sample=1, texts=texts),
        row("a", THREE, 0, sample=2, texts=["cut\n", "two\n", "three"], outcome=Outcome.TRUNCATED),
        row("a", (), sample=3, texts=[]),
    ]
    rows = [row("a", THREE, sample=n, texts=texts) for n in (0, 1, 7)]
    rows.append(row("a", THREE, sample=2, texts=["cut\n", "two\n", "three"]))
    assert make_truth_from_judgements("run", rows, to_judged_solutions(other_run)).first_errors == {
        "a.0": 1,
        "a.1": 2,
        "a.7": 1,
    }
