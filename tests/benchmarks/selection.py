"""Whether selecting what to label pays; soft against hard targets; a PRM as the labeller. On arith.

    python -m tests.benchmarks.selection [--smoke | --quick] [--out FOLDER]

1. Quality of a PRM against the cost of its labels, by rule of `mclabel select`. A pool of train
   problems for each seed; its first labels are drawn at random and train the PRM that scores it;
   they count in the budget of every rule. Labels are the exact truth, as a person's or a strong
   judge's would be. Every PRM starts from the policy and takes as many steps of as many solutions,
   so that budgets differ in what is learned from, and not in how long.
2. Targets `hard`, `soft` and `posterior` on labels of the same solutions.
3. Let's Verify (arXiv 2305.20050), appendix H: the same solutions labelled by a large PRM step by
   step, by its verdict on the whole, or by the answer check; and whether methods stand in the same
   order where the large PRM judges the choices as where the truth does.

Thresholds and the aggregation of step scores are chosen on validation problems. Intervals: 95%,
bootstrap over problems and seeds. An hour of one core, in pieces of a minute: what is under `--out`
is not done again. The last line is JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mclabel import jobs
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.data.readers.solutions import read_selected
from mclabel.judge.job import ScoreConfig
from mclabel.judge.score import score
from mclabel.prm.scoring.manifest import first_below
from mclabel.select.job import SelectConfig
from tests.benchmarks.pieces import Piece, Pieces, in_pieces, write_json
from tests.benchmarks.runs import read_rows, write_rows
from tests.benchmarks.scorers import Floats, Run, Training, load_pool, read_scores, samples
from tests.benchmarks.selection_arms import METHODS, TARGETS, Amounts
from tests.benchmarks.selection_figures import Study
from tests.benchmarks.sizes import BenchmarkSize

SMOKE = Amounts(
    pool=4, first=4, budgets=(6,), seeds=1, steps=1, test=3, validation=2, each=4, later_seeds=1,
    later_steps=1, labelled=2, rolled=1, large=4, large_steps=2, small=3, sizes=(4,), sound=0.3,
    gain=0.8,
)  # fmt: skip
QUICK = Amounts(
    pool=40, first=8, budgets=(12, 24), seeds=2, steps=20, test=60, validation=30, each=16,
    later_seeds=1, later_steps=30, labelled=30, rolled=20, large=60, large_steps=60, small=12,
    sizes=(1, 16),
)  # fmt: skip
FULL = Amounts(
    pool=120, first=8, budgets=(12, 16, 24, 40), seeds=5, steps=40, test=150, validation=60,
    each=16, later_seeds=3, later_steps=80, labelled=100, rolled=60, large=250, large_steps=160,
    small=24, sizes=(1, 4, 16, 64),
)  # fmt: skip
"""Part 1 is where uniform's curve has slope: of 20 labels 80 steps make an F1 of .76, of 320 the
same."""


def main() -> None:
    torch.set_num_threads(1)
    in_pieces(__doc__, run)


def run(out: Path, pieces: Pieces, size: BenchmarkSize) -> dict[str, Any]:
    """Do what is left of each part."""
    amounts = size.pick(smoke=SMOKE, quick=QUICK, full=FULL)
    study = Study(out, amounts)
    held_out = [
        samples("validation", "validation", problems=amounts.validation, seed=3, each=amounts.each),
        samples("test", "test", problems=amounts.test, seed=11, each=amounts.each),
    ]
    pieces.run([one.piece(out) for one in held_out])
    pieces.run(list(selection_pieces(out, amounts)))
    pieces.run(list(target_pieces(out, amounts)))
    pieces.run(list(labeller_pieces(study)))
    return study.summary()


def selection_pieces(out: Path, amounts: Amounts) -> Iterator[Piece]:
    """Of each seed: the pool, the first labels, the selector, its scores, and every arm."""
    for seed in range(amounts.seeds):
        pool = samples(
            f"pool-{seed}", "train", problems=amounts.pool, seed=20 + seed, each=amounts.each
        )
        yield pool.piece(out)
        yield _selection(out, "uniform", amounts.first, seed, 0)
        yield from _trained(out, amounts.arm("uniform", amounts.first, seed))
        yield Piece(
            result=out / "chosen" / f"pool-{seed}.json",
            work=partial(_score_pool, out, amounts.arm("uniform", amounts.first, seed)),
        )
        for rule, budget in amounts.arms:
            yield _selection(out, rule, budget, seed, amounts.first)
            yield from _trained(out, amounts.arm(rule, budget, seed))


def _trained(
    out: Path, training: Training, pools: Sequence[str] = ("validation", "test")
) -> Iterator[Piece]:
    yield training.piece(out)
    yield from (training.scoring(out, pool) for pool in pools)


def _selection(out: Path, rule: str, budget: int, seed: int, first: int) -> Piece:
    return Piece(
        result=out / "chosen" / f"{rule}-{budget}-{seed}.json",
        work=partial(_select, out, rule, budget, seed, first),
    )


def _score_pool(out: Path, selector: Training) -> None:
    pool, folder = out / "runs" / f"pool-{selector.seed}", out / "chosen"
    scores = folder / f"pool-{selector.seed}.scores.jsonl"
    config = ScoreConfig(prm=str(selector.folder(out)), solutions=str(pool), out=str(scores))
    score(config)
    write_json(folder / f"{pool.name}.json", "scored")


def _select(out: Path, rule: str, budget: int, seed: int, first: int) -> None:
    """Select, beside the `first` labels of this seed, and write what was chosen as a run."""
    name, folder = f"{rule}-{budget}-{seed}", out / "chosen"
    folder.mkdir(exist_ok=True)
    pool, manifest = str(out / "runs" / f"pool-{seed}"), str(folder / f"{name}.parquet")
    earlier = [str(folder / f"uniform-{first}-{seed}.parquet")] if first else []
    scores = None if rule == "uniform" else str(folder / f"pool-{seed}.scores.jsonl")
    jobs.select(
        SelectConfig(
            solutions=pool,
            out=manifest,
            rule=rule,
            budget=budget - first,
            scores=scores,
            seed=seed,
            exclude=earlier,
        )
    )
    ids = {one for place in (manifest, *earlier) for one in read_selected(place).texts}
    rows = [row for row in read_rows(pool) if row.solution.id in ids]
    assert len(rows) == budget
    write_rows(out / "runs" / name, rows)
    wrong = sum(row.solution.outcome is not Outcome.RIGHT for row in rows)
    write_json(folder / f"{name}.json", wrong / budget)


def target_pieces(out: Path, amounts: Amounts) -> Iterator[Piece]:
    """Labels of the same solutions for every target, held-out ones with rollouts, trainings."""
    train = ["problems.split=train", "problems.seed=71", f"problems.limit={amounts.labelled}"]
    ways = {
        "counts": [*train, "estimator.kind=fixed", "estimator.rollouts=8"],
        "beliefs": [
            *(*train, "estimator.kind=posterior", "estimator.rollouts=64"),
            f"estimator.min_gain={amounts.gain}",
        ],
        "rolled": [
            *("problems.split=test", "problems.seed=72", f"problems.limit={amounts.rolled}"),
            *("estimator.kind=fixed", "estimator.rollouts=16"),
        ],
    }
    for name, overrides in ways.items():
        yield Run(name=name, overrides=[*overrides, "keep_rollouts=false"]).piece(out)
    for seed in range(amounts.later_seeds):
        for target in TARGETS:
            yield from _trained(out, amounts.of_target(target, seed), ("validation", "rolled"))


def labeller_pieces(study: Study) -> Iterator[Piece]:
    """The large PRM, what it says of many solutions, and small PRMs that learn from it."""
    out, amounts = study.out, study.amounts
    many = amounts.sizes[-1]
    yield samples("for-large", "train", problems=amounts.large, seed=41, each=4).piece(out)
    yield samples("many", "train", problems=amounts.small, seed=42, each=many).piece(out)
    yield from _trained(out, amounts.of_large, ("many", "validation", "test"))
    for size in reversed(amounts.sizes):
        yield Piece(
            result=out / "chosen" / f"large-{size}.json",
            work=partial(_label_by_large, study, size),
        )
        for method in METHODS:
            yield from _trained(out, amounts.of_method(method, size), ("test",))


def _label_by_large(study: Study, size: int) -> None:
    """Runs with the first solutions of every problem: as checked, and as the large PRM has it."""
    out, amounts = study.out, study.amounts
    pool = load_pool(out / "runs" / "many")
    scores = read_scores(out, amounts.of_large.name, "many")
    graded = (Outcome.RIGHT, Outcome.WRONG)
    places = dict.fromkeys(place for _, place in pool.first_samples(size))
    chosen = [place for place in places if pool.rows[place].solution.outcome in graded]
    write_rows(out / "runs" / f"checked-{size}", [pool.rows[place] for place in chosen])
    judged = [_judged(pool.rows[place], scores[place], study.large_threshold) for place in chosen]
    write_rows(out / "runs" / f"judged-{size}", judged)
    write_json(out / "chosen" / f"large-{size}.json", len(judged))


def _judged(row: LabeledSolution, scores: Floats, sound: float) -> LabeledSolution:
    """A solution as the large PRM labels it: wrong from its first wrong step on."""
    error = first_below(scores.tolist(), sound)
    steps = [
        replace(step, hard=error is None or number < error) for number, step in enumerate(row.steps)
    ]
    outcome = Outcome.RIGHT if error is None else Outcome.WRONG
    solution = replace(row.solution, outcome=outcome)
    return replace(row, steps=tuple(steps), first_error=error, solution=solution)


if __name__ == "__main__":
    main()
