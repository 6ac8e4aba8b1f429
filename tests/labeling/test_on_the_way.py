"""Intermediate answers, and completions that contradict the prefix that they continue."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.records import Outcome
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.prefixes import contradicts_prefix
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.answering import AnsweringEngine
from tests.support.scripted_jobs import write_problems


@pytest.mark.parametrize(
    ("completion", "prefix", "is_back"),
    [
        ("Wait, 3 + 4 is 7.", "", True),
        ("Let me correct that.", "", True),
        ("That's wrong: it is 7.", "", True),
        ("I made a mistake above.", "", True),
        ("等等, 这不对.", "", True),
        ("So 3 + 4 = 7.", "Since 3+4 = 8, ", True),
        ("So 3 + 4 = 7.", "Since 3+4 = 7, ", False),
        ("The waiter brings 3 plates.", "", False),
        ("x = 7 as x = 5 + 2.", "x = 3", False),
        ("They await 7 buses.", "", False),
    ],
)
def test_what_goes_back_on_its_prefix(completion: str, prefix: str, is_back: bool) -> None:
    assert contradicts_prefix(completion, prefix) is is_back


def run(folder: Path, *overrides: str) -> Path:
    """Label solutions by `trace`, reusing the recorded rollouts of a run by `fixed`."""
    source = write_problems(folder, 12)
    engine = f"policy.engine.kind={AnsweringEngine.__module__}:AnsweringEngine"
    keys = [f"problems.source={source}", "ray.address=none", engine, "seed=3", *overrides]
    bank = [f"out={folder / 'bank'}", "estimator={kind: fixed, rollouts: 4}"]
    traces = [f"out={folder / 'run'}", "estimator={kind: trace, pilot: 16}"]
    for own in (bank, [*traces, f"solutions.run={folder / 'bank'}"]):
        config = load_config(LabelConfig, None, [*keys, *own], allow=["tests.support.answering"])
        jobs.label(config, lambda state: None)
    return folder / "run"


def test_a_run_is_labelled_by_all_sources_shown_and_graded_again_alike(tmp_path: Path) -> None:
    place = run(tmp_path)
    rows = list(read_labels(Store(str(place))))
    labels = [label for row in rows for label in row.steps]
    for text, label in zip(
        [step.text for row in rows for step in row.solution.steps], labels, strict=True
    ):
        assert (label.committed is not None) == (
            "So the answer is" in text and not label.is_from_outcome
        )
    assert {label.committed for label in labels} == {None, Outcome.RIGHT, Outcome.WRONG}
    told = [label.state for label in labels]
    assert {"sound", "error", "recovered"} <= set(told)
    wrong = [
        AnsweringEngine._is_wrong("".join(step.text for step in row.solution.steps[: number + 1]))
        for row in rows
        for number in range(len(row.steps))
    ]
    found = [state in ("error", "carried") for state in told]
    assert sum(a == b for a, b in zip(found, wrong, strict=True)) / len(wrong) > 0.8
    jobs.regrade(str(place), str(tmp_path / "again"), allow=["tests.support.answering"])
    again = {row.solution.id: row for row in read_labels(Store(str(tmp_path / "again")))}
    for row in rows:
        assert again[row.solution.id].steps == row.steps
        assert again[row.solution.id].posterior == row.posterior
    shown = CliRunner().invoke(main, ["show", str(place)])
    assert shown.exit_code == 0, shown.output
