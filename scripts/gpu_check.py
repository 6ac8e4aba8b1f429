"""Test mclabel on a machine with one GPU, and compare its speed with the limits of the device.

    scripts/gpu_check.sh [--tiny] OUT    # also installs missing packages

The steps (`gpu_steps`) run one after another in a child process. If a step fails or exceeds its
time limit, the child process ends, and the next step runs in a new child process.
OUT/gpu_check.json is written after every step.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.gpu_steps import FULL, TINY, Figures, Step, find_check_device, list_steps

TOTAL_S = 500.0
"""Maximum seconds for all steps. The installation before them and all steps take at most nine
minutes."""
LEAST_S = 5.0
"""Minimum seconds left to start a step."""
REPORT = "gpu_check.json"
Report = dict[str, Figures]


def main() -> None:
    """Run all steps and print the table. The exit code is 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="folder for the figures and the table")
    parser.add_argument(
        "--tiny", action="store_true", help="use small shapes, and the CPU if there is no GPU"
    )
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    size = TINY if args.tiny else FULL
    steps = list_steps(size)
    path = args.out / REPORT
    if args.scratch is not None:
        run_steps(steps, path, args.scratch, tiny=args.tiny, until=args.until)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    _save_report(path, {name: {"status": "waiting"} for name in steps})
    until = time.time() + TOTAL_S * size.time_factor
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "scripts.gpu_check", *sys.argv[1:]]
        command += ["--scratch", scratch, "--until", str(until)]
        while any(step["status"] == "waiting" for step in read_report(path).values()):
            ended = subprocess.run(command, check=False)
            close_running(path, ended.returncode)
    report = read_report(path)
    add_limits(report)
    _save_report(path, report)
    shown = format_report_table(report)
    (args.out / "gpu_check.txt").write_text(shown, encoding="utf-8")
    print(shown, end="")
    sys.exit(any(step["status"] != "ok" for step in report.values()))


def read_report(path: Path) -> Report:
    """Read the figures of all steps, by the step's name."""
    report: Report = json.loads(path.read_text(encoding="utf-8"))
    return report


def _save_report(path: Path, report: Report) -> None:
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def run_steps(
    steps: Mapping[str, Step], path: Path, scratch: Path, *, tiny: bool, until: float
) -> None:
    """Run the waiting steps in this process, until a step fails.

    Args:
        steps: steps by name.
        path: path of the report.
        scratch: folder that the steps share.
        tiny: True uses small shapes.
        until: time limit, as a value of `time.time`. Steps that are still waiting then fail.
    """
    report = read_report(path)
    for name, (limit_s, step) in steps.items():
        if report[name]["status"] != "waiting":
            continue
        seconds = min(limit_s, until - time.time())
        if seconds < LEAST_S:
            report[name] = {"status": "failed", "error": "no time was left for it"}
            _save_report(path, report)
            continue
        print(f"== {name}", flush=True)
        report[name] = {"status": "running", "limit_s": seconds}
        _save_report(path, report)
        signal.setitimer(signal.ITIMER_REAL, seconds)  # ends the process even if it hangs
        started = time.monotonic()
        try:
            found = {"status": "ok", **step(find_check_device(scratch / "model", tiny=tiny))}
        except Exception as error:  # every failure is reported, and this process runs no more steps
            traceback.print_exc()
            found = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
            found["trace"] = traceback.format_exc()
        signal.setitimer(signal.ITIMER_REAL, 0)
        report[name] = {**found, "seconds": round(time.monotonic() - started, 2)}
        _save_report(path, report)
        if found["status"] == "failed":
            return
        _free_device_memory()


def _free_device_memory() -> None:
    """Free the device's memory before the next step."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def close_running(path: Path, code: int) -> None:
    """Mark the step that was running when the child process ended as failed.

    If no step was running and the exit code is not 0, the first waiting step is marked instead.

    Args:
        path: path of the report.
        code: exit code of the child process.
    """
    report = read_report(path)
    running = [name for name, step in report.items() if step["status"] == "running"]
    waiting = [name for name, step in report.items() if step["status"] == "waiting"]
    if not running and code == 0:
        return
    for name in running or waiting[:1]:
        error = f"its process ended with {code}"
        if code == -signal.SIGALRM:
            error = f"it took longer than its {report[name]['limit_s']:.0f} s"
        report[name] = {"status": "failed", "error": error}
    _save_report(path, report)


def add_limits(report: Report) -> None:
    """Add each measured step's share of the limit that the device's rates set, in place."""
    device = report["device"]
    if device["status"] != "ok":
        return
    for step in report.values():
        if step["status"] != "ok":
            continue
        if "weight_bytes" in step:
            least_s = (step["weight_bytes"] + step["kv_bytes"]) / device["copy_bytes_per_s"]
            step["roofline_tokens_per_s"] = step["live"] / least_s
            step["roofline_share"] = least_s / step["step_s"]
        if "flop" in step:
            step["matmul_share"] = step["flop_per_s"] / device["matmul_flop_per_s"]


def format_report_table(report: Report) -> str:
    """Return the figures as a text table."""
    lines = [
        "step          result",
        *(f"{name:<13} {_format_step_line(step)}" for name, step in report.items()),
    ]
    lines += [
        "",
        "all: tokens per second, including the computation of the contexts. step: time for one",
        "token of every completion, without the contexts. roofline: limit from the bytes of",
        "weights, keys and values that a step must read, and the measured copy rate.",
        "The model has random weights and the shape of Qwen2.5-1.5B.",
    ]
    return "\n".join(lines) + "\n"


def _format_step_line(step: Mapping[str, Any]) -> str:
    if step["status"] != "ok":
        return f"FAILED: {step['error'].splitlines()[0][:200]}"
    if "copy_bytes_per_s" in step:
        return (
            f"{step['name']}: copy {step['copy_bytes_per_s'] / 1e9:,.1f} GB/s, bf16 matmul "
            f"{step['matmul_flop_per_s'] / 1e12:,.2f} TFLOP/s; Python {step['python']}, torch "
            f"{step['torch']}, transformers {step['transformers']}"
        )
    if "passed" in step:
        return f"{step['passed']} passed in {step['seconds']} s"
    if "num_parameters" in step:
        return f"{step['num_parameters']:,} parameters"
    share = step.get("roofline_share", step.get("matmul_share"))
    of_limit = "limit unknown" if share is None else f"{share:.1%} of"
    if "flop" in step:
        limit = "" if share is None else " the matmul rate"
        return (
            f"{step['step_s'] * 1e3:,.1f} ms/step, {step['tokens_per_s']:,.0f} tokens/s, "
            f"{step['flop_per_s'] / 1e12:,.2f} TFLOP/s, {of_limit}{limit}"
        )
    limit = "" if share is None else f" roofline {step['roofline_tokens_per_s']:,.0f} tokens/s"
    return (
        f"all {step['tokens_per_s']:,.0f} tokens/s; step {step['step_s'] * 1e3:,.1f} ms, "
        f"{step['live'] / step['step_s']:,.0f} tokens/s, {of_limit}{limit}"
    )


if __name__ == "__main__":
    main()
