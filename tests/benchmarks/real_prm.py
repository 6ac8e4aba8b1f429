"""A PRM on labels of a real language model, against majority vote, an ORM and the likelihood.

    python -m tests.benchmarks.real_prm [--smoke | --quick] [--out FOLDER]

SmolLM2-135M with the adapter of `smollm2:words` wrote and labelled solutions of word problems.
PRMs and ORMs with either head are trained on 400 and on 1,500 of them, and choose among 16 samples
to each of 300 other problems. Head, number of labels and the way to choose are fixed on 100
validation problems before the test problems are scored. Intervals: 95%, paired bootstrap over
problems.

Labels, samples and scores are stored in tests/data/real_prm (its README says how they were made),
and only what is missing there is made. With `--out` and an empty folder everything is made again:
a day of two cores. `--quick` computes the figures from stored scores alone. `--smoke` makes a
little of everything with the bundled policy. The last line is JSON.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import Numbers, finish
from tests.benchmarks.pieces import Pieces
from tests.benchmarks.runs import read_rows
from tests.benchmarks.scorer_figures import Comparison, Measured, aggregated, likelihood_scores
from tests.benchmarks.scorers import (
    Floats,
    Run,
    Training,
    likelihood_piece,
    load_pool,
    read_scores,
    scores_file,
)
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

STORED = Path(__file__).parents[1] / "data" / "real_prm"
CONFIG = "quickstart-smollm2.yaml"
HEADS = {
    "token": ("head=token", "states=null", "step_token=<empty_output>"),
    "likelihood": (),
}
"""Overrides of the training, by head."""
TARGETS = {"PRM": (), "ORM": ("target=outcome",)}
VALIDATION, TEST, LABELS = "validation", "test", "labels"
AGGREGATIONS = ("last", "min", "product", "mean")
WAYS = ("best", "weighted vote")
"""Choose the solution with the highest score, or the answer with the highest sum of scores."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Numbers of solutions to label, train on and sample."""

    sizes: Sequence[int]
    """Numbers of labelled solutions, the largest last."""
    validation: int
    """Number of validation problems."""
    test: int
    """Number of test problems."""
    samples: int = 16
    """Samples of each problem."""
    policy: str = "smollm2:words"
    """Model that writes and labels solutions, and the base of the scorers."""
    training: Sequence[str] = ()
    """Overrides of every training."""
    labelling: Sequence[str] = ()
    """Overrides of the labelling."""


SMOKE = Amounts(
    sizes=(4,),
    validation=1,
    test=2,
    samples=2,
    policy="arith:policy",
    training=["max_steps=1", "step_token=null"],
    labelling=["problems.source=arith", "estimator={kind: fixed, rollouts: 1}"],
)
FULL = Amounts(sizes=(400, 1500), validation=100, test=300)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A trained scorer and how its scores choose an answer."""

    training: Training
    aggregation: str
    way: str

    def measure(self, out: Path, pool: str, comparison: Comparison, size: int) -> Measured:
        """Measure the share of right answers among `size` samples."""
        scores = aggregated([read_scores(out, self.training.name, pool)], self.aggregation)
        if self.way == "best":
            return comparison.right(scores, size)
        return comparison.vote(scores, size)


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--out", type=Path, help="keep all pieces here, and go on")
    args = parser.read()
    with tempfile.TemporaryDirectory() as scratch:
        out = args.out or Path(scratch)
        is_smoke = args.size is BenchmarkSize.SMOKE
        if not args.out and not is_smoke:
            shutil.copytree(STORED, out, dirs_exist_ok=True)
        amounts = SMOKE if is_smoke else FULL
        trainings = all_trainings(amounts)
        if args.size is BenchmarkSize.QUICK:
            trainings = [training for training in trainings if has_scores(out, training)]
            finish(stored_figures(out, trainings))
        else:
            finish(run(out, Pieces(), amounts, trainings))


def stored_figures(out: Path = STORED, trainings: Sequence[Training] = ()) -> dict[str, Any]:
    """Return the figures from stored scores, without the policy's likelihood if it is missing."""
    trainings = trainings or [
        training for training in all_trainings(FULL) if has_scores(out, training)
    ]
    return figures(out, choose_all(out, trainings, FULL), trainings, FULL)


def has_scores(out: Path, training: Training) -> bool:
    """Return whether the scores of both pools are there."""
    return all(scores_file(out, training.name, pool).exists() for pool in (VALIDATION, TEST))


def run(
    out: Path, pieces: Pieces, amounts: Amounts, trainings: Sequence[Training]
) -> dict[str, Any]:
    """Make what is missing under `out`, choose on validation problems, and measure on test ones."""
    validation = samples(VALIDATION, amounts, problems=amounts.validation, seed=2)
    test = samples(TEST, amounts, problems=amounts.test, seed=1)
    for pool, num_problems in ((validation, amounts.validation), (test, amounts.test)):
        make_run(out, pieces, pool, num_problems * amounts.samples)
    score_pool(out, pieces, amounts, trainings, VALIDATION)
    chosen = choose_all(out, trainings, amounts)
    score_pool(out, pieces, amounts, trainings, TEST)
    return figures(out, chosen, trainings, amounts)


def all_trainings(amounts: Amounts) -> list[Training]:
    """List the PRM and the ORM with each head and each number of labelled solutions."""
    return [
        Training(
            kind=f"{target} {head}",
            seed=0,
            labels=[LABELS],
            size=size,
            overrides=[f"base={amounts.policy}", *TARGETS[target], *HEADS[head], *amounts.training],
            config=CONFIG,
            bf16=True,
        )
        for size, head, target in itertools.product(amounts.sizes, HEADS, TARGETS)
    ]


def labels(amounts: Amounts) -> Run:
    """Return the run of labelled solutions, four of each problem."""
    return Run(
        name=LABELS,
        overrides=[
            f"problems.limit={-(-amounts.sizes[-1] // 4)}",
            f"policy.model={amounts.policy}",
            *amounts.labelling,
        ],
        config=CONFIG,
    )


def make_run(out: Path, pieces: Pieces, run: Run, num_solutions: int) -> None:
    """Make a run unless it is there with all its solutions."""
    folder = out / "runs" / run.name
    if not folder.exists() or len(read_rows(folder)) < num_solutions:
        pieces.run([run.piece(out)])


def samples(name: str, amounts: Amounts, *, problems: int, seed: int) -> Run:
    """Return a run of samples without rollouts, of problems that no label run has."""
    return Run(
        name=name,
        overrides=[
            f"problems.limit={problems}",
            f"problems.seed={seed}",
            f"solutions.per_problem={amounts.samples}",
            f"policy.model={amounts.policy}",
            "keep_rollouts=false",
            *amounts.labelling,
            "estimator={kind: outcome}",
        ],
        config=CONFIG,
    )


def score_pool(
    out: Path, pieces: Pieces, amounts: Amounts, trainings: Sequence[Training], pool: str
) -> None:
    """Score the samples of a pool; train a scorer only if its scores are missing."""
    pieces.run([likelihood_piece(out, amounts.policy, pool)])
    for training in trainings:
        if not scores_file(out, training.name, pool).exists():
            make_run(out, pieces, labels(amounts), amounts.sizes[-1])
            pieces.run([training.piece(out), training.scoring(out, pool)])


def choose_all(out: Path, trainings: Sequence[Training], amounts: Amounts) -> dict[str, Choice]:
    """Choose one PRM and one ORM on validation problems, with its way to choose an answer."""
    return {
        target: choose(
            out, [training for training in trainings if training.kind.startswith(target)], amounts
        )
        for target in TARGETS
    }


def choose(out: Path, trainings: Sequence[Training], amounts: Amounts) -> Choice:
    """Choose the training, the aggregation and the way that are best on validation problems.

    The score of an ORM is that of the last step.
    """
    comparison = Comparison(load_pool(out / "runs" / VALIDATION))
    choices = [
        Choice(training=training, aggregation=aggregation, way=way)
        for training in trainings
        for aggregation in (("last",) if training.kind.startswith("ORM") else AGGREGATIONS)
        for way in WAYS
    ]
    return max(
        choices,
        key=lambda choice: choice.measure(out, VALIDATION, comparison, amounts.samples).value,
    )


def best_likelihood_part(out: Path, amounts: Amounts) -> int:
    """Return 0 if the policy's sum of log-probabilities chooses better, 1 if its least one does."""
    comparison = Comparison(load_pool(out / "runs" / VALIDATION))
    return max(
        (0, 1),
        key=lambda part: (
            comparison.right(
                likelihood_scores(out, amounts.policy, VALIDATION, part), amounts.samples
            ).value
        ),
    )


def figures(
    out: Path,
    chosen: dict[str, Choice],
    trainings: Sequence[Training],
    amounts: Amounts,
) -> dict[str, Any]:
    """Return the table of all methods on the test problems, and the differences of the PRM."""
    comparison = Comparison(load_pool(out / "runs" / TEST))
    most = amounts.samples
    counts = [count for count in (1, 4, 16) if count <= most]
    prm, orm = (chosen[target].measure(out, TEST, comparison, most) for target in ("PRM", "ORM"))
    others = {
        "majority": comparison.untrained("majority", most),
        "orm": orm,
    }
    likelihood_right = {}
    if scores_file(out, f"likelihood-{amounts.policy}", TEST).exists():
        part = best_likelihood_part(out, amounts)
        likelihood = likelihood_scores(out, amounts.policy, TEST, part)
        others["likelihood"] = comparison.right(likelihood, most)
        likelihood_right = {n: comparison.right(likelihood, n).numbers for n in counts}
    by_training = {
        training.name: {
            **{
                f"{way}, {aggregation}": Choice(training=training, aggregation=aggregation, way=way)
                .measure(out, TEST, comparison, most)
                .numbers
                for aggregation in ("last", "product")
                for way in WAYS
            },
            "pairs": pairs(out, comparison, training),
        }
        for training in trainings
    }
    return {
        "problems": comparison.pool.num_problems,
        "chosen": {
            target: f"{choice.training.name}, {choice.aggregation}, {choice.way}"
            for target, choice in chosen.items()
        },
        "right": {
            "random": by_count(comparison, "random", counts),
            "majority": by_count(comparison, "majority", counts),
            "likelihood": likelihood_right,
            **{
                target: {n: choice.measure(out, TEST, comparison, n).numbers for n in counts}
                for target, choice in chosen.items()
            },
            "some sample is right": by_count(comparison, "pass", counts),
        },
        "by_training": by_training,
        "prm_minus_likelihood": None,
        **{f"prm_minus_{name}": prm.less(compared).numbers for name, compared in others.items()},
    }


def by_count(comparison: Comparison, method: str, counts: Sequence[int]) -> dict[int, Any]:
    """Return the accuracy of a method without a scorer, by number of samples."""
    return {count: comparison.untrained(method, count).numbers for count in counts}


def pairs(out: Path, comparison: Comparison, training: Training) -> Numbers:
    """Return how often a right solution scores above a wrong one of its problem."""
    last: list[Floats] = aggregated([read_scores(out, training.name, TEST)], "last")
    return comparison.pairs(last).numbers


if __name__ == "__main__":
    main()
