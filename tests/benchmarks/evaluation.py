"""Measure the coverage of the evaluation's confidence bands.

    python -m tests.benchmarks.evaluation [--smoke | --quick]

`band_coverage` is the coverage of the 95% bands in 2,000 simulated runs (`--quick`: 400), by number
of problems and by figure. `furthest` is the coverage at 300 problems that is furthest from 0.95.
The last line is JSON.
"""

from __future__ import annotations

from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import SizedParser
from tests.support.bands import coverage, truths


def main() -> None:
    size = SizedParser(__doc__).read().size
    runs, counts = size.pick(
        smoke=(1, [300]), quick=(400, [300]), full=(2000, [10, 20, 40, 80, 300])
    )
    true = truths()
    coverage_by_count = {n: coverage(n, runs, true) for n in counts}
    finish(
        {
            "band_coverage": coverage_by_count,
            "furthest": max(coverage_by_count[300].values(), key=lambda share: abs(share - 0.95)),
        }
    )


if __name__ == "__main__":
    main()
