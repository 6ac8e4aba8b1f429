"""Measure which rule over rollouts, a PRM and exact checks finds first errors best.

    python -m tests.benchmarks.truth [--smoke | --quick]

The bundled policy and the strong model label problems of three splits of arith by one posterior,
with four solutions each. A PRM is trained on the labels of the training problems, and its threshold
is chosen on those of the validation problems. On the test problems the PRM and the symbolic checks
are judges, and every rule combines their opinions with the rollouts. The rules' first errors are
compared with exact truth (95% intervals over problems), and with those labels that the posterior
alone is surest of. Then scripted judges have known error rates, and one of them is worthless. The
benchmark measures the error of the rates that the posterior learns for them. Nothing is chosen on
the test problems. The last line is JSON.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.evaluate.labels.quality import (
    compute_label_cost,
    find_exact_first_error,
    measure_label_quality,
)
from mclabel.judge.consensus.models import FirstErrorJudgeModel
from mclabel.judge.consensus.posterior import fuse_judges_with_rollouts
from mclabel.judge.consensus.rules import POSTERIOR, SAME_LOCATION
from mclabel.judge.job import JudgeConfig
from tests.benchmarks.figures import finish, numbers
from tests.benchmarks.runs import CHEAP, STRONG, label, read_rows, train
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

SUREST = 0.6
"""Share of solutions in the separate measurement of the labels that the posterior is surest of."""
MOST_ALARMS = 0.05
"""Largest share of right, sound solutions that may be suspected in the search for right answers
through wrong steps.
"""
KNOWN = {"good": (0.01, 0.9, 0.5), "fair": (0.06, 0.6, 0.3), "worthless": (0.2, 0.2, 0.2)}
"""Rates of scripted judges: their chances to object to a sound step, to the first wrong step, and
to a later step.
"""
HAZARD = 0.12
"""Chance that a step of a scripted solution is the first wrong one."""


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    with tempfile.TemporaryDirectory() as folder:
        rules, tokens, lucky = measure(Path(folder), size)
    error = learned_rate_error(*size.pick(smoke=(1, 200), quick=(5, 2000), full=(5, 4000)))
    finish(
        {
            "rules": rules,
            "tokens": round(tokens, 1),
            "lucky_found": round(lucky, 4),
            "learned_rate_error": round(error, 4),
        }
    )


def measure(work: Path, size: BenchmarkSize) -> tuple[dict[str, Any], float, float]:
    """Label, train, judge and combine, or reuse finished runs.

    Returns:
        The figures of each rule, the rollout tokens per solution, and the share of right answers
        through wrong steps that are found.
    """
    problems = {
        "train": size.pick(smoke=3, quick=150, full=1000),
        "validation": size.pick(smoke=6, quick=60, full=300),
        "test": size.pick(smoke=3, quick=100, full=1000),
    }
    keys = ["estimator.kind=posterior", f"completers=[{{model: policy}}, {STRONG}]"]
    keys += size.pick(smoke=[CHEAP, "estimator.min_belief=0"], quick=[], full=[])
    for split, count in problems.items():
        label(work / split, f"problems.split={split}", f"problems.limit={count}", *keys)
    steps = size.pick(smoke=["max_steps=1"], quick=[], full=[])
    train([work / "train"], work / "prm", *steps)
    run = str(work / "test")
    prm = [f"judge.prm={work / 'prm'}", f"judge.held_out={work / 'validation'}"]
    judges = {"prm": ["judge=scorer", *prm], "symbolic": ["judge=symbolic"]}
    for name, keys in judges.items():
        keys = [f"solutions={run}", f"out={work / 'judged' / name}", *keys]
        jobs.judge(load_config(JudgeConfig, None, keys))
    opinions = [f"{name}={work / 'judged' / name}" for name in judges]
    rows = read_rows(run)
    figures = {"rollouts": _row(rows, rows)}
    for rule in (SAME_LOCATION, POSTERIOR):
        out = str(work / f"by-{rule}")
        jobs.combine(run, opinions, out, rule=rule)
        combined = read_rows(out)
        kept = [row for row in combined if row.is_kept]
        figures[rule] = _row(kept, rows)
        if rule == SAME_LOCATION:
            share = len(kept) / len(rows)
    surest = sorted(combined, key=lambda row: -max(row.posterior or (0.0,)))
    for name, part in (
        ("posterior, as many as same_location", share),
        (f"posterior, surest {SUREST:.0%}", SUREST),
    ):
        figures[name] = _row(surest[: round(part * len(surest))], rows)
    return figures, compute_label_cost(rows).tokens_per_solution, _lucky_share(combined)


def _row(rows: Sequence[LabeledSolution], whole: Sequence[LabeledSolution]) -> dict[str, Any]:
    quality = measure_label_quality(rows)
    return {
        "kept": round(len(rows) / len(whole), 4),
        "first_error_accuracy": numbers(quality.first_error_accuracy),
        "where_there_is_one": numbers(quality.first_error_accuracy_wrong),
        "lucky_found": numbers(quality.lucky_found),
    }


def _lucky_share(rows: Sequence[LabeledSolution]) -> float:
    """Return the share of lucky solutions that are suspected more than most sound ones.

    Lucky solutions reach a right answer through a wrong step.
    """
    right = [row for row in rows if row.solution.outcome is Outcome.RIGHT and row.posterior]
    suspicion = np.array([1 - row.posterior[-1] for row in right if row.posterior])
    is_sound = np.array([find_exact_first_error(row) is None for row in right], dtype=bool)
    if is_sound.all() or not is_sound.any():
        return float("nan")
    bound = np.quantile(suspicion[is_sound], 1 - MOST_ALARMS)
    return float((suspicion[~is_sound] > bound).mean())


def learned_rate_error(worlds: int, solutions: int) -> float:
    """Return the mean error of the rates that the posterior learns for scripted judges.

    It is a mean over `worlds` simulations. The rate at later steps counts only for judges that
    leave errors to be found later.
    """
    errors = []
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        first, num_steps = _errors(rng, solutions)
        rollouts = _rollouts(rng, first, num_steps)
        models = {
            name: FirstErrorJudgeModel(
                num_steps=num_steps,
                named_steps=_draw_named_errors(rng, first, num_steps, rates),
                sureness_classes=np.zeros(solutions, dtype=np.int64),
            )
            for name, rates in KNOWN.items()
        }
        fused = fuse_judges_with_rollouts(rollouts, num_steps, models)
        for name, rates in KNOWN.items():
            learned = list(fused.models[name].error_rates().values())
            count = 2 if name == "good" else 3
            errors += [abs(a - b) for a, b in zip(learned[:count], rates, strict=False)]
    return float(np.mean(errors))


def _errors(
    rng: np.random.Generator, solutions: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    num_steps = rng.integers(3, 8, solutions)
    wrong = rng.random((solutions, 8)) < HAZARD
    first = np.argmax(wrong, 1)
    return np.where(wrong.any(1) & (first < num_steps), first, num_steps), num_steps


def _rollouts(
    rng: np.random.Generator, first: NDArray[np.int64], num_steps: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return calibrated beliefs: they favour the truth seven times in ten, else a random place."""
    chances = np.zeros((len(first), int(num_steps.max()) + 1))
    for row, (error, steps) in enumerate(zip(first, num_steps, strict=True)):
        seen = error if rng.random() < 0.7 else rng.integers(0, steps + 1)
        likely = np.full(steps + 1, 0.3 / (steps + 1))
        likely[seen] += 0.7
        usual = np.append(HAZARD * (1 - HAZARD) ** np.arange(steps), (1 - HAZARD) ** steps)
        chances[row, : steps + 1] = usual * likely / (usual * likely).sum()
    return chances


def _draw_named_errors(
    rng: np.random.Generator,
    first: NDArray[np.int64],
    num_steps: NDArray[np.int64],
    rates: Sequence[float],
) -> NDArray[np.int64]:
    """Return the first errors that a judge of known rates names when it reads step after step."""
    step = np.arange(int(num_steps.max()))
    error = first[:, None]
    chance = np.where(step < error, rates[0], np.where(step == error, rates[1], rates[2]))
    finds = (rng.random(chance.shape) < chance) & (step < num_steps[:, None])
    return np.where(finds.any(1), np.argmax(finds, 1), num_steps)


if __name__ == "__main__":
    main()
