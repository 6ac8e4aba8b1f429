"""Trainings side by side in separate processes: how they end, and their outputs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from mclabel.core.errors import ShardError, TrainingError
from mclabel.prm.config import TrainConfig
from mclabel.quickstart.toy import train_concurrently
from tests.support.labelled import arith_rows, tiny_model, write_run


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("given")
    return {
        "base": tiny_model(root / "base"),
        "labels": [write_run(root / "labels", arith_rows(40))],
        "batch_size": 4,
        "validation": 0.0,
    }


def make_config(out: Path, settings: dict[str, Any], **changes: Any) -> TrainConfig:
    return TrainConfig(**{**settings, "out": str(out), **changes})


@pytest.mark.slow
def test_the_first_that_fails_ends_the_others(tmp_path: Path, settings: dict[str, Any]) -> None:
    configs = {
        "long": make_config(tmp_path / "long", settings, max_steps=100_000),
        "bad": make_config(tmp_path / "bad", settings, labels=[str(tmp_path / "nowhere")]),
    }
    with pytest.raises(ShardError, match="nowhere: no such folder"):
        train_concurrently(configs, lambda name, step, total: None)
    assert multiprocessing.active_children() == []
    assert not (tmp_path / "long" / "model").exists()


@pytest.mark.slow
def test_one_that_is_killed_is_named_and_all_are_trained_then(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    long = make_config(tmp_path / "a", settings, max_steps=15, save_steps=1)

    def kill(name: str, step: int, total: int) -> None:
        if step == 3:
            (child,) = multiprocessing.active_children()
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(TrainingError, match="training a: its process was terminated by signal 9"):
        train_concurrently({"a": long}, kill)
    configs = {"a": long, "b": make_config(tmp_path / "b", settings, max_steps=3, seed=1)}
    seen: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    train_concurrently(configs, lambda name, step, total: seen[name].append((step, total)))
    assert seen["a"][0][0] > 1  # the resumed training starts after step 1
    assert {name: steps[-1] for name, steps in seen.items()} == {"a": (15, 15), "b": (3, 3)}
    for name in configs:
        assert (tmp_path / name / "model" / "prm.json").is_file()
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_they_end_with_a_parent_that_is_killed(tmp_path: Path, settings: dict[str, Any]) -> None:
    long = make_config(tmp_path / "a", settings, max_steps=100_000)
    code = (
        "import multiprocessing, sys; from mclabel.prm.config import TrainConfig\n"
        "from mclabel.quickstart.toy import train_concurrently\n"
        "if __name__ == '__main__':\n"
        "    config = TrainConfig.model_validate_json(sys.argv[1])\n"
        "    def show(*step):\n"
        "        print(multiprocessing.active_children()[0].pid, flush=True)\n"
        "    train_concurrently({'a': config}, show)\n"
    )
    (tmp_path / "parent.py").write_text(code)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py"), long.model_dump_json()],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    psutil.wait_procs([child], timeout=60)
    assert not child.is_running()
