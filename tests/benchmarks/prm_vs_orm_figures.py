"""Figures of the benchmark: accuracies, paired differences, table and plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from mclabel.evaluation.bootstrap import Estimate, mean_estimate, resample_weights
from mclabel.evaluation.choosing import ProblemSamples, pair_accuracy, pass_at, vote_accuracy
from tests.benchmarks.prm_vs_orm_scores import Pool

Array = NDArray[np.float64]
Key = tuple[str, int]
"""Kind of scorer, and labelled solutions it was trained on; 0 for none."""
UNTRAINED = ("majority", "random", "oracle")
TRAINED_BODIES = ("base at a low rate", "ORM, base at a low rate")
"""A PRM and an ORM trained alike."""
TAUGHT_HEAD = "plain head, taught"


class Study:
    """Every method on one pool of samples."""

    def __init__(
        self, name: str, pool: Pool, scores: Mapping[Key, Sequence[Array]], num_samples: int
    ) -> None:
        self.name, self.pool, self.scores = name, pool, scores
        self.sizes = [n for n in (1, 4, 16, 64) if n <= num_samples]
        self.weights = resample_weights(pool.num_problems, 0)
        self._accuracy: dict[tuple[Key, int, bool], Array] = {}

    def accuracy(self, key: Key, size: int, *, all_right: bool = False) -> Array:
        """Chance of each problem [problems] that the chosen one of `size` samples is right."""
        at = (key, size, all_right)
        if at not in self._accuracy:
            truth = self.pool.all_right if all_right else self.pool.right
            self._accuracy[at] = self._measure(key, size, truth)
        return self._accuracy[at]

    def mean(self, key: Key, size: int) -> float:
        """Mean over problems."""
        return float(np.mean(self.accuracy(key, size)))

    def _measure(self, key: Key, size: int, truth: NDArray[np.bool_]) -> Array:
        if key[0] == "random":
            return truth.mean(1)
        if key[0] == "oracle":
            num_samples = truth.shape[1]
            return np.array([pass_at(size, int(row.sum()), num_samples) for row in truth])
        if key[0] == "majority" or key[0].startswith("vote: "):
            weights = [None] if key[0] == "majority" else self.scores[key[0][6:], key[1]]
            return np.mean([self._vote(w, size) for w in weights], axis=0)
        return np.mean([choose(one, truth, size) for one in self.scores[key]], axis=0)

    def _vote(self, weights: Array | None, size: int) -> Array:
        found = []
        for index, keys in enumerate(self.pool.keys):
            given = {} if weights is None else {"it": tuple(weights[index])}
            samples = ProblemSamples(
                problem_id="",
                keys=tuple(keys),
                right=tuple(self.pool.right[index]),
                scores={},
                weights=given,
            )
            found.append(
                vote_accuracy(samples, size, seed=index)["vote:it" if given else "majority"]
            )
        return np.array(found)

    def estimate(self, values: Array) -> Estimate:
        """Mean over problems with its interval."""
        return mean_estimate(values, self.weights)

    def pairs(self, key: Key) -> Array:
        """Within-problem pair accuracy [problems]."""
        per_seed = [
            [pair_accuracy(tuple(s), tuple(r)) for s, r in zip(one, self.pool.right, strict=True)]
            for one in self.scores[key]
        ]
        return np.mean(per_seed, axis=0)

    def base_likelihood(self) -> Key:
        """The better of its two forms."""
        forms = [("base likelihood (min)", 0), ("base likelihood (sum)", 0)]
        return max(forms, key=lambda key: self.mean(key, self.sizes[-1]))

    def rows(self, main_size: int) -> list[tuple[str, Key]]:
        """The methods of the table."""
        sizes = sorted({size for kind, size in self.scores if kind == "PRM"})
        rows: list[tuple[str, Key]] = [(name, (name, 0)) for name in UNTRAINED]
        rows += [(kind, (kind, 0)) for kind, size in self.scores if size == 0]
        rows += [(f"{kind}, {size:,}", (kind, size)) for size in sizes for kind in ("PRM", "ORM")]
        rows.append((f"vote weighted by the PRM, {main_size:,}", ("vote: PRM", main_size)))
        rows += [
            (f"{kind}, {n:,}", (kind, n))
            for kind, n in self.scores
            if n and kind not in ("PRM", "ORM")
        ]
        return rows

    def summary(self, main_size: int, small: int) -> dict[str, Any]:
        """What the JSON line holds."""
        against = {
            "orm": ("ORM", main_size),
            "majority": ("majority", 0),
            "policy_likelihood": ("policy likelihood (sum)", 0),
            "base_likelihood": self.base_likelihood(),
        }
        found: dict[str, Any] = {
            "problems": self.pool.num_problems,
            "accuracy": {
                name: {n: _numbers(self.estimate(self.accuracy(key, n))) for n in self.sizes}
                for name, key in self.rows(main_size)
            },
            "pair_accuracy": {
                name: _numbers(self.estimate(self.pairs(key)))
                for name, key in self.rows(main_size)
                if key in self.scores
            },
        }
        found["differences"] = {
            size: self._differences(size, against, main_size, small) for size in self.sizes[-2:]
        }
        return found

    def _differences(
        self, size: int, against: Mapping[str, Key], main_size: int, small: int
    ) -> dict[str, list[float]]:
        """Paired differences where `size` samples are chosen among, by what is compared."""
        prm = ("PRM", main_size)
        found = {
            f"prm_minus_{name}": self._difference(prm, other, size)
            for name, other in against.items()
        }
        trained, outcome = ((kind, self._size_of(kind)) for kind in TRAINED_BODIES)
        found["prm_minus_orm_at_a_low_rate"] = self._difference(trained, outcome, size)
        taught = (TAUGHT_HEAD, self._size_of(TAUGHT_HEAD))
        for name, other in (("prm", prm), ("base_likelihood", against["base_likelihood"])):
            found[f"taught_head_minus_{name}"] = self._difference(taught, other, size)
        for end, n in (("", main_size), (f"_at_{small}", small)):
            pair = (("PRM", n), ("ORM", n))
            found[f"prm_minus_orm{end}"] = self._difference(*pair, size)
            found[f"all_right_prm_minus_orm{end}"] = self._difference(*pair, size, all_right=True)
        return found

    def _size_of(self, kind: str) -> int:
        """Labelled solutions that a variant was trained on."""
        return next(n for known, n in self.scores if known == kind)

    def _difference(self, a: Key, b: Key, size: int, *, all_right: bool = False) -> list[float]:
        ours, theirs = (self.accuracy(key, size, all_right=all_right) for key in (a, b))
        return _numbers(self.estimate(ours - theirs))


def choose(scores: Array, truth: NDArray[np.bool_], size: int) -> Array:
    """Chance [problems] that the highest score among `size` random samples is a true one.

    The sample of rank r of M is the best of a subset with probability C(M-1-r, N-1) / C(M, N);
    equal scores share their ranks.
    """
    num_samples = scores.shape[1]
    total = comb(num_samples, size)
    by_rank = np.array([comb(num_samples - 1 - r, size - 1) / total for r in range(num_samples)])
    found = np.empty(len(scores))
    for index, (row, good) in enumerate(zip(scores, truth, strict=True)):
        _, group = np.unique(-row, return_inverse=True)
        counts = np.bincount(group)
        starts = np.cumsum(counts) - counts
        weight = np.add.reduceat(by_rank, starts)
        found[index] = (weight * np.bincount(group, weights=good) / counts).sum()
    return found


def table(study: Study, main_size: int) -> Table:
    """Accuracy by method and N, and what choosing needs."""
    last = study.sizes[-1]
    shown = Table(title=f"{study.name}, {study.pool.num_problems} problems", title_justify="left")
    shown.add_column("method")
    for size in study.sizes:
        shown.add_column(f"N={size}", justify="right")
    for name in (f"all steps right, N={last}", f"N={last}: PRM less this", "pairs"):
        shown.add_column(name, justify="right")
    prm = study.accuracy(("PRM", main_size), last)
    for name, key in study.rows(main_size):
        accuracy = [study.estimate(study.accuracy(key, n)) for n in study.sizes]
        vote = key[0] == "majority" or key[0].startswith("vote")
        right = None if vote else study.estimate(study.accuracy(key, last, all_right=True))
        difference = study.estimate(prm - study.accuracy(key, last))
        pairs = study.estimate(study.pairs(key)).value if key in study.scores else None
        shown.add_row(
            name,
            *(_short(e) for e in accuracy),
            "" if right is None else _short(right),
            f"{difference.value:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]",
            "" if pairs is None else f"{pairs:.3f}",
        )
    return shown


def draw(study: Study, sizes: Sequence[int], path: Path) -> None:
    """Right answers and right solutions against labelled solutions, PRM and ORM."""
    import matplotlib.pyplot as plt

    last = study.sizes[-1]
    base = study.base_likelihood()
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, all_right in zip(axes, (False, True), strict=True):
        for kind, color in (("PRM", "#1b6ca8"), ("ORM", "#c1502e")):
            estimates = [
                study.estimate(study.accuracy((kind, n), last, all_right=all_right)) for n in sizes
            ]
            axis.plot(sizes, [e.value for e in estimates], "o-", color=color, label=kind)
            low, high = ([getattr(e, end) for e in estimates] for end in ("low", "high"))
            axis.fill_between(sizes, low, high, color=color, alpha=0.15, lw=0)
        for name, key, style in (("base likelihood", base, "--"), ("oracle", ("oracle", 0), ":")):
            value = float(np.mean(study.accuracy(key, last, all_right=all_right)))
            axis.axhline(value, ls=style, color="0.4", lw=1, label=name)
        axis.set(xscale="log", xlabel="labelled solutions", xticks=sizes)
        axis.set_xticklabels([f"{n:,}" for n in sizes])
        axis.minorticks_off()
        axis.set_title("all steps right" if all_right else "answer right", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel(f"chosen among {last}")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _numbers(estimate: Estimate) -> list[float]:
    values = (estimate.value, estimate.low, estimate.high)
    return [round(v, 4) for v in values if v is not None]


def _short(estimate: Estimate) -> str:
    if estimate.value is None:
        return ""
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]"
