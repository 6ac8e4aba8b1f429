"""Check that a run's folder has every solution exactly once, for several tests."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from mclabel.core.records import Outcome
from mclabel.run.parquet import read_whole_table
from mclabel.run.shards.durable import PARTIAL
from mclabel.run.shards.labels import iter_label_tables, read_labels
from mclabel.run.shards.store import Store


def check_exact(out: Path, num_problems: int = 20, per_problem: int = 4) -> None:
    """Check that a run has every solution once, with the counts of its own attempt's rollouts."""
    check_exact_store(Store(str(out)), num_problems, per_problem)
    assert not [p for p in out.rglob("*") if p.is_file() and p.parent.name == PARTIAL]


def check_exact_store(store: Store, num_problems: int = 20, per_problem: int = 4) -> None:
    """Make the checks of `check_exact` on the solutions of any store."""
    check_solutions(store, range(num_problems), per_problem)


def check_solutions(store: Store, problems: Iterable[int], per_problem: int = 4) -> None:
    """Make the checks of `check_exact` when only these problems have labels."""
    named = set()
    for metadata, labels in iter_label_tables(store):
        named.add(metadata["rollouts"])
        file = pq.ParquetFile(io.BytesIO(store.read(metadata["rollouts"]) or b""))
        rollouts = read_whole_table(file).to_pylist()
        counted: dict[str, Counter[str]] = {}
        for rollout in rollouts:
            counted.setdefault(rollout["prefix_id"], Counter())[rollout["outcome"]] += 1
        for row in labels.to_pylist():
            for step in row["steps"][:-1]:
                counts = counted.get(step["prefix_id"], Counter())
                for outcome in Outcome:
                    assert step[f"num_{outcome}"] == counts[outcome]
    rows = [(row.problem.id, row.solution.sample_index) for row in read_labels(store)]
    assert sorted(rows) == sorted((f"p{i}", j) for i in problems for j in range(per_problem))
    assert {*store.names("rollouts")} == named
