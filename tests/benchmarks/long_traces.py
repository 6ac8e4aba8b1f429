"""Compare the labels of self-correcting traces by source of evidence, and their costs, on arith.

    python -m tests.benchmarks.long_traces [--smoke | --quick] [--out FOLDER]

1. The bundled policy `arith:reflective`, which errs and corrects itself, writes traces. The
   estimator `trace` labels them from outcomes alone, also with intermediate answers, with the
   agreement of solutions, or with both. Beside these is the best constant rule on these traces, "a
   wrong trace errs at step k". All rows of the table are of the same traces.
2. PRMs are compared in how often they rank a right trace with a repair above a wrong trace. One
   PRM learns `states`. One learns `hard`, where every step after the first error is wrong. One
   learns `outcome`, the trace's result, which needs no label of a step.

Intervals are 95% bootstrap intervals over problems. Finished pieces under `--out` are not repeated.
The last line is JSON.
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
    compute_bootstrap_interval,
    draw_resample_weights,
    estimate_ratio,
    sum_by_problem,
)
from mclabel.evaluate.labels.report import find_exact_states, measure_state_quality
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


class OutcomeTrace(TraceEstimator):
    """The estimator `trace` without intermediate answers and without the agreement of solutions."""

    uses_answers: ClassVar[bool] = False
    uses_agreement: ClassVar[bool] = False

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
                commitments=path.commitments
                if self.uses_answers
                else (None,) * len(path.commitments),
                step_keys=path.step_keys if self.uses_agreement else (),
            )
            for path in problem.paths
        ]
        problem = replace(problem, paths=paths)
        super().__init__(settings, problem, rates=rates)


class AgreementTrace(OutcomeTrace):
    """The estimator `trace` with the agreement of solutions alone."""

    uses_agreement = True


class AnswerTrace(OutcomeTrace):
    """The estimator `trace` with intermediate answers alone."""

    uses_answers = True


KINDS = {
    "outcomes": f"{HERE}:OutcomeTrace",
    "answers on the way": f"{HERE}:AnswerTrace",
    "agreement": f"{HERE}:AgreementTrace",
    "answers on the way, agreement": "trace",
}
"""Kind of the estimator for each row of the table."""


def label_piece(out: Path, name: str, amounts: Amounts) -> Piece:
    """Return the piece that labels the traces for a row of the table."""
    changes = [f"solutions.run={out / 'runs/test'}", f"estimator.kind={KINDS[name]}"]
    return labelling(out, _folder(name), amounts.test, *changes)


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """Amounts of sampled traces, labelled traces and training."""

    test: int
    """Number of test problems, with four traces each."""
    train: int
    steps: int
    """Number of optimizer steps of each training."""
    seeds: int


SMOKE = Amounts(test=1, train=2, steps=1, seeds=1)
QUICK = Amounts(test=25, train=25, steps=40, seeds=1)
FULL = Amounts(test=100, train=200, steps=160, seeds=2)


def main() -> None:
    torch.set_num_threads(1)
    in_pieces(__doc__, run)


def run(out: Path, pieces: Pieces, size: BenchmarkSize) -> dict[str, Any]:
    """Run the pieces that have no result yet, and return all figures."""
    amounts = size.pick(smoke=SMOKE, quick=QUICK, full=FULL)
    pieces.run(list(label_pieces(out, amounts)))
    table = quality(out, amounts)
    pieces.run(list(training_pieces(out, amounts)))
    return {"rules": table, "ranking": ranks(out, amounts)}


def labelling(out: Path, name: str, problems: int, *changes: str) -> Piece:
    """Return the piece that makes a run of labels under `out`."""
    keys = [f"problems.limit={problems}", *changes]
    return Run(name=name, overrides=keys, config="traces.yaml", allow=[HERE]).piece(out)


def label_pieces(out: Path, amounts: Amounts) -> Iterator[Piece]:
    """Yield the pieces that sample the traces and label them in each way."""
    yield labelling(out, "test", amounts.test, "estimator.kind=outcome", "problems.split=test")
    for name in KINDS:
        yield label_piece(out, name, amounts)
    yield labelling(out, "train", amounts.train, "problems.split=train")


def training_pieces(out: Path, amounts: Amounts) -> Iterator[Piece]:
    """Yield the pieces that train the PRMs and score the test traces."""
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
    """Return each rule's quality: first errors, repairs, false alarms, and tokens per trace.

    `first_error` is over all traces; an undecided label counts as its likeliest value.
    `among_decided` is over the traces with decided labels.
    """
    figures_by_method: dict[str, dict[str, Numbers]] = {}
    for name in KINDS:
        rows = read_rows(out / "runs" / _folder(name))
        hits = [float(_likeliest_error(row) == _true_error(row)) for row in rows]
        states = measure_state_quality(rows)
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
        figures_by_method[name] = {
            figure: numbers(estimate) for figure, estimate in figures.items()
        }
    rows = read_rows(out / "runs" / "test")
    best = max(
        (_measure_constant(rows, k) for k in range(40)), key=lambda estimate: estimate.value or 0.0
    )
    figures_by_method["constant"] = {"first_error": numbers(best)}
    return figures_by_method


def _folder(name: str) -> str:
    return name.replace(",", "").replace(" ", "-")


def _measure_constant(rows: Sequence[LabeledSolution], step: int) -> Estimate:
    """Measure the rule that each wrong trace errs at step `step`, and each right trace nowhere."""
    hits = [
        float(_true_error(row) == (None if row.solution.outcome is Outcome.RIGHT else step))
        for row in rows
    ]
    return _mean(rows, hits)


def _likeliest_error(row: LabeledSolution) -> int | None:
    assert row.posterior is not None
    mode = int(np.argmax(row.posterior))
    return mode if mode < len(row.steps) else None


def _true_error(row: LabeledSolution) -> int | None:
    states = find_exact_states(row)
    return states.index("error") if "error" in states else None


def _mean(rows: Sequence[LabeledSolution], values: Sequence[float]) -> Estimate:
    """Return the mean with its interval over problems."""
    columns = np.array([[value, 1.0] for value in values]).reshape(-1, 2)
    sums = sum_by_problem([row.problem.id for row in rows], columns)
    return estimate_ratio(sums[:, 0], sums[:, 1], draw_resample_weights(len(sums), 0))


def ranks(out: Path, amounts: Amounts) -> dict[str, list[float] | None]:
    """Return how often a repaired right trace has a higher last score than a wrong trace.

    Returns:
        Shares by training target, over all pairs and averaged over seeds, with an interval over
        problems. Further entries are the differences of `states` from each other target, on the
        same resamples. The values are None if no such pairs exist.
    """
    rows = load_pool(out / "runs" / "test").rows
    problems, number = np.unique([row.problem.id for row in rows], return_inverse=True)
    wrong = np.array([row.solution.outcome is Outcome.WRONG for row in rows])
    repaired = np.array([
        row.solution.outcome is Outcome.RIGHT and "recovered" in find_exact_states(row)
        for row in rows
    ])  # fmt: skip
    weights = np.stack([np.ones(len(problems)), *draw_resample_weights(len(problems), 0)])
    place = np.eye(len(problems))[number]  # [row, problem]

    def weigh_pairs(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
        by_problem = place[repaired].T @ pairs @ place[wrong]
        return np.einsum("rp,pq,rq->r", weights, by_problem, weights)

    count = weigh_pairs(np.ones((repaired.sum(), wrong.sum())))
    if not count[0]:
        return dict.fromkeys(TARGETS)
    shares: dict[str, NDArray[np.float64]] = {}
    for training in _trainings(amounts):
        last = np.array(
            [likelihoods[-1] for likelihoods in read_scores(out, training.name, "test")]
        )
        less = last[repaired][:, None] - last[wrong][None]
        share = weigh_pairs((np.sign(less) + 1) / 2) / np.where(count, count, np.nan)
        shares[training.kind] = shares.get(training.kind, 0) + share / amounts.seeds
    others = [name for name in TARGETS if name != "states"]
    shares |= {f"states less {name}": shares["states"] - shares[name] for name in others}
    return {name: _spread(problem_shares, len(problems)) for name, problem_shares in shares.items()}


def _spread(shares: NDArray[np.float64], num_problems: int) -> list[float]:
    """Return the first share, and the interval of the others, which are resampled."""
    return [
        round(share, 4)
        for share in (float(shares[0]), *compute_bootstrap_interval(shares[1:], num_problems))
    ]


if __name__ == "__main__":
    main()
