"""Label quality of each estimator against exact truth, with its cost.

    python -m tests.benchmarks.label_quality [--smoke | --quick] [--out FOLDER]

Labels the same sampled solutions of arith test problems with `fixed` K=16 and with `bisect` and
prints quality by answer type and tokens per labelled solution, with and without sharing
prefixes; the last line is JSON. 250 problems and 1,000 solutions; `--quick` 40 and 160.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from mclabel import jobs
from mclabel.core.config.load import bundled_config, load_config
from mclabel.core.records import LabeledSolution
from mclabel.evaluate.grouping import by_meta, solution_meta
from mclabel.evaluate.labels.quality import label_cost, label_quality
from mclabel.evaluate.labels.show import quality_table
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.show.progress import job_progress
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

SEED = 20


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--out", type=Path, help="keep the shards here, and resume from them")
    args = parser.read()
    console = Console(emoji=False)
    with tempfile.TemporaryDirectory() as scratch:
        out = args.out or Path(scratch)
        count = args.size.pick(smoke=2, quick=40, full=250)
        more = ["ray.address=none"] if args.size is BenchmarkSize.SMOKE else []
        runs = {
            name: _label(out / name, name, count, more, console) for name in ("fixed", "bisect")
        }
    figures = {}
    for name, rows in runs.items():
        groups = {"all": rows, **by_meta(rows, "answer_type", solution_meta)}
        quality = {group: label_quality(members) for group, members in groups.items()}
        cost = label_cost(rows)
        console.print(
            f"\n[bold]{name}[/bold]: {cost.tokens_per_solution:,.0f} tokens a solution, "
            f"{cost.tokens_per_solution_unshared:,.0f} without sharing prefixes"
        )
        console.print(quality_table(quality))
        figures[name] = {**asdict(cost), **{g: asdict(q) for g, q in quality.items()}}
    assert [r.solution for r in runs["fixed"]] == [r.solution for r in runs["bisect"]]
    print(json.dumps(figures))


def _label(
    out: Path, kind: str, count: int, more: Sequence[str], console: Console
) -> list[LabeledSolution]:
    changes = [f"out={out}", f"estimator.kind={kind}", f"problems.limit={count}", *more]
    config = load_config(
        LabelConfig,
        bundled_config("label/quickstart.yaml"),
        [*changes, f"problems.seed={SEED}", f"seed={SEED}"],
    )
    with job_progress(console, kind) as progress:
        jobs.label(config, progress)
    rows = read_labels(Store(str(out)))
    return sorted(rows, key=lambda row: (row.problem.id, row.solution.sample_index))


if __name__ == "__main__":
    main()
