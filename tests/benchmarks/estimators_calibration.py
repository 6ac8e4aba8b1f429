"""Whether the posterior's beliefs are right as often as they claim; fits their calibration.

    python -m tests.benchmarks.estimators_calibration [--smoke | --quick]

Labels fresh problems with the bundled policy, at several least gains a token, with and without
agreement, and compares each solution's largest belief, as the chain has it, with whether it was
right. Settings share rollouts, so that the engine makes each but once. Priors are those of a pool
of validation problems, the same for both splits. `curves` are those of
`mclabel.labeling.estimators.posterior.judging`, fitted on validation problems; `reliability` is of
test problems under the curves that ship. The last line is JSON.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mclabel.checkers import make_checker
from mclabel.core.config.load import bundled_config, load_config
from mclabel.core.records import Completion, LabeledSolution, Outcome, Problem
from mclabel.domains.arith.problems import Split, generate
from mclabel.engines import EngineStats, Policy, make_engine
from mclabel.engines.base import limited
from mclabel.evaluate.labels.quality import exact_first_error
from mclabel.labeling.config import LabelConfig, LabelSettings
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.estimators.posterior import judging
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.judging import (
    CURVES,
    Kind,
    calibrated,
    covariates,
    fit_curve,
)
from mclabel.labeling.problem import Shared, label_problem, run_learner
from mclabel.labeling.sampling import SolutionSettings
from mclabel.run.desk import Desk
from tests.benchmarks.estimators_common import fitted, load_pool, make_pool
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

GAINS = (3e-3, 1e-3, 3e-4, 1e-4)
"""Least gains a token."""
NUM_PROBLEMS, SEED = 1000, 500
"""Of each split."""
SPLITS: tuple[Split, ...] = ("validation", "test")
SIDE_BY_SIDE = 96
MIN_SHARE = 0.05
"""Share of the labels in a bin under which it does not count."""


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    count, rollouts = size.pick(smoke=(1, 4), quick=(8, 16), full=(350, 64))
    num_problems = size.pick(smoke=2, quick=24, full=NUM_PROBLEMS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        cases = load_pool([make_pool(folder, "validation", count, rollouts)])
        priors = {}
        for agreement in (False, True):
            learned = fitted(cases, agreement=agreement, cap=16)
            assert learned is not None, "the learner of `posterior` has fitted nothing"
            priors[agreement] = str(folder / f"{agreement}.json")
            Path(priors[agreement]).write_text(learned.to_json())
        gains = size.pick(smoke=GAINS[:1], quick=GAINS, full=GAINS)
        validation, test = (
            asyncio.run(_collect(generate(num_problems, seed=SEED, split=split), priors, gains))
            for split in SPLITS
        )
    finish({"curves": _fit(validation), "reliability": report(test)})


class SharedPolicy:
    """A policy that gives the same completion again when it is asked for again."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: dict[tuple[int, ...], asyncio.Task[Completion]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    async def sample(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        priority: int = 0,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """One completion; its seed names it."""
        key = (seed, *prompt, *prefix)
        if key not in self._seen:
            work = self._policy.sample(
                prompt, prefix, seed=seed, priority=priority, **limited(max_tokens, stop)
            )
            self._seen[key] = asyncio.create_task(work)
        return await self._seen[key]

    def stats(self) -> EngineStats:
        """Of the policy."""
        return self._policy.stats()


async def _collect(
    problems: Sequence[Problem], priors: Mapping[bool, str], gains: Sequence[float]
) -> list[dict[str, Any]]:
    """A row for each label of each solution; `priors` are files, by agreement."""
    # Beliefs are collected as the chain has them, and calibrated afterwards.
    calibrating = judging.calibrated
    judging.calibrated = lambda posterior, **_: posterior
    try:
        return await _labels(problems, priors, gains)
    finally:
        judging.calibrated = calibrating


async def _labels(
    problems: Sequence[Problem], priors: Mapping[bool, str], gains: Sequence[float]
) -> list[dict[str, Any]]:
    config = load_config(LabelConfig, bundled_config("label/quickstart.yaml"), ["out=none"])
    policy = SharedPolicy(make_engine(config.policy, seed=SEED))
    await policy.start()
    desk, gate = Desk(), asyncio.Semaphore(SIDE_BY_SIDE)
    decisions = Decisions(desk)

    def shared(estimator: PosteriorEstimator.Settings) -> Shared:
        settings = LabelSettings(
            seed=SEED, solutions=SolutionSettings(per_problem=4), estimator=estimator
        )
        learner = run_learner(settings)
        return Shared(
            policy=policy,
            settings=settings,
            checker=make_checker(settings.checker),
            desk=desk,
            decisions=decisions,
            learner=learner,
        )

    estimators = [
        PosteriorEstimator.Settings(
            min_belief=0.0,
            rollouts=64,
            min_gain_per_token=gain,
            agreement=agreement,
            priors=priors[agreement],
        )
        for agreement in (False, True)
        for gain in gains
    ]
    runs = [(estimator, shared(estimator)) for estimator in estimators]

    async def one(problem: Problem) -> list[dict[str, Any]]:
        async with gate:
            found = []
            for estimator, run in runs:
                labels = await label_problem(problem, run)
                found += [
                    {
                        "agreement": estimator.agreement,
                        "gain": estimator.min_gain_per_token,
                        "kind": _kind(row),
                        "posterior": [round(p, 6) for p in row.posterior],
                        "right": row.first_error == exact_first_error(row),
                        "tokens": sum(r.num_tokens for r in labels.rollouts) / 4,
                    }
                    for row in labels.labeled
                    if row.posterior and row.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)
                ]
            return found

    found: list[dict[str, Any]] = []
    for begin in range(0, len(problems), 2 * SIDE_BY_SIDE):
        some = problems[begin : begin + 2 * SIDE_BY_SIDE]
        for rows in await asyncio.gather(*map(one, some)):
            found += rows
        print(f"{begin + len(some)} of {len(problems)} problems", flush=True)
    await policy.close()
    return found


def _kind(row: LabeledSolution) -> Kind:
    """As the estimator has it."""
    if row.solution.outcome is Outcome.RIGHT:
        return "right"
    seen = (row.root, row.siblings, *(step.counts for step in row.steps))
    return "found" if any(counts.num_right for counts in seen) else "lost"


def _fit(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The curves; that of a kind without rows is the one that the penalty alone gives."""
    found = {}
    for agreement, kind in CURVES:
        these = [r for r in rows if r["agreement"] == agreement and r["kind"] == kind]
        beliefs = np.array([max(row["posterior"]) for row in these])
        moves = [covariates(r["gain"], len(r["posterior"]) - 1) for r in these]
        shifts = np.array(moves).reshape(-1, 2)
        right = np.array([row["right"] for row in these])
        found[f"{agreement}, {kind}"] = fit_curve(beliefs, shifts, right)._asdict()
    return found


def report(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Reliability by agreement and least gain; the largest miss of a bin that counts."""
    found = {}
    for agreement in (False, True):
        for gain in sorted({row["gain"] for row in rows}, reverse=True):
            these = [r for r in rows if r["agreement"] == agreement and r["gain"] == gain]
            bins = list(_bins(these))
            name = f"{'with' if agreement else 'without'} agreement, least gain {gain:g}"
            worst = max(
                (abs(b["believed"] - b["right"]) for b in bins if b["counts"]), default=None
            )
            found[name] = {
                "solutions": len(these),
                "tokens": float(np.mean([r["tokens"] for r in these])),
                "accuracy": float(np.mean([r["right"] for r in these])),
                "worst": worst,
                "bins": {f"bin {n}": one for n, one in enumerate(bins)},
            }
    return found


def _bins(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    beliefs = np.array(
        [
            calibrated(
                np.array(r["posterior"]),
                agreement=r["agreement"],
                kind=r["kind"],
                min_gain_per_token=r["gain"],
            ).max()
            for r in rows
        ]
    )
    right = np.array([r["right"] for r in rows])
    at = np.minimum((beliefs * 10).astype(int), 9)
    for i in range(10):
        if (mine := at == i).any():
            share = float(right[mine].mean())
            yield {
                "believed": float(beliefs[mine].mean()),
                "right": share,
                "labels": int(mine.sum()),
                "error": float(np.sqrt(share * (1 - share) / mine.sum())),
                "counts": bool(mine.mean() >= MIN_SHARE),
            }


if __name__ == "__main__":
    main()
