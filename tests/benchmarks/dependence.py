"""Does the posterior count a judge twice? Judges that repeat each other, or the rollouts.

    python -m tests.benchmarks.dependence [--smoke | --quick]

Simulated runs whose truth is known, with 8 rollouts from each prefix, and scripted judges:
independent ones, copies, thresholds of one PRM, a copier of the run's own labels. For each set of
judges: the share of the solutions whose first error the posterior names, and its mean belief, if
all judges are taken for independent and as they are told apart; means over the runs. Nothing is
chosen on these runs: limits were set on others. The last line is JSON.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from mclabel.judge.consensus.posterior import RolloutEvidence, fuse, multiplied
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
            before = multiplied(shown, models).chances
            now = fuse(world.chances, world.num_steps, models, labels=world.labels).chances
            rows[name].append([*_figures(world, before), *_figures(world, now)])
    names = ("independent: right", "belief", "told apart: right", "told apart: belief")
    judges = {
        name: dict(zip(names, np.mean(found, 0).round(4).tolist(), strict=True))
        for name, found in rows.items()
    }
    finish({"judges": judges})


def _figures(world: World, chances: np.ndarray) -> tuple[float, float]:
    return world.right(chances), float(chances.max(1).mean())


if __name__ == "__main__":
    main()
