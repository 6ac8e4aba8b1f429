"""How a scorer that starts from the policy is trained: rates, epochs, head, target, weights.

    python -m tests.benchmarks.scorer_settings [--smoke | --quick] [--out FOLDER]

On arith, for two jobs: the quickstart's own 800 labelled solutions, and 4,000 with labels by
`posterior`. Each choice is changed by itself, for a PRM and an ORM, with one seed; the best (of the
first job the best three) are trained with three seeds. The token head is tried beside them.
They choose among 16 of 64 samples to each of 400 *validation* problems. Intervals: 95%, bootstrap
over problems and seeds. In pieces: what is under `--out` is not done again. An hour of two cores;
`--quick` takes five minutes. The last line is JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.pieces import Pieces, in_pieces
from tests.benchmarks.scorer_figures import Comparison, Figure, best_figure, step_scores
from tests.benchmarks.scorers import Run, Training, load_pool, own_labels, samples
from tests.benchmarks.sizes import BenchmarkSize

POOL = "validation"
SIZE = 16

RATES = {
    "as it is": [],
    "body 3e-5": ["backbone_lr=3.0e-5"],
    "body 3e-4": ["backbone_lr=3.0e-4"],
    "head 1e-3": ["head_lr=1.0e-3"],
    "head 3e-2": ["head_lr=3.0e-2"],
    "2 epochs": ["epochs=2"],
}
"""Of a PRM and of an ORM: overrides of `BODY`."""
OF_PRM = {
    "8 epochs": ["epochs=8"],
    "target soft": ["target=soft"],
    "without states": ["states=false"],
    "without states, body 3e-4": ["states=false", "backbone_lr=3.0e-4"],
    "without states, 8 epochs": ["states=false", "epochs=8"],
    "frozen body": ["backbone_lr=0", "states=false", "head_lr=3.0e-2", "epochs=12"],
    "token head": ["head=token", "states=null", "head_lr=1.0e-3"],
}
PLAIN = {"token head": ["head=token", "states=null", "head_lr=1.0e-3", "epochs=2"]}
"""The classifier of tokens."""
OF_ORM = {
    "target outcome_steps": ["target=outcome_steps"],
    "without states": ["states=false"],
}
MANY = {
    "1 epoch": ["states=false", "epochs=1"],
    "2 epochs": ["states=false", "epochs=2"],
}
MANY_OF_PRM = {"2 epochs, target posterior": ["states=false", "epochs=2", "target=posterior"]}
BODY = [
    *("base=arith:policy", "head=likelihood", "states=true", "backbone_lr=1.0e-4"),
    *("head_lr=1.0e-2", "epochs=4", "batch_size=16"),
]
"""Where the study begins; the last override of a key holds."""


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much is labelled and trained."""

    few: Sequence[str]
    """Overrides of the quickstart's labelling."""
    many: int
    """Labelled solutions of the second job."""
    validation: int
    """Problems."""
    num_samples: int
    choices: int | None = None
    """Of each job but that of the token head, the first ones; None for all."""
    seeds: int = 3
    """Of the best."""
    gain: float = 0.08
    """Setting `min_gain` for the second job's labels."""
    training: Sequence[str] = ()
    """Overrides of every training."""


SMOKE = Amounts(
    few=["problems.limit=1", "estimator.rollouts=1"],
    many=12,
    validation=2,
    num_samples=2,
    choices=1,
    seeds=1,
    gain=4,
    training=["max_steps=1"],
)
QUICK = Amounts(few=["problems.limit=40"], many=200, validation=60, num_samples=16, choices=4)
FULL = Amounts(few=[], many=4000, validation=400, num_samples=64)


def main() -> None:
    in_pieces(__doc__, run, workers=2)


def run(out: Path, pieces: Pieces, size: BenchmarkSize) -> dict[str, Any]:
    """Label, train every choice, measure, and train the best ones with more seeds."""
    amounts = size.pick(smoke=SMOKE, quick=QUICK, full=FULL)
    runs = [
        Run(name="quickstart", overrides=amounts.few),
        own_labels(solutions=amounts.seeds * amounts.many, gain=amounts.gain),
        samples(POOL, "validation", problems=amounts.validation, seed=3, each=amounts.num_samples),
    ]
    pieces.run([one.piece(out) for one in runs])
    bench = _Bench(out, pieces, amounts)
    few, many = ("quickstart", 0), ("own", amounts.many)
    prm, orm = {**RATES, **OF_PRM}, {**RATES, **OF_ORM}
    found = {
        "PRM, quickstart": bench.choose("PRM quickstart", *few, prm, num_finalists=3),
        "ORM, quickstart": bench.choose("ORM quickstart", *few, orm, num_finalists=3),
        "PRM, many": bench.choose("PRM many", *many, {**MANY, **MANY_OF_PRM}, num_finalists=1),
        "ORM, many": bench.choose("ORM many", *many, MANY, num_finalists=1),
    }
    found["token head"] = bench.choose("token head", *many, PLAIN, num_finalists=0)
    return found


class _Bench:
    """Trains choices and compares them."""

    def __init__(self, out: Path, pieces: Pieces, amounts: Amounts) -> None:
        self._out, self._pieces, self._amounts = out, pieces, amounts
        self._comparison = Comparison(load_pool(out / "runs" / POOL))
        self._num_samples = min(SIZE, amounts.num_samples)

    def choose(
        self,
        job: str,
        labels: str,
        size: int,
        choices: Mapping[str, Sequence[str]],
        *,
        num_finalists: int,
    ) -> dict[str, Any]:
        """Train every choice with one seed and the best with all."""
        if num_finalists:
            choices = dict(list(choices.items())[: self._amounts.choices])

        def train(names: Sequence[str], seeds: int) -> dict[str, Figure]:
            todo = {
                name: [
                    self.training(f"{job} {name}", labels, size, choices[name], seed=seed)
                    for seed in range(seeds)
                ]
                for name in names
            }
            every = [one for each in todo.values() for one in each]
            self._pieces.run([one.piece(self._out) for one in every])
            self._pieces.run([one.scoring(self._out, POOL) for one in every])
            return {name: self._figure(each) for name, each in todo.items()}

        first = train(list(choices), 1)
        finalists = sorted(first, key=lambda name: -first[name].right.value)[:num_finalists]
        final = train(finalists, self._amounts.seeds)
        chosen = max(final, key=lambda name: final[name].right.value, default=None)
        return {
            "chosen": chosen,
            "aggregation": None if chosen is None else final[chosen].aggregation,
            "choices": {name: one.shown for name, one in {**first, **final}.items()},
        }

    def training(
        self, kind: str, labels: str, size: int, changes: Sequence[str], *, seed: int
    ) -> Training:
        """A training whose kind says whether it is of an ORM."""
        target = ["target=outcome"] if kind.startswith("ORM") else []
        return Training(
            kind=kind,
            seed=seed,
            labels=[labels],
            size=size,
            overrides=[*BODY, *target, *changes, *self._amounts.training],
        )

    def _figure(self, trainings: Sequence[Training]) -> Figure:
        steps = step_scores(self._out, trainings, POOL)
        is_orm = trainings[0].kind.startswith("ORM")
        return best_figure(self._comparison, steps, self._num_samples, is_orm=is_orm)


if __name__ == "__main__":
    main()
