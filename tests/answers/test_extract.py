from __future__ import annotations

import asyncio
from fractions import Fraction

import pytest

from mclabel.answers import (
    Grade,
    default_checker,
    extract_answer,
    extract_reference_answer,
    grade_completion,
)
from mclabel.answers.extraction.extract import ExtractedAnswer, find_answer_or_guess
from mclabel.answers.reading.numerals import parse_number_in_words
from mclabel.checkers import run_inline
from mclabel.core.records import Verdict


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{12}.", "12"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{7} and then \boxed{8", None),
        (r"only \boxed{8", None),
        (r"only $\boxed{8$.", "8"),
        (r"<think>\boxed{1}", None),
        (r"<think>\boxed{1}</think> I do not know.", None),
        (r"\boxed{5}. Wait, that is wrong.", None),
        ('{"answer": 7, "confidence": 42}', "7"),
        ("By Theorem 42 we are done.", None),
        ("答案不是42。", None),
        (r"only \boxed{8 and then much more of this" + " text" * 30, None),
        (r"\boxed{\frac{1}{2", None),
        (r"a \boxed form of the answer", None),
        ("He put them in a box{7}", None),
        (r"\fbox{3}", "3"),
        (r"\boxed{}", None),
        (r"\boxed{1} and \boxed{2}", "1, 2"),
        (r"\boxed{1} or \boxed{2}", "1 or 2"),
        (r"\boxed{5}. Wait, that is wrong. The answer is 6.", "6"),
        (r"\boxed{5}, and \boxed{6} is wrong.", "5"),
        (r"<think>\boxed{1}</think>\boxed{2}", "2"),
        (r"<think>\boxed{1}</think>", "1"),
        (r"<think>\boxed{1}</think> The answer is 3.", "3"),
        ("text\n#### 18", "18"),
        ("#### 18\n", "18"),
        ("#### Step 3: add\n5 apples", "5"),
        ("# Answer\n\n42", "42"),
        ("## Final answer\n42", "42"),
        ("The answer is 3.5.", "3.5"),
        ("The answer is 3.5. I checked it twice.", "3.5"),
        ("The final answer is: $x = 2$.", "x = 2"),
        ("The answer is not 5. The answer is 6", "6"),
        ("Answer: **12**", "12"),
        ("**Answer: 12**", "12"),
        ("The correct answer is (C) 12.", "(C) 12"),
        ("Therefore\n\\[ x = 3 \\]", "3"),
        ("so $x > 3$.", "x > 3"),
        ("He pays $20.", "$20"),
        ("we get 12 * 3 = 36", "36"),
        (r"we get $x^2 + 3$ for all x", "x^2 + 3"),
        (r"the area is \(12\pi\) square units.", r"12\pi"),
        (r"We get $\frac{3}{4}$, as desired.", r"\frac{3}{4}"),
        (r"$x^2 + 3$ is not it", None),
        ("the speed is v^2/3", None),
        ("I do not know", None),
        ("", None),
        ("The answer is 11\n\nQuestion: what is 5+7?\nThe answer is 12", "11"),
        ("Question: what is 5+6?\nThe answer is 11", "11"),
    ],
)
def test_extract(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer", "is_guess"),
    [
        ("There are 3 apples left in the 2 baskets.", "3", False),
        ("So there are $3$ apples left in the $2$ baskets.", "3", False),
        ("After 3 hours, 8 litres of water remain.", "8", False),
        ("He had 15 and gave away 3, so he has twelve left.", "twelve", False),
        ("He is left with 5 of the 9 coins.", "5", False),
        ("It takes her 14 minutes to walk the 2 miles.", "14 minutes", False),
        ("In total, 5 + 30 = 35 stickers for the 7 children.", "35", False),
        ("We sold **11** of them in 4 days.", "11", False),
        ("The roots are 5 and 3.", "5 and 3", False),
        ("So we get x = 3 and y = 4.", "x = 3 and y = 4", False),
        ("She spends $225.00 over 5 weeks. I hope this helps!", "$225.00", False),
        ("There are 3 apples and 2 pears.", "2", True),
        ("He must walk at least 7 miles to see all 5 lakes.", "5", True),
        ("It cannot be 5 of the 6 coins.", "6", True),
        ("He sold 5 apples and has 3 pears in 2 bags.", "2", True),
        ("Bill is now on the 18th floor.", "18", True),
    ],
)
def test_what_the_last_sentence_asserts(text: str, answer: str, is_guess: bool) -> None:
    assert find_answer_or_guess(text) == ExtractedAnswer(answer, is_guess)


@pytest.mark.parametrize("gold", ["2", "3"])
def test_a_guess_is_graded_both_ways_or_not_at_all(gold: str) -> None:
    text = "There are 3 apples and 2 pears."
    answer, graded = grade_completion(text, gold)
    assert (answer, graded.verdict is Verdict.RIGHT) == ("2", gold == "2")
    assert graded.reason == ("guess_equal" if gold == "2" else "guess_different")
    unsure = grade_completion(text, gold, grade_guesses=False)
    assert unsure[0] == "2" and (unsure[1].verdict, unsure[1].reason) == (Verdict.UNKNOWN, "guess")


@pytest.mark.parametrize("gold", ["1/6", "12", "2"])
@pytest.mark.parametrize(
    "text",
    ["It is one sixth of 12.", "There were 12. A dozen or so are left.", "He was third, or so"],
)
def test_words_that_may_be_another_number_are_unknown_whatever_the_gold(
    text: str, gold: str
) -> None:
    """A grade for some golds only would bias every value upwards or downwards."""
    unknown = Grade(verdict=Verdict.UNKNOWN, reason="in_words", layer="extract")
    assert grade_completion(text, gold) == (None, unknown)
    assert grade_completion(text, gold, grade_guesses=False) == (None, unknown)
    together = default_checker().grade_completions([(text, gold)], run_blocking=run_inline)
    assert asyncio.run(together) == [(None, unknown)]
    assert extract_answer(text) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("one hundred and twenty", 120),
        ("two million three hundred thousand and five", 2_300_005),
        ("a hundred and a half", Fraction(201, 2)),
        ("three twenty-fifths", Fraction(3, 25)),
        ("minus two and three quarters", Fraction(-11, 4)),
        ("two point five", Fraction(5, 2)),
        ("none left", 0),
        ("twenty fifth", None),
        ("twenty twelve", None),
        ("third", None),
        ("hundred", None),
        ("minus minus two", None),
    ],
)
def test_a_number_in_words(text: str, number: Fraction | int | None) -> None:
    assert parse_number_in_words(text) == number


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        (r"So it is \boxed{12}.", "12"),
        ("He has 18 eggs.\n#### 18", "18"),
        ("12 apples and 3 pears", "12 apples and 3 pears"),
        ("$x = 5$", "$x = 5$"),
        (" the answer is 5 ", "the answer is 5"),
    ],
)
def test_reference(text: str, gold: str) -> None:
    assert extract_reference_answer(text) == gold


@pytest.mark.parametrize(
    ("text", "truncated", "reason"),
    [(r"\boxed{3}", True, "truncated"), ("I give up", False, "no_answer")],
)
def test_a_truncated_completion_has_no_answer(text: str, truncated: bool, reason: str) -> None:
    answer, grade = grade_completion(text, "3", truncated=truncated)
    assert (answer, grade.verdict, grade.reason) == (None, Verdict.WRONG, reason)


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 20_000,
        "{" * 100_000,
        "answer is " * 20_000,
        "$" * 100_000,
        "$1" * 50_000,
        "#### " * 20_000,
        "\n\n" * 50_000,
        "**" * 50_000,
        "1," * 50_000,
        "\\[" * 50_000,
        "Question: " * 10_000,
        "\nQuestion: 1" * 10_000,
        "wait \\boxed{1}" * 7_000,
        "the answer to a " * 6_000,
        "-" * 100_000,
        " " * 100_000,
        "9" * 100_000,
    ],
)
def test_extraction_is_linear(text: str) -> None:
    """The texts have 2 million characters. Linear extraction takes milliseconds, and slower
    extraction could take hours.
    """
    extract_answer(text * 20)
