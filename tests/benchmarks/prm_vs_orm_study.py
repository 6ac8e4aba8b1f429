"""Figures of `prm_vs_orm`: tables, paired differences, plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mclabel.evaluate.labels.quality import find_exact_first_error
from tests.benchmarks.figures import Numbers
from tests.benchmarks.runs import read_rows
from tests.benchmarks.scorer_figures import (
    Comparison,
    Measured,
    aggregated,
    best_figure,
    likelihood_scores,
    location_f1,
    step_scores,
)
from tests.benchmarks.scorers import LIKELIHOODS, Floats, Training, load_pool

ORM = "outcome"
PRMS = ("own", "strong", "exact")
LABEL_SOURCES = (*PRMS, ORM)
"""Sources of labels, by their names in `prm_vs_orm`."""
NAMES = {
    "own": "PRM, own labels",
    "strong": "PRM, labels of the strong model",
    "exact": "PRM, exact labels",
    ORM: "ORM",
}
Key = tuple[str, int]
"""Source and number of the labels."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Settings that were chosen on validation problems."""

    aggregation: str
    """Aggregation of a PRM's step scores. An ORM always uses the last step's score."""
    thresholds: Mapping[Key, float]
    """Scores below which a step is wrong."""
    likelihoods: Mapping[str, int]
    """Better form of each bundled model's likelihood: its sum (0) or its least token (1)."""


class Study:
    """Results of every method on one pool of samples."""

    def __init__(
        self,
        out: Path,
        pool: str,
        trainings: Sequence[Training],
        sizes: Sequence[int],
        chosen: Chosen,
    ) -> None:
        """Read the scores.

        Args:
            out: folder of the benchmark.
            pool: name of the pool.
            trainings: trainings of all scorers.
            sizes: numbers of labelled solutions, the largest last.
            chosen: settings that were chosen on validation problems.
        """
        self.name, self.sizes, self.main = pool, sizes, sizes[-1]
        self.comparison = Comparison(load_pool(out / "runs" / pool))
        num_samples = self.comparison.pool.num_samples
        self.counts = [n for n in (1, 4, 16, 64) if n <= num_samples]
        self._chosen = chosen
        self.steps = _by_key(out, trainings, pool)
        self.scores = {
            key: aggregated(steps, _aggregation_of(key, chosen))
            for key, steps in self.steps.items()
        }
        self._likelihood = {
            model: likelihood_scores(out, model, pool, part)
            for model, part in chosen.likelihoods.items()
        }

    @cached_property
    def rows(self) -> dict[str, list[Floats] | None]:
        """Scores by method of the table; None for a method that does not choose by one score."""
        scores: dict[str, list[Floats] | None] = {"random": None, "majority": None}
        scores["policy's likelihood"] = self._likelihood["policy"]
        for source in LABEL_SOURCES:
            for size in self.sizes:
                scores[f"{NAMES[source]}, {size:,}"] = self.scores[source, size]
        scores[f"vote weighted by the PRM, own, {self.main:,}"] = None
        scores["strong model's likelihood (reference)"] = self._likelihood["strong"]
        scores["pass"] = None
        return scores

    def right(self, method: str, size: int, *, all_right: bool = False) -> Measured:
        """Measure a method's right answers when it chooses from `size` samples."""
        scores = self.rows[method]
        if scores is not None:
            return self.comparison.right(scores, size, all_right=all_right)
        if method.startswith("vote"):
            return self.comparison.vote(self.scores["own", self.main], size)
        return self.comparison.untrained(method, size, all_right=all_right)

    def f1(self, key: Key) -> Measured:
        """Measure the first-error F1 of a scorer."""
        return self.comparison.location_f1(self.steps[key], self._chosen.thresholds[key])

    def against(self, key: Key, size: int) -> dict[str, Numbers]:
        """Return a PRM's paired differences from other methods that choose from `size` samples."""
        right = self.comparison.right
        mine, orm = self.scores[key], self.scores[ORM, key[1]]
        prm = right(mine, size)
        others = {
            "policy_likelihood": right(self._likelihood["policy"], size),
            "majority": self.comparison.untrained("majority", size),
            "orm": right(orm, size),
        }
        differences = {
            f"prm_minus_{name}_{size}": prm.less(compared).numbers
            for name, compared in others.items()
        }
        all_right = right(mine, size, all_right=True).less(right(orm, size, all_right=True))
        differences[f"all_right_prm_minus_orm_{size}"] = all_right.numbers
        return differences

    def differences(self, key: Key) -> dict[str, Numbers]:
        """Return the differences of `against` at the two largest numbers of samples."""
        return {
            name: value
            for size in self.counts[-2:]
            for name, value in self.against(key, size).items()
        }

    def summary(self) -> dict[str, Any]:
        """Return the figures of the JSON line."""
        return {
            "problems": self.comparison.pool.num_problems,
            "by_source": {source: self.differences((source, self.main)) for source in PRMS},
            "by_labels": {str(size): self.differences(("own", size)) for size in self.sizes},
            "right": {
                method: {n: self.right(method, n).numbers for n in self.counts}
                for method in self.rows
            },
            "all_right": {
                method: {n: self.right(method, n, all_right=True).numbers for n in self.counts[-2:]}
                for method, scores in self.rows.items()
                if scores is not None
            },
            "pairs": {
                method: round(self.comparison.pairs(scores).value, 4)
                for method, scores in self.rows.items()
                if scores is not None
            },
            "first_error_f1": {
                f"{source}, {size}": self.f1((source, size)).numbers for source, size in self.steps
            },
            "first_error_f1_less_own": {
                source: self.f1((source, self.main)).less(self.f1(("own", self.main))).numbers
                for source in LABEL_SOURCES
                if source != "own"
            },
        }


def choose_on_validation(
    out: Path, trainings: Sequence[Training], pool: str, sizes: Sequence[int]
) -> Chosen:
    """Return the aggregation, thresholds and likelihoods that do best on validation problems."""
    comparison = Comparison(load_pool(out / "runs" / pool))
    size = min(16, comparison.pool.num_samples)
    steps = _by_key(out, trainings, pool)

    def likelihood(model: str, part: int) -> float:
        return comparison.right(likelihood_scores(out, model, pool, part), size).value

    return Chosen(
        aggregation=best_figure(
            comparison, steps["own", sizes[-1]], size, is_orm=False
        ).aggregation,
        thresholds={key: comparison.best_threshold(scores) for key, scores in steps.items()},
        likelihoods={m: max((0, 1), key=lambda part: likelihood(m, part)) for m in LIKELIHOODS},
    )


def label_f1(run: Path, *, is_exact: bool) -> float:
    """Return the first-error F1 of a run's own labels, over all of its solutions."""
    sums = np.zeros(4)
    for row in read_rows(run):
        true = find_exact_first_error(row)
        label = true if is_exact else row.first_error
        column = 2 if true is None else 0
        sums[column : column + 2] += 1, label == true
    return round(float(location_f1(sums)), 4)


def draw(study: Study, quality: Mapping[str, float], folder: Path) -> None:
    """Plot right answers by labelled solutions, and the PRM's quality by its labels' quality."""
    import matplotlib.pyplot as plt

    colours = {"own": "#1b6ca8", "strong": "#2e8b57", "exact": "#7d5ba6", ORM: "#c1502e"}
    size = study.counts[-2]
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for axis, all_right in zip(axes, (False, True), strict=True):
        for source in LABEL_SOURCES:
            estimates = [
                study.comparison.right(study.scores[source, n], size, all_right=all_right).numbers
                for n in study.sizes
            ]
            values, low, high = np.array(estimates).T
            axis.plot(study.sizes, values, "o-", color=colours[source], label=NAMES[source])
            if source in ("own", ORM):
                axis.fill_between(study.sizes, low, high, color=colours[source], alpha=0.12, lw=0)
        for name, style in (
            ("strong model's likelihood (reference)", "-."),
            ("policy's likelihood", "--"),
        ):
            value = study.right(name, size, all_right=all_right).value
            axis.axhline(value, ls=style, color="0.4", lw=1, label=name)
        if not all_right:
            value = study.right("majority", size).value
            axis.axhline(value, ls=":", color="0.4", lw=1, label="majority")
        axis.set(xscale="log", xlabel="labelled solutions", xticks=study.sizes)
        axis.set_xticklabels([f"{n:,}" for n in study.sizes])
        axis.minorticks_off()
        axis.set_title("all steps right" if all_right else "answer right", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"chosen among {size}")
    axes[0].legend(frameon=False, fontsize=7)
    figure.savefig(folder / "prm_vs_orm.png", dpi=150)
    plt.close(figure)

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    for source, label_quality in quality.items():
        key = (source, study.main)
        measured = (
            study.f1(key),
            study.comparison.right(study.scores[key], size),
        )
        for axis, measured_figure in zip(axes, measured, strict=True):
            best, lower, upper = np.array(measured_figure.numbers)
            spread = [[best - lower], [upper - best]]
            axis.errorbar(
                [label_quality], [best], spread, fmt="o", color=colours[source], capsize=3
            )
            axis.annotate(source, (label_quality, best), xytext=(6, 6), textcoords="offset points")
    for axis, name in zip(axes, ("first-error F1 of the PRM", f"right among {size}"), strict=True):
        axis.set(xlabel="first-error F1 of its labels", ylabel=name)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "label_quality.png", dpi=150)
    plt.close(figure)


def _by_key(out: Path, trainings: Sequence[Training], pool: str) -> dict[Key, list[list[Floats]]]:
    groups: dict[Key, list[Training]] = {}
    for training in trainings:
        groups.setdefault((training.kind, training.size), []).append(training)
    return {key: step_scores(out, group, pool) for key, group in groups.items()}


def _aggregation_of(key: Key, chosen: Chosen) -> str:
    return "last" if key[0] == ORM else chosen.aggregation
