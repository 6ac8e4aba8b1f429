"""Runs graded by `checker=code`: labels with known truth, exports, best-of-N, a cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.evaluate.labels.quality import find_exact_first_error, has_exact_truth
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb

CONFIGS = Path(__file__).parents[3] / "configs"
LABEL = f"{CONFIGS}/label/pyarith.yaml"
FEW = ("estimator={kind: fixed, rollouts: 2}", "policy.engine.max_live=64")


def run_command(*words: object) -> str:
    return run_verb([str(word) for word in words]).output


def rows_of(run: Path) -> list[LabeledSolution]:
    return sorted(read_labels(Store(str(run))), key=lambda row: row.solution.id)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("code") / "run"
    run_command("label", LABEL, f"out={out}", "problems.limit=2", *FEW, "ray.address=none")
    return out


def check_rows(rows: list[LabeledSolution], problems: int) -> None:
    assert len({row.problem.id for row in rows}) == problems
    assert {row.solution.outcome for row in rows} <= {Outcome.RIGHT, Outcome.WRONG}
    assert has_exact_truth(rows)
    for row in rows:
        assert "def solve(" in row.solution.text
        assert all(len(step.text.strip().splitlines()) == 1 for step in row.solution.steps)
        is_right = row.solution.outcome is Outcome.RIGHT
        # a program without an error passes the tests
        assert is_right or find_exact_first_error(row) is not None


def test_a_run_has_statements_and_exact_truth(run: Path) -> None:
    check_rows(rows_of(run), 2)
    assert "Wrong steps against exact truth" in run_command("eval", "labels", run)
    shown = run_command("show", run, "--limit", 1)
    assert "     return " in shown and '{"fn_name":' in shown


def test_exports_hold_code_and_the_gold_as_data(run: Path, tmp_path: Path) -> None:
    rows = {row.solution.text: row for row in rows_of(run)}
    run_command("export", run, "--to", "prm800k", "-o", tmp_path / "prm800k")
    for line in (tmp_path / "prm800k/data.jsonl").read_text().splitlines():
        question = json.loads(line)["question"]
        row = rows["\n".join(question["pre_generated_steps"])]
        gold = json.loads(question["ground_truth_answer"])
        assert gold == row.problem.gold and gold["fn_name"] == "solve"
