"""Groups, posteriors and references in a label report, computed by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from mclabel.core.records import Counts, LabeledSolution, Outcome
from mclabel.evaluate.labels.report import LabelReport, measure_labels
from mclabel.evaluate.labels.tables import make_label_grids
from mclabel.evaluate.labels.truth import Truth
from tests.support.commands import run_verb
from tests.support.labelled import arith_rows
from tests.support.rows import row, step
from tests.support.shown import write_run

LAST = step(source="outcome", value=0.0)


def report_rows() -> list[LabeledSolution]:
    return [
        row(
            "a",
            [step(prefix="x", value=0.75), step(prefix="y", value=0.25), LAST],
            1,
            meta={"level": "1", "subject": "s"},
            posterior=(0.1, 0.6, 0.2, 0.1),
        ),
        row(
            "a",
            [step(prefix="x", value=0.75), LAST],
            sample=1,
            outcome=Outcome.RIGHT,
            meta={"level": "1", "subject": "s"},
        ),
        row("b", [step(prefix="z", mean=0.5), LAST], outcome=Outcome.RIGHT, meta={"level": "2"}),
        row(
            "b", [step(prefix="w", value=0.5), LAST], sample=1, origin="given", meta={"level": "2"}
        ),
        row("c", [step(prefix="v"), LAST], outcome=Outcome.TRUNCATED, meta={"level": "2"}),
    ]


def test_what_is_said_and_what_came() -> None:
    truth = Truth(kind="processbench", first_errors={"a.0": 1, "a.1": None, "b.1": 0})
    report = measure_labels(
        report_rows(), truth, {"x": Counts(num_right=1, num_wrong=1), "z": Counts(num_right=4)}
    ).groups["all"]

    def pairs(name: str) -> list[tuple[float, float | None, int]]:
        return [
            (b.predicted, b.observed.value, b.num_predictions)
            for b in report.calibration[name].bins
        ]

    # The pairs are graded, sampled solutions' steps with a value, without the last step: two of a.0
    # (wrong), one of a.1 (right).
    assert pairs("value, outcome") == [(0.25, 0.0, 1), (0.75, 0.5, 2)]
    # The given solution counts, too. In truth, its first step is wrong.
    assert pairs("value, sound") == [(0.25, 0.0, 1), (0.5, 0.0, 1), (0.75, 1.0, 2)]
    # The chances that a.0 is sound up to its three steps are .9, .3 and .1. In truth, it is sound
    # up to the first step.
    assert pairs("posterior, sound") == [
        (pytest.approx(0.1), 0.0, 1),
        (pytest.approx(0.3), 0.0, 1),
        (pytest.approx(0.9), 1.0, 1),
    ]
    assert pairs("value, reference") == [(0.75, 0.5, 1)]  # the prefix x counts once
    assert pairs("mean, reference") == [(0.5, 1.0, 1)]
    assert (report.num_unknown, report.num_solutions, report.num_problems) == (2, 5, 3)
    assert report.outcomes == {"right": 2, "wrong": 2, "ungraded": 0, "truncated": 1}
    assert report.quality is not None and report.quality.num_solutions == 3
    assert set(report.positions) == {
        "all", "right solutions", "wrong solutions", "sound steps", "unsound steps",
    }  # fmt: skip


def test_quality_of_selected_solutions_is_that_of_the_pool_they_come_from() -> None:
    """Of three solutions chosen by a rule, one label is right; of two drawn from eight, one."""

    def make_selected_solution(name: str, error: int | None, probability: float) -> LabeledSolution:
        return replace(
            row(name, [step(value=0.5), LAST], error),
            selection_probability=probability,
            chosen_by_outcome=True,
        )

    certain = [
        make_selected_solution("a", 0, 1.0),
        make_selected_solution("b", 1, 1.0),
        make_selected_solution("c", None, 1.0),
    ]
    drawn = [make_selected_solution("d", 0, 0.25), make_selected_solution("e", None, 0.25)]
    truth = Truth(kind="exact", first_errors={f"{name}.0": 0 for name in "abcde"})
    report = measure_labels([*certain, *drawn], truth)
    assert _accuracy(report) == (1 + 4) / (3 + 8)
    assert report.describes == "pool" and "weighted by 1 / its selection probability" in _notes(
        report
    )
    # Solutions that were chosen by their outcome are not evidence about values.
    assert "value, outcome" not in report.groups["all"].calibration
    alone = measure_labels(certain, truth)
    assert _accuracy(alone) == 1 / 3
    assert alone.describes == "selection" and "describe only the selection" in _notes(alone)
    # The people labelled a sample of the selection, so the two probabilities multiply.
    weights = {"a.0": 1.0, "b.0": 2.0, "c.0": 1.0, "d.0": 3.0, "e.0": 1.0}
    assert _accuracy(
        measure_labels([*certain, *drawn], replace(truth, kind="people", weights=weights))
    ) == (1 + 12) / (1 + 2 + 1 + 12 + 4)
    assert measure_labels(report_rows(), None).describes is None


def _accuracy(report: LabelReport) -> float | None:
    quality = report.groups["all"].quality
    return None if quality is None else quality.first_error_accuracy.value


def _notes(report: LabelReport) -> str:
    return " ".join(grid.note for grid in make_label_grids(report))


@pytest.mark.parametrize(
    ("kinds", "columns"),
    [
        (["integer"] * 6, ["all"]),
        (["integer"] * 5 + ["text"] * 5, ["all", "integer", "text"]),
        (["integer"] * 5 + ["text"] * 4, ["all", "integer"]),
    ],
)
def test_columns_of_quality_neither_repeat_another_nor_rest_on_few_problems(
    kinds: list[str], columns: list[str], tmp_path: Path
) -> None:
    rows = [
        replace(
            labelled,
            problem=replace(labelled.problem, meta={**labelled.problem.meta, "answer_type": kind}),
        )
        for labelled, kind in zip(arith_rows(len(kinds), per_problem=1), kinds, strict=True)
    ]
    assert (
        list(
            json.loads(run_verb(["labels", write_run(tmp_path, rows, None), "--json"]).stdout)[
                "quality"
            ]
        )
        == columns
    )


def test_groups() -> None:
    groups = measure_labels(report_rows(), None).groups
    # all solutions have the same subject, so it forms no group
    assert list(groups) == ["all", "level: 1", "level: 2"]
    assert [g.num_solutions for g in groups.values()] == [5, 2, 3]
    assert groups["all"].quality is None and groups["all"].intervals == {}
    assert set(groups["all"].calibration) == {"value, outcome"}
    held = [
        row(name, [step(True), LAST], meta={"family": name, "program": "{}"})
        for name in ("gifts", "riddles", "shopping")
    ]
    assert list(measure_labels(held, None).groups) == [
        "all",
        "family: gifts (held out)",
        "family: riddles (held out)",
        "family: shopping",
        "families held out of training",
    ]
    plain = [row(name, [LAST], meta={"family": name}) for name in ("gifts", "shopping")]
    assert list(measure_labels(plain, None).groups) == ["all", "family: gifts", "family: shopping"]
