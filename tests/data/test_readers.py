"""Readers of problems: which one reads a source, and readers of one's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DataError
from mclabel.data.readers.base import reader_name, reader_settings
from mclabel.data.readers.problems import read_problems
from mclabel.labeling.config import LabelConfig
from tests.support.scripted_jobs import write_config

MINE = '''
from mclabel.data.readers.base import ReaderSettings, RowSettings
from mclabel.core.errors import RejectReason
from mclabel.core.records import Problem


def countdown(place):
    """Rows of a function: the numbers below the one in `place`."""
    for number in range(int(place or 3)):
        yield {"question": f"Say {number} [answer {number}]", "gold": number, "level": "easy"}


class Squares:
    """Squares, one of which cannot be read."""

    class Settings(ReaderSettings):
        """How many."""

        source: str = "squares"
        first: int = 1
        """The first number."""

    def __init__(self, settings):
        self.settings = settings

    def rows(self):
        for row in range(1, 6):
            number = self.settings.first + row - 1
            if row == 2:
                yield row, RejectReason("torn", "the page is torn")
            else:
                yield row, Problem(
                    id=f"s{number}", text=f"Square {number} [answer {number**2}]",
                    answer=str(number**2),
                )


NO_READER = 3
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package with readers of its own, which Python finds."""
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("arith", "arith"),
        ("hf:openai/gsm8k", "hf"),
        ("hf://datasets/x", "hf"),
        ("problems.jsonl", "file"),
        ("s3://bucket/problems.parquet", "file"),
        ("folder/problems", "file"),
        ("problems.txt", "file"),
        ("my_package.mine:Reader", "my_package.mine:Reader"),
        ("my_package.mine:Reader:/a/place", "my_package.mine:Reader"),
        ("C:/problems.jsonl", "file"),
    ],
)
def test_the_reader_of_a_source(source: str, name: str) -> None:
    assert reader_name(source) == name


def test_a_source_that_is_no_file_names_the_nearest_reader() -> None:
    with pytest.raises(
        ConfigError, match=r"arit: is not among the readers. did you mean arith\? Choose"
    ):
        reader_name("arit")


def test_a_key_of_another_reader_is_an_error_that_names_it(tmp_path: Path) -> None:
    overrides = ["out=x", "problems.source=x.jsonl", "problems.families=[trading]"]
    with pytest.raises(
        ConfigError, match=r"problems\.families: not a setting of kind=file"
    ) as found:
        load_config(LabelConfig, write_config(tmp_path), overrides)
    assert "problem_column" in str(found.value)
    with pytest.raises(ConfigError, match=r"did you mean problems\.problem_column"):
        load_config(LabelConfig, None, ["out=x", "problems.source=a.csv", "problems.problem_col=q"])


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("problems.split=dev", "problems.split='dev': must be 'train', 'validation'"),
        ("problems.families=[sailing]", r"families=\['sailing'\]: must be among trading"),
        ("problems.num_steps=[6,11]", r"num_steps\.1=11: must be at most 10"),
        ("problems.num_steps=[4,3]", r"the first no larger than the second"),
        ("problems.limit=2000000", "must be at most 1,000,000, not 2,000,000"),
        ("problems.kind=3", "problems: kind must be a name, is 3"),
        ("problems.source=4", "problems.source=4: must be a text, is a number"),
        ("problems.kind=json:dumper", "json:dumper: cannot be imported"),
    ],
)
def test_faults_of_a_source_are_found_when_the_configuration_is_read(
    override: str, fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        load_config(LabelConfig, None, ["out=x", override])


def test_held_out_families_are_no_training_problems() -> None:
    with pytest.raises(
        ConfigError, match=r"families=\['gifts'\]: these families are held out of training"
    ):
        reader_settings("arith", split="train", families=["gifts"], limit=1)


@pytest.mark.parametrize("source", ["arith", "pyarith"])
def test_longer_problems_can_be_asked_for(source: str) -> None:
    found = read_problems(reader_settings(source, limit=5, num_steps=(9, 10)))
    assert {one.meta["num_steps"] for one in found} <= {"9", "10"}


def test_arith_needs_a_limit() -> None:
    with pytest.raises(ConfigError, match=r"problems\.limit: required for problems\.source=arith"):
        read_problems("arith")
    assert len(read_problems(reader_settings("arith", limit=5))) == 5


def test_a_class_of_ones_own_has_settings_and_faults(mine: str) -> None:
    problems = read_problems(reader_settings(f"{mine}:Squares", first=4))
    assert [problem.answer for problem in problems] == ["16", "36", "49", "64"]
    (reject,) = problems.rejects()
    assert (reject.row, reject.reason, reject.detail) == (2, "torn", "the page is torn")
    with pytest.raises(DataError, match="row 2: the page is torn"):
        read_problems(reader_settings(f"{mine}:Squares"), strict=True)
    with pytest.raises(ConfigError, match="not_there"):
        reader_settings(f"{mine}:Squares", not_there=1)


def test_what_is_no_reader_is_refused(mine: str) -> None:
    with pytest.raises(ConfigError, match=r"its attribute Settings is None, must be a class"):
        reader_settings(f"{mine}:NO_READER")
