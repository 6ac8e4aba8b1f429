"""Measure the errors of cost forecasts on arith and on a skewed mix of problem lengths.

    python -m tests.benchmarks.forecast [--smoke | --quick]

Each job is forecast from a pilot and then run to its end with the bundled policy. The error is that
of the tokens of the whole job. One pilot says little about other pilots. So the job is forecast
again from pilots at 200 other places, with the measured costs of all blocks. The last line is JSON:
`relative_error` is the largest error of the real pilots.

Nine tenths of the skewed mix are the shortest generated problems. The last tenth of the file is the
longest ones.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.domains.arith.problems import generate_problems
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators.posterior.priors import make_starting_priors
from mclabel.run.budget import read_recorded_spending
from mclabel.run.forecast import Interval, Size, choose_pilot_blocks, forecast_cost
from mclabel.run.shards.labels import iter_label_tables
from mclabel.run.shards.store import Store
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

ESTIMATORS = {
    "fixed": ["estimator.kind=fixed", "estimator.rollouts=8"],
    "bisect": ["estimator.kind=bisect", "estimator.rollouts=16"],
    "posterior": ["estimator.kind=posterior", "estimator.pilot=60"],
}
SMOKE = [
    *("solutions.per_problem=1", "block_problems=2", "estimator.rollouts=2"),
    *("estimator.min_gain=0.16", "estimator.pilot=4"),
]
"""Overrides of `posterior` at the smoke size."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The forecasts of one job and its costs."""

    tokens: Interval
    rollouts: Interval
    hours: Interval | None
    cost: Mapping[str, float]
    other_errors: np.ndarray
    """Signed relative errors of the tokens that other pilots forecast."""
    covered: float
    """Share of the other pilots whose intervals contain the cost."""

    @property
    def error(self) -> float:
        return self.tokens.expected / self.cost["tokens"] - 1


def write_mix(path: Path, count: int, *, skewed: bool) -> None:
    """Write arith problems: as generated, or nine tenths short ones and then long ones."""
    problems = list(generate_problems(4 * count if skewed else count, seed=11, split="test"))
    if skewed:
        by_length = sorted(problems, key=lambda p: len(p.text))
        num_long = count // 10
        problems = [*by_length[: count - num_long], *by_length[-num_long:]]
    rows = [
        {"id": p.id, "problem": p.text, "answer": p.answer, "meta": dict(p.meta)} for p in problems
    ]
    path.write_text("\n".join(map(json.dumps, rows)))


def measure(
    folder: Path,
    overrides: Sequence[str],
    *,
    skewed: bool,
    count: int,
    pilot: int,
    num_other_pilots: int,
) -> Outcome:
    """Forecast a job with these overrides, then run it."""
    source = folder / "problems.jsonl"
    write_mix(source, count, skewed=skewed)
    changes = [
        f"problems.source={source}",
        f"out={folder / 'out'}",
        "policy.model=arith:policy",
        "policy.max_tokens=200",
        "policy.engine.max_live=256",
        "block_problems=4",
        "ray.address=none",
        *overrides,
    ]
    config = load_config(LabelConfig, None, changes)
    jobs.run_pilot(config, lambda state: None, num_problems=pilot)
    forecast = jobs.forecast(config)
    assert forecast is not None
    jobs.label(config, lambda state: None)
    store = Store(config.out)
    spent = read_recorded_spending(store)
    blocks = _blocks(store)
    num_rollouts = sum(metadata["cost"]["num_rollouts"] for metadata, _ in iter_label_tables(store))
    other_errors, covered = _forecast_from_other_pilots(
        blocks, pilot // config.block_problems, num_other_pilots
    )
    return Outcome(
        tokens=forecast.num_tokens,
        rollouts=forecast.num_rollouts,
        hours=forecast.hours,
        cost={"tokens": spent.num_tokens, "rollouts": num_rollouts, "hours": spent.hours},
        other_errors=other_errors,
        covered=covered,
    )


def _blocks(store: Store) -> list[tuple[Size, float, float]]:
    """Return size, tokens and rollouts of each block, without the blocks that trained priors."""
    rows = []
    start = f"{make_starting_priors().id}@"
    for metadata, table in iter_label_tables(store):
        if any(name and name.startswith(start) for name in table["priors"].unique().to_pylist()):
            continue
        columns = (table[name].to_pylist() for name in ("problem_id", "problem"))
        lengths = [len(text) for text in dict(zip(*columns, strict=True)).values()]
        size = Size(len(lengths), sum(lengths), sum(length**2 for length in lengths))
        rows.append((size, metadata["cost"]["num_tokens"], metadata["cost"]["num_rollouts"]))
    return rows


def _forecast_from_other_pilots(
    blocks: list[tuple[Size, float, float]], count: int, num_other_pilots: int
) -> tuple[np.ndarray, float]:
    """Return the signed errors of other pilots, and the share of their intervals with the cost."""
    errors, covered = [], 0
    everything = sum(tokens for _, tokens, _ in blocks)
    for seed in range(num_other_pilots):
        chosen = choose_pilot_blocks([size for size, *_ in blocks], count, seed=seed)
        remaining = [block for number, block in enumerate(blocks) if number not in chosen]
        seen = [blocks[number][:2] for number in sorted(chosen)]
        forecast = forecast_cost(seen, sum((size for size, *_ in remaining), Size()), seed=seed)
        truth = sum(tokens for _, tokens, _ in remaining)
        errors.append((forecast.expected - truth) / everything)
        covered += forecast.low <= truth <= forecast.high
    return np.array(errors), covered / num_other_pilots


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    count, pilot, num_other_pilots = size.pick(
        smoke=(12, 4, 5), quick=(160, 64, 200), full=(320, 96, 200)
    )
    names = ["fixed", "posterior"] if size is BenchmarkSize.QUICK else list(ESTIMATORS)
    jobs, more = [(skewed, name) for skewed in (False, True) for name in names], []
    if size is BenchmarkSize.SMOKE:
        jobs, more = [(True, "posterior")], SMOKE
    errors: dict[str, float] = {}
    for skewed, name in jobs:
        with tempfile.TemporaryDirectory() as folder:
            overrides = [*ESTIMATORS[name], *more]
            done = measure(
                Path(folder),
                overrides,
                skewed=skewed,
                count=count,
                pilot=pilot,
                num_other_pilots=num_other_pilots,
            )
        label = f"{'skewed' if skewed else 'arith'} {name}"
        errors[label] = done.error
        hours = ""
        if done.hours is not None:
            hours = f", hours {done.hours.expected / done.cost['hours'] - 1:+.1%}"
        apart = np.abs(done.other_errors)
        print(
            f"{label}: tokens {done.tokens.expected:,.0f} "
            f"[{done.tokens.low:,.0f} to {done.tokens.high:,.0f}], cost "
            f"{done.cost['tokens']:,.0f}: {done.error:+.1%}; rollouts "
            f"{done.rollouts.expected / done.cost['rollouts'] - 1:+.1%}{hours}; other pilots: "
            f"median {np.median(apart):.1%}, 90% under {np.quantile(apart, 0.9):.1%}, mean "
            f"{done.other_errors.mean():+.1%}, intervals hold {done.covered:.1%}",
            flush=True,
        )
    worst = max(map(abs, errors.values()))
    finish(
        {
            "relative_error": round(worst, 4),
            "by_job": {name: round(error, 4) for name, error in errors.items()},
            "problems": count,
            "pilot": pilot,
        }
    )


if __name__ == "__main__":
    main()
