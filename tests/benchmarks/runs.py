"""Labelling, training and reading of runs in this process, for benchmarks."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mclabel import jobs
from mclabel.core.config.load import find_bundled_config, load_config
from mclabel.core.records import Counts, LabeledSolution, Rollout
from mclabel.data.readers.judged import JudgedSolution
from mclabel.labeling.config import LabelConfig
from mclabel.prm.config import TrainConfig
from mclabel.run.shards.labels import commit_block, read_labels
from mclabel.run.shards.manifest import MANIFEST, SemanticConfig, claim_manifest, read_manifest
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from tests.benchmarks.sizes import BenchmarkSize

QUICKSTART, SMOLLM2 = "quickstart.yaml", "quickstart-smollm2.yaml"
"""Configurations under configs/label for the bundled policy and for SmolLM2-135M."""
STRONG = "{model: arith:strong, max_tokens: 200, temperature: 0.8, engine: {max_live: 1024}}"
"""The completer with the better trained model."""


def label(
    out: Path | str, *changes: str, config: str = QUICKSTART, allow: Sequence[str] = ()
) -> JobReport:
    """Label by a bundled configuration, or resume an unfinished run.

    Args:
        out: folder of the run.
        changes: overrides of the configuration.
        config: name of the configuration's file under configs/label.
        allow: modules that an override may name.
    """
    keys = ["ray.address=none", *changes, f"out={out}"]
    loaded = load_config(LabelConfig, find_bundled_config(f"label/{config}"), keys, allow=allow)
    return jobs.label(loaded, lambda state: None)


def train(labels: Sequence[Path], out: Path, *changes: str, config: str = QUICKSTART) -> None:
    """Train a scorer by a bundled configuration, or resume an unfinished training.

    Args:
        labels: folders of runs.
        out: folder of the training.
        changes: overrides of the configuration.
        config: name of the configuration's file under configs/train.
    """
    keys = [f"labels={json.dumps([*map(str, labels)])}", *changes, f"out={out}"]
    loaded = load_config(TrainConfig, find_bundled_config(f"train/{config}"), keys)
    jobs.train(loaded, lambda step, total, loss: None)


def quickstart_prm(work: Path, size: BenchmarkSize, *changes: str) -> Path:
    """Train a PRM of the bundled policy as the quickstart does, on problems of the train split.

    Args:
        work: folder of the labels and the PRM; finished parts are not repeated.
        size: size of the benchmark.
        changes: further overrides of the labelling.
    """
    limit = size.pick(smoke=3, quick=200, full=1000)
    keys = ["problems.split=train", f"problems.limit={limit}", "estimator=posterior", *changes]
    label(work / "labels", *size.pick(smoke=[*keys, CHEAP], quick=keys, full=keys))
    train([work / "labels"], work / "prm", *size.pick(smoke=["max_steps=1"], quick=[], full=[]))
    return work / "prm"


CHEAP = "estimator.min_gain=4"
"""Override of `posterior` at the smoke size."""


def read_rows(run: Path | str) -> list[LabeledSolution]:
    """Return the labels of a run, sorted by problem and sample."""
    rows = read_labels(Store(str(run)))
    return sorted(rows, key=lambda row: (row.problem.id, row.solution.sample_index))


def sampled_source(work: Path, judged: Sequence[JudgedSolution], *keys: str) -> str:
    """Write judged solutions of SmolLM2 as a run of solutions that the policy has sampled.

    The solutions are first labelled as given ones, which yields their token ids, steps and
    outcomes. Then they are written as all sampled solutions of their problems.

    Args:
        work: folder of the runs `given` and `sampled`.
        judged: solutions that the policy sampled.
        keys: overrides of the configuration.

    Returns:
        Path of the run `sampled`.
    """
    work.mkdir(parents=True, exist_ok=True)
    texts = [
        json.dumps({"problem": solution.problem, "steps": solution.steps}) for solution in judged
    ]
    path = work / "solutions.jsonl"
    path.write_text("\n".join(texts), encoding="utf-8")
    source = work / "given"
    label(source, f"solutions.path={path}", "estimator=outcome", *keys, config=SMOLLM2)
    rows = read_rows(source)
    assert len(rows) == len(judged), "none is left out"
    outcomes: dict[str, Counts] = defaultdict(Counts)
    for row in rows:
        so_far, solution = outcomes[row.problem.id], row.solution
        outcomes[row.problem.id] = so_far.plus(solution.outcome, len(solution.ids))
    sampled = [
        replace(
            row,
            solution=replace(row.solution, origin="sampled"),
            siblings=(siblings := outcomes[row.problem.id]),
            num_sampled=siblings.num_rollouts,
            num_sampled_right=siblings.num_right,
        )
        for row in rows
    ]
    store = Store(str(work / "sampled"), create=True)
    manifest = read_manifest(Store(str(source)), MANIFEST) or {}
    semantic = SemanticConfig(identity=manifest["identity"], config=manifest["config"])
    claim_manifest(store, MANIFEST, semantic, {"input": {"solutions": str(source)}})
    commit_block(store, "sampled", "only", sampled, [], semantic.as_shard_metadata())
    return store.location


def write_rows(
    run: Path, rows: Sequence[LabeledSolution], rollouts: Sequence[Rollout] | None = None
) -> None:
    """Write a run with these labels, and rollouts if they are given."""
    commit_block(Store(str(run), create=True), "0" * 16, "chosen", rows, rollouts, {})
