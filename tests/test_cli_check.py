"""`mclabel check`, as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mclabel.cli import main


def run_check(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["check", *arguments], input=stdin)


@pytest.mark.parametrize(
    ("answer", "gold", "verdict", "layer"),
    [
        ("1/2", "0.5", "right", "number"),
        ("x+1", "1+x", "right", "form"),
        ("5 m", "5 cm", "wrong", "form"),
    ],
)
def test_one_answer(answer: str, gold: str, verdict: str, layer: str) -> None:
    result = run_check("--gold", gold, "--answer", answer)
    assert result.exit_code == 0
    graded = json.loads(result.stdout)
    assert (graded["answer"], graded["verdict"], graded["layer"]) == (answer, verdict, layer)


def test_a_completion_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    text = "First \\boxed{3}, no: \\boxed{4}"
    (tmp_path / "c.txt").write_text(text)
    for result in (
        run_check("--gold", "4", "--completion", str(tmp_path / "c.txt")),
        run_check("--gold", "4", "--completion", "-", stdin=text.encode()),
    ):
        assert json.loads(result.stdout)["answer"] == "4"
        assert json.loads(result.stdout)["verdict"] == "right"


def test_a_file_of_pairs_with_bad_lines(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    lines = [
        b'{"gold": "12", "answer": "12.0", "id": 7}',
        b'{"gold": "12", "completion": "The answer is 13."}',
        b'{"gold": "12", "completion": "\\\\boxed{12}", "truncated": true}',
        b'{"answer": "12"}',
        b'{"gold": "12"}',
        b'{"gold": "12", "answer": 12}',
        b'{"gold": ',
        b'{"gold": "\xff"}',
        b"[1]",
        b"",
        b'{"gold": "\\\\sum n", "answer": "3"}',
    ]
    pairs.write_bytes(b"\n".join(lines) + b"\n")
    out = tmp_path / "graded.jsonl"
    result = run_check("--file", str(pairs), "--out", str(out))
    assert result.exit_code == 1
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["verdict"], row["reason"]) for row in rows] == [
        ("right", "equal"),
        ("wrong", "different"),
        ("wrong", "truncated"),
        ("unknown", "not_comparable"),
    ]
    assert rows[0]["id"] == 7
    assert rows[1]["answer"] == "13"
    assert rows[2]["answer"] is None
    assert "4 pairs: 1 right, 2 wrong, 1 unknown" in result.output
    assert "6 bad lines" in result.output
    for number, fault in (
        (4, "has no gold"),
        (5, "has neither answer nor completion"),
        (6, "answer must be a string, but is of type int"),
        (7, "is not valid JSON"),
        (8, "is not valid UTF-8"),
        (9, "is a JSON list, but must be an object"),
    ):
        assert f"line {number}: {fault}" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--gold", "1"),
        ("--answer", "1"),
        ("--gold", "1", "--answer", "1", "--completion", "x"),
        ("--file", "x", "--gold", "1"),
        ("--gold", "1", "--completion", "missing.txt"),
        ("--file", "missing.jsonl"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...]) -> None:
    assert run_check(*arguments).exit_code == 2


def test_the_file_is_not_overwritten(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"gold": "1", "answer": "1"}\n')
    result = run_check("--file", str(pairs), "--out", str(pairs))
    assert result.exit_code == 2
    assert "must not be the input file" in result.stderr
    assert pairs.read_text().count("verdict") == 0
