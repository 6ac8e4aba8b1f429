"""Runs of opinions for users: printed, counted, damaged, and refused as labels."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems

STEPS = ["7 * 8 = 54.", "54 + 6 = 60.", "The answer is \\boxed{60}."]
CRITIC = ("judge=critic", "judge.policy.engine=scripted", "judge.most_votes=3")
ROWS = [
    {"problem": "Seven times eight, and six. [answer 62]", "solution": "\n".join(STEPS)},
    {"problem": "Six and six.", "steps": ["6 + 6 = 12.", " So 12."], "problem_id": "six"},
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run_cli(*arguments: str | Path, code: int = 0) -> str:
    return run_verb([str(argument) for argument in arguments], code=code).output


def test_show_prints_opinions(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_cli("judge", source, "-o", out, "judge=symbolic")
    shown = run_cli("show", out)
    first, second = shown.split("\n\n")[:2]
    assert first.startswith("1  symbolic: at or before step 0")
    assert "symbolic, “7 * 8 = 54”" in first and "54 + 6 = 60." in first
    assert second.startswith("2  six  symbolic: nothing found")
    assert run_cli("show", out, "--wrong").startswith(first)
    assert run_cli("show", out, "--problem", "six").startswith(second)
    assert "No solution matches" in run_cli("show", out, "--problem", "seven")


def test_show_prints_votes_and_answers(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_cli("judge", source, "-o", out, *CRITIC)
    shown = run_cli("show", out, "--limit", "1")
    assert "critic: " in shown and "votes: " in shown
    assert "answer 0, " in shown and "Line 1 is " in shown


@pytest.mark.parametrize("verb", [["labels"], ["report"], ["view"], ["export"]])
def test_what_needs_labels_says_that_a_run_holds_opinions(
    verb: list[str], source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_cli("judge", source, "-o", out)
    more = ["--to", "prm800k", "-o", str(tmp_path / "x")] if verb == ["export"] else []
    message = run_cli(*verb, out, *more, code=2)
    assert "holds opinions" in message and "`mclabel show` prints them" in message


def test_a_damaged_shard_says_what_to_do(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_cli("judge", source, "-o", out)
    before = run_cli("show", out)
    assert "blocks of opinions" in run_cli("verify", out)
    (shard,) = (out / "opinions").iterdir()
    shard.write_bytes(shard.read_bytes()[:-9])
    remedy = "Delete it and run the job again, which judges its block again"
    assert remedy in run_cli("verify", out, code=1)
    assert remedy in run_cli("show", out, code=2)
    shard.unlink()
    run_cli("judge", source, "-o", out)
    assert run_cli("show", out) == before
    assert "damaged" not in run_cli("verify", out)


def label_problems(folder: Path, *more: str) -> Path:
    """Label the problems file with the scripted policy, and return the run's folder."""
    out = folder / "labels"
    overrides = scripted_overrides(folder / "problems.jsonl", out, "ray.address=none", *more)
    run_cli("label", write_config(folder), *overrides)
    return out


def test_labels_counts_what_a_combined_run_keeps(tmp_path: Path) -> None:
    write_problems(tmp_path, 12)
    labels = label_problems(tmp_path, "estimator={kind: fixed, rollouts: 4}")
    out, combined = tmp_path / "out", tmp_path / "combined"
    run_cli("judge", labels, "-o", out, *CRITIC)
    run_cli("combine", labels, out, "-o", combined, "--rule", "same_location")
    rows = list(read_labels(Store(str(combined))))
    kept = sum(bool(row.consensus and row.consensus.kept) for row in rows)
    assert 0 < kept < len(rows)
    assert re.search(rf"kept by the consensus +{kept} *\n", run_cli("labels", combined))
    assert json.loads(run_cli("labels", combined, "--json"))["num_kept"] == kept
    assert "kept by" not in run_cli("labels", labels)


def test_solutions_that_came_after_the_judge_are_called_not_judged(tmp_path: Path) -> None:
    write_problems(tmp_path, 3)
    labels, out = label_problems(tmp_path), tmp_path / "out"
    run_cli("judge", labels, "-o", out)
    before = len(list(read_labels(Store(str(labels)))))
    write_problems(tmp_path, 6)
    label_problems(tmp_path)
    added = len(list(read_labels(Store(str(labels))))) - before
    assert added > 0
    printed = run_cli(
        "combine", labels, out, "-o", tmp_path / "combined", "--rule", "same_location"
    )
    assert (
        f"symbolic: {added:,} solutions are not judged" in printed and "no opinion" not in printed
    )
    run_cli("judge", labels, "-o", out)
    printed = run_cli("combine", labels, out, "-o", tmp_path / "again", "--rule", "same_location")
    assert "not judged" not in printed
