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
from mclabel.rl.training.record import read_log, read_measured
from tests.benchmarks.sizes import BenchmarkSize

FLAW = "tests.benchmarks.rl_flaw"


@dataclass(frozen=True)
class ArmKeys:
    """How one arm differs from the others."""

    keys: tuple[str, ...]
    needs_prm: bool = False
    allow: tuple[str, ...] = ()
    """Modules of our own that it names."""


CUT = "policy.max_tokens=100"
"""Cuts a sixth of the first policy's solutions; some problems cannot be solved within it."""
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
    """A training that has ended."""

    measured: dict[int, Measurement]
    """By step, on test problems."""
    tokens_by_step: dict[int, float]
    """Sampled up to each step, values included."""

    @property
    def tokens(self) -> float:
        """Sampled in all."""
        return self.tokens_by_step[max(self.tokens_by_step)]

    def within(self, tokens: float) -> Measurement:
        """The latest measurement for which no more tokens were sampled."""
        return self.measured[max(s for s in self.measured if self.tokens_by_step[s] <= tokens)]

    def at_least(self, tokens: float) -> int:
        """The first measured step for which as many tokens were sampled, or the last step."""
        enough = [step for step in self.measured if self.tokens_by_step[step] >= tokens]
        return min(enough, default=max(self.measured))


def trained(
    work: Path, name: str, seed: int, steps: int, size: BenchmarkSize, prm: Path | None
) -> Arm:
    """Train one arm, or take what is there."""
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
    return Arm(measured=read_measured(out), tokens_by_step=tokens)


def compared(
    arms: Sequence[Arm],
    others: Sequence[Arm] | None,
    *,
    equal_tokens: bool = False,
    draws: int = 2000,
) -> list[float]:
    """Share of right answers, or the difference from other arms, with a 95% interval.

    Seeds and problems are both drawn anew: means over seeds of means over the same problems.

    Args:
        arms: of one credit, one a seed.
        others: of another, to be subtracted; None for the share itself.
        equal_tokens: compare this arm's first measurement at which it had sampled as many tokens
            as the other in all, so never fewer, with the other's latest for no more tokens.
        draws: of the bootstrap.
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
    """Of right answers, by problem, in an order of their ids."""
    ordered = sorted(one.problems, key=lambda p: p.problem_id)
    return np.array([p.num_right / p.num_samples for p in ordered])
