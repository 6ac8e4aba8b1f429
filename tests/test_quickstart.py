"""The quickstart on a real Ray, at its smallest size."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from mclabel.quickstart.toy import METHOD_NAMES

pytestmark = pytest.mark.ray


MADE = "MCLABEL_TEST_QUICKSTART"
"""Environment variable that names a small quickstart's folder; its output is in a .txt beside."""


def run_cli(*words: str) -> str:
    result = CliRunner().invoke(main, ["quickstart", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_small_quickstart_ends_with_figures_and_a_picture_and_resumes(tmp_path: Path) -> None:
    if made := os.environ.get(MADE):
        out, output = Path(made), Path(f"{made}.txt").read_text(encoding="utf-8")
    else:
        out, output = tmp_path, run_cli("size=small", f"out={tmp_path}")
    assert "Labels against exact truth" in output
    assert (out / "labels.png").read_bytes().startswith(b"\x89PNG")
    summary = json.loads((out / "summary.json").read_text())
    assert set(summary["seconds"]) == {
        "label",
        "measure",
        "picture",
        "train",
        "evaluate",
        "total",
    }
    assert 0 < summary["policy_pass_at_1"] < 1
    labels = summary["labels"]
    assert labels["solutions"] + labels["left_out"] == 160
    assert 0 < labels["tokens_per_solution"] < labels["tokens_per_solution_unshared"]
    for name in ("first_error_accuracy", "precision", "recall", "false_positive_rate"):
        low, high = labels["intervals"][name]
        assert 0 <= low <= labels[name] <= high <= 1
    best = summary["best_of_n"]
    assert {"random", "pass", "prm:last", "vote:prm", "orm", "likelihood:policy:sum"} <= set(best)
    table = output[
        output.index("Best of N on") : output.index("pairs: share of pairs")
    ].splitlines()
    rows = table[table.index(next(line for line in table if "───" in line)) + 1 :]
    assert [row.strip().partition("  ")[0] for row in rows if row.strip()] == [
        name for method, name in METHOD_NAMES.items() if method in best
    ]
    assert 0 < summary["pair_accuracy"]["prm:last"] <= 1
    assert output.rstrip().endswith(f"{out}/report.html")
    report = (out / "report.html").read_text(encoding="utf-8")
    assert "Labels against exact truth" in report and "Accuracy by N" in report
    shards = {p.name: p.stat().st_mtime_ns for p in (out / "labels/labels").iterdir()}
    (out / "labels/labels" / sorted(shards)[0]).unlink()
    assert json.loads(run_cli("--size", "small", "--out", str(out), "--json")).keys() == {
        "out",
        *summary,
    }
    after = {p.name: p.stat().st_mtime_ns for p in (out / "labels/labels").iterdir()}
    assert after.keys() == shards.keys()
    assert sum(after[name] != shards[name] for name in shards) == 1
