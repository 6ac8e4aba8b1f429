"""Labels of traces that correct themselves, by source of evidence, and what they cost. On arith.

    python -m tests.benchmarks.long_traces [--smoke | --quick] [--out FOLDER]

1. The bundled policy that errs and corrects itself (`arith:reflective`) writes traces, which are
   labelled by the estimator `trace` on outcomes alone, with answers on the way, with the agreement
   of solutions, and with both. Beside these stands the constant rule that does best on these
   traces, "a wrong trace errs at step k". All rows are of the same traces.
2. Whether a PRM that learns `states` ranks traces that end right behind a repair above wrong ones,
   one that learns `hard`, where all behind the first error is wrong, and one that learns `outcome`,
   how the trace ended, which needs no label of a step.

Intervals: 95%, bootstrap over problems. What is under `--out` is not done again. The last line is
JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.core.stats.bootstrap import (
    Estimate,
    interval,
    ratio_estimate,
    resample_weights,
    sums_by_problem,
)
from mclabel.evaluate.labels.report import exact_states, state_quality
from mclabel.labeling.estimators import ProblemPaths
from mclabel.labeling.estimators.trace.estimator import TraceEstimator
from mclabel.labeling.estimators.trace.rates import TraceRates
from tests.benchmarks.figures import Numbers, numbers
from tests.benchmarks.pieces import Piece, Pieces, in_pieces
from tests.benchmarks.runs import read_rows
from tests.benchmarks.scorers import Run, Training, load_pool, read_scores
from tests.benchmarks.sizes import BenchmarkSize

TARGETS = ("states", "hard", "outcome")
HERE = "tests.benchmarks.long_traces"


class Deaf(TraceEstimator):
    """Knows neither the answers on the way nor what solutions agree on."""

    hears: ClassVar[bool] = False
    agrees: ClassVar[bool] = False

    def __init__(
        self,
        settings: TraceEstimator.Settings,
        problem: ProblemPaths,
        *,
        rates: TraceRates | None = None,
    ) -> None:
        paths = [
            replace(
                path,
                commitments=path.commitments if self.hears else (None,) * len(path.commitments),
                step_keys=path.step_keys if self.agrees else (),
            )
            for path in problem.paths
        ]
        problem = replace(problem, paths=paths)
        super().__init__(settings, problem, rates=rates)


class Agreeing(Deaf):
    """Knows what solutions agree on."""

    agrees = True


class Alone(Deaf):
    """Knows answers on the way."""

    hears = True


KINDS = {
    "outcomes": f"{HERE}:Deaf",
    "answers on the way": f"{HERE}:Alone",
    "agreement": f"{HERE}:Agreeing",
    "answers on the way, agreement": "trace",
}
"""The estimator of each row of the table."""


def label_piece(out: Path, name: str, amounts: Amounts) -> Piece:
    """The piece that labels the traces for a row of the table."""
    changes = [f"solutions.run={out / 'runs/test'}", f"estimator.kind={KINDS[name]}"]
    return labelling(out, _folder(name), amounts.test, *changes)


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much is sampled, labelled and trained."""

    test: int
    """Problems, four traces each."""
    train: int
    steps: int
    """Of each training."""
    seeds: int


SMOKE = Amounts(test=1, train=2, steps=1, seeds=1)
QUICK = Amounts(test=25, train=25, steps=40, seeds=1)
FULL = Amounts(test=100, train=200, steps=160, seeds=2)


def main() -> None:
    torch.set_num_threads(1)
    in_pieces(__doc__, run)


def run(out: Path, pieces: Pieces, size: BenchmarkSize) -> dict[str, Any]:
    """Do what is left."""
    amounts = size.pick(smoke=SMOKE, quick=QUICK, full=FULL)
    pieces.run(list(label_pieces(out, amounts)))
    table = quality(out, amounts)
    pieces.run(list(training_pieces(out, amounts)))
    return {"rules": table, "ranking": ranks(out, amounts)}


def labelling(out: Path, name: str, problems: int, *changes: str) -> Piece:
    """A run of labels under `out`."""
    keys = [f"problems.limit={problems}", *changes]
    return Run(name=name, overrides=keys, config="traces.yaml", allow=[HERE]).piece(out)


def label_pieces(out: Path, amounts: Amounts) -> Iterator[Piece]:
    """The traces, and their labels by every rule."""
    yield labelling(out, "test", amounts.test, "estimator.kind=outcome", "problems.split=test")
    for name in KINDS:
        yield label_piece(out, name, amounts)
    yield labelling(out, "train", amounts.train, "problems.split=train")


def training_pieces(out: Path, amounts: Amounts) -> Iterator[Piece]:
    """PRMs of both targets, and their scores of the test traces."""
    for training in _trainings(amounts):
        yield training.piece(out)
        yield training.scoring(out, "test")


def _trainings(amounts: Amounts) -> list[Training]:
    steps = f"max_steps={amounts.steps}"
    overrides = ("base=arith:reflective", steps, "max_tokens=1024")
    return [
        Training(
            kind=target, seed=seed, labels=["train"],
            overrides=[f"target={target}", *overrides],
        )
        for target in TARGETS
        for seed in range(amounts.seeds)
    ]  # fmt: skip


def quality(out: Path, amounts: Amounts) -> dict[str, dict[str, Numbers]]:
    """By rule: first errors, repairs, sound steps called wrong, and tokens a trace.

    `first_error` is of all traces, the likeliest counting as found where a label is undecided;
    `among_decided` of those that the labels decide.
    """
    found: dict[str, dict[str, Numbers]] = {}
    for name in KINDS:
        rows = read_rows(out / "runs" / _folder(name))
        hits = [float(_likeliest(row) == _true_error(row)) for row in rows]
        states = state_quality(rows)
        assert states is not None
        decided = [row for row in rows if row.is_decided]
        right = [hit for row, hit in zip(rows, hits, strict=True) if row.is_decided]
        figures = {
            "first_error": _mean(rows, hits),
            "decided": _mean(rows, [float(row.is_decided) for row in rows]),
            "among_decided": _mean(decided, right),
            "states": states.agreement,
            "recovered_f1": states.recovered_f1,
            "sound_called_wrong": states.false_alarms,
            "belief": _mean(rows, [max(row.posterior or (0.0,)) for row in rows]),
            "tokens": _mean(
                rows, [float(sum(s.counts.num_tokens for s in row.steps)) for row in rows]
            ),
        }
        found[name] = {figure: numbers(one) for figure, one in figures.items()}
    rows = read_rows(out / "runs" / "test")
    best = max((_constant(rows, k) for k in range(40)), key=lambda one: one.value or 0.0)
    found["constant"] = {"first_error": numbers(best)}
    return found


def _folder(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def _constant(rows: Sequence[LabeledSolution], step: int) -> Estimate:
    """The rule that a wrong trace errs at a step, and a right one nowhere."""
    hits = [
        float(_true_error(row) == (None if row.solution.outcome is Outcome.RIGHT else step))
        for row in rows
    ]
    return _mean(rows, hits)


def _likeliest(row: LabeledSolution) -> int | None:
    assert row.posterior is not None
    mode = int(np.argmax(row.posterior))
    return mode if mode < len(row.steps) else None


def _true_error(row: LabeledSolution) -> int | None:
    states = exact_states(row)
    return states.index("error") if "error" in states else None


def _mean(rows: Sequence[LabeledSolution], values: Sequence[float]) -> Estimate:
    """Mean with its interval over problems."""
    columns = np.array([[value, 1.0] for value in values]).reshape(-1, 2)
    sums = sums_by_problem([row.problem.id for row in rows], columns)
    return ratio_estimate(sums[:, 0], sums[:, 1], resample_weights(len(sums), 0))


def ranks(out: Path, amounts: Amounts) -> dict[str, list[float] | None]:
    """How often a trace that is right behind a repair has a higher last score than a wrong one.

    Returns:
        By target, over all pairs and the mean of its seeds, with an interval over problems; and
        by how much `states` has more than each other target, on the same resamples. None where
        there are no such pairs.
    """
    rows = load_pool(out / "runs" / "test").rows
    problems, number = np.unique([row.problem.id for row in rows], return_inverse=True)
    wrong = np.array([row.solution.outcome is Outcome.WRONG for row in rows])
    repaired = np.array([
        row.solution.outcome is Outcome.RIGHT and "recovered" in exact_states(row) for row in rows
    ])  # fmt: skip
    weights = np.stack([np.ones(len(problems)), *resample_weights(len(problems), 0)])
    place = np.eye(len(problems))[number]  # [row, problem]

    def weighed(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
        by_problem = place[repaired].T @ pairs @ place[wrong]
        return np.einsum("rp,pq,rq->r", weights, by_problem, weights)

    count = weighed(np.ones((repaired.sum(), wrong.sum())))
    if not count[0]:
        return dict.fromkeys(TARGETS)
    found: dict[str, NDArray[np.float64]] = {}
    for training in _trainings(amounts):
        last = np.array([one[-1] for one in read_scores(out, training.name, "test")])
        less = last[repaired][:, None] - last[wrong][None]
        share = weighed((np.sign(less) + 1) / 2) / np.where(count, count, np.nan)
        found[training.kind] = found.get(training.kind, 0) + share / amounts.seeds
    others = [name for name in TARGETS if name != "states"]
    found |= {f"states less {name}": found["states"] - found[name] for name in others}
    return {name: _spread(one, len(problems)) for name, one in found.items()}


def _spread(shares: NDArray[np.float64], num_problems: int) -> list[float]:
    """The first, and the interval of the others."""
    return [round(one, 4) for one in (float(shares[0]), *interval(shares[1:], num_problems))]


if __name__ == "__main__":
    main()
