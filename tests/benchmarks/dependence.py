"""Measure whether the posterior double-counts judges that repeat each other or the rollouts.

    python -m tests.benchmarks.dependence [--smoke | --quick]

The runs are simulated: their truth is known, and each prefix has 8 rollouts. The judges are
scripted: independent ones, copies of one judge, thresholds of one PRM, and a copier of the run's
own labels. For each set of judges, the benchmark reports the share of solutions whose first error
the posterior names, and the posterior's mean belief. Both are measured once with all judges taken
as independent (`independent`) and once with their dependence modelled (`told apart`). The figures
are means over the runs. No setting was chosen on these runs: the limits were set on other runs. The
last line is JSON.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from mclabel.judge.consensus.posterior import (
    RolloutEvidence,
    fit_independent_posterior,
    fuse_judges_with_rollouts,
)
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser
from tests.support.opinion_world import World, scripted, simulated

FIRST_SEED = 100
ROLLOUTS = 8


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    worlds = size.pick(smoke=1, quick=2, full=5)
    solutions = size.pick(smoke=200, quick=1000, full=2000)
    rows: dict[str, list[list[float]]] = defaultdict(list)
    for seed in range(FIRST_SEED, FIRST_SEED + worlds):
        world = simulated(seed, solutions, ROLLOUTS)
        shown = RolloutEvidence(chances=world.chances, num_steps=world.num_steps)
        for name, models in {"rollouts alone": {}, **scripted(world)}.items():
            before = fit_independent_posterior(shown, models).chances
            now = fuse_judges_with_rollouts(
                world.chances, world.num_steps, models, labels=world.labels
            ).chances
            rows[name].append([*_figures(world, before), *_figures(world, now)])
    names = ("independent: right", "belief", "told apart: right", "told apart: belief")
    judges = {
        name: dict(zip(names, np.mean(measurements, 0).round(4).tolist(), strict=True))
        for name, measurements in rows.items()
    }
    finish({"judges": judges})


def _figures(world: World, chances: np.ndarray) -> tuple[float, float]:
    return world.right(chances), float(chances.max(1).mean())


if __name__ == "__main__":
    main()
