"""Scoring jobs score every solution once, also after kills, and never score one again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main
from mclabel.core.errors import ShardError
from mclabel.judge.opinions import read_judged_input
from mclabel.judge.score import read_score_lines
from mclabel.prm.scoring.score import PRM
from mclabel.run.shards.store import Store
from tests.support.labelled import train_tiny_prm


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train_tiny_prm(tmp_path_factory.mktemp("prm"))


def row(number: int, text: str = "") -> dict[str, Any]:
    lines = f"{number} + 1 = {number + 1}{text}\nThe answer is {number + 1}."
    return {"number": number, "problem": f"A boy has {number} apples.", "solution": lines}


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(content) + "\n" for content in rows))
    return path


def shards(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / "opinions").glob("*.parquet")}


def check_scores(prm: str, scored: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """Check that every row occurs once, in order, with the scores that the PRM gives it."""
    assert [{k: v for k, v in row.items() if k in rows[0]} for row in scored] == rows
    expected = PRM.load(prm).score([r["problem"] for r in rows], [r["solution"] for r in rows])
    for row, scores in zip(scored, expected, strict=True):
        assert row["scores"] == pytest.approx(scores, abs=1e-5)
        assert row["last"] == row["scores"][-1] and row["min"] == min(row["scores"])


def score_into(prm: str, source: Path, out: Path, *more: str) -> Result:
    arguments = ["score", prm, str(source), "-o", str(out), "block_solutions=4", *more]
    return CliRunner(env={"COLUMNS": "300"}).invoke(main, arguments)


def test_a_grown_input_costs_its_new_rows_and_a_changed_one_is_refused(
    prm: str, tmp_path: Path
) -> None:
    rows = [row(i) for i in range(12)]
    source, out = write(tmp_path / "in.jsonl", rows[:8]), tmp_path / "run"
    assert score_into(prm, source, out).exit_code == 0
    before = shards(out)
    write(source, rows)
    assert score_into(prm, source, out).exit_code == 0
    assert before.items() < shards(out).items() and len(shards(out)) == 3
    rows[2] = row(2, " = 4 - 1")
    write(source, rows)
    refused = score_into(prm, source, out)
    assert refused.exit_code == 2
    assert "was begun with other solutions" in refused.output and "1 changed" in refused.output
    accepted = score_into(prm, source, out, "--accept-changes")
    assert accepted.exit_code == 0, accepted.output
    check_scores(prm, [json.loads(line) for line in read_score_lines(Store(str(out)))], rows)
    changed = score_into(prm, source, out, "--accept-changes", "--format", "trl")
    assert changed.exit_code == 2 and "format: 'mclabel' there, 'trl' here" in changed.output


def test_a_folder_of_labels_is_no_place_for_scores(prm: str, tmp_path: Path) -> None:
    assert score_into(prm, write(tmp_path / "in.jsonl", [row(0)]), tmp_path / "run").exit_code == 0
    with pytest.raises(ShardError, match="holds opinions, not labels"):
        read_judged_input(str(tmp_path / "run"))
