"""Every gold of MATH and GSM8K: right against itself and its spellings, wrong against the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from mclabel.answers import Checker
from mclabel.core.records import Verdict

EMPTY = 2
"""Golds of MATH train that are empty texts."""


def read_golds(folder: Path) -> list[str]:
    """All golds of MATH train, MATH-500 and GSM8K, in that order."""
    golds = [row["final_answer"] for row in _rows(folder / "math_train.jsonl")]
    golds += [row["answer"] for row in _rows(folder / "math500.jsonl")]
    return golds + [
        row["answer"].rpartition("####")[2].strip() for row in _rows(folder / "gsm8k_test.jsonl")
    ]


def spellings(gold: str) -> Iterator[str]:
    """The gold as others would typeset it."""
    yield gold
    yield f"${gold}$"
    yield gold.replace("\\frac", "\\dfrac").replace("\\tfrac", "\\dfrac")
    yield re.sub(r"(?<![\\{,!])([+=()])", r" \1 ", gold)
    if "\\left" not in gold and "[" not in gold and "]" not in gold:
        sized = re.sub(r"(?<!\\)\(", r"\\left(", gold)
        yield re.sub(r"(?<!\\)\)", r"\\right)", sized)
    if not re.search(r"text|mbox|[A-Za-z\d] [A-Za-z\d]|\\ ", gold):
        yield gold.replace(" ", "")


def _rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


@pytest.fixture(scope="module")
def golds(public_data: Path) -> list[str]:
    return read_golds(public_data)


def test_every_gold_is_right_against_its_spellings(golds: list[str]) -> None:
    checker = Checker()
    bad = [
        (gold, text)
        for gold in golds
        for text in spellings(gold)
        if gold.strip() and checker.grade(text, gold).verdict is not Verdict.RIGHT
    ]
    checker.close()
    assert bad == []
    assert sum(not gold.strip() for gold in golds) == EMPTY


def test_every_gold_is_wrong_against_the_next_different_one(golds: list[str]) -> None:
    checker = Checker()
    graded = [
        (gold, other, checker.grade(other, gold))
        for gold, other in pairwise(golds)
        if other.strip() != gold.strip()
    ]
    checker.close()
    right = [(gold, other) for gold, other, one in graded if one.verdict is Verdict.RIGHT]
    assert sorted(right) == sorted(_SAME_IN_OTHER_WORDS)
    unknown = [(gold, other) for gold, other, one in graded if one.verdict is Verdict.UNKNOWN]
    assert len(unknown) <= 5, unknown


_SAME_IN_OTHER_WORDS = [
    (r"\dfrac34", r"\frac{3}{4}"),
    ("56", r"0.56 = 56\%"),
    ("2340", r"\mathbf{2340}"),
    ("10", "10.00"),
    ("5", "x=5"),
]


def test_golds_that_do_not_parse_are_known_by_name(golds: list[str]) -> None:
    checker = Checker()
    reasons = {gold: checker.unparsed_gold(gold) for gold in golds}
    checker.close()
    assert {gold: reason for gold, reason in reasons.items() if reason} == _UNPARSED


_UNPARSED = {"": "empty"}
