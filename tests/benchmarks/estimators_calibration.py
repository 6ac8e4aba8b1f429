"""Whether the posterior's beliefs are right as often as they claim; fits their calibration.

    python -m tests.benchmarks.estimators_calibration [--smoke | --quick]
    python -m tests.benchmarks.estimators_calibration collect --split validation --out v.jsonl
    python -m tests.benchmarks.estimators_calibration fit v.jsonl ...
    python -m tests.benchmarks.estimators_calibration collect --split test --out t.jsonl
    python -m tests.benchmarks.estimators_calibration report t.jsonl ...

The first does all that the others do, with priors of a pool that it makes; the last line is JSON.
`collect` labels fresh problems with the bundled policy, at several least gains a token, with and
without agreement, and writes each solution's largest belief as the chain has it and whether it was
right. Settings share rollouts, so that the engine makes each but once. Priors are those of
`--validation` runs, the same for both splits. `fit` prints the curves of
`mclabel.labeling.estimators.posterior.judging`; `report` applies them. Both can be given
several files.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console

from mclabel.checkers import make_checker
from mclabel.core.config.load import bundled_config, load_config
from mclabel.core.records import Completion, LabeledSolution, Outcome, Problem
from mclabel.domains.arith.problems import generate
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
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

GAINS = (3e-3, 1e-3, 3e-4, 1e-4)
"""Least gains a token."""
NUM_PROBLEMS, SEED = 1000, 500
"""Of each split."""
SIDE_BY_SIDE = 96
MIN_SHARE = 0.05
"""Share of the labels in a bin under which it does not count."""


def main() -> None:
    parser = SizedParser(__doc__)
    verbs = parser.add_subparsers(
        dest="verb", help="one part; without, all of them", parser_class=argparse.ArgumentParser
    )
    collect = verbs.add_parser("collect")
    collect.add_argument("--split", choices=["validation", "test"], required=True)
    collect.add_argument("--problems", type=int, default=NUM_PROBLEMS)
    collect.add_argument("--seed", type=int, default=SEED)
    collect.add_argument("--priors", action="append", required=True, help="AGREEMENT=FILE, twice")
    collect.add_argument("--out", type=Path, required=True)
    for verb in ("fit", "report"):
        verbs.add_parser(verb).add_argument("rows", nargs="+", type=Path)
    args = parser.read()
    if args.verb is None:
        print(json.dumps(_all(args.size)))
    elif args.verb == "collect":
        priors = {}
        for given in args.priors:
            name, _, path = given.partition("=")
            priors[name == "true"] = path
        asyncio.run(_collect(args.split, args.problems, args.seed, priors, args.out))
    else:
        rows = _read(args.rows)
        print(json.dumps(_fit(rows) if args.verb == "fit" else report(rows)))


def _all(size: BenchmarkSize) -> dict[str, Any]:
    """Curves fitted on validation problems, and how reliable beliefs are on test problems."""
    pool_size = size.pick(smoke=(2, 16), quick=(8, 16), full=(350, 64))
    num_problems = size.pick(smoke=4, quick=24, full=NUM_PROBLEMS)
    rows = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        count, rollouts = pool_size
        pool = make_pool(folder, "validation", count, rollouts, Console(emoji=False))
        cases = load_pool([pool])
        priors = {}
        for agreement in (False, True):
            learned = fitted(cases, agreement=agreement, cap=16)
            assert learned is not None, "the learner of `posterior` has fitted nothing"
            priors[agreement] = str(folder / f"{agreement}.json")
            Path(priors[agreement]).write_text(learned.to_json())
        for split in ("validation", "test"):
            out = folder / f"{split}.jsonl"
            asyncio.run(_collect(split, num_problems, SEED, priors, out))
            rows[split] = _read([out])
    return {"curves": _fit(rows["validation"]), "reliability": report(rows["test"])}


def _read(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


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
    split: Literal["validation", "test"],
    num_problems: int,
    seed: int,
    priors: Mapping[bool, str],
    out: Path,
) -> None:
    """Write a row for each label of each solution; `priors` are files, by agreement."""
    # Beliefs are collected as the chain has them, and calibrated afterwards.
    calibrating = judging.calibrated
    judging.calibrated = lambda posterior, **_: posterior
    try:
        await _write_rows(split, num_problems, seed, priors, out)
    finally:
        judging.calibrated = calibrating


async def _write_rows(
    split: Literal["validation", "test"],
    num_problems: int,
    seed: int,
    priors: Mapping[bool, str],
    out: Path,
) -> None:
    config = load_config(LabelConfig, bundled_config("label/quickstart.yaml"), ["out=none"])
    policy = SharedPolicy(make_engine(config.policy, seed=seed))
    await policy.start()
    desk, gate = Desk(), asyncio.Semaphore(SIDE_BY_SIDE)
    decisions = Decisions(desk)

    def shared(estimator: PosteriorEstimator.Settings) -> Shared:
        settings = LabelSettings(
            seed=seed, solutions=SolutionSettings(per_problem=4), estimator=estimator
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
        for gain in GAINS
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

    problems = generate(num_problems, seed=seed, split=split)
    with out.open("w") as file:
        for begin in range(0, len(problems), 2 * SIDE_BY_SIDE):
            some = problems[begin : begin + 2 * SIDE_BY_SIDE]
            for rows in await asyncio.gather(*map(one, some)):
                file.writelines(json.dumps(row) + "\n" for row in rows)
            print(f"{begin + len(some)} of {len(problems)} problems", flush=True)
    await policy.close()


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
        for gain in GAINS:
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
                "bins": bins,
            }
            shown = ", ".join(
                f"{b['believed']:.2f}: {b['right']:.2f} ±{b['error']:.2f} ({b['labels']})"
                for b in bins
                if b["counts"]
            )
            print(f"{name}: worst {worst:.3f}; believed: was right (labels) {shown}")
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
