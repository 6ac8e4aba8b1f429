"""A best-of-N evaluation from its configuration."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import cast

from mclabel.answers import answer_key
from mclabel.config import BestOfNConfig, EstimatorConfig, LabelConfig, SolutionsConfig
from mclabel.data.shards import read_labels
from mclabel.data.store import Store
from mclabel.edge.label import label
from mclabel.edge.policy import resolve_model
from mclabel.errors import ConfigError, DataError
from mclabel.evaluation.best_of_n import BestOfN, ProblemSamples
from mclabel.evaluation.best_of_n import best_of_n as measure
from mclabel.labeling.job import JobState
from mclabel.policy.hub import pin_model
from mclabel.prm.aggregate import Aggregation, aggregate
from mclabel.prm.encode import EncodedSolution, StepEncoder
from mclabel.records import LabeledSolution, Outcome


@dataclass(frozen=True, kw_only=True)
class BestOfNReport:
    """Figures of a best-of-N evaluation."""

    result: BestOfN
    num_excluded: int
    """Problems left out because scorers were trained on them."""
    num_unscored: int
    """Samples that some scorer cannot read (no steps, or too long): chosen last."""


def best_of_n(
    config: BestOfNConfig,
    *,
    on_state: Callable[[JobState], None],
    on_score: Callable[[str, int, int], None],
) -> BestOfNReport:
    """Sample solutions, score them, measure every method; resumes the sampling.

    Writes `samples/` (a labelling run without rollouts), `best_of_n.json` and `best_of_n.png`
    under `out`.

    Args:
        config: what to compare.
        on_state: called with the state of the sampling job.
        on_score: called with a scorer's name, and its solutions done and in all.
    """
    _check(config)
    run = f"{config.out.rstrip('/')}/samples"
    label(_sampling(config, run), on_state)
    known = {_text(row) for other in config.exclude for row in read_labels(Store(other))}
    by_problem: dict[str, list[LabeledSolution]] = defaultdict(list)
    for row in read_labels(Store(run)):
        by_problem[row.problem.id].append(row)
    fresh = [rows for rows in by_problem.values() if _text(rows[0]) not in known]
    if not fresh:
        raise DataError(
            f"exclude: all {len(by_problem)} problems are in the runs named there. Give others"
        )
    for rows in fresh:
        rows.sort(key=lambda row: row.solution.sample_index)
    samples, num_unscored = _scored(config, fresh, on_score)
    result = measure(samples, seed=config.seed)
    report = BestOfNReport(
        result=result,
        num_excluded=len(by_problem) - len(fresh),
        num_unscored=num_unscored,
    )
    out = Path(config.out)
    (out / "best_of_n.json").write_text(json.dumps(asdict(report), indent=1) + "\n")
    from mclabel.report.picture import draw_best_of_n

    draw_best_of_n(result, out / "best_of_n.png")
    return report


def _check(config: BestOfNConfig) -> None:
    """Find what is wrong before anything is sampled."""
    from mclabel.prm.score import PRM

    if "://" in config.out:
        raise ConfigError(f"out={config.out!r}: must be a local folder")
    if both := sorted(set(config.scorers) & set(config.likelihood)):
        raise ConfigError(f"scorers and likelihood both name {', '.join(both)}: give other names")
    for path in config.scorers.values():
        PRM.load(path)
    for model in config.likelihood.values():
        pin_model(resolve_model(model), revision=None)
    for other in config.exclude:
        next(read_labels(Store(other)))


def _sampling(config: BestOfNConfig, run: str) -> LabelConfig:
    return LabelConfig(
        out=run,
        seed=config.seed,
        problems=config.problems,
        solutions=SolutionsConfig(per_problem=config.samples),
        policy=config.policy,
        estimator=EstimatorConfig(kind="outcome"),
        block_problems=config.block_problems,
        keep_rollouts=False,
        ray=config.ray,
    )


def _text(row: LabeledSolution) -> str:
    return " ".join(row.problem.text.split()).casefold()


def _scored(
    config: BestOfNConfig,
    problems: Sequence[Sequence[LabeledSolution]],
    on_score: Callable[[str, int, int], None],
) -> tuple[list[ProblemSamples], int]:
    """Samples with the scores of every scorer, and how many could not be scored."""
    import torch

    from mclabel.prm.language_model import LikelihoodScorer
    from mclabel.prm.score import PRM

    torch.set_num_threads(config.threads)
    rows = [row for samples in problems for row in samples]
    scores: dict[str, list[float]] = {}
    weights: dict[str, list[float]] = {}
    unscored: set[int] = set()
    for name, path in config.scorers.items():
        prm = PRM.load(path)
        there, encoded = _encoded(rows, prm.encoder)
        unscored |= set(range(len(rows))) - set(there)
        steps = prm.score_encoded(encoded, on_progress=partial(on_score, name))
        weights[name] = _placed(len(rows), there, [one[-1] for one in steps], missing=0.0)
        for how in ["last"] if prm.manifest.kind == "orm" else config.aggregate:
            key = name if prm.manifest.kind == "orm" else f"{name}:{how}"
            values = [aggregate(one, cast(Aggregation, how)) for one in steps]
            scores[key] = _placed(len(rows), there, values, missing=-inf)
    for name, model in config.likelihood.items():
        scorer = LikelihoodScorer(
            resolve_model(model), template=config.policy.template, system=config.policy.system
        )
        there, encoded = _encoded(rows, scorer.encoder)
        unscored |= set(range(len(rows))) - set(there)
        pairs = scorer.score_encoded(encoded, on_progress=partial(on_score, name))
        for part, how in enumerate(("sum", "min")):
            values = [pair[part] for pair in pairs]
            key = f"likelihood:{name}:{how}"
            scores[key] = _placed(len(rows), there, values, missing=-inf)
    samples, start = [], 0
    for group in problems:
        part_of = slice(start, start + len(group))
        start = part_of.stop
        samples.append(
            ProblemSamples(
                problem_id=group[0].problem.id,
                keys=tuple(_key(row) for row in group),
                right=tuple(row.solution.outcome is Outcome.RIGHT for row in group),
                scores={name: tuple(values[part_of]) for name, values in scores.items()},
                weights={name: tuple(values[part_of]) for name, values in weights.items()},
            )
        )
    return samples, len(unscored)


def _encoded(
    rows: Sequence[LabeledSolution], encoder: StepEncoder
) -> tuple[list[int], list[EncodedSolution]]:
    """Those of the solutions that can be encoded, and their indices."""
    there, encoded = [], []
    for index, row in enumerate(rows):
        try:
            encoded.append(encoder.labeled(row))
            there.append(index)
        except DataError:  # counted by the caller, and chosen last
            continue
    return there, encoded


def _placed(
    count: int, indices: Sequence[int], values: Sequence[float], *, missing: float
) -> list[float]:
    result = [missing] * count
    for index, value in zip(indices, values, strict=True):
        result[index] = value
    return result


def _key(row: LabeledSolution) -> str | None:
    prediction = row.solution.prediction
    return None if prediction is None else answer_key(prediction)
