"""Forecasts: the cost model by hand, its interval by simulation, pilots that the job finds done."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from exactness import check_exact
from job_states import STATE
from scripted_jobs import scripted_overrides, write_config, write_problems

from mclabel import edge
from mclabel.cli import main
from mclabel.config import LabelConfig, load_config
from mclabel.data.compact import compact
from mclabel.data.shards import committed_blocks, label_tables
from mclabel.data.store import Store
from mclabel.labeling.forecast import CostModel, Interval, pilot_blocks, predict
from mclabel.labeling.meter import Meter


def test_the_cost_model_by_hand() -> None:
    model = CostModel()
    assert model.predict(1, 1) is None
    model.add(2, 100, 2 * 30 + 100 * 0.5)  # 30 a problem and half a token a character
    assert model.predict(4, 200) == pytest.approx(220)  # one block: in proportion
    model.add(2, 300, 2 * 30 + 300 * 0.5)
    model.add(3, 60, 3 * 30 + 60 * 0.5)
    assert model.predict(10, 1000) == pytest.approx(800)
    assert model.predict(0, 0) == 0


def test_coefficients_are_never_negative_and_the_sum_is_that_of_what_was_seen() -> None:
    falling = CostModel()  # dearer where texts are shorter: length says nothing
    for chars, cost in [(10, 100), (20, 80), (30, 60)]:
        falling.add(1, chars, cost)
    assert falling.predict(3, 600) == pytest.approx(240)
    curved = CostModel()  # rises with the square: the least squares alone would miss the sum
    sizes = [10.0, 20, 30, 40, 100]
    for chars in sizes:
        curved.add(1, chars, chars**2)
    assert curved.predict(5, sum(sizes)) == pytest.approx(sum(x**2 for x in sizes))


def test_a_pilot_is_spread_over_all_lengths() -> None:
    chars = list(map(float, range(100)))
    random.Random(0).shuffle(chars)
    for seed in range(20):
        picked = sorted(chars[i] for i in pilot_blocks(chars, 10, seed=seed))
        assert [int(x // 10) for x in picked] == list(range(10))  # one of each tenth
    assert pilot_blocks(chars, 10, seed=3) == pilot_blocks(chars, 10, seed=3)
    assert pilot_blocks([1.0, 2.0], 10, seed=0) == {0, 1}
    counts = np.bincount([i for s in range(2000) for i in pilot_blocks(chars, 9, seed=s)])
    assert counts.min() > 120 and counts.max() < 240  # of 180


def test_the_interval_holds_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = errors = 0.0
    for trial in range(150):
        chars = rng.lognormal(5, 1, size=120)
        cost = (200 + 3 * chars) * rng.lognormal(0, 0.2, size=120)
        pilot = pilot_blocks(chars.tolist(), 10, seed=trial)
        seen = [(8.0, float(chars[i]), float(cost[i])) for i in sorted(pilot)]
        left = [i for i in range(120) if i not in pilot]
        truth = float(cost[left].sum())
        found = predict(seen, 8 * len(left), float(chars[left].sum()), seed=trial)
        hits += found.low <= truth <= found.high
        errors += abs(found.expected / truth - 1)
    assert hits / 150 >= 0.9
    assert errors / 150 < 0.07


def test_intervals() -> None:
    one = predict([(2, 10, 50)], 4, 20)
    assert one == Interval(expected=100, low=0, high=float("inf"))
    same = predict([(2, 10, 50)] * 5, 4, 20)
    assert (same.low, same.expected, same.high) == pytest.approx((100, 100, 100))
    assert same.times(2, plus=1).expected == pytest.approx(201)


def test_the_eta_is_that_of_the_tokens_that_are_left() -> None:
    meter = Meter(started=0.0)
    meter.update(STATE, 0.0)
    state = replace(STATE, num_problems_done=90, num_tokens=5000, num_tokens_left=20000.0)
    assert meter.update(state, 10.0).eta_s == pytest.approx(40)
    assert meter.update(replace(state, num_tokens_left=None), 10.0).eta_s == pytest.approx(710)


def overrides(folder: Path, *more: str) -> list[str]:
    source = folder / "problems.jsonl"
    if not source.exists():
        write_problems(folder, 120)
    return scripted_overrides(source, folder / "out", "ray.address=none", *more)


def test_a_pilot_is_part_of_the_job_and_forecasts_it(tmp_path: Path) -> None:
    config = load_config(LabelConfig, None, overrides(tmp_path, "estimator.kind=fixed"))
    report = edge.run_pilot(config, lambda state: None, num_problems=40)
    out = Store(str(tmp_path / "out"))
    pilot = committed_blocks(out)
    assert len(pilot) == 10 and (report.num_problems, report.num_blocks_left) == (40, 20)
    again = edge.run_pilot(config, lambda state: None, num_problems=40)
    assert again.num_problems == 0 and committed_blocks(out) == pilot
    found = edge.forecast(config)
    assert found is not None
    assert (found.num_blocks, found.num_blocks_done, found.num_blocks_seen) == (30, 10, 10)
    whole = edge.label(config, lambda state: None)
    assert whole.num_blocks_resumed == 10
    check_exact(tmp_path / "out", num_problems=120)
    costs = [metadata["cost"] for metadata, _ in label_tables(out)]
    tokens = sum(cost["num_tokens"] for cost in costs)
    rollouts = sum(cost["num_rollouts"] for cost in costs)
    assert abs(found.num_tokens.expected / tokens - 1) < 0.15
    assert abs(found.num_rollouts.expected / rollouts - 1) < 0.15
    assert found.num_tokens.low <= tokens <= found.num_tokens.high
    # Of a job that is done everything is known, and a merge changes nothing.
    done = edge.forecast(config)
    compact(out, rows=100)
    assert done is not None and edge.forecast(config) == replace(
        done, num_blocks_seen=done.num_blocks_seen
    )
    assert done.num_tokens == Interval(expected=tokens, low=tokens, high=tokens)
    assert done.num_rollouts.expected == rollouts


def test_blocks_under_wide_priors_say_little_of_later_ones(tmp_path: Path) -> None:
    more = ["estimator.kind=posterior", "estimator.pilot=1000000"]
    config = load_config(LabelConfig, None, overrides(tmp_path, *more))
    edge.run_pilot(config, lambda state: None, num_problems=16)
    found = edge.forecast(config)
    assert found is not None and found.still_learning
    assert any("not learned yet" in text for _, text in found.lines())


def test_prices_and_what_the_command_says(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    more = ["estimator.kind=fixed", "budget.price_per_million_tokens=1000000"]
    arguments = ["label", str(config), *overrides(tmp_path, *more), "--dry-run"]
    result = CliRunner().invoke(main, arguments)
    assert "forecast: none yet; add --pilot" in result.output
    assert not (tmp_path / "out").exists()
    result = CliRunner().invoke(main, [*arguments, "--pilot", "20"])
    assert result.exit_code == 0, result.output
    assert "from 5 blocks; 5 of 30 are done; 95% intervals" in result.output
    lines = dict(line.split(": ", 1) for line in result.output.splitlines() if ": " in line)
    assert lines["price in all"] == lines["tokens in all"]  # at a price of 1 each
    again = CliRunner().invoke(main, arguments)
    assert "from 5 blocks; 5 of 30" in again.output and "pilot" not in again.output
    result = CliRunner().invoke(main, [*arguments[:-1], "--pilot", "20"])
    assert result.exit_code == 2 and "--pilot goes with --dry-run" in result.output
