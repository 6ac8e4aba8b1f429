"""Can the evaluation be trusted: coverage of its bands, and ProcessBench's metric by hand.

    python -m tests.benchmarks.evaluation [--quick]

Prints each part's figures; the last line is JSON. `band_coverage` is, of all figures, the coverage
at 300 problems that is furthest from the nominal .95; `processbench_literals_ok` says whether
predictions whose result is known from the sizes of the splits give it (null without the data
sets). Full: 2,000 simulated runs, about five minutes; `--quick` 400.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # as for pytest

from bands import coverage, truths
from processbench_cases import CASES, check_case

from mclabel.data.judged import read_processbench

DATA = Path(__file__).parents[3] / "shared" / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(json.dumps({name: part(quick) for name, part in PARTS.items()}))


def _band_coverage(quick: bool) -> float:
    true = truths()
    runs = 400 if quick else 2000
    found = {n: coverage(n, runs, true) for n in ([300] if quick else [10, 20, 40, 80, 300])}
    print(f"coverage of 95% bands in {runs:,} simulated runs, by number of problems")
    for name in true:
        print(f"  {name:28}" + "".join(f"  {n}: {by[name]:.3f}" for n, by in found.items()))
    return max(found[300].values(), key=lambda share: abs(share - 0.95))


def _processbench_literals_ok(quick: bool) -> bool | None:
    if not DATA.is_dir():
        return None
    splits = {n: read_processbench(DATA / f"processbench_{n}.jsonl") for n in ("gsm8k", "math")}
    wrong = [name for name in CASES if not check_case(name, splits)]
    print(f"ProcessBench: {len(CASES) - len(wrong)} of {len(CASES)} known predictions as by hand")
    return not wrong


PARTS: dict[str, Callable[[bool], Any]] = {
    "band_coverage": _band_coverage,
    "processbench_literals_ok": _processbench_literals_ok,
}
"""One figure of the last line each."""


if __name__ == "__main__":
    main()
