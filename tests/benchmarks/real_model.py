"""How good are labels on the text of a real language model, beside two readers' judgements?

    python -m tests.benchmarks.real_model [--smoke | --quick] [--half first|second]

SmolLM2-135M with the adapter of `smollm2:words` wrote the solutions, which were judged by reading
(tests/data/words). They are labelled by `fixed`, whose rollouts are a bank that the others draw
from, by the posterior, and by the posterior and exact checks together.
Each is compared with the judgements (95% intervals over problems), with rules that look at no step,
and with the others on the same problems. Settings are chosen on the first half alone; the second
one is the test, and `--smoke` leaves it alone. `ratio_to_raw_vllm`: CPU-seconds a token of
`vllm.LLM.generate` in those of a labelling job, where vLLM is installed. `split_faults`: of line
ends in real texts (tests/benchmarks/splits.py), the share where steps end, or do not, against a
reader's judgement. The last line is JSON.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.records import Counts, LabeledSolution, Outcome, total_counts
from mclabel.core.stats.bootstrap import Estimate, ratio_estimate, resample_weights, sums_by_problem
from mclabel.data.readers.judged import JudgedSolution, read_processbench
from mclabel.domains.words.smollm2 import SMOLLM2_INSTALL, SMOLLM2_PACKAGE
from mclabel.evaluate.labels.quality import label_cost, label_quality
from mclabel.evaluate.labels.truth import judged_truth
from mclabel.judge.job import JudgeConfig
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.run.shards.labels import commit_block
from mclabel.run.shards.manifest import MANIFEST, Semantic, claim, read_claim
from mclabel.run.shards.store import Store
from tests.benchmarks.figures import finish, numbers
from tests.benchmarks.runs import label, read_rows
from tests.benchmarks.sizes import DATA, BenchmarkSize, SizedParser, need
from tests.benchmarks.splits import split_faults

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
"""First errors that rules give by the number of steps alone; none where the answer is right."""
REACH = (0.15, 0.8)
"""Shares of completions that end right, between which a problem is within the policy's reach."""


class AskingPosterior(PosteriorEstimator):
    """The posterior that is given no rollout of the bank before it asks for it.

    As it is, it takes all that a source has as evidence, and would cost what the bank costs. So it
    labels, and costs, as one does that samples its rollouts itself.
    """

    takes_all: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the labels of one way are worth."""

    figures: Mapping[str, Estimate]
    """Shares of solutions: `decided`; `first_error` is right, undecided counting as wrong; the same
    `among_decided`, and `where_wrong`, of those with an error; `sound_called_wrong`, of those
    without one, by labels that name one."""
    too_sure: float | None
    """Mean chance that the posterior gives the labelled first errors, less the share of them that
    are right; None where there is no posterior."""
    tokens: float
    """Of the rollouts that the labels rest on, a solution."""
    by_problem: NDArray[np.float64]
    """Of each problem, its solutions and those whose first error is right [2, problems]."""

    def gain(self, other: Row) -> Estimate:
        """By how much more first errors are right than another way's, of the same problems."""
        solutions, hits = self.by_problem
        weights = resample_weights(len(hits), 0)
        return ratio_estimate(hits - other.by_problem[1], solutions, weights)


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--half", choices=["first", "second"], help="second, but first of --smoke")
    args = parser.read()
    for package in (SMOLLM2_PACKAGE, "gguf"):
        need(package, remedy=SMOLLM2_INSTALL)
    size: BenchmarkSize = args.size
    half = args.half or size.pick(smoke="first", quick="second", full="second")
    judged = read_processbench(JUDGED / f"judged_{half}.jsonl")
    judged = _of_first_problems(judged, size.pick(smoke=1, quick=12, full=PROBLEMS))
    rollouts = size.pick(smoke=1, quick=8, full=16)
    with tempfile.TemporaryDirectory() as folder:
        runs = label_all(Path(folder), judged, rollouts)
    pass_rate, within_reach = _reach(runs[FIXED])
    # Rollouts of the problem alones say which are within reach; no label of `fixed` needs them.
    fixed = runs[FIXED] = [replace(row, root=Counts()) for row in runs[FIXED]]
    constant = {name: [_constant(row, rule) for row in fixed] for name, rule in CONSTANTS.items()}
    measured = {name: _measured(rows, judged) for name, rows in {**constant, **runs}.items()}
    ratios = {name: row.tokens / measured[FIXED].tokens for name, row in measured.items()}
    gains = {
        "gain_over_constant": measured[POSTERIOR].gain(measured[SECOND]),
        "gain_over_fixed": measured[POSTERIOR].gain(measured[FIXED]),
        "gain_of_symbolic": measured[WITH_CHECKS].gain(measured[POSTERIOR]),
    }
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
    }
    finish(figures)


def _ratio_to_raw(size: BenchmarkSize) -> list[float] | None:
    """Of CPU-seconds: median, least and most; None where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        return None
    from tests.benchmarks.raw_vllm import ratios_to_raw

    problems = size.pick(smoke=2, quick=8, full=60)
    ratios = ratios_to_raw(problems, alternations=size.pick(smoke=1, quick=1, full=5), rollouts=1)
    return [round(one, 4) for one in (statistics.median(ratios), min(ratios), max(ratios))]


def label_all(
    work: Path, judged: Sequence[JudgedSolution], rollouts: int
) -> dict[str, list[LabeledSolution]]:
    """Labels of the judged solutions by every way, made as far as that is not done yet."""
    source = sampled_source(work, judged, *WORDS)
    fixed = {"kind": "fixed", "rollouts": rollouts, "root_rollouts": rollouts}
    bank = _label(work, "fixed", f"solutions.run={source}", _estimator(fixed), *WORDS)
    asking = {"kind": f"tests.benchmarks.real_model:{AskingPosterior.__name__}"}
    settings = _estimator({**asking, "rollouts": rollouts})
    found = {FIXED: bank}
    found[POSTERIOR] = _label(work, "posterior", f"solutions.run={bank}", settings, *WORDS)
    keys = [f"solutions={found[POSTERIOR]}", f"out={work / 'symbolic'}", "judge=symbolic"]
    jobs.judge(load_config(JudgeConfig, None, keys))
    found[WITH_CHECKS] = str(work / "combined")
    opinions = [f"symbolic={work / 'symbolic'}"]
    jobs.combine(found[POSTERIOR], opinions, found[WITH_CHECKS])
    return {name: read_rows(run) for name, run in found.items()}


def _of_first_problems(judged: Sequence[JudgedSolution], count: int) -> list[JudgedSolution]:
    chosen = list(dict.fromkeys(one.problem for one in judged))[:count]
    return [one for one in judged if one.problem in chosen]


def sampled_source(work: Path, judged: Sequence[JudgedSolution], *keys: str) -> str:
    """Write judged solutions as a run of solutions that the policy has sampled, which it has.

    They are labelled as given ones first: that gives token ids, steps and outcomes. Then they are
    written again as all the solutions that were sampled of their problems, whatever the outcomes.
    """
    work.mkdir(parents=True, exist_ok=True)
    texts = [json.dumps({"problem": one.problem, "steps": one.steps}) for one in judged]
    path = work / "solutions.jsonl"
    path.write_text("\n".join(texts), encoding="utf-8")
    outcome = _estimator({"kind": "outcome"})
    given = _label(work, "given", f"solutions.path={path}", outcome, *keys)
    rows = read_rows(given)
    assert len(rows) == len(judged), "none is left out"
    outcomes: dict[str, Counts] = defaultdict(Counts)
    for row in rows:
        so_far, solution = outcomes[row.problem.id], row.solution
        outcomes[row.problem.id] = so_far.plus(solution.outcome, len(solution.ids))
    sampled = [
        replace(
            row,
            solution=replace(row.solution, origin="sampled"),
            siblings=(siblings := outcomes[row.problem.id]),
            num_sampled=siblings.num_rollouts,
            num_sampled_right=siblings.num_right,
        )
        for row in rows
    ]
    store = Store(str(work / "sampled"), create=True)
    manifest = read_claim(Store(given), MANIFEST) or {}
    semantic = Semantic(identity=manifest["identity"], config=manifest["config"])
    claim(store, MANIFEST, semantic, {"input": {"solutions": given}})
    commit_block(store, "sampled", "only", sampled, [], semantic.stamp())
    return store.location


def _label(work: Path, name: str, *keys: str) -> str:
    """The run in the folder of this name."""
    label(work / name, *keys, config="quickstart-smollm2.yaml")
    return str(work / name)


def _estimator(settings: Mapping[str, Any]) -> str:
    return f"estimator={json.dumps(settings)}"


def _constant(row: LabeledSolution, error: Callable[[int], int]) -> LabeledSolution:
    """The solution as a rule labels it that looks at no step, and needs no rollouts."""
    steps = tuple(replace(step, counts=Counts()) for step in row.steps)
    is_right = row.solution.outcome is Outcome.RIGHT
    return replace(row, steps=steps).with_first_error(None if is_right else error(len(steps)))


def _measured(rows: Sequence[LabeledSolution], judged: Sequence[JudgedSolution]) -> Row:
    truth = judged_truth("processbench", rows, judged)
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
    solutions, hits, sound, called_wrong = sums_by_problem(problems, sums).T
    weights = resample_weights(len(solutions), 0)
    quality = label_quality(graded, truth.first_error)
    return Row(
        figures={
            "decided": quality.decided,
            "first_error": quality.first_error_accuracy,
            "among_decided": quality.first_error_accuracy_decided,
            "where_wrong": quality.first_error_accuracy_wrong,
            "sound_called_wrong": ratio_estimate(called_wrong, sound, weights),
        },
        too_sure=round(float(np.mean(too_sure)), 4) if too_sure else None,
        tokens=label_cost(rows).tokens_per_solution,
        by_problem=np.stack([solutions, hits]),
    )


def _reach(bank: Sequence[LabeledSolution]) -> tuple[float, float]:
    """Share of completions of the problem alones that end right; share of problems within reach."""
    found = {row.problem.id: total_counts((row.root, row.siblings)) for row in bank}
    right, tried = np.array([(one.num_right, one.num_rollouts) for one in found.values()]).T
    low, high = REACH
    within = (right >= low * tried) & (right <= high * tried)
    return float(right.sum() / tried.sum()), float(within.mean())


if __name__ == "__main__":
    main()
