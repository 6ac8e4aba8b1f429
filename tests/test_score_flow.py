"""`mclabel score` on files of which some rows cannot be scored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main
from tests.support.labelled import train_tiny_prm

GOOD = {"problem": "A boy has 1 apple.", "solution": "1 + 1 = 2\nThe answer is 2."}
LONG = {"problem": "A boy.", "steps": ["1 + 1 = 2 " * 2000]}


def mclabel(*arguments: str) -> Result:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(main, arguments)
    assert "Traceback" not in result.output, result.output
    return result


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train_tiny_prm(tmp_path_factory.mktemp("prm"))


LINES = [
    json.dumps({**GOOD, "id": 1}),
    json.dumps(LONG),
    "{cut off",
    "[1]",
    json.dumps({"solution": "x"}),
    '{"problem": NaN, "solution": "x"}',
    json.dumps({"problem": "x"}),
    json.dumps({"problem": "x", "steps": "not a list"}),
    '{"problem": "x", "solution": "\\ud800"}',
    json.dumps({**GOOD, "id": 2}),
]
REASONS = [
    (2, "too_long"),
    (3, "not_json"),
    (4, "not_an_object"),
    (5, "no_problem"),
    (6, "no_problem"),
    (7, "bad_solution"),
    (8, "bad_solution"),
    (9, "not_utf8"),
]


def rejects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_bad_rows_are_left_out_with_their_reasons(prm: str, tmp_path: Path) -> None:
    file, out = tmp_path / "in.jsonl", tmp_path / "made" / "out.jsonl"
    file.write_text("\n".join(LINES))
    result = mclabel("score", prm, str(file), "-o", str(out))
    assert result.exit_code == 0, result.output
    assert "2 solutions scored" in result.output
    assert f"8 rows could not be scored; the reasons are in {out}.rejects.jsonl" in result.output
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in written] == [1, 2]
    assert written[0]["scores"] == written[1]["scores"] and len(written[0]["scores"]) == 2
    left_out = rejects(Path(f"{out}.rejects.jsonl"))
    assert [(one["row"], one["reason"]) for one in left_out] == REASONS
    assert "tokens, more than max_tokens=" in left_out[0]["detail"]
    assert all(one["source"] == str(file) for one in left_out)
    # the same on standard error where the lines go to standard output
    shown = mclabel("score", prm, str(file))
    assert [json.loads(line) for line in shown.stdout.splitlines()] == written
    said = shown.stderr.splitlines()
    assert [line.split(":")[0] for line in said] == [f"row {n} ({why})" for n, why in REASONS]
    # and none left once the file is mended
    file.write_text(LINES[0] + "\n" + LINES[-1])
    assert mclabel("score", prm, str(file), "-o", str(out)).exit_code == 0
    assert not Path(f"{out}.rejects.jsonl").exists()


@pytest.mark.parametrize("bad", LINES[1:-1], ids=[why for _, why in REASONS])
def test_strict_stops_and_writes_nothing(prm: str, tmp_path: Path, bad: str) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join([LINES[0], bad, LINES[-1]]))
    result = mclabel("score", prm, str(file), "--strict", "-o", str(tmp_path / "out.jsonl"))
    assert result.exit_code == 2
    assert f"{file}, line 2: " in result.output
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_file_of_which_nothing_can_be_scored(prm: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(LINES[1:3]))
    result = mclabel("score", prm, str(file), "-o", str(tmp_path / "out.jsonl"))
    assert result.exit_code == 2
    assert f"none of its 2 rows can be scored; {file}, line 1: " in result.output
    assert "tokens, more than max_tokens=" in result.output
    assert not (tmp_path / "out.jsonl").exists()


def test_outputs_that_cannot_be_written_are_found_first(prm: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(LINES[0])
    again = mclabel("score", "no-such-prm", str(file), "-o", str(file))
    assert again.exit_code == 2 and "must not be the file of solutions itself" in again.output
    assert file.read_text() == LINES[0]
    (tmp_path / "folder.jsonl").mkdir()
    folder = mclabel("score", "no-such-prm", str(file), "-o", str(tmp_path / "folder.jsonl"))
    assert folder.exit_code == 2 and "folder.jsonl: is a folder, must be a file" in folder.output
    run = mclabel("score", "no-such-prm", str(file), "-o", str(tmp_path / "run"))
    assert run.exit_code == 2 and "no-such-prm: holds no prm.json" in run.output
    assert not (tmp_path / "run").exists()
    under = mclabel("score", "no-such-prm", str(file), "-o", str(file / "x"))
    assert under.exit_code == 2 and "is a file, must be a folder" in under.output
