"""Can the evaluation be trusted: coverage of its bands, and ProcessBench's metric by hand.

    python -m tests.benchmarks.evaluation [--smoke | --quick] [--quickstart RUN]

Prints each part's figures; the last line is JSON. `band_coverage` is, of all figures, the coverage
at 300 problems that is furthest from the nominal .95; `processbench_literals_ok` says whether
predictions whose result is known from the sizes of the splits give it (null without the data
sets); `seconds_best_of_256` is a best-of-256 evaluation of 304 problems of all families, with the
PRM and the ORM of a quickstart, which is made first unless given. Full: 2,000 simulated runs, half
an hour with a quickstart; `--quick` 400, and best of 32 on 24 problems.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.data.readers.judged import read_processbench
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.quickstart.toy import run_quickstart
from tests.benchmarks.sizes import BenchmarkSize, SizedParser
from tests.support.bands import coverage, truths
from tests.support.processbench_cases import CASES, check_case

CONFIG = Path(__file__).parents[2] / "configs" / "eval" / "arith-256.yaml"
DATA = Path(__file__).parents[3] / "shared" / "data"


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--quickstart", type=Path, help="output of a quickstart, for its scorers")
    args = parser.read()
    print(json.dumps({name: part(args) for name, part in PARTS.items()}))


def _band_coverage(args: argparse.Namespace) -> float:
    true = truths()
    runs = args.size.pick(smoke=2, quick=400, full=2000)
    counts = [10, 20, 40, 80, 300] if args.size is BenchmarkSize.FULL else [300]
    found = {n: coverage(n, runs, true) for n in counts}
    print(f"coverage of 95% bands in {runs:,} simulated runs, by number of problems")
    for name in true:
        print(f"  {name:28}" + "".join(f"  {n}: {by[name]:.3f}" for n, by in found.items()))
    return max(found[300].values(), key=lambda share: abs(share - 0.95))


def _processbench_literals_ok(args: argparse.Namespace) -> bool | None:
    if not DATA.is_dir():
        return None
    splits = {n: read_processbench(DATA / f"processbench_{n}.jsonl") for n in ("gsm8k", "math")}
    wrong = [name for name in CASES if not check_case(name, splits)]
    print(f"ProcessBench: {len(CASES) - len(wrong)} of {len(CASES)} known predictions as by hand")
    return not wrong


def _seconds_best_of_256(args: argparse.Namespace) -> float:
    with tempfile.TemporaryDirectory() as scratch:
        scorers = args.quickstart
        if scorers is None:
            scorers = Path(scratch) / "quickstart"
            whole = args.size is BenchmarkSize.FULL
            run_quickstart("full" if whole else "small", scorers, Console(file=sys.stderr))
        config = load_config(
            BestOfNConfig,
            CONFIG,
            [
                f"scorers={{prm: {scorers / 'prm'}, orm: {scorers / 'orm'}}}",
                f"out={Path(scratch) / 'best'}",
                *args.size.pick(
                    smoke=["samples=4", "problems.limit=8"],
                    quick=["samples=32", "problems.limit=24"],
                    full=[],
                ),
            ],
        )
        began = time.perf_counter()
        report = jobs.best_of_n(config, on_state=lambda state: None, on_score=lambda *figures: None)
        seconds = time.perf_counter() - began
    most = config.samples
    print(f"best of {most} on {config.problems.limit} problems: {seconds:.0f} s")
    for method, curve in report.result.accuracy.items():
        print(f"  {method:28}" + "".join(f"  {n}: {at.value:.3f}" for n, at in curve.items()))
    return round(seconds, 1)


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "band_coverage": _band_coverage,
    "processbench_literals_ok": _processbench_literals_ok,
    "seconds_best_of_256": _seconds_best_of_256,
}
"""One figure of the last line each."""


if __name__ == "__main__":
    main()
