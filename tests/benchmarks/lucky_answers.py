"""A PRM against an ORM where outcomes lie: wrong answers are often graded as right.

    python -m tests.benchmarks.lucky_answers [--smoke | --quick] [--out FOLDER]

The bundled policy writes four solutions to problems of arith. For labels, an answer counts as right
if it is right modulo 2, 4 or 10, so that a wrong answer is right by luck with a chance of 1/2, 1/4
or 1/10, which is known; or only if it is right. A PRM is trained on labels by `posterior` from
rollouts of the policy, a second one on labels from rollouts of the strong model, and an ORM on the
outcomes of the same solutions. They choose among 16 samples to each test problem, graded by the
exact answer and by "all steps are right". The aggregation of step scores is chosen on validation
problems for each table row. Three seeds; intervals: 95%, paired bootstrap over problems and seeds.

Pieces under `--out` are not made again. The last line is JSON: `prm_minus_orm` {chance: interval}.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mclabel.answers import extract_answer, grade
from mclabel.core.records import Verdict
from tests.benchmarks.pieces import Pieces, in_pieces
from tests.benchmarks.runs import STRONG
from tests.benchmarks.scorer_figures import OF_PRM, Comparison, Measured, aggregated, step_scores
from tests.benchmarks.scorers import Run, Training, load_pool, samples
from tests.benchmarks.sizes import BenchmarkSize

MODULI = (0, 10, 4, 2)
"""Moduli by which answers are graded for labels; 0 grades them exactly."""
SOURCES = {"own": "own", "strong": "strong", "ORM": "own"}
"""Labelling run of each scorer: rollouts of the policy or of the strong model."""
VALIDATION, TEST = "validation", "test"
CHECKER = "tests.benchmarks.lucky_answers:is_right_modulo"


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Numbers of problems, of solutions and of seeds."""

    solutions: int
    """Number of labelled solutions that each scorer is trained on."""
    seeds: int
    validation: int
    """Number of validation problems."""
    test: int
    """Number of test problems."""
    samples: int = 16
    """Samples of each problem."""
    moduli: Sequence[int] = MODULI
    training: Sequence[str] = ()
    """Overrides of every training."""


SMOKE = Amounts(
    solutions=8, seeds=1, validation=1, test=1, samples=4, moduli=[2], training=["max_steps=1"]
)
QUICK = Amounts(solutions=200, seeds=1, validation=60, test=150, moduli=[0, 2])
FULL = Amounts(solutions=400, seeds=3, validation=150, test=500)


def is_right_modulo(completion: str, gold: str, modulus: int) -> bool | None:
    """Grade an answer; a whole number is also right if it differs by a multiple of `modulus`."""
    answer = extract_answer(completion)
    if answer is None:
        return None
    if grade(answer, gold).verdict is Verdict.RIGHT:
        return True
    try:
        return (int(answer) - int(gold)) % modulus == 0
    except ValueError:
        return False


def main() -> None:
    in_pieces(__doc__, run, workers=2)


def run(out: Path, pieces: Pieces, size: BenchmarkSize) -> dict[str, Any]:
    """Label, train, score and measure."""
    amounts = size.pick(smoke=SMOKE, quick=QUICK, full=FULL)
    counts = {VALIDATION: amounts.validation, TEST: amounts.test}
    pools = [
        samples(name, name, problems=count, seed=21, per_problem=amounts.samples)
        for name, count in counts.items()
    ]
    labels = [
        labelling(source, modulus, amounts)
        for modulus in amounts.moduli
        for source in dict.fromkeys(SOURCES.values())
    ]
    pieces.run([run.piece(out) for run in (*pools, *labels)])
    trainings = {
        (scorer, modulus): trainings_of(scorer, modulus, amounts)
        for modulus in amounts.moduli
        for scorer in SOURCES
    }
    flat = [training for group in trainings.values() for training in group]
    pieces.run([training.piece(out) for training in flat])
    pieces.run([training.scoring(out, pool) for pool in counts for training in flat])
    return figures(out, trainings, amounts)


def labelling(source: str, modulus: int, amounts: Amounts) -> Run:
    """Return the run of labels by `posterior`, with answers graded by a modulus."""
    changes = [
        *("problems.split=train", "problems.seed=5", "solutions.per_problem=4"),
        f"problems.limit={amounts.seeds * amounts.solutions // 4}",
        *("estimator.kind=posterior", "estimator.rollouts=16", "keep_rollouts=false"),
        "block_problems=16",
    ]
    if source == "strong":
        changes.append(f"completers=[{STRONG}]")
    if modulus:
        changes.append(
            f"checker={json.dumps({'kind': CHECKER, 'arguments': {'modulus': modulus}})}"
        )
        changes.append(f"problems.chance={1 / modulus}")
    name = f"{source}-modulo-{modulus}" if modulus else source
    return Run(name=name, overrides=changes, allow=["tests.benchmarks.lucky_answers"])


def trainings_of(scorer: str, modulus: int, amounts: Amounts) -> list[Training]:
    """Return the trainings of a scorer, one for each seed."""
    return [
        Training(
            kind=f"{scorer}-modulo-{modulus}",
            seed=seed,
            labels=[labelling(SOURCES[scorer], modulus, amounts).name],
            size=amounts.solutions,
            overrides=[*(["target=outcome"] if scorer == "ORM" else []), *amounts.training],
        )
        for seed in range(amounts.seeds)
    ]


def figures(
    out: Path, trainings: dict[tuple[str, int], list[Training]], amounts: Amounts
) -> dict[str, Any]:
    """Return accuracies by scorer and chance of luck, and the differences PRM minus ORM."""
    validation = Comparison(load_pool(out / "runs" / VALIDATION))
    test = Comparison(load_pool(out / "runs" / TEST))
    measured: dict[tuple[str, int], dict[str, Measured]] = {}
    chosen = {}
    for (scorer, modulus), group in trainings.items():
        steps = step_scores(out, group, VALIDATION)
        aggregation = max(
            ("last",) if scorer == "ORM" else OF_PRM,
            key=lambda name: validation.right(aggregated(steps, name), amounts.samples).value,
        )
        scores = aggregated(step_scores(out, group, TEST), aggregation)
        chosen[f"{scorer}, {chance(modulus)}"] = aggregation
        measured[scorer, modulus] = {
            "right": test.right(scores, amounts.samples),
            "all_right": test.right(scores, amounts.samples, all_right=True),
        }
    return {
        "majority": test.untrained("majority", amounts.samples).numbers,
        "some sample is right": test.untrained("pass", amounts.samples).numbers,
        "chosen": chosen,
        **{
            name: {
                f"{scorer}, {chance(modulus)}": figure[name].numbers
                for (scorer, modulus), figure in measured.items()
            }
            for name in ("right", "all_right")
        },
        **{
            f"{key}_minus_orm{suffix}": {
                chance(modulus): measured[source, modulus][name]
                .less(measured["ORM", modulus][name])
                .numbers
                for modulus in amounts.moduli
            }
            for key, source in (("prm", "own"), ("strong_prm", "strong"))
            for name, suffix in (("right", ""), ("all_right", "_all_right"))
        },
    }


def chance(modulus: int) -> str:
    """Return the chance that a wrong answer is right by luck, as a key of the last line."""
    return f"1/{modulus}" if modulus else "0"


if __name__ == "__main__":
    main()
