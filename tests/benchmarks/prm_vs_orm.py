"""Compare PRMs with an ORM and with untrained scorers, by source and number of labels.

    python -m tests.benchmarks.prm_vs_orm [--smoke | --quick] [--out FOLDER] [--plot FOLDER]

The benchmark uses arith, as if nothing stronger than the policy were available. Every scorer starts
from the policy, with its body trained. The labels are of the policy's solutions. They come from its
own rollouts (`own`, by `posterior`), from rollouts of the strong model (`strong`), from the truth
(`exact`), or from the outcome alone (the ORM). Their numbers are 250, 1,000 and 4,000, with three
seeds at 4,000, each on different solutions. The scorers choose among up to 64 samples for each of
2,000 test problems, and for each of 400 problems of families that no model was trained on. The
aggregation of step scores and the threshold for first errors are chosen on 400 validation problems.
Intervals are 95%, from a paired bootstrap over problems and seeds.

The benchmark takes five hours on one core, in pieces of at most 30 minutes. Finished pieces under
`--out` are not repeated. `--quick` takes ten minutes. The last line is JSON.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import finish
from tests.benchmarks.pieces import Piece, Pieces
from tests.benchmarks.prm_vs_orm_study import Study, choose_on_validation, draw, label_f1
from tests.benchmarks.runs import read_rows
from tests.benchmarks.scorers import (
    LIKELIHOODS,
    Training,
    likelihood_piece,
    own_labels,
    samples,
    strong_labels,
)
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

VALIDATION, TEST, HELD_OUT = "validation", "test", "held-out"
SOURCES = {
    "own": ("own", []),
    "strong": ("strong", []),
    "exact": ("own", ["target=exact"]),
    "outcome": ("own", ["target=outcome"]),
}
"""Name of the run with the labels, and overrides of the training, for each source of labels."""
MANY = 4000
EPOCHS_OF_MANY = {"outcome": 1}
"""Epochs by source, for `MANY` or more labelled solutions; other sources have 2. Fewer labelled
solutions are learned as in the quickstart. docs/studies/scorer-settings.md says how both were
chosen.
"""
HELD_OUT_FAMILIES = ("gifts", "riddles")


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Amounts of labels, problems, samples and training."""

    sizes: Sequence[int]
    """Numbers of labelled solutions. Only the last one is trained with all seeds."""
    seeds: int
    validation: int
    """Number of validation problems. `test` and `held_out` are also numbers of problems."""
    test: int
    held_out: int
    gain: float = 0.08
    """Value of `min_gain` for the policy's labels."""
    rollouts: int = 8
    """Number of the strong model's rollouts from every prefix."""
    samples: int = 64
    """Number of samples for each problem."""
    training: Sequence[str] = ()
    """Overrides of every training."""


SMOKE = Amounts(
    sizes=(12,),
    seeds=1,
    validation=1,
    test=1,
    held_out=1,
    gain=4,
    rollouts=1,
    samples=4,
    training=["max_steps=1"],
)
QUICK = Amounts(sizes=(50, 200), seeds=1, validation=60, test=150, held_out=40)
FULL = Amounts(sizes=(250, 1000, 4000), seeds=3, validation=400, test=2000, held_out=400)


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--out", type=Path, help="folder that keeps finished pieces")
    parser.add_argument("--plot", type=Path, help="folder for the plots")
    args = parser.read()
    is_smoke = args.size is BenchmarkSize.SMOKE
    with tempfile.TemporaryDirectory() as scratch:
        plots = Path(scratch) if is_smoke else args.plot
        pieces = Pieces(1 if is_smoke else 2)
        finish(run(args.out or Path(scratch), pieces, args.size, plots))


def run(out: Path, pieces: Pieces, size: BenchmarkSize, plots: Path | None) -> dict[str, Any]:
    """Label, train, score, and measure."""
    amounts = size.pick(smoke=SMOKE, quick=QUICK, full=FULL)
    num_samples, solutions = amounts.samples, amounts.seeds * amounts.sizes[-1]
    own_run = own_labels(solutions=solutions, gain=amounts.gain)
    unknown = HELD_OUT_FAMILIES
    pools = [
        samples(
            VALIDATION, "validation", problems=amounts.validation, seed=3, per_problem=num_samples
        ),
        samples(TEST, "test", problems=amounts.test, seed=11, per_problem=num_samples),
        samples(
            HELD_OUT,
            "test",
            problems=amounts.held_out,
            seed=12,
            per_problem=num_samples,
            families=unknown,
        ),
    ]
    names = [pool.name for pool in pools]
    pieces.run([labelling_run.piece(out) for labelling_run in (own_run, *pools)])
    solutions_path = out / "runs" / "own-solutions.jsonl"
    pieces.run(
        [
            Piece(
                result=solutions_path,
                work=partial(write_solutions, out / "runs" / own_run.name, solutions_path),
            )
        ]
    )
    pieces.run(
        [
            strong_labels(
                solutions=solutions, solutions_path=solutions_path, rollouts=amounts.rollouts
            ).piece(out)
        ]
    )
    trainings = list(all_trainings(amounts))
    pieces.run([training.piece(out) for training in trainings])
    for name in names:
        pieces.run(
            [
                *(likelihood_piece(out, model, name) for model in LIKELIHOODS),
                *(training.scoring(out, name) for training in trainings),
            ]
        )
    chosen = choose_on_validation(out, trainings, VALIDATION, amounts.sizes)
    studies = [Study(out, name, trainings, amounts.sizes, chosen) for name in (TEST, HELD_OUT)]
    quality = {
        source: label_f1(out / "runs" / labels, is_exact=source == "exact")
        for source, (labels, _) in SOURCES.items()
        if source != "outcome"
    }
    if plots is not None:
        draw(studies[0], quality, plots)
    test, held_out = (study.summary() for study in studies)
    return {
        **test,
        "aggregation": chosen.aggregation,
        "label_f1": quality,
        "families_held_out": held_out,
    }


def all_trainings(amounts: Amounts) -> list[Training]:
    """Return the trainings of all scorers, those with the most labels first."""
    trainings = []
    for size in reversed(amounts.sizes):
        seeds = amounts.seeds if size == amounts.sizes[-1] else 1
        for seed in range(seeds):
            for source, (labels, overrides) in SOURCES.items():
                more = [f"epochs={EPOCHS_OF_MANY.get(source, 2)}"] if size >= MANY else []
                trainings.append(
                    Training(
                        kind=source,
                        seed=seed,
                        labels=[labels],
                        size=size,
                        overrides=[*overrides, *more, *amounts.training],
                    )
                )
    return trainings


def write_solutions(run: Path, out: Path) -> None:
    """Write a run's solutions to a file that another labelling job can read."""
    lines = [
        json.dumps({"problem_id": row.problem.id, "solution": row.solution.text})
        for row in read_rows(run)
    ]
    partial_file = out.with_suffix(".partial")
    partial_file.write_text("\n".join(lines) + "\n")
    partial_file.replace(out)


if __name__ == "__main__":
    main()
