"""A reader and an exchange format of a package that pip installed, found by entry points."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.own_package import install_package, mclabel_here

PACKAGE = {
    "exams/__init__.py": '''
from pydantic import Field

from mclabel.data.exchange.formats import make_labeled_texts
from mclabel.data.readers.base import RowSettings


class Archive:
    """Problems of an archive."""

    class Settings(RowSettings):
        """Which exams."""

        year: int = Field(2024, ge=2000)
        """Year of the exams."""

    def __init__(self, settings):
        self.settings = settings

    def rows(self):
        for number in range(1, 4):
            text = f"{self.settings.place} {self.settings.year} {number} [answer {number}]"
            yield number, {"question": text, "answer": number}


class Lines:
    """Lines with a flag."""

    losses = "all but texts and labels is lost"
    is_cut = True

    def write(self, texts):
        head = texts.labeled_head
        lines = [step for step, _ in head]
        return {"of": texts.problem, "lines": lines, "good": [g for _, g in head]} if head else None

    def read(self, row):
        yield make_labeled_texts(row["of"], row["lines"], [float(good) for good in row["good"]])
''',
}
ENTRY_POINTS = """\
[mclabel.readers]
exams = exams:Archive
zzz = exams:Archive
torn = exams.no_such_module:Nothing

[mclabel.formats]
lines = exams:Lines
broken = exams:Nothing
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder into which pip has installed the package."""
    return install_package(tmp_path_factory.mktemp("outside"), "exams", PACKAGE, ENTRY_POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["exams:finals", "finals.zzz"])
def test_a_job_reads_and_exports_by_them(source: str, installed: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("{}")
    settings = [f"problems.source={source}", "problems.year=2019", f"out={tmp_path}/out"]
    settings += ["policy.engine=scripted", "estimator=fixed", "ray.address=none"]
    done = mclabel_here(installed, "label", str(tmp_path / "empty.yaml"), *settings)
    assert done.exit_code == 0, done.output
    rows, run = tmp_path / "rows", str(tmp_path / "out")
    done = mclabel_here(installed, "export", run, "--to", "lines", "-o", str(rows))
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in (rows / "data.jsonl").open()]
    place = source.removeprefix("exams:")
    assert {line["of"] for line in lines} == {f"{place} 2019 {n} [answer {n}]" for n in (1, 2, 3)}
    again = ["import", str(rows / "data.jsonl"), "--from", "lines", "-o", str(tmp_path / "again")]
    done = mclabel_here(installed, *again)
    assert done.exit_code == 0, done.output
    assert f"{len(lines)} rows" in done.output
