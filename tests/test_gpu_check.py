"""The check of a machine with a GPU, at small sizes; a failed step hides no other step."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from scripts.gpu_check import (
    REPORT,
    Report,
    add_limits,
    close_running,
    format_report_table,
    read_report,
    run_steps,
)
from scripts.gpu_steps import CheckDevice, Figures

ROOT = Path(__file__).parents[1]


def measure_nothing(place: CheckDevice) -> Figures:
    return {"num_parameters": 7}


def fail_without_gpu(place: CheckDevice) -> Figures:
    raise ValueError("no GPU today")


def test_steps_that_fail_are_named_and_the_others_are_run(tmp_path: Path) -> None:
    steps = {
        "first": (60.0, measure_nothing),
        "tests": (60.0, fail_without_gpu),
        "last": (60.0, measure_nothing),
    }
    path = tmp_path / REPORT
    report: Report = {name: {"status": "waiting"} for name in [*steps, "lost"]}
    path.write_text(json.dumps({"device": {"status": "failed", "error": "unknown"}, **report}))
    for _ in range(2):  # the first call ends with the failure
        run_steps(steps, path, tmp_path, tiny=True, until=1e12)
    report = read_report(path)
    report["lost"] = {"status": "running", "limit_s": 7.0}
    path.write_text(json.dumps(report))
    close_running(path, -signal.SIGALRM)
    report = read_report(path)
    add_limits(report)
    lines = dict(line.split(maxsplit=1) for line in format_report_table(report).splitlines()[1:6])
    assert lines["first"] == lines["last"] == "7 parameters"
    assert lines["tests"] == "FAILED: ValueError: no GPU today"
    assert lines["lost"] == "FAILED: it took longer than its 7 s"


def test_no_step_begins_when_the_time_is_over(tmp_path: Path) -> None:
    path = tmp_path / REPORT
    path.write_text(json.dumps({"one": {"status": "waiting"}, "two": {"status": "ok"}}))
    run_steps({"one": (9.0, fail_without_gpu)}, path, tmp_path, tiny=True, until=0)
    assert read_report(path)["one"]["error"] == "no time was left for it"


@pytest.mark.slow
def test_the_script_runs_on_this_machine(tmp_path: Path) -> None:
    command = ["bash", str(ROOT / "scripts/gpu_check.sh"), "--tiny", str(tmp_path / "out")]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.endswith((tmp_path / "out/gpu_check.txt").read_text())
    report = read_report(tmp_path / "out" / REPORT)
    assert all(step["status"] == "ok" for step in report.values())
    engine, device = report["engine-16"], report["device"]
    assert engine["kv_bytes"] == 2 * 2 * 2 * 2 * 16 * (2 * 16 + 16 * 2)
    assert report["generate-16"]["kv_bytes"] == 2 * 2 * 2 * 2 * 16 * (16 * 16 + 16 * 2)
    rate = device["copy_bytes_per_s"] / (engine["weight_bytes"] + engine["kv_bytes"])
    assert engine["roofline_tokens_per_s"] == pytest.approx(16 * rate)
    assert f"roofline {16 * rate:,.0f} tokens/s" in ended.stdout
    assert report["training"]["matmul_share"] > 0
