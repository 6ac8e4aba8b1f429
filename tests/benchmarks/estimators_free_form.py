"""Agreement on free-form steps: how well paraphrases are seen through, and what it is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.simulation.measure import measure
from tests.benchmarks.estimators_common import Point, fitted, load_pool
from tests.benchmarks.paraphrase import FreeForm, canonical_key


def free_form(
    validation: Sequence[str], test: Sequence[str], *, cap: int, console: Console
) -> dict[str, Any]:
    """Agreement on paraphrased steps: by their content, by their wording, and without."""
    keys: dict[str, Callable[[int], Callable[[str], str]]] = {
        "exact texts": lambda seed: canonical_key,
        "paraphrased, compared by content": lambda seed: FreeForm(seed),
        "paraphrased, compared by wording": lambda seed: FreeForm(seed, by_text=True),
    }
    found: dict[str, Any] = {}
    for name, key in keys.items():
        learned = fitted(load_pool(validation, key=key(1)), agreement=True, cap=cap)
        cases = load_pool(test, key=key(2))
        settings = PosteriorEstimator.Settings(
            min_belief=0.0, rollouts=cap, min_gain_per_token=1e-3
        )
        point = Point(name="posterior", label="", settings=settings, knowledge=learned)
        one = measure(point.make, cases)
        found[name] = {"tokens": one.tokens_per_solution, "accuracy": one.first_error_accuracy}
        console.print(f"agreement, {name}: {found[name]}")
    found["pairs"] = _pairs(test)
    console.print("pairs of steps after the same beginning, of the same content:", found["pairs"])
    return found


def _pairs(runs: Sequence[str]) -> dict[str, float]:
    """Precision and recall of `step_key` on paraphrases against exact identity of steps."""
    exact, free = load_pool(runs, key=canonical_key), load_pool(runs, key=FreeForm(3))
    tally: Counter[tuple[bool, bool]] = Counter()
    for one, other in zip(exact, free, strict=True):
        for i, (a, x) in enumerate(zip(one.paths, other.paths, strict=True)):
            for b, y in zip(one.paths[:i], other.paths[:i], strict=True):
                for depth in range(min(len(a.step_keys), len(b.step_keys))):
                    same = a.step_keys[depth] == b.step_keys[depth]
                    tally[same, x.step_keys[depth] == y.step_keys[depth]] += 1
                    if not same:
                        break
    return {
        "precision": tally[True, True] / max(1, tally[True, True] + tally[False, True]),
        "recall": tally[True, True] / max(1, tally[True, True] + tally[True, False]),
        "pairs": sum(tally.values()),
    }
