"""A combined run is a function of its inputs, whenever they have grown and whatever is killed."""

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
from mclabel.run.shards.compact import compact, fit_of
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from tests.support.scripted_jobs import scripted_overrides, write_problems


def grow(folder: Path, problems: int) -> str:
    """Label so many problems in all, by a policy that sometimes fails."""
    source, out = write_problems(folder, problems), folder / "labels"
    more = ("ray.address=none", "estimator.kind=fixed")
    changes = scripted_overrides(source, out, *more)
    label(load_config(LabelConfig, None, changes), lambda state: None)
    return str(out)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """A run, the same run grown, and opinions on what it was before."""
    folder = tmp_path_factory.mktemp("grown")
    opinions = str(folder / "symbolic")
    small = grow(folder, 8)
    keys = [f"solutions={small}", f"out={opinions}", "ray.address=none"]
    judge(load_config(JudgeConfig, None, keys))
    before = folder / "before"
    shutil.copytree(small, before)
    return str(before), grow(folder, 12), opinions


@pytest.fixture
def run(inputs: tuple[str, str, str], tmp_path: Path) -> tuple[Path, Callable[[], None]]:
    """The run before it has grown, and what lets it grow."""
    place = tmp_path / "run"
    shutil.copytree(inputs[0], place)

    def grown() -> None:
        shutil.rmtree(place)
        shutil.copytree(inputs[1], place)

    return place, grown


def rows_of(place: Path) -> list[Any]:
    return sorted(read_labels(Store(str(place))), key=lambda row: row.solution.id)


@pytest.mark.slow
def test_a_grown_run_is_combined_as_if_it_was_the_first_time(
    run: tuple[Path, Callable[[], None]], inputs: tuple[str, str, str], tmp_path: Path
) -> None:
    place, grown = run
    out, fresh = tmp_path / "out", tmp_path / "fresh"

    def combined(to: Path) -> CombineReport:
        return combine(str(place), [inputs[2]], str(to))

    combined(out)
    small = rows_of(out)
    grown()
    report = combined(out)
    assert report.num_blocks_replaced > 0 and report.num_blocks_resumed == 0
    assert "combined anew" in " ".join(report.lines())
    combined(fresh)
    assert rows_of(out) == rows_of(fresh) and len(rows_of(out)) > len(small)
    now = {row.solution.id: row.posterior for row in rows_of(out)}
    assert any(now[row.solution.id] != row.posterior for row in small)  # kept ones would show
    assert sorted(map(repr, read_rollouts(Store(str(out))))) == sorted(
        map(repr, read_rollouts(Store(str(fresh))))
    )
    assert verify(Store(str(out))).is_sound
    assert not list((out / "labels").glob("*.parquet"))  # the old ones do not stay behind
    assert combined(out).num_blocks_resumed == report.num_blocks
    compact(Store(str(out)))
    assert combined(out).num_blocks_resumed == report.num_blocks
    assert rows_of(out) == rows_of(fresh) and verify(Store(str(out))).is_sound


def test_a_reader_never_mixes_two_fits(
    run: tuple[Path, Callable[[], None]], inputs: tuple[str, str, str], tmp_path: Path
) -> None:
    place, grown = run
    out = tmp_path / "out"
    combine(str(place), [inputs[2]], str(out))
    before, reading = fit_of(Store(str(out))), read_labels(Store(str(out)))
    next(reading)
    grown()
    combine(str(place), [inputs[2]], str(out))
    assert fit_of(Store(str(out))) not in (None, before)
    with pytest.raises(ShardError, match="was combined anew while it was being read"):
        list(reading)
