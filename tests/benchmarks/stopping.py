"""Ctrl-C at any moment: how long `mclabel label` takes to end, how it ends, what it says.

    python -m tests.benchmarks.stopping [--smoke | --quick] [--address local]

Starts the quickstart's labelling with the embedded engine, sends SIGINT to its process group, as a
terminal does, after a random delay between 0.1 and 12 s (6 at the smoke size), and measures the
seconds until the process has ended. Each run goes on with what the one before has left; at the end
the job is finished and every solution must be there once. The exit code is 1 if a command ended
with a traceback or another code than 130 (0, where the work was done first; death by SIGINT, where
Python itself was only being started), or if rows are lost. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.benchmarks.sizes import SizedParser

EARLIEST_S = 0.1
HANG_S = 120.0
PER_PROBLEM = 4


@dataclass(frozen=True, kw_only=True)
class Stop:
    """How a command ended after SIGINT."""

    delay_s: float
    """From the start to the signal."""
    seconds: float
    """From the signal to the end; 0 if the command had ended before it."""
    exit_code: int
    said: str
    """What it printed, standard error included."""

    @property
    def is_bad(self) -> bool:
        """Whether it ended otherwise than in order."""
        return "Traceback" in self.said or self.exit_code not in (0, 130, -signal.SIGINT)


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--address", default="none", help="none, or local for a Ray of its own")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.read()
    times = args.size.pick(smoke=2, quick=15, full=60)
    problems = args.size.pick(smoke=4, quick=200, full=200)
    latest_s = args.size.pick(smoke=6.0, quick=12.0, full=12.0)
    # A shell's background jobs ignore it, and hand that down.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        out, round_ = Path(folder) / "out-0", 0
        stops: list[Stop] = []
        num_lost = 0
        while len(stops) < times:
            delay_s = chance.uniform(EARLIEST_S, latest_s)
            stop = _stopped(_command(out, problems, args.address), delay_s)
            stops.append(stop)
            last = stop.said.strip().splitlines()[-1:] or [""]
            print(
                f"{len(stops)}: SIGINT after {stop.delay_s:.2f} s, ended {stop.seconds:.2f} s "
                f"later with {stop.exit_code}: {last[0][:90]}",
                flush=True,
            )
            if stop.is_bad:
                print(stop.said, flush=True)
            if stop.exit_code == 0:  # done before the signal: check it, and begin another
                num_lost += _num_wrong(out, problems)
                round_ += 1
                out = out.with_name(f"out-{round_}")
        subprocess.run(_command(out, problems, "none"), check=True, capture_output=True)
        num_lost += _num_wrong(out, problems)
    taken = sorted(stop.seconds for stop in stops if stop.exit_code == 130)
    num_bad = sum(stop.is_bad for stop in stops)
    figures = {
        "times": len(stops),
        "exit_codes": Counter(stop.exit_code for stop in stops),
        "bad": num_bad,
        "solutions_lost_or_twice": num_lost,
        "seconds": [taken[0], statistics.median(taken), taken[-1]] if taken else None,
        "over_5_s": sum(seconds > 5 for seconds in taken),
    }
    print(json.dumps(figures))
    sys.exit(1 if num_bad or num_lost else 0)


def _command(out: Path, problems: int, address: str) -> list[str]:
    words = [sys.executable, "-m", "mclabel", "label", "configs/label/quickstart.yaml"]
    return [*words, f"out={out}", f"problems.limit={problems}", f"ray.address={address}"]


def _stopped(command: list[str], delay_s: float) -> Stop:
    with tempfile.TemporaryFile("w+") as said:
        job = subprocess.Popen(
            command, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        began = time.monotonic()
        try:
            job.wait(delay_s)
            seconds = 0.0
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGINT)
            sent = time.monotonic()
            try:
                job.wait(HANG_S)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
            seconds = time.monotonic() - sent
        said.seek(0)
        return Stop(
            delay_s=min(delay_s, time.monotonic() - began),
            seconds=seconds,
            exit_code=job.returncode,
            said=said.read(),
        )


def _num_wrong(out: Path, problems: int) -> int:
    """Solutions that a finished run lacks, or has more than once."""
    counts = Counter(
        (row.problem.id, row.solution.sample_index) for row in read_labels(Store(str(out)))
    )
    extra = sum(count - 1 for count in counts.values())
    return extra + abs(problems * PER_PROBLEM - len(counts))


if __name__ == "__main__":
    main()
