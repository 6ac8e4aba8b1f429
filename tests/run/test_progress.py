"""Progress of a job: rates from states, and what is written of them."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.task import LABEL_OUTPUTS
from mclabel.run.progress_log import Meter, totals
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobState
from mclabel.show.progress import job_progress
from tests.support.job_states import STATE
from tests.support.scripted_jobs import scripted_overrides, write_problems


def at(seconds: int) -> JobState:
    """Ten problems, 40 completions and 2,000 tokens a second, twice as many from 100 s on."""
    amount = seconds + max(0, seconds - 100)
    return replace(
        STATE,
        num_items_done=80 + amount,
        counters={**STATE.counters, "num_completions": 40 * amount},
        num_tokens=2000 * amount,
        num_tokens_left=2000.0 * (720 - amount),
    )


def test_rates_are_those_of_the_last_minute() -> None:
    meter = Meter()
    assert meter.update(at(0), 0.0).tokens_per_s is None
    for second in range(1, 201):
        rates = meter.update(at(second), float(second))
        if second == 50:
            assert (rates.items_per_s, rates.counters_per_s) == (1.0, {"num_completions": 40.0})
            assert rates.tokens_per_s == 2000.0
            assert rates.eta_s == 670.0  # 720 - 50 left, one a second
    assert rates.tokens_per_s == 4000.0
    assert rates.eta_s == 210.0  # 720 - 300 left, two a second


def test_another_run_has_rates_of_its_own() -> None:
    meter = Meter()
    for second in (0, 50):
        meter.update(at(second), float(second))
    meter.update(at(0), 60.0)
    assert meter.update(at(10), 70.0).tokens_per_s == 2000.0


def test_nothing_done_has_no_eta_and_a_cache_that_is_not_told_of_has_no_hits() -> None:
    meter = Meter()
    meter.update(STATE, 0.0)
    rates = meter.update(STATE, 10.0)
    assert (rates.eta_s, rates.tokens_per_s) == (None, 0.0)
    counters = STATE.counters
    assert LABEL_OUTPUTS.derived(counters) == {"cache_hits": None}
    told = {**counters, "num_prefill_tokens": 25, "num_cached_tokens": 75}
    assert LABEL_OUTPUTS.derived(told) == {"cache_hits": 0.75}


def test_a_line_says_what_there_is_to_say() -> None:
    output = io.StringIO()
    with job_progress(Console(file=output, width=400), "label") as show:
        show(
            replace(
                STATE,
                gauges={**STATE.gauges, "kv_usage": 0.871},
                counters={**STATE.counters, "num_preemptions": 3, "num_steps": 9},
                num_failures=1,
                num_live=1234,
            )
        )
    opening, line, *_ = output.getvalue().splitlines()
    assert opening == "label: reading inputs, loading libraries"
    assert "label: 80/800 problems" in line
    for said in ("2 engines", "1,234 live", "9 steps", "KV 87%", "3 preempted", "1 engines lost"):
        assert said in line
    assert "truncated" not in line and "cache" not in line and "GPU-h" not in line


def test_a_run_leaves_its_last_state(tmp_path: Path) -> None:
    out = tmp_path / "out"
    more = ["ray.address=none", "policy.engine={kind: scripted, truncate_rate: 0.2, delay_s: 0.05}"]
    changes = scripted_overrides(write_problems(tmp_path, 8), out, *more)
    report = jobs.label(load_config(LabelConfig, None, changes), lambda state: None)
    lines = (out / "progress.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert last["num_problems"] == 8
    assert 0 < last["num_completions"] <= sum(report.counts.values())
    assert 0 < last["num_truncated"] < last["num_completions"]
    assert last["num_tokens"] > 0 and last["num_replayed"] == 0
    assert totals(STATE) < set(last)
    documented = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    for name in totals(STATE):
        assert name in documented


def test_a_log_in_an_object_store_is_added_to(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}")
    store.append("log", b"one\n")
    store.append("log", b"two\n")
    assert store.read("log") == b"one\ntwo\n"
