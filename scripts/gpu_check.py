"""What a machine with one GPU says of mclabel: tests, sampling and training beside their limits.

    scripts/gpu_check.sh [--tiny] OUT    # which also installs what the machine lacks

The steps (`gpu_steps`) run one after another in a process of their own. Where one fails or takes
too long, its process ends, and the next step begins in a new one. OUT/gpu_check.json is written
after every step.
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

from scripts.gpu_steps import FULL, TINY, Figures, Step, find_place, steps_of

TOTAL_S = 500.0
"""For all steps; with the installation before them, nine minutes."""
LEAST_S = 5.0
"""Seconds without which no step is begun."""
REPORT = "gpu_check.json"
Report = dict[str, Figures]


def main() -> None:
    """Run all steps, print the table, and end with 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="folder for the figures and the table")
    parser.add_argument("--tiny", action="store_true", help="small shapes; the CPU without a GPU")
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    steps = steps_of(TINY if args.tiny else FULL)
    path = args.out / REPORT
    if args.scratch is not None:
        run_steps(steps, path, args.scratch, tiny=args.tiny, until=args.until)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    _save(path, {name: {"status": "waiting"} for name in steps})
    until = time.time() + TOTAL_S
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "scripts.gpu_check", *sys.argv[1:]]
        command += ["--scratch", scratch, "--until", str(until)]
        while any(step["status"] == "waiting" for step in read_report(path).values()):
            ended = subprocess.run(command, check=False)
            close_running(path, ended.returncode)
    report = read_report(path)
    add_limits(report)
    _save(path, report)
    shown = table(report)
    (args.out / "gpu_check.txt").write_text(shown, encoding="utf-8")
    print(shown, end="")
    sys.exit(any(step["status"] != "ok" for step in report.values()))


def read_report(path: Path) -> Report:
    """The figures of all steps, by name."""
    report: Report = json.loads(path.read_text(encoding="utf-8"))
    return report


def _save(path: Path, report: Report) -> None:
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def run_steps(
    steps: Mapping[str, Step], path: Path, scratch: Path, *, tiny: bool, until: float
) -> None:
    """Run the steps that wait, in this process, until one fails.

    Args:
        steps: by name.
        path: of the report.
        scratch: folder that the steps share.
        tiny: take small shapes.
        until: by `time.time`; what waits then has failed.
    """
    report = read_report(path)
    for name, (limit_s, step) in steps.items():
        if report[name]["status"] != "waiting":
            continue
        seconds = min(limit_s, until - time.time())
        if seconds < LEAST_S:
            report[name] = {"status": "failed", "error": "no time was left for it"}
            _save(path, report)
            continue
        print(f"== {name}", flush=True)
        report[name] = {"status": "running", "limit_s": seconds}
        _save(path, report)
        signal.setitimer(signal.ITIMER_REAL, seconds)  # which ends the process, whatever it does
        started = time.monotonic()
        try:
            found = {"status": "ok", **step(find_place(scratch / "model", tiny=tiny))}
        except Exception as error:  # whatever fails is reported, and nothing goes on beside it
            traceback.print_exc()
            found = {"status": "failed", "error": f"{type(error).__name__}: {error}"}
            found["trace"] = traceback.format_exc()
        signal.setitimer(signal.ITIMER_REAL, 0)
        report[name] = {**found, "seconds": round(time.monotonic() - started, 2)}
        _save(path, report)
        if found["status"] == "failed":
            return
        _free()


def _free() -> None:
    """Give the device's memory back before the next step."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def close_running(path: Path, code: int) -> None:
    """Mark the step that ran when its process ended; if none ran, the first that waits.

    Args:
        path: of the report.
        code: with which the process ended.
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
    _save(path, report)


def add_limits(report: Report) -> None:
    """Add what the device's rates would allow to the steps that were measured, in place."""
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


def table(report: Report) -> str:
    """The figures for a reader."""
    lines = [
        "step          result",
        *(f"{name:<13} {_line(step)}" for name, step in report.items()),
    ]
    lines += [
        "",
        "all: tokens a second with the contexts' own computation. step: one token of every",
        "completion, without it. roofline: bytes of weights, keys and values that a step must",
        "read, over the rate of copying. The model is random, in the shape of Qwen2.5-1.5B.",
    ]
    return "\n".join(lines) + "\n"


def _line(step: Mapping[str, Any]) -> str:
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
    of_limit = "limit not known" if share is None else f"{share:.1%} of"
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
