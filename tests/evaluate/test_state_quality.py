"""Quality of step states, computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mclabel.core.records import LabeledSolution, Outcome, StepState
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.arith.program import Program, write_reference_solution
from mclabel.evaluate.labels.report import measure_labels, measure_state_quality
from mclabel.evaluate.labels.tables import make_label_grids
from mclabel.evaluate.labels.truth import Truth, find_exact_truth
from tests.support.rows import row, step

NAMES: dict[str, StepState | None] = {
    "S": "sound",
    "E": "error",
    "C": "carried",
    "R": "recovered",
    "-": None,
}


def make_labelled_solution(
    problem: str, states: str, first_error: int | None, **more: object
) -> LabeledSolution:
    return row(
        problem, [replace(step(), state=NAMES[letter]) for letter in states], first_error, **more
    )  # type: ignore[arg-type]


def test_by_hand() -> None:
    rows = {
        "SSECRS": make_labelled_solution("a", "SSECRS", 2, outcome=Outcome.RIGHT),
        "SECRS": make_labelled_solution("a", "SECCR", 1, sample=1),
        "SSSS": make_labelled_solution("b", "SER-", 1, outcome=Outcome.RIGHT),
        "SSEC": make_labelled_solution("b", "SSSS", None, sample=1),
        "SE": make_labelled_solution("c", "--", 1),  # no states, so left out
        # truncated, so left out
        "SEC": make_labelled_solution("c", "SEC", 1, sample=1, outcome=Outcome.TRUNCATED),
    }
    truth = {
        labelled_row.solution.id: [NAMES[c] or "sound" for c in true]
        for true, labelled_row in rows.items()
    }
    quality = measure_state_quality(
        rows.values(), lambda labelled_row: truth[labelled_row.solution.id]
    )
    assert quality is not None and quality.num_solutions == 4
    expected = {
        "first_error_accuracy": 2 / 4,
        "agreement": (6 + 3 + 1 + 2) / 19,
        "recovered_steps": 2 / 19,
        "recovered_precision": 1 / 3,
        "recovered_recall": 1 / 2,
        "recovered_f1": 2 / 5,
        # In truth, 4 + 3 + 4 + 2 steps are sound or recovered. One of them in a.1 is labelled
        # carried, and one in b.0 error.
        "false_alarms": 2 / 13,
    }
    assert {name: getattr(quality, name).value for name in expected} == pytest.approx(expected)
    assert measure_state_quality([row("a", [step()], None)], lambda _: ["sound"]) is None


def test_the_report_has_states_where_labels_and_exact_truth_do() -> None:
    problem = generate_problems(1, seed=1, split="test")[0]
    texts = write_reference_solution(Program.from_json(problem.meta["program"])).splitlines(True)
    rows = [
        make_labelled_solution(
            "a", "S" * len(texts), None, texts=texts, meta=problem.meta, outcome=Outcome.RIGHT
        )
    ]
    report = measure_labels(rows, find_exact_truth(rows))
    states = report.groups["all"].states
    assert states is not None and states.agreement.value == 1 and states.false_alarms.value == 0
    title = "States of steps against exact truth [95% interval]"
    assert title in [grid.title for grid in make_label_grids(report)]
    for without_states in (
        measure_labels(rows, Truth(kind="people", first_errors={rows[0].solution.id: None})),
        measure_labels(rows, None),
    ):
        assert without_states.groups["all"].states is None
        assert title not in [grid.title for grid in make_label_grids(without_states)]
