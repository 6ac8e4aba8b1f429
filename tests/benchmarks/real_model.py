"""Measure labels of a real language model's solutions against the judgements of two readers.

    python -m tests.benchmarks.real_model [--smoke | --quick] [--half first|second]

SmolLM2-135M with the adapter of `smollm2:words` wrote the solutions, which were judged by reading
(tests/data/words). They are labelled by `fixed`, by `posterior`, which draws its rollouts from
those of `fixed`, and by `posterior` combined with the symbolic judge. Each is compared with the
judgements (95% intervals over problems), with constant rules, and with the others on the same
problems. Settings are chosen on the first half alone. The second half is the test, which `--smoke`
does not read.

`ratio_to_raw_vllm` is the CPU time per token of `vllm.LLM.generate`, divided by that of a labelling
job, where vLLM is installed. `split_faults` is the share of line ends in real texts at which a step
ends or goes on against a reader's judgement (tests/benchmarks/splits.py). `prm_minus_majority` and
`prm_minus_orm` come from the stored scores of `tests.benchmarks.real_prm`, and `sets` from the
stored rollouts of `tests.benchmarks.starting_priors`. The last line is JSON.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.records import Counts, LabeledSolution, Outcome, add_counts
from mclabel.core.stats.bootstrap import (
    Estimate,
    draw_resample_weights,
    estimate_ratio,
    sum_by_problem,
)
from mclabel.data.readers.judged import JudgedSolution, read_processbench
from mclabel.domains.words.smollm2 import SMOLLM2_INSTALL, SMOLLM2_PACKAGE
from mclabel.evaluate.labels.quality import compute_label_cost, measure_label_quality
from mclabel.evaluate.labels.truth import make_truth_from_judgements
from mclabel.judge.job import JudgeConfig
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from tests.benchmarks.figures import finish, numbers
from tests.benchmarks.real_prm import stored_figures
from tests.benchmarks.runs import SMOLLM2, label, read_rows, sampled_source
from tests.benchmarks.sizes import DATA, BenchmarkSize, SizedParser, require_package
from tests.benchmarks.splits import split_faults
from tests.benchmarks.starting_priors import stored_figures as stored_sets

JUDGED = Path(__file__).parents[1] / "data" / "words"
PROBLEMS = 75
WORDS = (f"problems.limit={PROBLEMS}", "problems.seed=0")
"""Keys of the problems of `problems.source=words` whose solutions were judged."""
FIXED, POSTERIOR = "fixed", "posterior"
WITH_CHECKS = "posterior + symbolic"
SECOND = "wrong answer: the second step"
"""The best constant rule on the first half."""
CONSTANTS: Mapping[str, Callable[[int], int]] = {
    "wrong answer: the step before the last": lambda steps: max(0, steps - 2),
    "wrong answer: the first step": lambda steps: 0,
    SECOND: lambda steps: min(1, steps - 1),
}
"""Rules that name a first error from the number of steps alone, for solutions with a wrong answer.
If the answer is right, they name no error."""
REACH = (0.15, 0.8)
"""Shares of completions that end right, between which a problem is within the policy's reach."""


class AskingPosterior(PosteriorEstimator):
    """The estimator `posterior`, which receives a recorded rollout only when it requests one.

    `posterior` itself uses all rollouts of a source as evidence, and would then cost as much as
    `fixed`. This class labels, and costs, as if it sampled its rollouts itself.
    """

    takes_all: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """Quality and cost of the labels of one estimator."""

    figures: Mapping[str, Estimate]
    """Shares of solutions: those that are `decided`; those whose `first_error` is right, where an
    undecided one counts as wrong; the same `among_decided` solutions and `where_wrong`, among those
    with an error; and among solutions without an error, those `sound_called_wrong`."""
    too_sure: float | None
    """Mean probability of the labelled first errors minus the share of these that are right; None
    for an estimator without probabilities."""
    tokens: float
    """Tokens of the rollouts per solution."""
    by_problem: NDArray[np.float64]
    """[2, problems]: number of solutions, and of those whose first error is right."""

    def gain(self, other: Row) -> Estimate:
        """Return the difference to another row in the share of right first errors."""
        solutions, hits = self.by_problem
        weights = draw_resample_weights(len(hits), 0)
        return estimate_ratio(hits - other.by_problem[1], solutions, weights)


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--half", choices=["first", "second"], help="second, but first of --smoke")
    args = parser.read()
    for package in (SMOLLM2_PACKAGE, "gguf"):
        require_package(package, remedy=SMOLLM2_INSTALL)
    size: BenchmarkSize = args.size
    half = args.half or size.pick(smoke="first", quick="second", full="second")
    judged = read_processbench(JUDGED / f"judged_{half}.jsonl")
    judged = _of_first_problems(judged, size.pick(smoke=1, quick=12, full=PROBLEMS))
    rollouts = size.pick(smoke=1, quick=8, full=16)
    with tempfile.TemporaryDirectory() as folder:
        runs = label_all(Path(folder), judged, rollouts)
    pass_rate, within_reach = _measure_reach(runs[FIXED])
    # Rollouts of the bare problems show which are within reach; no label of `fixed` needs them.
    fixed = runs[FIXED] = [replace(row, root=Counts()) for row in runs[FIXED]]
    constant = {
        name: [_label_by_constant(row, rule) for row in fixed] for name, rule in CONSTANTS.items()
    }
    measured = {name: _measure_row(rows, judged) for name, rows in {**constant, **runs}.items()}
    ratios = {name: row.tokens / measured[FIXED].tokens for name, row in measured.items()}
    gains = {
        "gain_over_constant": measured[POSTERIOR].gain(measured[SECOND]),
        "gain_over_fixed": measured[POSTERIOR].gain(measured[FIXED]),
        "gain_of_symbolic": measured[WITH_CHECKS].gain(measured[POSTERIOR]),
    }
    prm = stored_figures()
    figures = {
        "pass_rate": round(pass_rate, 4),
        "within_reach": round(within_reach, 4),
        **{
            figure: {name: numbers(row.figures[figure]) for name, row in measured.items()}
            for figure in measured[FIXED].figures
        },
        **{name: numbers(gain) for name, gain in gains.items()},
        "tokens_to_fixed16": {name: round(ratio, 4) for name, ratio in ratios.items()},
        "belief_minus_accuracy": {name: row.too_sure for name, row in measured.items()},
        "ratio_to_raw_vllm": _ratio_to_raw(size),
        "split_faults": round(split_faults(DATA, half), 4) if DATA.is_dir() else None,
        "sets": stored_sets(size),
        "prm_minus_majority": prm["prm_minus_majority"],
        "prm_minus_orm": prm["prm_minus_orm"],
    }
    finish(figures)


def _ratio_to_raw(size: BenchmarkSize) -> list[float] | None:
    """Return median, minimum and maximum of the ratios; None if vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        return None
    from tests.benchmarks.raw_vllm import ratios_to_raw

    problems = size.pick(smoke=2, quick=8, full=60)
    ratios = ratios_to_raw(problems, alternations=size.pick(smoke=1, quick=1, full=5), rollouts=1)
    return [round(ratio, 4) for ratio in (statistics.median(ratios), min(ratios), max(ratios))]


def label_all(
    work: Path, judged: Sequence[JudgedSolution], rollouts: int
) -> dict[str, list[LabeledSolution]]:
    """Label the judged solutions by every estimator, and return the labels by its name."""
    source = sampled_source(work, judged, *WORDS)
    fixed = {"kind": "fixed", "rollouts": rollouts, "root_rollouts": rollouts}
    bank = _label(work, "fixed", f"solutions.run={source}", _estimator(fixed), *WORDS)
    asking = {"kind": f"tests.benchmarks.real_model:{AskingPosterior.__name__}"}
    settings = _estimator({**asking, "rollouts": rollouts})
    folders = {FIXED: bank}
    folders[POSTERIOR] = _label(work, "posterior", f"solutions.run={bank}", settings, *WORDS)
    keys = [f"solutions={folders[POSTERIOR]}", f"out={work / 'symbolic'}", "judge=symbolic"]
    jobs.judge(load_config(JudgeConfig, None, keys))
    folders[WITH_CHECKS] = str(work / "combined")
    opinions = [f"symbolic={work / 'symbolic'}"]
    jobs.combine(folders[POSTERIOR], opinions, folders[WITH_CHECKS])
    return {name: read_rows(run) for name, run in folders.items()}


def _of_first_problems(judged: Sequence[JudgedSolution], count: int) -> list[JudgedSolution]:
    chosen = list(dict.fromkeys(solution.problem for solution in judged))[:count]
    return [solution for solution in judged if solution.problem in chosen]


def _label(work: Path, name: str, *keys: str) -> str:
    """Label into the folder `work / name`, and return its path."""
    label(work / name, *keys, config=SMOLLM2)
    return str(work / name)


def _estimator(settings: Mapping[str, Any]) -> str:
    return f"estimator={json.dumps(settings)}"


def _label_by_constant(row: LabeledSolution, error: Callable[[int], int]) -> LabeledSolution:
    """Return the solution with the first error that a constant rule names, without rollouts."""
    steps = tuple(replace(step, counts=Counts()) for step in row.steps)
    is_right = row.solution.outcome is Outcome.RIGHT
    return replace(row, steps=steps).with_first_error(None if is_right else error(len(steps)))


def _measure_row(rows: Sequence[LabeledSolution], judged: Sequence[JudgedSolution]) -> Row:
    truth = make_truth_from_judgements("processbench", rows, judged)
    assert len(truth.first_errors) == len(judged), "every solution is judged"
    graded = [r for r in rows if r.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)]
    sums, too_sure = np.zeros((len(graded), 4)), []
    for number, row in enumerate(graded):
        error = truth.first_error(row)
        hit = row.is_decided and row.first_error == error
        sums[number] = 1, hit, error is None, error is None and row.first_error is not None
        if row.is_decided and row.posterior is not None:
            place = len(row.steps) if row.first_error is None else row.first_error
            too_sure.append(row.posterior[place] - hit)
    problems = [row.problem.id for row in graded]
    solutions, hits, sound, called_wrong = sum_by_problem(problems, sums).T
    weights = draw_resample_weights(len(solutions), 0)
    quality = measure_label_quality(graded, truth.first_error)
    return Row(
        figures={
            "decided": quality.decided,
            "first_error": quality.first_error_accuracy,
            "among_decided": quality.first_error_accuracy_decided,
            "where_wrong": quality.first_error_accuracy_wrong,
            "sound_called_wrong": estimate_ratio(called_wrong, sound, weights),
        },
        too_sure=round(float(np.mean(too_sure)), 4) if too_sure else None,
        tokens=compute_label_cost(rows).tokens_per_solution,
        by_problem=np.stack([solutions, hits]),
    )


def _measure_reach(bank: Sequence[LabeledSolution]) -> tuple[float, float]:
    """Return the share of completions of bare problems that end right, and the share of problems
    within reach.
    """
    counts_by_problem = {row.problem.id: add_counts((row.root, row.siblings)) for row in bank}
    right, tried = np.array(
        [(counts.num_right, counts.num_rollouts) for counts in counts_by_problem.values()]
    ).T
    low, high = REACH
    within = (right >= low * tried) & (right <= high * tried)
    return float(right.sum() / tried.sum()), float(within.mean())


if __name__ == "__main__":
    main()
