"""A combined run depends only on its inputs, even if they grow."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.config.load import load_config
from mclabel.core.errors import ShardError
from mclabel.judge.combine import CombineReport, combine
from mclabel.judge.job import JudgeConfig, judge
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import label
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from tests.support.scripted_jobs import scripted_overrides, write_problems


def grow_run(folder: Path, problems: int) -> str:
    """Label the first `problems` problems with a policy that sometimes fails."""
    source, out = write_problems(folder, problems), folder / "labels"
    changes = scripted_overrides(source, out, *("ray.address=none", "estimator.kind=fixed"))
    label(load_config(LabelConfig, None, changes), lambda state: None)
    return str(out)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """Return a run, the same run after it has grown, and opinions on the smaller run."""
    folder = tmp_path_factory.mktemp("grown")
    opinions = str(folder / "symbolic")
    small = grow_run(folder, 8)
    keys = [f"solutions={small}", f"out={opinions}", "ray.address=none"]
    judge(load_config(JudgeConfig, None, keys))
    before = folder / "before"
    shutil.copytree(small, before)
    return str(before), grow_run(folder, 12), opinions


@pytest.fixture
def run(inputs: tuple[str, str, str], tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """Return the smaller run and a function that makes it grow."""
    place = tmp_path / "run"
    shutil.copytree(inputs[0], place)

    def replace_run() -> None:
        shutil.rmtree(place)
        shutil.copytree(inputs[1], place)

    return place, replace_run


def read_rows(place: Path) -> list[Any]:
    return sorted(read_labels(Store(str(place))), key=lambda row: row.solution.id)


def read_files(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_a_run_that_has_grown_is_not_combined_into_the_same_output(
    run: tuple[Path, Callable[[], None]], inputs: tuple[str, str, str], tmp_path: Path
) -> None:
    place, grown = run
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    combine(str(place), [inputs[2]], str(out))
    small, before = read_rows(out), read_files(out)
    grown()
    with pytest.raises(ShardError) as error:
        combine(str(place), [inputs[2]], str(out))
    assert str(error.value) == (
        f"{out}: {place} or its opinions have changed since this output was written from them. "
        f"Choose another -o, or delete {out} first"
    )
    assert read_files(out) == before
    combine(str(place), [inputs[2]], str(fresh))
    now = {row.solution.id: row.posterior for row in read_rows(fresh)}
    # so labels of both states of the run would not fit together
    assert any(now[row.solution.id] != row.posterior for row in small)


def test_a_rule_that_learns_nothing_combines_only_new_blocks_of_a_grown_run(
    run: tuple[Path, Callable[[], None]], inputs: tuple[str, str, str], tmp_path: Path
) -> None:
    place, grown = run
    out, fresh = tmp_path / "out", tmp_path / "fresh"

    def combine_runs(to: Path) -> CombineReport:
        return combine(str(place), [inputs[2]], str(to), rule="same_location")

    combine_runs(out)
    grown()
    report = combine_runs(out)
    assert (report.num_blocks, report.num_blocks_resumed) == (3, 2)
    combine_runs(fresh)
    assert read_rows(out) == read_rows(fresh) and verify(Store(str(out))).is_sound
