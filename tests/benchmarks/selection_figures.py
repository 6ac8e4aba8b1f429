"""Figures of `selection`: curves of quality and cost, savings, calibration, orders of methods."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from mclabel.core.stats.bootstrap import interval
from tests.benchmarks.scorer_figures import (
    THRESHOLDS,
    Comparison,
    Measured,
    aggregated,
    best_figure,
    step_scores,
)
from tests.benchmarks.scorers import NO_ERROR, Floats, Training, load_pool, read_scores
from tests.benchmarks.selection_arms import (
    METHODS,
    MOST_WITHOUT,
    RULES,
    TARGETS,
    Amounts,
    calibration_error,
    log_saving,
    resampled,
    right_at,
)


class Study:
    """What the pieces under a folder come to."""

    def __init__(self, out: Path, amounts: Amounts) -> None:
        self.out, self.amounts = out, amounts
        self.curve = cache(self._curve)

    @cached_property
    def validation(self) -> Comparison:
        return Comparison(load_pool(self.out / "runs" / "validation"))

    @cached_property
    def test(self) -> Comparison:
        return Comparison(load_pool(self.out / "runs" / "test"))

    @cached_property
    def aggregation(self) -> str:
        steps = step_scores(
            self.out, self._seeds("uniform", self.amounts.budgets[-1]), "validation"
        )
        return best_figure(self.validation, steps, self.amounts.each, is_orm=False).aggregation

    def _seeds(self, rule: str, budget: int) -> list[Training]:
        return [self.amounts.arm(rule, budget, seed) for seed in range(self.amounts.seeds)]

    def budgets(self, rule: str) -> tuple[int, ...]:
        """Those at which a rule's curve is measured."""
        first = (self.amounts.first,) if rule == "uniform" else ()
        return first + self.amounts.budgets

    def _curve(self, rule: str) -> dict[str, list[Measured]]:
        """First-error F1 and best of N on test problems, by budget."""
        found: dict[str, list[Measured]] = {"f1": [], "best": []}
        for budget in self.budgets(rule):
            tuned, steps = (
                step_scores(self.out, self._seeds(rule, budget), pool)
                for pool in ("validation", "test")
            )
            threshold = self.validation.best_threshold(tuned)
            found["f1"].append(self.test.location_f1(steps, threshold, each=4))
            scores = aggregated(steps, self.aggregation)
            found["best"].append(self.test.right(scores, self.amounts.each))
        return found

    def wrong(self, rule: str, budget: int) -> float:
        """Share of the chosen solutions that are wrong, mean over seeds."""
        seeds = range(self.amounts.seeds)
        files = [self.out / "chosen" / f"{rule}-{budget}-{seed}.json" for seed in seeds]
        return float(np.mean([json.loads(file.read_text()) for file in files]))

    def saving(self, rule: str, measure: str) -> list[float] | None:
        """Uniform labels over the rule's at equal quality; None if undefined."""
        uniform, mine = self.curve("uniform")[measure], self.curve(rule)[measure]
        low = uniform[-1].less(uniform[0]).numbers[1]
        if low is None or low <= 0:
            return None
        places = [np.log(self.budgets(one)) for one in ("uniform", rule)]
        values = [np.array([one.value for one in curve]) for curve in (uniform, mine)]
        drawn = [np.array([one.resampled for one in curve]).T for curve in (uniform, mine)]
        value = log_saving(places, values)
        resampled = np.array([log_saving(places, pair) for pair in zip(*drawn, strict=True)])
        if np.isnan(value) or np.isnan(resampled).mean() > MOST_WITHOUT:
            return None
        low, high = interval(resampled, self.test.pool.num_problems)
        return [round(float(np.exp(one)), 3) for one in (value, low, high)]

    def steps_of(self, target: str, pool: str) -> list[Floats]:
        """Of each seed, a row for each step but the last.

        Problem, score, share of right rollouts (NaN where there are none), and whether the step is
        sound in truth.
        """
        held, found = load_pool(self.out / "runs" / pool), []
        ids = {row.problem.id: float(number) for number, row in enumerate(held.rows)}
        for seed in range(self.amounts.later_seeds):
            name = self.amounts.of_target(target, seed).name
            scores = read_scores(self.out, name, pool)
            table = []
            for row, error, told in zip(held.rows, held.first_errors, scores, strict=True):
                for number in range(len(row.steps) - 1):
                    counts = row.value_counts(number)
                    num = counts.num_right + counts.num_wrong + counts.num_truncated
                    share = counts.num_right / num if num else np.nan
                    sound = error == NO_ERROR or number < error
                    table.append([ids[row.problem.id], told[number], share, float(sound)])
            found.append(np.array(table))
        return found

    @cached_property
    def targets(self) -> dict[str, dict[str, list[float]]]:
        """Of each target: share of steps that are told right, calibration error of the score."""
        found = {}
        for target in TARGETS:
            tuned, tables = self.steps_of(target, "validation"), self.steps_of(target, "rolled")
            threshold = max(THRESHOLDS, key=lambda t: sum(right_at(t)(one) for one in tuned))
            figures = {"accuracy": right_at(threshold), "ece": calibration_error}
            found[target] = {name: resampled(tables, one) for name, one in figures.items()}
        return found

    @cached_property
    def large_threshold(self) -> float:
        """A step is wrong if the large PRM gives it less.

        Let's Verify takes P(negative) > .2, for a PRM that is sure; this one is never above .7.
        """
        if self.amounts.sound is not None:
            return self.amounts.sound
        steps = step_scores(self.out, [self.amounts.of_large], "validation")
        return self.validation.best_threshold(steps)

    @cached_property
    def labellers(self) -> dict[str, dict[str, list[Measured]]]:
        """By judge of the choices and by method: best of N, by solutions of a problem."""
        pool, large = self.test.pool, read_scores(self.out, self.amounts.of_large.name, "test")
        passed = np.array([one.min() >= self.large_threshold for one in large])[pool.index]
        judges = {"truth": pool.all_right, "large PRM": passed, "answer": pool.right}
        found: dict[str, dict[str, list[Measured]]] = {}
        for judge, right in judges.items():
            judged = Comparison(replace(pool, right=right))
            found[judge] = {method: [] for method in METHODS}
            for method, (_, target) in METHODS.items():
                how = "last" if target == "outcome" else self.aggregation
                for size in self.amounts.sizes:
                    steps = step_scores(self.out, [self.amounts.of_method(method, size)], "test")
                    measured = judged.right(aggregated(steps, how), self.amounts.each)
                    found[judge][method].append(measured)
        return found

    def rank_correlation(self, judge: str = "large PRM", other: str = "truth") -> list[float]:
        """Kendall's tau of the order of methods and sizes under two judges, with its interval."""
        both = [
            [one for curve in self.labellers[name].values() for one in curve]
            for name in (judge, other)
        ]
        value = kendalltau(*([one.value for one in side] for side in both)).statistic
        drawn = zip(*(np.array([one.resampled for one in side]).T for side in both), strict=True)
        found = np.array([kendalltau(*pair).statistic for pair in drawn])
        low, high = interval(found, self.test.pool.num_problems)
        return [round(float(one), 3) for one in (value, low, high)]

    def summary(self) -> dict[str, Any]:
        """The last line."""
        return {
            "ratio": {rule: self.saving(rule, "f1") for rule in RULES[1:]},
            "ratio_best_of_n": {rule: self.saving(rule, "best") for rule in RULES[1:]},
            "curves": {
                rule: {
                    budget: {
                        "wrong": round(self.wrong(rule, budget), 4),
                        **{name: one[n].numbers for name, one in self.curve(rule).items()},
                    }
                    for n, budget in enumerate(self.budgets(rule))
                }
                for rule in RULES
            },
            "targets": self.targets,
            "rank_correlation": self.rank_correlation(),
            "rank_correlation_answer_check": self.rank_correlation(other="answer"),
            "labellers": {
                judge: {name: [one.numbers for one in curve] for name, curve in by.items()}
                for judge, by in self.labellers.items()
            },
            "aggregation": self.aggregation,
        }
