"""The code in docs/own-model.md writes readable problems and a truth for measuring labels."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mclabel.data.readers.problems import read_problems
from tests.support.commands import run_verb
from tests.support.shown import plain_run

PAGE = (Path(__file__).parents[1] / "docs" / "own-model.md").read_text()


def test_the_page_writes_problems_and_a_truth_to_fill_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    problems, truth = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.M | re.S)
    exec(problems, {})
    for name, count in (("problems", 20), ("test", 12)):
        assert len(list(read_problems(f"{name}.jsonl"))) == count
    plain_run(tmp_path / "runs" / "small")
    exec(truth, {})
    rows = [json.loads(line) for line in Path("truth.jsonl").read_text().splitlines()]
    assert len(rows) == 3 and {row["label"] for row in rows} == {None}
    rows[[row["final_answer_correct"] for row in rows].index(True)][
        "label"
    ] = -1  # the other labels stay as they are
    Path("truth.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    measured = json.loads(
        run_verb(["eval", "labels", "runs/small", "--truth", "truth.jsonl", "--json"]).stdout
    )["groups"]["all"]
    assert measured["quality"]["num_solutions"] == 1
    assert measured["quality"]["first_error_accuracy"]["value"] == 1.0
