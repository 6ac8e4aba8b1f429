"""Trainings of policies in the report: curves, solutions before and after, escaped texts."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path

import pytest

from mclabel.core.errors import DataError
from mclabel.core.records import Outcome
from mclabel.rl.groups import Group
from mclabel.rl.measure import Measurement
from mclabel.rl.training.record import LOG, MEASURED, write_samples
from tests.support.shown import report_page, solution


def group(number: int, text: str, outcome: Outcome) -> Group:
    row = solution(number, [text], [0], outcome=outcome, problem=f"{text} ?", answer=text)
    return Group(problem=row.problem, prompt=(), solutions=(row.solution,))


def training(folder: Path, *steps: int, text: str = "so") -> Path:
    folder.mkdir()
    (folder / "rl.json").write_text("{}")
    lines = [
        {"step": step, "loss": 0.1, "entropy": 0.5 - step / 100, "num_tokens": 10, "refused": 0.0}
        for step in range(1, 4)
    ]
    (folder / LOG).write_text("".join(json.dumps(line) + "\n" for line in lines))
    for step in steps:
        is_last = step == steps[-1]
        groups = [
            group(0, text, Outcome.RIGHT),
            group(1, text, Outcome.RIGHT if is_last else Outcome.WRONG),
        ]
        write_samples(folder / MEASURED / f"{step}.samples.jsonl", groups)
        content = Measurement.from_groups(groups).to_json()
        (folder / MEASURED / f"{step}.json").write_text(json.dumps(content))
    return folder


def page(*folders: Path) -> str:
    out = folders[0].parent / "page.html"
    return report_page([str(one) for one in folders], str(out)).read_text()


def test_a_training_shows_what_changed_and_its_curves(tmp_path: Path) -> None:
    folder = training(tmp_path / "a", 0, 3)
    with (folder / LOG).open("a") as file:
        file.write('{"step": 4, "lo')  # a torn last line is left out
    text = unescape(page(folder))
    assert "50.0% → 100.0%" in text
    assert "right answers, after 3 steps, on 2 problems" in text
    for title in ("Right answers", "Length of a solution", "Entropy per token"):
        assert f"<h3>{title}</h3>" in text
    assert "Right answers through wrong steps" not in text  # the run has no known truth
    changed, same = text.index("so ?</p>"), text.rindex("so ?</p>")
    assert "Before: wrong" in text[changed:same] and "After 3 steps: right" in text[changed:same]
    assert "Before: right" in text[same:]


def test_several_trainings_stand_side_by_side(tmp_path: Path) -> None:
    text = unescape(page(training(tmp_path / "a", 0, 2), training(tmp_path / "b")))
    assert "2 policies" in text and "Not measured" in text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (LOG, "{\n{}\n", "line 1 is not valid JSON"),
        (LOG, "3\n{}\n", "must be a JSON object"),
        (f"{MEASURED}/0.json", "{}", "is not a measurement"),
        (f"{MEASURED}/0.json", '{"problems": [{}]}', "is not a measurement"),
    ],
)
def test_damaged_records_are_named(name: str, content: str, words: str, tmp_path: Path) -> None:
    folder = training(tmp_path / "a", 0, 1)
    (folder / name).write_text(content)
    with pytest.raises(DataError, match=words):
        page(folder)
