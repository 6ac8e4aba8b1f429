"""Labelling, training and reading in this process, as benchmarks do them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from mclabel import jobs
from mclabel.core.config.load import bundled_config, load_config
from mclabel.core.records import LabeledSolution
from mclabel.labeling.config import LabelConfig
from mclabel.prm.config import TrainConfig
from mclabel.run.shards.labels import commit_block, read_labels
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from tests.benchmarks.sizes import BenchmarkSize

QUICKSTART = "quickstart.yaml"
STRONG = "{model: arith:strong, max_tokens: 200, temperature: 0.8, engine: {max_live: 1024}}"
"""The completer that is better trained than the policy."""


def label(
    out: Path | str, *changes: str, config: str = QUICKSTART, allow: Sequence[str] = ()
) -> JobReport:
    """Label by a bundled configuration, as far as that is not done yet.

    Args:
        out: of the run.
        changes: overrides of the configuration.
        config: its file under configs/label.
        allow: modules that an override may name.
    """
    keys = ["ray.address=none", *changes, f"out={out}"]
    loaded = load_config(LabelConfig, bundled_config(f"label/{config}"), keys, allow=allow)
    return jobs.label(loaded, lambda state: None)


def train(labels: Sequence[Path], out: Path, *changes: str, config: str = QUICKSTART) -> None:
    """Train a scorer by a bundled configuration, as far as that is not done yet.

    Args:
        labels: runs.
        out: of the training.
        changes: overrides of the configuration.
        config: its file under configs/train.
    """
    keys = [f"labels={json.dumps([*map(str, labels)])}", *changes, f"out={out}"]
    loaded = load_config(TrainConfig, bundled_config(f"train/{config}"), keys)
    jobs.train(loaded, lambda step, total, loss: None)


def quickstart_prm(work: Path, size: BenchmarkSize, *changes: str) -> Path:
    """A PRM of the bundled policy as the quickstart trains it, on problems of the train split.

    Args:
        work: folder of the labels and the PRM; what is finished there is not made again.
        size: of the benchmark.
        changes: further keys of the labelling.
    """
    limit = size.pick(smoke=3, quick=200, full=1000)
    keys = ["problems.split=train", f"problems.limit={limit}", "estimator=posterior", *changes]
    label(work / "labels", *size.pick(smoke=[*keys, CHEAP], quick=keys, full=keys))
    train([work / "labels"], work / "prm", *size.pick(smoke=["max_steps=1"], quick=[], full=[]))
    return work / "prm"


CHEAP = "estimator.min_gain=4"
"""Of `posterior` at the smoke size."""


def read_rows(run: Path | str) -> list[LabeledSolution]:
    """The labels of a run, by problem and sample."""
    rows = read_labels(Store(str(run)))
    return sorted(rows, key=lambda row: (row.problem.id, row.solution.sample_index))


def write_rows(run: Path, rows: Sequence[LabeledSolution]) -> None:
    """A run that holds these labels."""
    commit_block(Store(str(run), create=True), "0" * 16, "chosen", rows, None, {})
