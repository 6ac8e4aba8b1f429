"""`mclabel score` on files with rows that cannot be scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main
from tests.support.labelled import train_tiny_prm

GOOD = {"problem": "A boy has 1 apple.", "solution": "1 + 1 = 2\nThe answer is 2."}
LONG = {"problem": "A boy.", "steps": ["1 + 1 = 2 " * 2000]}


def run_mclabel(*arguments: str) -> Result:
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


def test_bad_rows_are_left_out_with_their_reasons(prm: str, tmp_path: Path) -> None:
    file, out = tmp_path / "in.jsonl", tmp_path / "made" / "out.jsonl"
    file.write_text("\n".join(LINES))
    result = run_mclabel("score", prm, str(file), "-o", str(out))
    assert result.exit_code == 0, result.output
    assert f"8 rows could not be scored; the reasons are in {out}.rejects.jsonl" in result.output
    written, left_out = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (out, Path(f"{out}.rejects.jsonl"))
    )
    assert [row["id"] for row in written] == [1, 2]
    assert written[0]["scores"] == written[1]["scores"] and len(written[0]["scores"]) == 2
    assert [(row["row"], row["reason"]) for row in left_out] == REASONS
    assert {row["source"] for row in left_out} == {str(file)}
    # the same on standard error, if the lines go to standard output
    shown = run_mclabel("score", prm, str(file))
    assert [json.loads(line) for line in shown.stdout.splitlines()] == written
    assert [line.split(":")[0] for line in shown.stderr.splitlines()] == [
        f"row {n} ({why})" for n, why in REASONS
    ]
    # none is left after the file is repaired
    file.write_text(LINES[0] + "\n" + LINES[-1])
    assert run_mclabel("score", prm, str(file), "-o", str(out)).exit_code == 0
    assert not Path(f"{out}.rejects.jsonl").exists()


@pytest.mark.parametrize("bad", LINES[1:-1], ids=[why for _, why in REASONS])
def test_strict_stops_and_writes_nothing(prm: str, tmp_path: Path, bad: str) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join([LINES[0], bad, LINES[-1]]))
    result = run_mclabel("score", prm, str(file), "--strict", "-o", str(tmp_path / "out.jsonl"))
    assert result.exit_code == 2
    assert f"{file}, line 2: " in result.output
    assert sorted(tmp_path.iterdir()) == [file]


def test_a_file_of_which_nothing_can_be_scored(prm: str, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(LINES[1:3]))
    result = run_mclabel("score", prm, str(file), "-o", str(tmp_path / "out.jsonl"))
    assert result.exit_code == 2
    assert f"none of its 2 rows can be scored; {file}, line 1: " in result.output
    assert "tokens, more than max_tokens=" in result.output
    assert not (tmp_path / "out.jsonl").exists()


def test_outputs_that_cannot_be_written_are_found_first(prm: str, tmp_path: Path) -> None:
    file, folder = tmp_path / "in.jsonl", tmp_path / "folder.jsonl"
    file.write_text(LINES[0])
    folder.mkdir()
    for out, message in (
        (file, "must not be the file of solutions itself"),
        (folder, "folder.jsonl: is a folder, must be a file"),
        (tmp_path / "run", "no-such-prm: holds no prm.json"),
        (file / "x", "is a file, must be a folder"),
    ):
        result = run_mclabel("score", "no-such-prm", str(file), "-o", str(out))
        assert result.exit_code == 2 and message in result.output
    assert sorted(tmp_path.iterdir()) == [folder, file] and file.read_text() == LINES[0]
