"""Check that every benchmark still runs: each at its smoke size, in a separate process.

    python -m tests.benchmarks.smoke [NAME ...] [--all-must-run] [--not-run FILE]

A benchmark is any file of this folder that can be run as a program. Imports cost more than the work
at this size, so each process is forked from one that has imported the common packages. A benchmark
passes if it ends with exit code 0 and its last line is a JSON object with the keys in `keys.json`.
A benchmark that reports that it cannot run here is shown as "not run: reason", which fails only
with `--all-must-run`. The exit code is 1 if a benchmark fails. Record the keys of a new benchmark,
or changed keys, in `keys.json` by hand.

Most benchmarks take less than 20 s of one core. Each computes on one thread: with these models a
second thread would wait for the first. Some can take longer: `real_model` runs a model of 135
million parameters, and `scale`, `chaos` and `serving_parity` start Ray, a store or a server.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from tests.benchmarks.sizes import NOT_RUN
from tests.support.forked import CONTEXT, run_to_end

FOLDER = Path(__file__).parent
KEYS = FOLDER / "keys.json"
"""File with the keys of each benchmark's last line, which are the same at every size."""
PROGRAM = 'if __name__ == "__main__":'
LONGEST_S = 600.0
"""Seconds after which a running benchmark counts as hanging."""
SHOWN_LINES = 30


class Verdict(StrEnum):
    """The result of running a benchmark."""

    RAN = "ran"
    NOT_RUN = "not run"
    FAILED = "FAILED"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A benchmark that has ended or was killed."""

    verdict: Verdict
    reason: str
    """Reason why the benchmark did not run or failed; empty if it ran."""
    output: str
    """Last lines of stdout, followed by those of stderr."""
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    programs = benchmarks()
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="benchmarks to run; all by default"
    )
    parser.add_argument(
        "--all-must-run", action="store_true", help="fail if a benchmark cannot run here"
    )
    parser.add_argument(
        "--not-run",
        type=Path,
        metavar="FILE",
        help="file for the names of benchmarks that did not run",
    )
    args = parser.parse_args()
    if unknown := sorted({*args.names} - {*programs}):
        parser.error(
            f"There is no benchmark {', '.join(unknown)}. Name one of {', '.join(programs)}."
        )
    os.environ["OMP_NUM_THREADS"] = "1"
    results: dict[str, Ended] = {}
    for name in dict.fromkeys(args.names or programs):
        program = partial(_benchmark, name, "--smoke")
        ended = results[name] = run(program, recorded_keys().get(name, []))
        reason = f": {ended.reason}" if ended.reason else ""
        print(f"{name:24} {ended.seconds:6.1f} s  {ended.verdict}{reason}", flush=True)
        if ended.verdict is Verdict.FAILED:
            print(ended.output, flush=True)
    not_run = [name for name, ended in results.items() if ended.verdict is Verdict.NOT_RUN]
    if args.not_run is not None:
        args.not_run.write_text("".join(f"{name}\n" for name in not_run))
    bad = [name for name, ended in results.items() if ended.verdict is Verdict.FAILED]
    bad += not_run if args.all_must_run else []
    seconds = sum(ended.seconds for ended in results.values())
    print(f"{len(results) - len(bad)} of {len(results)} benchmarks pass, in {seconds:.0f} s")
    sys.exit(1 if bad else 0)


def benchmarks() -> list[str]:
    """Return the names of all benchmarks: the programs in this folder except this runner."""
    return sorted(
        path.stem
        for path in FOLDER.glob("*.py")
        if path != Path(__file__) and PROGRAM in path.read_text(encoding="utf-8").splitlines()
    )


def recorded_keys() -> dict[str, list[str]]:
    """Return the recorded keys of the last line, by benchmark."""
    keys: dict[str, list[str]] = json.loads(KEYS.read_text(encoding="utf-8"))
    return keys


def run(
    program: Callable[[], object], keys: Sequence[str], *, longest_s: float = LONGEST_S
) -> Ended:
    """Run a benchmark in a separate process, and judge how it ended.

    Args:
        program: function that runs the benchmark; it must be picklable.
        keys: keys that the last line must have, in any order.
        longest_s: seconds after which the benchmark and its child processes are killed.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("stdout", "stderr")]
        process = CONTEXT.Process(target=run_to_end, args=(program, *map(str, files)))
        process.start()
        try:
            process.join(longest_s)
        finally:
            is_late = process.is_alive()
            if is_late:
                assert process.pid is not None, "it was started"
                with suppress(ProcessLookupError):  # the process has not created its group yet
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
                process.join()
        texts = [path.read_text() if path.exists() else "" for path in files]
    if is_late:
        verdict, reason = Verdict.FAILED, f"it has not ended within {longest_s:g} s"
    else:
        verdict, reason = _judge_run(process.exitcode, texts[0], keys)
    return Ended(
        verdict=verdict,
        reason=reason,
        output="\n".join(line for text in texts for line in text.splitlines()[-SHOWN_LINES:]),
        seconds=time.monotonic() - began,
    )


def _benchmark(name: str, size: str) -> None:
    """Run a benchmark as `python -m tests.benchmarks.NAME SIZE` does."""
    sys.argv[1:] = [size]
    runpy.run_module(f"tests.benchmarks.{name}", run_name="__main__", alter_sys=True)


def _judge_run(code: int | None, stdout: str, keys: Sequence[str]) -> tuple[Verdict, str]:
    """Return the verdict on a benchmark that ended by itself, and the reason if it did not pass."""
    last = (stdout.splitlines() or [""])[-1]
    if code == NOT_RUN:
        return Verdict.NOT_RUN, last
    if code != 0:
        return Verdict.FAILED, f"it ended with exit code {code}"
    try:
        figures = json.loads(last)
    except json.JSONDecodeError:
        figures = None
    if not isinstance(figures, dict):
        return Verdict.FAILED, f"its last line is not a JSON object: {last[:80]!r}"
    missing, new = sorted({*keys} - {*figures}), sorted({*figures} - {*keys})
    if missing or new:
        return Verdict.FAILED, (
            f"the keys of its last line differ from {KEYS.name}: missing {missing}, new {new}"
        )
    return Verdict.RAN, ""


if __name__ == "__main__":
    main()
