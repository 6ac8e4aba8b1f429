"""Samples of the benchmark, and the scores that scorers give them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from mclabel.answers import answer_key
from mclabel.data.shards.labels import read_labels
from mclabel.data.shards.store import Store
from mclabel.engines.hub import resolve_model
from mclabel.engines.text import PolicyText
from mclabel.evaluation.label_quality import arith_truth
from mclabel.prm.examples.batch import StepBatch, map_solutions
from mclabel.prm.examples.encode import EncodedSolution, StepEncoder
from mclabel.prm.model.likelihood_head import LikelihoodHead
from mclabel.prm.model.loading import start_step_model
from mclabel.prm.model.network import StepModel
from mclabel.prm.model.settings import ModelSettings
from mclabel.prm.scoring.aggregate import AGGREGATIONS, Aggregation
from mclabel.prm.scoring.score import PRM
from mclabel.records import LabeledSolution, Outcome
from mclabel.report.job_progress import StageProgress


@dataclass(frozen=True)
class Scorer:
    """A trained scorer."""

    kind: str
    size: int
    seed: int
    path: str


@dataclass
class Pool:
    """The same number of samples of each problem."""

    num_problems: int
    num_samples: int
    rows: list[LabeledSolution]
    """Problem by problem."""
    right: NDArray[np.bool_]
    """[problems, samples]: the answer is right."""
    all_right: NDArray[np.bool_]
    """[problems, samples]: so is every step, in truth."""
    keys: list[list[str | None]]
    """[problems][samples]: answers."""
    observed: dict[str, list[Tensor]]
    """By model (base, policy): what it says of the steps of each sample."""


def load_pool(run: str, console: Console) -> Pool:
    """Samples of a run, read by the base and by the policy."""
    by_problem: dict[str, list[LabeledSolution]] = defaultdict(list)
    for row in read_labels(Store(run)):
        by_problem[row.problem.id].append(row)
    groups = [sorted(g, key=lambda r: r.solution.sample_index) for g in by_problem.values()]
    rows = [row for group in groups for row in group]
    shape = (len(groups), len(groups[0]))
    right = [row.solution.outcome is Outcome.RIGHT for row in rows]
    truth: dict[tuple[str, str], bool] = {}
    for row in rows:
        key = (row.problem.id, row.solution.text)
        if key not in truth:
            truth[key] = row.solution.outcome is Outcome.RIGHT and arith_truth(row) is None
    predictions = [row.solution.prediction for row in rows]
    flat_keys = [None if p is None else answer_key(p) for p in predictions]
    return Pool(
        num_problems=shape[0],
        num_samples=shape[1],
        rows=rows,
        right=np.array(right).reshape(shape),
        all_right=np.array([truth[r.problem.id, r.solution.text] for r in rows]).reshape(shape),
        keys=[flat_keys[i : i + shape[1]] for i in range(0, len(rows), shape[1])],
        observed={m: _observe(m, rows, console) for m in ("base", "policy")},
    )


def _observe(name: str, rows: Sequence[LabeledSolution], console: Console) -> list[Tensor]:
    model = start_step_model(
        ModelSettings(base=resolve_model(f"arith:{name}"), head="likelihood")
    ).eval()
    encoder = _encoder(name)
    with StageProgress(console, f"{name} reads", "solutions") as stage:

        def compute(batch: StepBatch, group: Sequence[EncodedSolution]) -> list[Tensor]:
            found = model.observe(batch)
            return [f[: len(e.positions)].clone() for f, e in zip(found, group, strict=True)]

        return map_solutions(
            [encoder.labeled(row) for row in rows],
            compute,
            network=model.network,
            threads=None,
            on_progress=stage.update,
        )


def _encoder(name: str) -> StepEncoder:
    folder = resolve_model(f"arith:{name}")
    text = PolicyText.load(folder, revision=None, template=None, system=None)
    return StepEncoder(text, step_id=None, max_tokens=4096)


def scores_of(
    scorers: Sequence[Scorer], pool: Pool, how: Aggregation
) -> Mapping[tuple[str, int], list[NDArray[np.float64]]]:
    """Scores [problems, samples] of every kind and size of scorer, one array a seed.

    Untrained ones have size 0.
    """
    found: dict[tuple[str, int], list[NDArray[np.float64]]] = defaultdict(list)
    shape = (pool.num_problems, pool.num_samples)
    for name, observed in pool.observed.items():
        for part, column in (("min", -2), ("sum", -1)):
            last = [float(one[-1, column]) for one in observed]
            found[f"{name} likelihood ({part})", 0].append(np.array(last).reshape(shape))
    for scorer in scorers:
        prm = PRM.load(scorer.path, threads=None)
        aggregation: Aggregation = "last" if prm.manifest.kind == "orm" else how
        steps = _frozen(prm.model, pool)
        if steps is None:
            steps = prm.score_encoded([prm.encoder.labeled(row) for row in pool.rows])
        values = [AGGREGATIONS[aggregation](one) for one in steps]
        found[scorer.kind, scorer.size].append(np.array(values).reshape(shape))
    return found


def _frozen(model: StepModel, pool: Pool) -> list[list[float]] | None:
    """Step scores, if the body is that of the base or the policy as they are."""
    if not isinstance(model, LikelihoodHead):
        return None
    for name, observed in pool.observed.items():
        fresh = start_step_model(
            ModelSettings(base=resolve_model(f"arith:{name}"), head="likelihood")
        ).network.state_dict()
        mine = model.network.state_dict()
        if all(torch.equal(mine[key], weight) for key, weight in fresh.items()):
            with torch.no_grad():
                flat = model.apply_head(torch.cat(list(observed))[None])[0].double().sigmoid()
            return [part.tolist() for part in flat.split([len(one) for one in observed])]
    return None
