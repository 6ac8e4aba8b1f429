"""Predictions on ProcessBench whose result follows by hand from the sizes of its splits.

GSM8K: 207 wrong, 193 right; MATH: 594 wrong, 406 right (arXiv 2412.06559, table 2). Of the wrong
ones 37 and 115 err at the first step, which a count of the labels in the files gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mclabel.data.readers.judged import JudgedSolution
from mclabel.evaluate.processbench.figures import processbench

Splits = Mapping[str, Sequence[JudgedSolution]]
Prediction = Callable[[int, JudgedSolution], int | None]
Expected = tuple[float, float, float]
"""Accuracy on wrong and on right solutions, and F1."""

CASES: dict[str, tuple[Prediction, dict[str, Expected]]] = {
    "none everywhere": (lambda i, s: None, {"gsm8k": (0, 1, 0), "math": (0, 1, 0)}),
    "the first step everywhere": (
        lambda i, s: 0,
        {"gsm8k": (37 / 207, 0, 0), "math": (115 / 594, 0, 0)},
    ),
    "the labels": (lambda i, s: s.first_error, {"gsm8k": (1, 1, 1), "math": (1, 1, 1)}),
    "none where right, the first step where wrong": (
        lambda i, s: None if s.first_error is None else 0,
        # 2 (37/207) / (37/207 + 1) = 74 / 244, and 2 · 115 / (115 + 594) = 230 / 709
        {"gsm8k": (37 / 207, 1, 74 / 244), "math": (115 / 594, 1, 230 / 709)},
    ),
    "one step late": (
        lambda i, s: None if s.first_error is None else s.first_error + 1,
        {"gsm8k": (0, 1, 0), "math": (0, 1, 0)},
    ),
    "the labels of every second wrong solution, none else": (
        # Of 207 and 594 in the order of the files the 1st, 3rd, …: 104 and 297.
        # 2 (104/207) / (104/207 + 1) = 208 / 311, and 2 (1/2) / (3/2) = 2/3
        lambda i, s: s.first_error if i % 2 == 0 else None,
        {"gsm8k": (104 / 207, 1, 208 / 311), "math": (1 / 2, 1, 2 / 3)},
    ),
}
"""By name: what is predicted for the i-th wrong (or the i-th right) solution, and the result."""


def check_case(name: str, splits: Splits) -> bool:
    """Whether predictions give what was worked out."""
    predict, expected = CASES[name]
    predictions: dict[str, dict[str, int | None]] = {}
    for split, rows in splits.items():
        count = {True: 0, False: 0}
        predictions[split] = {}
        for row in rows:
            is_wrong = row.first_error is not None
            predictions[split][row.id] = predict(count[is_wrong], row)
            count[is_wrong] += 1
    found = processbench(splits, predictions)
    mean = sum(f1 for _, _, f1 in expected.values()) / len(expected)
    pairs = [(found.mean_f1.value, mean)]
    for split, (wrong, right, f1) in expected.items():
        result = found.splits[split]
        pairs += [
            (result.wrong_accuracy.value, wrong),
            (result.right_accuracy.value, right),
            (result.f1.value, f1),
        ]
    return all(value is not None and abs(value - known) < 1e-12 for value, known in pairs)
