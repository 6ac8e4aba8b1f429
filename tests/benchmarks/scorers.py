"""Scorers on the built-in domain: samples to choose among, trainings, and scores of every step.

Benchmarks that compare scorers share this module. Its pieces keep their results under a folder:

    runs/NAME             labels, or samples without labels
    trained/NAME          output of `mclabel train`
    scores/POOL/NAME.npz  scores that the trained scorer gives to a pool of samples
"""

from __future__ import annotations

import io
import json
import os
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mclabel.answers import answer_key
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.engines.hub import resolve_model
from mclabel.evaluate.labels.quality import find_exact_first_error, has_exact_truth
from mclabel.prm.scoring.reading import LikelihoodScorer, compute_solution_likelihoods
from mclabel.prm.scoring.score import PRM
from tests.benchmarks.pieces import Piece
from tests.benchmarks.runs import QUICKSTART, label, read_rows, train, write_rows

Floats = NDArray[np.float64]
NO_ERROR = -1
MOST_SEEDS = 3
"""Number of disjoint shares of a run's problems, one for each seed."""
LIKELIHOODS = ("policy", "strong")
"""Bundled models whose likelihood also serves as a scorer."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of labels, or of samples alone, with overrides of its configuration."""

    name: str
    overrides: Sequence[str]
    config: str = QUICKSTART
    """Bundled configuration that the overrides change."""
    allow: Sequence[str] = ()
    """Modules that the overrides may name."""

    def piece(self, out: Path) -> Piece:
        """Return the piece that makes this run under `out`, with one engine in its process."""
        folder = out / "runs" / self.name
        return Piece(result=folder / "finished.json", work=partial(_label, folder, self))


def samples(
    name: str,
    split: str,
    *,
    problems: int,
    seed: int,
    per_problem: int,
    families: Sequence[str] = (),
) -> Run:
    """Return a run that samples from the policy, without rollouts."""
    changes = [f"problems.split={split}", f"problems.limit={problems}", f"problems.seed={seed}"]
    if families:
        changes.append(f"problems.families={json.dumps(list(families))}")
    changes += [
        f"solutions.per_problem={per_problem}",
        "estimator.kind=outcome",
        "keep_rollouts=false",
    ]
    return Run(name=name, overrides=[*changes, "block_problems=16"])


def own_labels(*, solutions: int, gain: float) -> Run:
    """Return a run with four solutions of the policy per train problem, labelled by its rollouts.

    Args:
        solutions: number of solutions to all problems together.
        gain: value of `min_gain` of `posterior`, per token.
    """
    changes = ["estimator.kind=posterior", "estimator.rollouts=64"]
    changes.append(f"estimator.min_gain={gain}")
    return Run(name="own", overrides=[*_train_problems(solutions), *changes])


def strong_labels(*, solutions: int, solutions_path: Path, rollouts: int) -> Run:
    """Return a run of the same solutions from a file, labelled by the strong model's rollouts."""
    changes = [f"solutions.path={solutions_path}", "policy.model=arith:strong"]
    changes += ["estimator.kind=fixed", f"estimator.rollouts={rollouts}"]
    return Run(name="strong", overrides=[*_train_problems(solutions), *changes])


def _train_problems(solutions: int) -> list[str]:
    changes = ["problems.split=train", f"problems.limit={solutions // 4}", "problems.seed=5"]
    changes += ["solutions.per_problem=4", "keep_rollouts=false"]
    return [*changes, "block_problems=16"]


@dataclass(frozen=True, kw_only=True)
class Training:
    """The settings of a scorer's training."""

    kind: str
    """Name of the table rows to which the scorer belongs."""
    seed: int
    labels: Sequence[str]
    """Names of the runs that the scorer learns from."""
    size: int = 0
    """Number of labelled solutions from the first run, different ones for each seed; 0 for all."""
    overrides: Sequence[str]
    config: str = QUICKSTART
    """Bundled configuration that the overrides change."""
    bf16: bool = False
    """True to train and score in bfloat16 mixed precision, which some CPUs compute twice as fast.
    """

    @property
    def name(self) -> str:
        """Return the name of the training's folder and of its score files."""
        size = f"-{self.size}" if self.size else ""
        return f"{self.kind.replace(' ', '-')}{size}-{self.seed}"

    def folder(self, out: Path) -> Path:
        """Return the folder of the training's output."""
        return out / "trained" / self.name

    def piece(self, out: Path) -> Piece:
        """Return the piece that trains the scorer, on one thread."""
        return Piece(
            result=self.folder(out) / "model" / "prm.json", work=partial(_train, out, self)
        )

    def scoring(self, out: Path, pool: str) -> Piece:
        """Return the piece that scores all samples of a pool with the trained scorer."""
        work = partial(_score, out, self, pool)
        return Piece(result=scores_file(out, self.name, pool), work=work)


def likelihood_piece(out: Path, model: str, pool: str) -> Piece:
    """Return the piece that reads a bundled model's likelihood of all samples of a pool.

    Args:
        out: folder of all pieces.
        model: `policy` or `strong` of arith, or the full name of another model.
        pool: name of the run of samples.
    """
    return Piece(
        result=scores_file(out, f"likelihood-{model}", pool),
        work=partial(_score_likelihood, out, model, pool),
    )


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Samples to choose among, equally many of each problem.

    Equal texts of a problem share one row.
    """

    rows: list[LabeledSolution]
    """Distinct samples."""
    index: NDArray[np.int64]
    """Array [problems, samples]: index of each sample in `rows`."""
    right: NDArray[np.bool_]
    """Array [problems, samples]: True if the answer is right."""
    all_right: NDArray[np.bool_]
    """Array [problems, samples]: True if the answer and every step are truly right."""
    keys: list[list[str | None]]
    """Lists [problems][samples]: keys of the answers, None without an answer."""
    first_errors: NDArray[np.int64]
    """True first error of each row: its 0-based step index, or `NO_ERROR` if the row has none or
    its truth is unknown.
    """

    @property
    def num_problems(self) -> int:
        """Return the number of problems."""
        return len(self.index)

    @property
    def num_samples(self) -> int:
        """Return the number of samples of each problem."""
        return self.index.shape[1]

    def first_samples(self, num_samples: int) -> Iterator[tuple[int, int]]:
        """Yield the problem and the index in `rows` of the first `num_samples` of each problem."""
        for problem, places in enumerate(self.index[:, :num_samples]):
            yield from ((problem, int(place)) for place in places)


@lru_cache(maxsize=4)
def load_pool(run: Path) -> Pool:
    """Read a run of samples into a pool."""
    by_problem: dict[str, list[tuple[int, bool, str | None]]] = defaultdict(list)
    places: dict[tuple[str, str], int] = {}
    rows: list[LabeledSolution] = []
    for row in read_rows(run):
        place = places.setdefault((row.problem.id, row.solution.text), len(rows))
        if place == len(rows):
            rows.append(row)
        prediction = row.solution.prediction
        by_problem[row.problem.id].append(
            (
                place,
                row.solution.outcome is Outcome.RIGHT,
                None if prediction is None else answer_key(prediction),
            )
        )
    groups = list(by_problem.values())
    errors = [find_exact_first_error(row) if has_exact_truth([row]) else None for row in rows]
    first_errors = np.array([NO_ERROR if e is None else e for e in errors])
    index = np.array([[place for place, _, _ in group] for group in groups])
    right = np.array([[is_right for _, is_right, _ in group] for group in groups])
    return Pool(
        rows=rows,
        index=index,
        right=right,
        all_right=right & (first_errors[index] == NO_ERROR),
        keys=[[key for *_, key in group] for group in groups],
        first_errors=first_errors,
    )


def read_scores(out: Path, name: str, pool: str) -> list[Floats]:
    """Read the step scores of every distinct sample of a pool.

    A likelihood has its sum and its least token in place of steps. For a scorer that was trained on
    counts, the name `NAME-sure` reads the certainty of the scores of `NAME`.
    """
    with np.load(scores_file(out, name, pool)) as file:
        flat, lengths = file["scores"], file["lengths"]
    return np.split(flat.astype(np.float64), np.cumsum(lengths)[:-1])


def scores_file(out: Path, name: str, pool: str) -> Path:
    """Return the path of a scorer's scores of a pool."""
    return out / "scores" / pool / f"{name.replace(':', '-')}.npz"


def _write_scores(path: Path, scores: Sequence[Sequence[float]]) -> None:
    held = io.BytesIO()
    np.savez_compressed(
        held,
        scores=np.concatenate([np.asarray(row, dtype=np.float32) for row in scores]),
        lengths=np.array([len(row) for row in scores], dtype=np.int32),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_file = path.with_name(f".{path.name}.{os.getpid()}")
    partial_file.write_bytes(held.getvalue())
    partial_file.replace(path)


def _label(folder: Path, run: Run) -> None:
    torch.set_num_threads(1)
    label(folder, *run.overrides, config=run.config, allow=run.allow)


def _train(out: Path, training: Training) -> None:
    labels = [out / "runs" / name for name in training.labels]
    if training.size:
        labels = [_subset(labels[0], training.size, training.seed, out / "subsets")]
    keys = ["validation=0", "threads=1", f"seed={training.seed}", *training.overrides]
    keys += ["bf16=true"] if training.bf16 else []
    train(labels, training.folder(out), *keys, config=training.config)


def _score(out: Path, training: Training, pool: str) -> None:
    prm = PRM.load(training.folder(out), threads=1)
    encoded = [prm.encoder.encode_labelled(row) for row in _pool(out, pool).rows]
    with torch.autocast("cpu", torch.bfloat16, enabled=training.bf16):
        scores = prm.score_encoded(encoded)
    _write_scores(scores_file(out, training.name, pool), scores)


def _score_likelihood(out: Path, model: str, pool: str) -> None:
    scorer = LikelihoodScorer(
        resolve_model(model if ":" in model else f"arith:{model}"), template=None, system=None
    )
    encoded = [scorer.encoder.encode_labelled(row) for row in _pool(out, pool).rows]
    readings = compute_solution_likelihoods(scorer.network, encoded, threads=1)
    path = scores_file(out, f"likelihood-{model}", pool)
    _write_scores(path, scorer.extract_total_and_minimum(readings))


def _pool(out: Path, name: str) -> Pool:
    return load_pool(out / "runs" / name)


def _subset(run: Path, size: int, seed: int, folder: Path) -> Path:
    """Write a run with `size` of the solutions, taken by whole problems.

    The subsets of two seeds are disjoint if the run has enough problems. Runs over the same
    problems give the same problems for the same seed.
    """
    out = folder / f"{run.name}-{size}-{seed}"
    by_problem: dict[str, list[LabeledSolution]] = defaultdict(list)
    for row in read_rows(run):
        by_problem[row.problem.id].append(row)
    problems = sorted(by_problem)
    random.Random(0).shuffle(problems)
    share = len(problems) // MOST_SEEDS
    problems = problems[seed * share :] + problems[: seed * share]
    chosen = [row for problem in problems for row in by_problem[problem]][:size]
    write_rows(out, chosen)
    return out
