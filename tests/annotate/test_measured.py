"""Annotations measure a run, are compared between people, and are exported as PRM800K."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mclabel.annotate.folder import AnnotationFolder, summarise
from mclabel.core.errors import DataError
from mclabel.core.records import Outcome
from mclabel.core.stats.bootstrap import make_nominal_alpha
from mclabel.data.readers.judged import read_prm800k
from mclabel.evaluate.labels.job import evaluate_labels
from tests.support.annotated import annotated_folder
from tests.support.commands import run_verb
from tests.support.shown import solution, write_run

WRONG: dict[str, Any] = {"ratings": ["good", "bad", None], "finish": "found_error"}
RIGHT: dict[str, Any] = {"ratings": ["good", "okay", "good"], "finish": "solution"}
FIRST: dict[str, Any] = {"ratings": ["bad", None, None], "finish": "found_error"}
DOUBT: dict[str, Any] = {"ratings": ["unsure", "bad", None], "finish": "found_error"}
GAVE_UP: dict[str, Any] = {"ratings": ["good", "bad", None], "finish": "give_up", "note": "why"}

PEOPLE: dict[str, Any] = {"people": ("ana", "ben"), "overlap": 1.0}

ROWS = [
    solution(n, [f"{n}\n", "a\n", "b"], [4, 0, 0], outcome=Outcome.WRONG, problem=f"Problem {n}")
    for n in range(4)
] + [
    solution(n, [f"{n}\n", "a\n", "b"], [4, 4, 4], problem=f"Problem {n}") for n in range(4, 16)
]  # fmt: skip


def opinions_of_two(*pairs: tuple[dict[str, Any], dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Return what ana and ben say on the first solutions."""
    return {
        (person, f"solution-{number}"): opinion
        for number, pair in enumerate(pairs)
        for person, opinion in zip(PEOPLE["people"], pair, strict=True)
    }


def test_shares_are_of_the_whole_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, out = write_run(tmp_path / "run", ROWS, None), tmp_path / "out"
    # Shares sqrt(4) : sqrt(12) of 5 draws: 2 of the 4 wrong solutions, 3 of the 12 right ones.
    items = annotated_folder(tmp_path / "drawn", ROWS, {}, sample=5)
    wrong = [item.id for item in items if item.probability == 2 / 4]
    right = [item.id for item in items if item.probability == 3 / 12]
    assert (len(wrong), len(right)) == (2, 3)
    # The run labels these solutions in the same way.
    opinions = {("me", solution_id): WRONG for solution_id in wrong}
    opinions |= {("me", right[0]): RIGHT, ("me", right[1]): FIRST, ("me", right[2]): DOUBT}
    annotated_folder(out, ROWS, opinions, sample=5)
    with caplog.at_level(logging.WARNING):
        report = evaluate_labels(run, str(out), None, seed=0)
    assert "1 solutions have no first error" in caplog.text
    quality = report.groups["all"].quality
    assert report.truth == "people" and quality is not None
    assert quality.num_solutions == 4
    # The weights of right labels are 2, 2 and 4, of 2 + 2 + 4 + 4 in all.
    assert quality.first_error_accuracy.value == pytest.approx(8 / 12)
    assert quality.right_through_wrong.value == pytest.approx(4 / 8)
    assert evaluate_labels(run, f"people:{out}", None, seed=0).groups["all"].quality == quality


def test_either_first_error_is_accepted_where_two_people_differ(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ROWS, None)
    opinions = opinions_of_two((WRONG, FIRST), (FIRST, WRONG), (RIGHT, FIRST), (DOUBT, WRONG))
    annotated_folder(tmp_path / "out", ROWS, opinions, **PEOPLE)
    quality = evaluate_labels(run, str(tmp_path / "out"), None, seed=0).groups["all"].quality
    assert quality is not None and quality.num_solutions == 4
    # step 1, the run's first error, is accepted for all solutions but the third
    assert quality.first_error_accuracy.value == 3 / 4


def test_a_run_that_changed_underneath_is_refused(tmp_path: Path) -> None:
    annotated_folder(tmp_path / "out", ROWS, {("me", "solution-0"): WRONG})
    changed = [solution(0, ["other\n", "a\n", "b"], [4, 0, 0], problem="Problem 0"), *ROWS[1:]]
    run = write_run(tmp_path / "run", changed, None)
    with pytest.raises(DataError, match="the texts of 1 solutions of the run differ"):
        evaluate_labels(run, str(tmp_path / "out"), None, seed=0)


def test_alpha_is_krippendorffs() -> None:
    # Krippendorff's example C (2011): nominal data of four observers, alpha = 0.743.
    observers = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
        [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
    ]
    units = [[v for v in unit if v] for unit in zip(*observers, strict=True)]
    table, alpha = make_nominal_alpha([unit for unit in units if len(unit) > 1])
    assert float(alpha(table.sum(0))) == pytest.approx(0.743, abs=5e-4)
    table, alpha = make_nominal_alpha([["a", "a"], ["a", "a"]])
    assert np.isnan(alpha(table.sum(0)))


def test_people_are_summed_up(tmp_path: Path) -> None:
    opinions = opinions_of_two((WRONG, WRONG), (FIRST, WRONG), (RIGHT, RIGHT), (DOUBT, WRONG))
    annotated_folder(tmp_path / "out", ROWS, opinions, **PEOPLE)
    summary = summarise(AnnotationFolder.read(str(tmp_path / "out")))
    assert (summary.num_done, summary.num_twice) == (4, 3)
    assert summary.agreement.value == pytest.approx(2 / 3)
    # Of 6 annotations, 3 name step 1, 1 names step 0 and 2 name none. Observed disagreement is 2,
    # expected (36 - 14) / 5.
    assert summary.alpha.value == pytest.approx(1 - 2 * 5 / 22)
    lines = list(summary.lines())
    assert lines[0] == (
        "ana: 4 of 16 solutions, median 2 s; 1 without a verdict (unsure, given up or bad problem)"
    )
    assert lines[3].startswith("  same first error: 0.67 [")
    annotated_folder(tmp_path / "none", ROWS, {}, **PEOPLE)
    nothing = summarise(AnnotationFolder.read(str(tmp_path / "none")))
    assert nothing.alpha.value is None and "No solution" in list(nothing.lines())[-1]


def test_prm800k_reads_back_what_was_written(tmp_path: Path) -> None:
    opinions = {
        ("ana", "solution-0"): WRONG,
        ("ben", "solution-0"): {**GAVE_UP, "at": 1_700_000_000_123},
        ("ana", "solution-5"): RIGHT,
        ("ana", "solution-6"): DOUBT,
    }
    annotated_folder(tmp_path / "out", ROWS, opinions, **PEOPLE)
    arguments = ["export", str(tmp_path / "out"), "-o", str(tmp_path / "data"), "--to"]
    assert run_verb([*arguments, "prm800k"]).output.startswith("4 rows written")
    path = tmp_path / "data" / "data.jsonl"
    first_errors = {exported.problem: exported.first_error for exported in read_prm800k(path)}
    assert first_errors == {"Problem 0": 1, "Problem 5": None}
    rows = {
        (row["labeler"], row["question"]["problem"]): row
        for row in map(json.loads, path.read_text().splitlines())
    }
    gave_up, doubt = rows["ben", "Problem 0"], rows["ana", "Problem 6"]
    assert gave_up["is_quality_control_question"] is False
    assert gave_up["timestamp"] == "2023-11-14T22:13:20.123000+00:00"
    assert gave_up["label"] == {
        "steps": [
            {
                "completions": [{"text": "0", "rating": 1, "flagged": False}],
                "human_completion": None,
                "chosen_completion": 0,
            }
        ],
        "total_time": 1500,
        "finish_reason": "give_up",
    }
    assert [s["completions"][0]["rating"] for s in doubt["label"]["steps"]] == [None, -1]
    assert "as prm800k, parquet" in run_verb([*arguments, "trl"], code=2).output
