"""Costs of a job: budgets that stop it, forecasts, and reuse of the pilot's blocks by the job."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import ShardError
from mclabel.labeling.config import LabelConfig
from mclabel.run.budget import SpendingLedger, read_recorded_spending
from mclabel.run.forecast import CostModel, Interval, Size, choose_pilot_blocks, forecast_cost
from mclabel.run.shards.labels import iter_label_tables, read_committed_block_ids
from mclabel.run.shards.shard import read_shard
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from tests.support.commands import run_verb
from tests.support.exactness import check_exact
from tests.support.job_states import STATE
from tests.support.scripted_jobs import (
    run_label_job,
    scripted_overrides,
    write_config,
    write_problems,
)

SLOW = "policy.engine={kind: scripted, delay_s: 0.05, repeatable: false}"


def label(folder: Path, *more: str) -> JobReport:
    source = write_problems(folder, 40)
    return run_label_job(
        scripted_overrides(source, folder / "out", "ray.address=none", "journal_s=0.2", *more)
    )


def spent(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out" / "spent.json").read_text())  # type: ignore[no-any-return]


def num_committed_tokens(store: Store) -> int:
    """Return the number of tokens that were sampled for the committed blocks."""
    shards = [
        read_shard(store, f"labels/{block}.parquet", "labels")
        for block in read_committed_block_ids(store)
    ]
    return sum(metadata["cost"]["num_tokens"] for metadata, _ in shards)


def test_a_job_stops_at_its_tokens_and_goes_on_with_more(tmp_path: Path) -> None:
    fixed = ["estimator.kind=fixed", SLOW]
    first = label(tmp_path, *fixed, "budget.max_tokens=20000")
    assert first.stopped_by == "budget.max_tokens=20000"
    done = read_committed_block_ids(Store(str(tmp_path / "out")))
    assert first.num_blocks_left == 10 - len(done) > 0
    after_first = spent(tmp_path)["num_tokens"]
    assert after_first >= 20000
    store = Store(str(tmp_path / "out"))
    kept = bool(store.names("journals"))  # unfinished blocks, if any: blocks end in waves
    assert kept or num_committed_tokens(store) == after_first
    again = label(tmp_path, *fixed, "budget.max_tokens=20000")
    assert again.stopped_by is not None and again.num_items == again.num_tokens == 0
    assert spent(tmp_path)["num_tokens"] == after_first  # the engine sampled nothing
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
    result = run_verb([*arguments, "budget.max_hours=1e-4"], code=3)
    assert "stopped by budget.max_hours=0.0001:" in result.output
    assert "of 10 blocks" in result.output and "larger budget" in result.output
    run_verb([*arguments, "budget.max_hours=1"])
    check_exact(tmp_path / "out", num_problems=40)


def test_figures_of_a_begun_run_say_that_they_are_of_a_part(tmp_path: Path) -> None:
    label(tmp_path, "estimator.kind=bisect")
    out = tmp_path / "out"
    command = ["labels", str(out)]
    assert CliRunner().invoke(main, command).stderr == ""
    (out / "finished.json").unlink()
    next((out / "labels").iterdir()).unlink()
    assert run_verb(command).stderr.startswith("1 of 10 blocks have no labels")
    report = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert (report["num_blocks"], report["num_blocks_left"]) == (9, 1)
    shutil.rmtree(out / "plan")
    report = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)
    assert (report["num_blocks"], report["num_blocks_left"]) == (9, None)


def test_a_ledger_adds_up_runs_and_measures_busy_engines(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    ledger, tokens = SpendingLedger(store, started=100.0), 0
    # Two engines: 10 s of filling up, 20 s at 500 tokens a second, then 10 s of emptying.
    for second in range(41):
        live = min(100, 10 * second) if second <= 30 else max(1, 100 - 20 * (second - 30))
        tokens += 5 * live
        ledger.update(
            replace(STATE, num_tokens=tokens, num_live=live, gpu_hours=second / 3600),
            100.0 + second,
        )
    ledger.write(141.0)
    once = read_recorded_spending(store)
    assert once.num_tokens == tokens and once.hours == pytest.approx(41 / 3600)
    assert once.num_engines == 2
    assert tokens / (2 * 41) < 170 and 215 < (once.tokens_per_engine_second or 0) < 250
    second_run = SpendingLedger(store, started=0.0)
    second_run.update(replace(STATE, num_tokens=500), 3600.0)
    second_run.write(3600.0)
    twice = read_recorded_spending(store)
    assert twice.num_tokens == tokens + 500 and twice.hours == pytest.approx(1 + 41 / 3600)
    store.delete("spent.json")
    store.create("spent.json", b"[]")
    with pytest.raises(ShardError, match=r"spent\.json: not what mclabel wrote"):
        read_recorded_spending(store)


def size_of_texts(*lengths: int) -> Size:
    """Return the size of an input whose problems have texts of these lengths, in characters."""
    return Size(len(lengths), sum(lengths), sum(length**2 for length in lengths))


def test_the_cost_model_by_hand() -> None:
    model = CostModel()
    assert model.predict(size_of_texts(1)) is None
    # The cost is 30 per problem, 0.5 per character and 0.01 per squared character.
    for lengths in [(50, 50), (100, 200), (20, 20, 20), (7,), (300, 10)]:
        size = size_of_texts(*lengths)
        model.add(size, 30 * len(lengths) + 0.5 * size.num_chars + 0.01 * size.sum_squared_chars)
    assert model.predict(size_of_texts(100, 100)) == pytest.approx(60 + 100 + 200, rel=1e-6)
    assert model.predict(size_of_texts(400)) == pytest.approx(30 + 200 + 1600, rel=1e-6)
    assert model.predict(Size()) == 0
    cost_model = CostModel()
    cost_model.add(size_of_texts(10, 10), 50)
    assert cost_model.predict(size_of_texts(10, 10, 10, 10)) == pytest.approx(100)


def test_coefficients_are_never_negative_and_the_sum_is_that_of_what_was_seen() -> None:
    falling = CostModel()  # shorter texts cost more, so the length predicts nothing
    for length, cost in [(10, 100), (20, 80), (30, 60)]:
        falling.add(size_of_texts(length), cost)
    assert falling.predict(size_of_texts(200, 200, 200)) == pytest.approx(240)
    # rises with the cube of the length: least squares alone would miss the sum
    curved = CostModel()
    lengths = (10, 20, 30, 40, 100)
    for length in lengths:
        curved.add(size_of_texts(length), length**3)
    assert curved.predict(size_of_texts(*lengths)) == pytest.approx(sum(x**3 for x in lengths))


def test_a_pilot_is_spread_over_all_lengths() -> None:
    lengths = list(range(100))
    random.Random(0).shuffle(lengths)
    sizes = [size_of_texts(length) for length in lengths]
    for seed in range(20):
        picked = sorted(lengths[i] for i in choose_pilot_blocks(sizes, 10, seed=seed))
        assert [x // 10 for x in picked] == list(range(10))  # one block of each tenth
    assert choose_pilot_blocks(sizes, 10, seed=3) == choose_pilot_blocks(sizes, 10, seed=3)
    assert choose_pilot_blocks(sizes[:2], 10, seed=0) == {0, 1}
    counts = np.bincount([i for s in range(2000) for i in choose_pilot_blocks(sizes, 9, seed=s)])
    assert counts.min() > 120 and counts.max() < 240  # the expected counts are 167 or 182


@pytest.mark.slow
def test_the_interval_holds_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = errors = 0.0
    for trial in range(40):
        lengths = rng.lognormal(5, 1, size=120).astype(int) + 1
        cost = (200 + 3 * lengths + 0.002 * lengths**2) * rng.lognormal(0, 0.2, size=120)
        sizes = [size_of_texts(int(length)) for length in lengths]
        pilot = choose_pilot_blocks(sizes, 12, seed=trial)
        remaining = [i for i in range(120) if i not in pilot]
        truth = float(cost[remaining].sum())
        seen = [(sizes[i], float(cost[i])) for i in sorted(pilot)]
        forecast = forecast_cost(seen, sum((sizes[i] for i in remaining), Size()), seed=trial)
        hits += forecast.low <= truth <= forecast.high
        errors += abs(forecast.expected / truth - 1)
    assert hits / 40 >= 0.85
    assert errors / 40 < 0.12


def test_intervals() -> None:
    forecast = forecast_cost([(size_of_texts(5, 5), 50)], size_of_texts(5, 5, 5, 5))
    assert forecast.expected == pytest.approx(100) and (forecast.low, forecast.high) == (
        0,
        float("inf"),
    )
    same = forecast_cost([(size_of_texts(5, 5), 50)] * 5, size_of_texts(5, 5, 5, 5))
    assert (same.low, same.expected, same.high) == pytest.approx((100, 100, 100))
    assert same.scale_and_shift(2, constant=1).expected == pytest.approx(201)


def overrides(folder: Path, *more: str) -> list[str]:
    source = folder / "problems.jsonl"
    if not source.exists():
        write_problems(folder, 120)
    return scripted_overrides(source, folder / "out", "ray.address=none", *more)


def test_a_pilot_is_part_of_the_job_and_forecasts_it(tmp_path: Path) -> None:
    config = load_config(LabelConfig, None, overrides(tmp_path, "estimator.kind=fixed"))
    report = jobs.run_pilot(config, lambda state: None, num_problems=40)
    out = Store(str(tmp_path / "out"))
    pilot = read_committed_block_ids(out)
    assert len(pilot) == 10 and (report.num_items, report.num_blocks_left) == (40, 20)
    again = jobs.run_pilot(config, lambda state: None, num_problems=40)
    assert again.num_items == 0 and read_committed_block_ids(out) == pilot
    forecast = jobs.forecast(config)
    assert (forecast.num_blocks, forecast.num_blocks_done, forecast.num_blocks_seen) == (30, 10, 10)
    assert jobs.label(config, lambda state: None).num_blocks_resumed == 10
    check_exact(tmp_path / "out", num_problems=120)
    costs = [metadata["cost"] for metadata, _ in iter_label_tables(out)]
    tokens = sum(cost["num_tokens"] for cost in costs)
    rollouts = sum(cost["num_rollouts"] for cost in costs)
    assert abs(forecast.num_tokens.expected / tokens - 1) < 0.15
    assert abs(forecast.num_rollouts.expected / rollouts - 1) < 0.15
    assert forecast.num_tokens.low <= tokens <= forecast.num_tokens.high
    done = jobs.forecast(config)  # the forecast of a finished job is exact
    assert done.num_tokens == Interval(expected=tokens, low=tokens, high=tokens)
    assert done.num_rollouts.expected == rollouts


@pytest.mark.slow
def test_a_pilot_forecasts_an_estimator_that_learns(tmp_path: Path) -> None:
    more = ["estimator.kind=posterior", "estimator.pilot=40"]
    config = load_config(LabelConfig, None, overrides(tmp_path, *more))
    jobs.run_pilot(config, lambda state: None, num_problems=32)
    forecast = jobs.forecast(config)
    assert forecast is not None and forecast.still_learning
    jobs.label(config, lambda state: None)
    assert read_recorded_spending(Store(config.out)).num_tokens < 1.1 * forecast.num_tokens.expected


def test_prices_and_what_the_command_says(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    more = ["estimator.kind=fixed", "budget.price_per_million_tokens=1000000"]
    arguments = ["label", str(config), *overrides(tmp_path, *more), "--dry-run"]
    result = CliRunner().invoke(main, arguments)
    assert "forecast: none yet; add --pilot" in result.output
    assert not (tmp_path / "out").exists()
    result = run_verb([*arguments, "--pilot", "20"])
    assert "from 5 blocks; 5 of 30 blocks are finished; brackets are 95% intervals" in result.output
    lines = dict(line.split(": ", 1) for line in result.output.splitlines() if ": " in line)
    assert lines["price in all"] == lines["tokens in all"]  # at a price of 1 each
    again = CliRunner().invoke(main, arguments)
    assert "from 5 blocks; 5 of 30" in again.output and "pilot" not in again.output
    result = run_verb([*arguments[:-1], "--pilot", "20"], code=2)
    assert "--pilot works only with --dry-run" in result.output
