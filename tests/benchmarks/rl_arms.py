"""Trainings of the bundled policy with several credits, measured on the same test problems."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mclabel import jobs
from mclabel.core.config.load import bundled_config, load_config
from mclabel.rl.config import RLConfig
from mclabel.rl.measure import Measurement
from mclabel.rl.training.record import read_log, read_measurements
from tests.benchmarks.sizes import BenchmarkSize

FLAW = "tests.benchmarks.rl_flaw"


@dataclass(frozen=True)
class ArmKeys:
    """Configuration keys of one arm, and what it needs."""

    keys: tuple[str, ...]
    needs_prm: bool = False
    allow: tuple[str, ...] = ()
    """Modules of this repository that the keys name."""


CUT = "policy.max_tokens=100"
"""Override that truncates a sixth of the first policy's solutions. Some problems cannot be solved
within this limit.
"""
ARMS: dict[str, ArmKeys] = {
    "outcome": ArmKeys(("credit=outcome",)),
    "cut_wrong": ArmKeys(("credit=outcome", CUT, "truncated=wrong")),
    "cut_exclude": ArmKeys(("credit=outcome", CUT, "truncated=exclude")),
    "mc": ArmKeys(("credit=mc", "estimator=fixed", "estimator.rollouts=4")),
    "mc2": ArmKeys(("credit=mc", "estimator=fixed", "estimator.rollouts=2")),
    "posterior": ArmKeys(
        ("credit=mc", "estimator=posterior", "estimator.rollouts=16", "estimator.every=1")
    ),
    "mc_shared": ArmKeys(("credit=mc", "estimator=outcome")),
    "first_error": ArmKeys(("credit=first_error",), needs_prm=True),
    "prm_min": ArmKeys(("credit=prm_min",), needs_prm=True),
    "planted": ArmKeys((f"credit={FLAW}:ShortIsRight",), needs_prm=True, allow=(FLAW,)),
}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """The measurements of a training that has ended."""

    measured: dict[int, Measurement]
    """Measurements on test problems, by step."""
    tokens_by_step: dict[int, float]
    """Number of tokens sampled up to each step, including those for values."""

    @property
    def tokens(self) -> float:
        """Number of tokens sampled in the whole training."""
        return self.tokens_by_step[max(self.tokens_by_step)]

    def within(self, tokens: float) -> Measurement:
        """Return the latest measurement up to which at most `tokens` tokens were sampled."""
        return self.measured[max(s for s in self.measured if self.tokens_by_step[s] <= tokens)]

    def at_least(self, tokens: float) -> int:
        """Return the first measured step with `tokens` or more sampled tokens, or the last step."""
        enough = [step for step in self.measured if self.tokens_by_step[step] >= tokens]
        return min(enough, default=max(self.measured))


def train_arm(
    work: Path, name: str, seed: int, steps: int, size: BenchmarkSize, prm: Path | None
) -> Arm:
    """Train one arm, or resume or reuse its training."""
    out = work / f"{name}-{seed}"
    limit, samples = size.pick(smoke=(2, 2), quick=(200, 4), full=(1000, 4))
    problems, group = size.pick(smoke=(2, 4), quick=(16, 8), full=(16, 8))
    keys = [
        *ARMS[name].keys,
        *([f"prm={prm}"] if ARMS[name].needs_prm else []),
        *(f"out={out}", f"seed={seed}", f"steps={steps}", "measured=arith"),
        *("measured.split=test", f"measured.limit={limit}", "measured.seed=77"),
        *(f"measuring.samples={samples}", f"measuring.every={max(1, steps // 2)}"),
        *(f"problems_per_step={problems}", f"group_size={group}"),
        f"micro_batch={min(32, problems * group)}",
        f"problems.limit={size.pick(smoke=8, quick=2000, full=4000)}",
    ]
    config = load_config(RLConfig, bundled_config("rl/arith.yaml"), keys, allow=ARMS[name].allow)
    last = time.monotonic()

    def say(step: int, total: int, line: str) -> None:
        nonlocal last
        if time.monotonic() - last > 20:
            last = time.monotonic()
            print(f"{name}-{seed}: {step}/{total} {line}", flush=True)

    jobs.rl(config, say)
    total, tokens = 0.0, {0: 0.0}
    for line in read_log(out):
        total += line["num_tokens"] + line["num_value_tokens"]
        tokens[int(line["step"])] = total
    return Arm(measured=read_measurements(out), tokens_by_step=tokens)


def compare_arms(
    arms: Sequence[Arm],
    others: Sequence[Arm] | None,
    *,
    equal_tokens: bool = False,
    draws: int = 2000,
) -> list[float]:
    """Return the share of right answers, or the difference from other arms, with a 95% interval.

    The bootstrap draws both seeds and problems. Each mean is over seeds of means over the same
    problems.

    Args:
        arms: arms of one credit, one per seed.
        others: arms of another credit, to be subtracted; None for the share itself.
        equal_tokens: compare the arms at equal tokens. This arm counts at its first measurement
            with at least as many sampled tokens as the other arm has in all. The other arm counts
            at its latest measurement with no more tokens than that.
        draws: number of bootstrap resamples.
    """
    rows = []
    for number, arm in enumerate(arms):
        other = None if others is None else others[number % len(others)]
        step = max(arm.measured)
        if other is not None and equal_tokens:
            step = arm.at_least(other.tokens)
        own = _shares(arm.measured[step])
        if other is not None:
            last = other.measured[max(other.measured)]
            theirs = other.within(arm.tokens_by_step[step]) if equal_tokens else last
            own = own - _shares(theirs)
        rows.append(own)
    table = np.stack(rows)
    rng = np.random.default_rng(0)
    seeds = rng.integers(0, len(table), size=(draws, len(table)))
    problems = rng.integers(0, table.shape[1], size=(draws, table.shape[1]))
    means = [table[np.ix_(a, b)].mean() for a, b in zip(seeds, problems, strict=True)]
    low, high = np.quantile(means, [0.025, 0.975])
    return [round(float(one), 4) for one in (table.mean(), low, high)]


def _shares(one: Measurement) -> np.ndarray:
    """Return the share of right answers to each problem, in the order of problem ids."""
    ordered = sorted(one.problems, key=lambda p: p.problem_id)
    return np.array([p.num_right / p.num_samples for p in ordered])
