"""Arms of `selection`, and the statistics of their figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from mclabel.core.stats.bootstrap import interval
from tests.benchmarks.scorers import Floats, Training

RULES = ("uniform", "convincing", "uncertain")
TARGETS = {"hard": "counts", "soft": "counts", "posterior": "beliefs"}
"""Run that each learns from: the same solutions, with 8 rollouts a step or by `posterior`."""
METHODS = {
    "steps by the large PRM": ("judged", "hard"),
    "outcome by the large PRM": ("judged", "outcome"),
    "outcome by the answer check": ("checked", "outcome"),
}
"""Of appendix H: whose labels, and the target."""
NUM_DRAWS = 200
MOST_WITHOUT = 0.05
"""Share of resamples in which curves may have nothing in common; with more there is no ratio."""
Figure = Callable[[Floats], float]


@dataclass(frozen=True, kw_only=True)
class Amounts:
    """How much is sampled, labelled and trained."""

    pool: int
    """Problems of each seed's pool; so are `test`, `validation` and, of part 2, `labelled`
    (trained on) and `rolled`, of part 3 `large` (the large PRM's) and `small`."""
    first: int
    """Labels drawn at random that the selector learns from."""
    budgets: tuple[int, ...]
    seeds: int
    steps: int
    """Of every training of part 1."""
    later_seeds: int
    """Of part 2."""
    later_steps: int
    """Of trainings of parts 2 and 3, but for the large PRM's."""
    test: int
    validation: int
    each: int
    """Solutions of a problem in pools, and N of best of N."""
    labelled: int
    gain: float = 0.08
    """Setting `min_gain` for the labels by `posterior`."""
    rolled: int
    large: int
    large_steps: int
    sound: float | None = None
    """A step is wrong if the large PRM gives it less; None for what finds most first errors on
    validation problems."""
    small: int
    sizes: tuple[int, ...]
    """Solutions of a problem in part 3."""

    @property
    def arms(self) -> list[tuple[str, int]]:
        """Rules and budgets."""
        return [(rule, budget) for budget in self.budgets for rule in RULES]

    def arm(self, rule: str, budget: int, seed: int) -> Training:
        """A scorer of part 1."""
        labels, steps = f"{rule}-{budget}-{seed}", f"max_steps={self.steps}"
        return self._training(f"{rule}-{budget}", seed, labels, "exact", steps)

    def of_target(self, target: str, seed: int) -> Training:
        """A scorer of part 2."""
        steps = f"max_steps={self.later_steps}"
        return self._training(f"target-{target}", seed, TARGETS[target], target, steps)

    def of_method(self, method: str, size: int) -> Training:
        """A small PRM of part 3."""
        labels, target = METHODS[method]
        steps = f"max_steps={self.later_steps}"
        return self._training(f"{method} {size}", 0, f"{labels}-{size}", target, steps)

    @property
    def of_large(self) -> Training:
        """The large PRM."""
        of = ("base=arith:strong", f"max_steps={self.large_steps}")
        return self._training("large", 0, "for-large", "exact", *of)

    def _training(self, kind: str, seed: int, labels: str, target: str, *more: str) -> Training:
        overrides = [f"target={target}", *more]
        return Training(kind=kind, seed=seed, labels=[labels], overrides=overrides)


def log_saving(places: Sequence[Floats], values: Sequence[Floats]) -> float:
    """Mean, over the qualities that both of two curves reach, of the difference of log costs.

    Curves are made monotone (isotonic regression) and interpolated between measured budgets. NaN
    where they have no quality in common. Positive if the second curve costs less.

    Args:
        places: log costs of each curve, rising.
        values: quality there.
    """
    rising = [isotonic_regression(one).x for one in values]
    low, high = max(one[0] for one in rising), min(one[-1] for one in rising)
    if not low < high:
        return float("nan")
    levels = np.linspace(low, high, 202)[1:-1]
    first, second = (np.interp(levels, q, x) for q, x in zip(rising, places, strict=True))
    return float((first - second).mean())


def right_at(threshold: float) -> Figure:
    """Share of steps that a threshold tells right; rows as of `Study.steps_of`."""
    return lambda rows: float(((rows[:, 1] >= threshold) == rows[:, 3]).mean())


def calibration_error(rows: Floats) -> float:
    """Expected error of the score against the share of right rollouts, in ten bins."""
    rows = rows[~np.isnan(rows[:, 2])]
    bins = np.clip((rows[:, 1] * 10).astype(int), 0, 9)
    gaps = np.bincount(bins, rows[:, 1] - rows[:, 2], minlength=10)
    return float(np.abs(gaps).sum() / len(rows))


def resampled(tables: Sequence[Floats], figure: Figure) -> list[float]:
    """Mean of a figure over seeds, with its interval over problems (first column) and seeds."""
    rng, problems = np.random.default_rng(0), np.unique(tables[0][:, 0])
    places = [np.flatnonzero(tables[0][:, 0] == problem) for problem in problems]
    found = []
    for _ in range(NUM_DRAWS):
        drawn = np.concatenate([places[n] for n in rng.integers(0, len(places), len(places))])
        seeds = rng.integers(0, len(tables), len(tables))
        found.append(np.mean([figure(tables[seed][drawn]) for seed in seeds]))
    value = float(np.mean([figure(one) for one in tables]))
    return [round(float(one), 4) for one in (value, *interval(np.array(found), len(places)))]
