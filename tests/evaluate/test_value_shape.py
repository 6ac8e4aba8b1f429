"""Values along solutions and rising labels, computed by hand."""

from __future__ import annotations

import pytest

from mclabel.core.records import Outcome
from mclabel.evaluate.labels.quality import estimate_values_by_position, measure_monotonicity
from tests.support.rows import row, step


def test_positions() -> None:
    # The first of five steps is in the first fifth, and the first of two steps is at one half.
    rows = [
        row("a", [step(value=v) for v in (1.0, 0.8, 0.6, 0.4)] + [step(value=0, source="outcome")]),
        row("b", [step(mean=0.2), step(value=1, source="outcome")], outcome=Outcome.RIGHT),
        row("c", [step(), step()]),
    ]
    values = estimate_values_by_position(
        rows,
        {
            "all": lambda _, index: True,
            "right": lambda labelled, index: labelled.solution.outcome is Outcome.RIGHT,
            "never": lambda _, index: False,
        },
    )
    assert list(values) == ["all", "right"]
    assert [(p.low, p.high, p.num_steps) for p in values["all"]] == [
        (0.0, 0.2, 1),
        (0.2, 0.4, 1),
        (0.4, 0.6, 2),
        (0.6, 0.8, 1),
    ]
    assert [p.value.value for p in values["all"]] == pytest.approx([1.0, 0.8, (0.6 + 0.2) / 2, 0.4])
    assert [(p.low, p.value.value) for p in values["right"]] == [(0.4, 0.2)]


def test_rises() -> None:
    rows = [
        row("a", [step(h) for h in (True, False, True, False, True)]),  # two rises in four pairs
        # across a gap: one rise in one pair
        row("a", [step(h) for h in (False, None, True)], sample=1),
        row("b", [step(h) for h in (True, True, False)]),  # no rise in two pairs
        row("b", [step(True), step(None)], sample=1),  # no pair
    ]
    monotonicity = measure_monotonicity(rows)
    assert monotonicity.rising_solutions.value == pytest.approx(2 / 3)
    assert monotonicity.rising_pairs.value == pytest.approx(3 / 7)
    assert measure_monotonicity([]).rising_pairs.value is None
