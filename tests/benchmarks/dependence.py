"""Does the posterior count a judge twice? Judges that repeat each other, or the rollouts.

    python -m tests.benchmarks.dependence [--smoke | --quick]

Simulated runs whose truth is known, with 8 and with 2 rollouts from each prefix, and scripted
judges: independent ones, copies, thresholds of one PRM, a copier of the run's own labels. For each
set of judges: the share of the solutions whose first error the posterior names, and its mean
belief, if all judges are taken for independent and as they are told apart; means over the runs.
Nothing is chosen on these runs: limits were set on others. The last line is JSON.
"""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
from rich.console import Console
from rich.table import Table

from mclabel.judge.consensus.posterior import Shown, fuse, multiplied
from tests.benchmarks.sizes import BenchmarkSize, SizedParser
from tests.support.opinion_world import World, scripted, simulated

FIRST_SEED = 100
ROLLOUTS = (8, 2)

Figures = dict[str, list[float]]


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    worlds = size.pick(smoke=1, quick=2, full=5)
    solutions = size.pick(smoke=200, quick=1000, full=2000)
    summary = {}
    for rollouts in ROLLOUTS:
        found = measure(worlds, solutions, rollouts)
        Console(width=110).print(_table(found, rollouts))
        summary[f"{rollouts} rollouts"] = {
            name: [round(float(x), 4) for x in row] for name, row in found.items()
        }
    print(json.dumps(summary))


def measure(worlds: int, solutions: int, rollouts: int) -> Figures:
    """Right and believed, as if judges were independent, and right and believed as they are."""
    rows: dict[str, list[list[float]]] = defaultdict(list)
    for seed in range(FIRST_SEED, FIRST_SEED + worlds):
        world = simulated(seed, solutions, rollouts)
        shown = Shown(chances=world.chances, num_steps=world.num_steps)
        for name, models in {"rollouts alone": {}, **scripted(world)}.items():
            before = multiplied(shown, models).chances
            now = fuse(world.chances, world.num_steps, models, labels=world.labels).chances
            rows[name].append([*_figures(world, before), *_figures(world, now)])
    return {name: np.mean(found, 0).tolist() for name, found in rows.items()}


def _figures(world: World, chances: np.ndarray) -> tuple[float, float]:
    return world.right(chances), float(chances.max(1).mean())


def _table(found: Figures, rollouts: int) -> Table:
    table = Table(title=f"{rollouts} rollouts from each prefix", title_justify="left")
    table.add_column("judges")
    for column in ("as independent: right", "belief", "told apart: right", "belief"):
        table.add_column(column, justify="right")
    for name, row in found.items():
        table.add_row(name, *(f"{x:.3f}" for x in row))
    return table


if __name__ == "__main__":
    main()
