"""An engine from another package labels problems like any built-in engine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.core.records import LabeledSolution
from mclabel.engines import Engine, EngineStats, PolicySettings
from mclabel.engines.base import CheckedEngine
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.own_engine import ConstantEngine
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems

OWN = "tests.support.own_engine:ConstantEngine"


def overrides(folder: Path, engine: str, *more: str) -> list[str]:
    job = scripted_overrides(write_problems(folder, 5), folder / "out", "estimator.kind=fixed")
    return [*job, f"policy.engine={engine}", "solutions.per_problem=2", *more]


def label(folder: Path, *more: str, engine: str = OWN) -> list[LabeledSolution]:
    run_label_job(overrides(folder, engine, "ray.address=none", *more))
    return list(read_labels(Store(str(folder / "out"))))


class UncountedEngine(ConstantEngine):
    """An engine without its own statistics."""

    stats = Engine.stats


def test_what_an_engine_without_statistics_samples_is_counted() -> None:
    async def sampled() -> list[EngineStats]:
        engine = CheckedEngine(UncountedEngine, PolicySettings(engine=ConstantEngine.Settings()))
        await engine.start()
        task = asyncio.create_task(engine.sample(engine.prompt_ids("1+1"), (), seed=0))
        await asyncio.sleep(0)
        before = engine.stats()
        await task
        return [before, engine.stats()]

    live, ended = asyncio.run(sampled())
    assert (live.num_live, ended.num_live) == (1, 0)
    assert live.num_sampled_tokens == 0 and ended.num_sampled_tokens > 0
    assert not ended.counts_as_sampled


def test_its_settings_and_its_answers_are_used(tmp_path: Path) -> None:
    more = ["policy.engine.num_cpus=3", "ray.address=none"]
    planned = jobs.plan_labelling(load_config(LabelConfig, None, overrides(tmp_path, OWN, *more)))
    assert planned.resources.num_cpus == 3
    assert ("engine", f"{OWN}, here") in planned.lines()
    with pytest.raises(
        ConfigError, match=r"policy\.engine\.needs=luck: this machine does not have it"
    ):
        label(tmp_path, "policy.engine.needs=luck")


def test_the_engine_of_the_documentation_runs_as_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending-engine.md").read_text(encoding="utf-8")
    module = re.search(r"```python\n# my_engines.py\n(.*?)```", page, re.DOTALL)
    command = re.search(r"^PYTHONPATH=\. mclabel (.*?)\n```", page, re.DOTALL | re.MULTILINE)
    problem = re.search(r"^echo '(.*)' > problems\.jsonl$", page, re.MULTILINE)
    assert module is not None and command is not None and problem is not None
    (tmp_path / "my_engines.py").write_text(module[1], encoding="utf-8")
    (tmp_path / "problems.jsonl").write_text(problem[1] + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mclabel", *shlex.split(command[1].replace("\\\n", " "))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(read_labels(Store(str(tmp_path / "runs" / "coin"))))
    assert {row.solution.text[:21] for row in rows} == {"One and one make two."}
    assert json.loads((tmp_path / "runs/coin/run.json").read_text())["config"]["policy"][
        "engine"
    ] == {"error_rate": 0.25}
