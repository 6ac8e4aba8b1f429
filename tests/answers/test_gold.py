"""Golds of MATH and GSM8K in several spellings, and golds in the fields of data sets."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mclabel as mc
from mclabel.answers import Checker
from mclabel.answers.golds import (
    Gold,
    InvalidGold,
    list_acceptable_answers,
    penalize_guess,
    read_gold,
    verdict_on,
)
from mclabel.checkers import GradeItem, run_inline
from mclabel.checkers.math import MathChecker
from mclabel.core.records import Problem, Verdict
from mclabel.rl.serve import _find_answer_fault
from tests.support.commands import run_verb


def read_golds(folder: Path) -> list[str]:
    """Return all golds of MATH train, MATH-500 and GSM8K, in that order."""
    return [
        *(row["final_answer"] for row in _read_rows(folder / "math_train.jsonl")),
        *(row["answer"] for row in _read_rows(folder / "math500.jsonl")),
        *(
            row["answer"].rpartition("####")[2].strip()
            for row in _read_rows(folder / "gsm8k_test.jsonl")
        ),
    ]


def spellings(gold: str) -> Iterator[str]:
    """Yield the gold in several ways of typesetting it."""
    yield gold
    yield f"${gold}$"
    yield gold.replace("\\frac", "\\dfrac").replace("\\tfrac", "\\dfrac")
    yield re.sub(r"(?<![\\{,!])([+=()])", r" \1 ", gold)
    if "\\left" not in gold and "[" not in gold and "]" not in gold:
        yield re.sub(r"(?<!\\)\)", r"\\right)", re.sub(r"(?<!\\)\(", r"\\left(", gold))
    if not re.search(r"text|mbox|[A-Za-z\d] [A-Za-z\d]|\\ ", gold):
        yield gold.replace(" ", "")


def _read_rows(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.open(encoding="utf-8")]


@pytest.fixture(scope="module")
def golds(public_data: Path) -> list[str]:
    return read_golds(public_data)


def test_every_gold_is_right_against_its_spellings(golds: list[str], checker: Checker) -> None:
    bad = [
        (gold, text)
        for gold in golds
        for text in spellings(gold)
        if gold.strip() and checker.grade(text, gold).verdict is not Verdict.RIGHT
    ]
    assert bad == []
    assert sum(not gold.strip() for gold in golds) == 2  # two golds in MATH train are empty


def test_every_gold_is_wrong_against_the_next_different_one(
    golds: list[str], checker: Checker
) -> None:
    graded = [
        (gold, next_gold, checker.grade(next_gold, gold))
        for gold, next_gold in pairwise(golds)
        if next_gold.strip() != gold.strip()
    ]
    right = [
        (gold, next_gold) for gold, next_gold, grade in graded if grade.verdict is Verdict.RIGHT
    ]
    assert sorted(right) == sorted(_SAME_IN_OTHER_WORDS)
    unknown = [
        (gold, next_gold) for gold, next_gold, grade in graded if grade.verdict is Verdict.UNKNOWN
    ]
    assert len(unknown) <= 5, unknown


_SAME_IN_OTHER_WORDS = [
    (r"\dfrac34", r"\frac{3}{4}"),
    ("56", r"0.56 = 56\%"),
    ("2340", r"\mathbf{2340}"),
    ("10", "10.00"),
    ("5", "x=5"),
]


def test_golds_that_do_not_parse_are_known_by_name(golds: list[str], checker: Checker) -> None:
    reasons = {
        gold: asyncio.run(checker.explain_unparsed_gold(gold, run_blocking=run_inline))
        for gold in golds
    }
    assert {gold: reason for gold, reason in reasons.items() if reason} == {"": "empty"}


GSM8K = "She sold 48/2 = <<48/2=24>>24 clips.\n48+24 = <<48+24=72>>72.\n#### 72"


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (GSM8K, "72"),
        ("…\n#### 1,234", "1,234"),
        (r"So $x = 2$, and the sum is $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        ("$72$", "$72$"),
        ("073", "073"),
        (73, "73"),
        (2.5, "2.5"),
        (1e22, "10000000000000000000000"),
        (Decimal("7.00"), "7.00"),
        (Decimal("1E+3"), "1000"),
        (np.int64(72), "72"),
        (np.str_("72"), "72"),
        ("Answer: 34", "34"),
        ("We add.\n**Final answer:** 34", "34"),
        ("<think>2</think><answer> 34 </answer>", "34"),
        ({"style": "rule", "ground_truth": "34"}, "34"),
        ("[1, 2]", "[1, 2]"),
        ("None of these", "None of these"),
        ("no solution", "no solution"),
        ("The statement is proved for n = 5", "The statement is proved for n = 5"),
        (-1, "-1"),
    ],
)
def test_golds_of_one_answer(value: Any, answer: str) -> None:
    assert read_gold(value) == Gold(answer)


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (["72", "72.0"], ["72", "72.0"]),
        (np.array(["72"], dtype=object), ["72"]),
        ({"ground_truth": np.array(["1", "-1"])}, ["1", "-1"]),
        ('["72", "x"]', ["72", "x"]),
        ("['72']", ["72"]),
        (("72", None), ["72", None]),
    ],
)
def test_golds_of_several_answers(value: Any, texts: list[Any]) -> None:
    gold = read_gold(value)
    assert isinstance(gold, Gold) and gold.is_json and json.loads(gold.answer) == texts


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "proof", "Proof.", "notfound", "None", "N/A", r"\text{proof}", "null", "nan"),
        *(r"\boxed{\text{Proof}}", None, float("nan"), Decimal("NaN"), [], {}, ["proof", None]),
        *({"ground_truth": None}, np.array([]), "?", "...", "See solution above.", "(see above)"),
        *("The proof is complete.", "Let n > 1.\nThis completes the proof.", "Answers may vary"),
        *("QED", r"\boxed{\text{See solution}}", ["?", "See the solution"]),
    ],
)
def test_what_says_that_there_is_no_gold(value: Any) -> None:
    gold_read = read_gold(value)
    assert isinstance(gold_read, InvalidGold) and gold_read.reason == "no_gold"


@pytest.mark.parametrize("value", [True, float("inf"), {1, 2}, object()])
def test_what_is_not_understood_is_no_gold_either(value: Any) -> None:
    gold_read = read_gold(value)
    assert isinstance(gold_read, InvalidGold) and gold_read.reason == "wrong_type"


def test_integers_of_any_length_are_golds() -> None:
    assert read_gold(-(10**5000)) == Gold("-1" + "0" * 5000)
    several = read_gold([10**5000, 1])
    assert isinstance(several, Gold) and list_acceptable_answers(several) == ("1" + "0" * 5000, "1")
    assert mc.grade(rf"\boxed{{1{'0' * 400}}}", 10**400).verdict == "right"
    assert _find_answer_fault(10**400) is None and "characters" in str(
        _find_answer_fault(10**300_000)
    )


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        ("There are 3 apples and 2 pears.", "wrong"),
        ("It is one sixth of 12.", "wrong"),
        ("There are 2 pears.", "right"),
    ],
)
def test_a_guess_earns_nothing(completion: str, verdict: str) -> None:
    assert verdict_on(completion, 2) == verdict
    guess = mc.grade(completion, 2)
    assert (guess.reason != "equal") == (verdict == "wrong")
    assert penalize_guess(guess).reason == ("guess" if verdict == "wrong" else "equal")


def test_a_long_line_of_blanks_is_read_at_once() -> None:
    assert read_gold("answer: a" + " " * 500_000 + "b") != Gold("a")


@pytest.mark.parametrize(
    ("gold", "verdicts"),
    [
        ('["72", "seventy"]', ["right", "wrong"]),
        (GSM8K, ["right", "wrong"]),
        ('{"x": 1}', ["unknown", "unknown"]),
    ],
)
def test_the_maths_checker_takes_any_of_several(gold: str, verdicts: list[str]) -> None:
    gold_read = read_gold(gold) if gold[0] != "{" else Gold(gold, is_json=True)
    assert isinstance(gold_read, Gold)
    problem = Problem(id="p", text="?", answer=gold_read.answer, answer_is_json=gold_read.is_json)
    checker = MathChecker(MathChecker.Settings())
    items = [
        GradeItem(problem=problem, completion=rf"\boxed{{{answer}}}") for answer in ("72", "71")
    ]
    assert [grade.verdict.value for grade in asyncio.run(checker.grade(items))] == verdicts
    assert (asyncio.run(checker.refuse(problem)) is None) == (verdicts[0] != "unknown")


def test_check_reads_golds_as_problem_rows_do(tmp_path: Path) -> None:
    golds: list[Any] = [GSM8K, 72, ["71", "72"], "proof", {"x": 1}, ["71", "70"]]
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text("".join(json.dumps({"gold": g, "answer": "72"}) + "\n" for g in golds))
    done = run_verb(["check", "--file", str(pairs), "-o", str(tmp_path / "o")], code=1)
    assert "3 right, 1 wrong, 0 unknown" in done.output
    assert "line 4: gold is 'proof', which says" in done.output and "line 5: gold" in done.output
    rows = [json.loads(line) for line in (tmp_path / "o").read_text().splitlines()]
    assert [row["gold"] for row in rows] == [GSM8K, 72, ["71", "72"], ["71", "70"]]
    done = run_verb(["check", "--gold", "notfound", "--answer", "72"], code=2)
    assert "there is no answer" in done.output
