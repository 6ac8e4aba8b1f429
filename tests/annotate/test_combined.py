"""Annotators as sources whose error rates `mclabel combine` learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from mclabel.annotate.folder import AnnotationFolder
from mclabel.annotate.gold import is_run_solution
from mclabel.core.errors import ConfigError, DataError
from mclabel.judge.combine import combine
from mclabel.judge.consensus.sources import read_people_sources
from tests.annotate.test_gold import OWN
from tests.annotate.test_measured import DOUBT, FIRST, RIGHT, ROWS, WRONG
from tests.support.annotated import annotated_folder
from tests.support.shown import write_run


def test_doubt_and_what_follows_the_first_bad_step_is_no_opinion(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ROWS, None)
    beyond = {"ratings": ["good", "bad", "bad"], "finish": "found_error"}
    opinions = {("ana", "solution-0"): beyond, ("ana", "solution-1"): DOUBT,
            ("ben", "solution-0"): FIRST, ("ben", "solution-5"): RIGHT}  # fmt: skip
    out = str(tmp_path / "out")
    annotated_folder(tmp_path / "out", ROWS, opinions, people=("ana", "ben"), overlap=1.0)
    ana, ben = read_people_sources(out)
    assert ana.run.opinions["solution-0"].first_error == 1
    assert not ana.run.opinions["solution-1"].is_known
    assert ben.run.opinions["solution-5"].is_known and ben.run.opinions["solution-5"].scores == ()
    report = combine(run, [out], str(tmp_path / "both"), rule="same_location")
    assert report.num_solutions == len(ROWS)
    assert "person:ben: 14 solutions are not labelled by this person" in report.lines()
    with pytest.raises(ConfigError, match="people have the names that they label under"):
        combine(run, [f"x={out}"], str(tmp_path / "other"))
    changed_run = write_run(tmp_path / "changed", ROWS[4:], None)
    annotated_folder(tmp_path / "old", ROWS, {("me", "solution-0"): WRONG})
    with pytest.raises(DataError, match="has no opinion on the solutions of"):
        combine(changed_run, [str(tmp_path / "old")], str(tmp_path / "third"))
    annotated_folder(tmp_path / "gold", ROWS, {}, [OWN], gold_share=0.1)
    assert not is_run_solution(AnnotationFolder.read(str(tmp_path / "gold")).items[-1])
    annotated_folder(tmp_path / "none", ROWS, {})
    with pytest.raises(DataError, match="nobody has submitted a solution"):
        combine(run, [str(tmp_path / "none")], str(tmp_path / "third"))
