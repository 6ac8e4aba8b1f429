"""Budgets: a job stops in order, says what is left, and goes on with a larger one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import ShardError
from mclabel.labeling.config import LabelConfig
from mclabel.run.budget import Ledger, read_spent
from mclabel.run.shards.labels import committed_blocks
from mclabel.run.shards.shard import read_shard
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from tests.support.exactness import check_exact
from tests.support.job_states import STATE
from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems

SLOW = "policy.engine={kind: scripted, delay_s: 0.05, repeatable: false}"


def label(folder: Path, *more: str) -> JobReport:
    source = write_problems(folder, 40)
    base = scripted_overrides(source, folder / "out", "ray.address=none", "journal_s=0.2", *more)
    return jobs.label(load_config(LabelConfig, None, base), lambda state: None)


def spent(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "spent.json").read_text())  # type: ignore[no-any-return]


def num_committed_tokens(store: Store) -> int:
    """Tokens sampled for the blocks that are committed."""
    shards = [
        read_shard(store, f"labels/{block}.parquet", "labels") for block in committed_blocks(store)
    ]
    return sum(metadata["cost"]["num_tokens"] for metadata, _ in shards)


def test_a_job_stops_at_its_tokens_and_goes_on_with_more(tmp_path: Path) -> None:
    fixed = ["estimator.kind=fixed", SLOW]
    first = label(tmp_path, *fixed, "budget.max_tokens=20000")
    assert first.stopped_by == "budget.max_tokens=20000"
    done = committed_blocks(Store(str(tmp_path / "out")))
    assert first.num_blocks_left == 10 - len(done) > 0
    after_first = spent(tmp_path)["num_tokens"]
    assert after_first >= 20000
    store = Store(str(tmp_path / "out"))
    kept = bool(store.names("journals"))  # what was under way; blocks end in waves
    assert kept or num_committed_tokens(store) == after_first
    again = label(tmp_path, *fixed, "budget.max_tokens=20000")
    assert again.stopped_by is not None and again.num_items == again.num_tokens == 0
    assert spent(tmp_path)["num_tokens"] == after_first  # no engine was asked
    last = label(tmp_path, *fixed, "budget.max_tokens=10000000")
    assert (last.stopped_by, last.num_blocks_left) == (None, 0)
    assert last.num_blocks_resumed == len(done)
    assert spent(tmp_path)["num_tokens"] > after_first
    check_exact(tmp_path / "out", num_problems=40)
    assert not Store(str(tmp_path / "out")).names("journals")


def test_a_job_stops_at_its_hours_with_its_own_exit_code(tmp_path: Path) -> None:
    source, config = write_problems(tmp_path, 40), write_config(tmp_path)
    more = ["ray.address=none", "estimator.kind=fixed", SLOW]
    arguments = ["label", str(config), *scripted_overrides(source, tmp_path / "out", *more)]
    result = CliRunner().invoke(main, [*arguments, "budget.max_hours=1e-4"])
    assert result.exit_code == 3, result.output
    assert "stopped by budget.max_hours=0.0001:" in result.output
    assert "of 10 blocks" in result.output and "larger budget" in result.output
    assert CliRunner().invoke(main, [*arguments, "budget.max_hours=1"]).exit_code == 0
    check_exact(tmp_path / "out", num_problems=40)


def test_figures_of_a_begun_run_say_that_they_are_of_a_part(tmp_path: Path) -> None:
    label(tmp_path, "estimator.kind=bisect")
    out = tmp_path / "out"
    command = ["labels", str(out)]
    assert CliRunner().invoke(main, command).stderr == ""
    (out / "finished.json").unlink()
    next((out / "labels").iterdir()).unlink()
    said = CliRunner().invoke(main, command)
    assert said.exit_code == 0 and said.stderr.startswith("1 of 10 blocks have no labels")
    found = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert (found["num_blocks"], found["num_blocks_left"]) == (9, 1)
    shutil.rmtree(out / "plan")
    found = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert (found["num_blocks"], found["num_blocks_left"]) == (9, None)


def test_a_ledger_adds_up_runs_and_measures_busy_engines(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    ledger, tokens = Ledger(store, started=100.0), 0
    # Two engines: 10 s of filling up, 20 s busy at 500 tokens a second, 10 s of running out.
    for second in range(41):
        live = min(100, 10 * second) if second <= 30 else max(1, 100 - 20 * (second - 30))
        tokens += 5 * live
        state = replace(STATE, num_tokens=tokens, num_live=live, gpu_hours=second / 3600)
        ledger.update(state, 100.0 + second)
    ledger.write(141.0)
    once = read_spent(store)
    assert once.num_tokens == tokens and once.hours == pytest.approx(41 / 3600)
    assert once.num_engines == 2
    assert tokens / (2 * 41) < 170 and 215 < (once.tokens_per_engine_s or 0) < 250
    second_run = Ledger(store, started=0.0)
    second_run.update(replace(STATE, num_tokens=500), 3600.0)
    second_run.write(3600.0)
    twice = read_spent(store)
    assert twice.num_tokens == tokens + 500 and twice.hours == pytest.approx(1 + 41 / 3600)
    store.delete("spent.json")
    store.create("spent.json", b"[]")
    with pytest.raises(ShardError, match=r"spent\.json: not what mclabel wrote"):
        read_spent(store)
