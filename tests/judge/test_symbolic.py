"""False equalities in steps: flagged texts, texts without a flag, and hostile texts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mclabel.judge.symbolic import EqualityFlag, check_steps


def find_flags(*steps: str, problem: str = "How many?") -> list[EqualityFlag]:
    return check_steps(problem, list(steps))


@pytest.mark.parametrize(
    ("text", "equality", "reason"),
    [
        ("So 12 * 3 = 38.", "12 * 3 = 38", "12 * 3 is 36, not 38"),
        (r"We get \(12 \times 3 = 38\) pens.", r"12 \times 3 = 38", "12 * 3 is 36, not 38"),
        ("Ann has $50 - $35 = $25.", "50 - $35 = $25", "50 - 35 is 15, not 25"),
        (r"\[ \frac{3}{4} + \dfrac{1}{4} = 2 \]", r"\frac{3}{4} + \dfrac{1}{4} = 2", "is 1, not 2"),
        ("1,200 + 300 = 1,400", "1,200 + 300 = 1,400", "1200 + 300 is 1500, not 1400"),
        (r"1,\!200 + 300 = 1{,}400", r"1,\!200 + 300 = 1{,}400", "is 1500, not 1400"),
        ("20% of 50 = 12", "20% of 50 = 12", "is 10, not 12"),
        ("3 boxes * 4 pens/box = 14 pens", "3 boxes * 4 pens/box = 14", "3 * 4 is 12, not 14"),
        (r"\[ 2^3 \cdot 3 = 25 \]", r"2^3 \cdot 3 = 25", "2^3 * 3 is 24, not 25"),
        (r"\sqrt{50} = 6\sqrt{2}", r"\sqrt{50} = 6\sqrt{2}", "is about 7.07107"),
        ("10 ÷ 4 = 2.6", "10 ÷ 4 = 2.6", "10 / 4 is 2.5, not 2.6"),
        (r"10 \div 3 \approx 3.43", r"10 \div 3 \approx 3.43", "is 10/3, not 3.43"),
        ("5 + 3 = 8 = 4 * 3 = 12 and 2 + 2 = 5", "2 + 2 = 5", "2 + 2 is 4, not 5"),
        ("- 5 + 3 = 9", "5 + 3 = 9", "5 + 3 is 8, not 9"),
        (
            "42 bales x 75 pounds per bale = 3250 pounds",
            "42 bales x 75 pounds per bale = 3250",
            "3150",
        ),
        ("8 times 5 equals 41", "8 times 5 equals 41", "8 * 5 is 40, not 41"),
        ("5! = 130", "5! = 130", "5! is 120, not 130"),
        (r"\boxed{7 + 6 = 14}", "7 + 6 = 14", "7 + 6 is 13, not 14"),
        (r"7² = 48 holds", "7² = 48", "7^2 is 49, not 48"),
        ("194 ÷ 11 = 17 with a remainder of 9.", "194 ÷ 11 = 17", "11 * 17 + 9 is 196, not 194"),
        ("1 1/2 + 2 = 4 1/2", "1 1/2 + 2 = 4 1/2", "is 3.5, not"),
        (r"\( 2\frac{1}{3} + 1 = 4 \)", r"2\frac{1}{3} + 1 = 4", "is 10/3, not 4"),
        (r"\[ 1529 \div 7 = 220 \]", r"1529 \div 7 = 220", "1529 / 7 is 1529/7, not 220"),
    ],
)
def test_what_is_false_is_flagged(text: str, equality: str, reason: str) -> None:
    (flag,) = find_flags("First, we read.", text)
    assert flag.step == 1
    assert text[flag.start : flag.end] == flag.equality == equality
    assert reason in flag.reason


LEFT_ALONE = {
    "true": ["12 * 3 = 36", r"\frac{1}{2} + \frac{1}{3} = \frac{5}{6}", "20% of 50 = $10"],
    "a bare left side": ["30 minutes = 30/60", "1 mile = 5280 feet", "1 week = 7 * 24"],
    "a unit of the result": [
        "2 * 60 minutes = 2 hours", r"\frac{1}{2} \text{ inch} = 20 \text{ miles}",
    ],
    "a bullet": [
        "- 5 + 3 = 8", "* 5 + 3 = 8", "• 5 + 3 = 8", "1. 5 + 3 = 8", "2) 5 + 3 = 8",
        r"Parts: - \(3! = 3 * 2 * 1 = 6\) - \(2! = 2 * 1\)", "It is so. - 5 + 3 = 8",
    ],
    "a piece of more": [
        "x + 5 + 3 = 9", "3x + 2 = 7", r"\(5\) + \(3\) = \(8\)", "twice 5 + 3 = 16",
        "25 boys + his 1 teacher + 1 guest = 27", "f(3) + 1 = 5", "half of 4 + 4 = 5",
        "= 3 times 4 more = 13", "7 + 2(a + b) = 0", r"25 + 2(\mathbf{a} \cdot \mathbf{b}) = 0",
        "2 + 2 = 5x", "3 + 4 = 7 million", "1 + 1 = 3 out of 4", "1 + 1 = 2:3", "1 + 2 = 3,5",
        "1 + 2 + ... + 10 = 55", r"1 + 2 + \dots + 10 = 55", r"5 \pm 3 = 9", "|3 - 5| = 2",
    ],
    "letters": ["2xy + 1 = 5", r"\frac{1}{3}Bh = 10", r"\frac{1}{2} ab = 3", "2m + 3 = 9"],
    "formulas side by side": [
        r"\[c + s = \frac{1}{2}\] \[-3 + 1 = -2\]", r"\(4\) \(- 2 + 1 = -1\)",
    ],
    "ordinals": ["New position: 6th + 2 = 8th", "the 3rd + 1 = 5"],
    "remainders": [r"\(5 \cdot 3 = 1 \pmod 7\)", "Modulo 7, 5 * 3 = 1", "4^2 = 16 = -1 mod 17"],
    "another base": ["In base 7, 5 + 4 = 12", "1011_2 + 1_2 = 1100_2"],
    "denied": [
        "But 2 + 2 = 5 is not true.", r"2 + 2 \neq 5", "2 + 2 = 5, a contradiction",
        "2 + 2 does not equal 5", "It is wrong that 2 + 2 = 5.", "2 + 2 = 5 (this is false)",
    ],
    "tested": ["If 2 + 2 = 5, all is well.", "Check: 2 + 2 = 5?", "Suppose 3 * 3 = 10.",
               "Try 4: 2 * 4 + 1 = 11"],
    "a question": ["So, $125^2+120^2=117^2$?", "2 + 2 = 5, right?", "Is 1 + 2 = 5.5 for x = 1.5?"],
    "a side in two lines": [r"$2^4 = 2 \cdot 2 \\ \cdot 4$", r"$2^3 = 2 \cdot 2 \\ cdot 2$"],
    "alternatives": ["2 + 2 = 5 or 2 + 2 = 4", "$3 * 3 = 9$ or $2 + 2 = 5$ or $2 + 3 = 6$"],
    "rounding": [
        "10 / 3 = 3.33", "10 / 3 = 3.34", "20 / 3 = 6 full boxes", "10/3 ≈ 3", "2/3 = 0.67",
        r"314 \cdot 100 \approx 31000", "3.33 * 3 = 10", r"\pi \cdot 2^2 = 12.56", "2/3 = 67%",
        r"\sqrt{2} = 1.41", r"7 \div 2 = 3 \text{ remainder } 1",
    ],
    "percent": [
        "0.2 * 100 = 20%", "3/4 = 75%", "3/4 * 100 = 75%", "(2/3) * 100 = 66.67%", "50 + 10% = 55",
    ],
    "a repeating decimal": [r"\frac{2}{9} = 0.\overline{2}", "1/3 = 0.(3)"],
    "mixed numbers": [
        "1 1/2 + 2 = 3 1/2", "1 1/2 hours = 90 minutes", "On day 3 1/2 + 1/4 = 3/4",
        "She was 7 1/2 + 1/4 = 3/4", r"2\frac{1}{3} + 1 = 3\frac{1}{3}",
        r"4\frac{1}{2} \cdot 3 = 6", r"4\frac{1}{2} \cdot 2 = 9",
    ],
    "run on": ["5 + 3 = 8 + 2 = 10", "2 * 3 = 6 + 4"],
    "a clock": ["10 + 5 = 3 pm", "11 + 2 = 1:00"],
    "of signs and ends": ["-3^2 = 9", "6/2(1+2) = 1", "step 2 (3 + 4) = 7", "so 3 + 4 = 7!"],
}  # fmt: skip


@pytest.mark.parametrize("text", [text for texts in LEFT_ALONE.values() for text in texts])
def test_what_is_doubtful_is_left_alone(text: str) -> None:
    assert find_flags(text) == []


@pytest.mark.parametrize(
    "problem",
    [
        "The operation * is defined by a * b = a + b. Find 2 * 3.",
        "Insert parentheses to make this true.",
        "Add 25 and 36 in base 7.",
        "Each letter stands for a digit; no two digits share letters.",
    ],
)
def test_problems_where_signs_mean_something_else(problem: str) -> None:
    assert find_flags("2 * 3 = 5", problem=problem) == []
    assert find_flags("2 * 3 = 5") != []


def test_a_denial_in_the_next_step_counts() -> None:
    assert find_flags("We get 2 + 2 = 5.", "This is a contradiction.") == []
    assert len(find_flags("We get 2 + 2 = 5.", "So the sum is 5.")) == 1


@pytest.mark.parametrize(
    "steps",
    [
        ["2x + 3 = 11", "So x = 5."],
        [r"\[ 16 + x = 27, \] \[ x = 8. \]"],
        ["We solve 3y - 4 = 8. Dividing both sides by 3, we get y = 3."],
        [r"\( x^2 - 5x + 6 = 0 \)", "Factoring gives (x - 1)(x - 5) = 0."],
        [r"\( x^2 - 5x + 6 = 0 \)", "Factoring gives (x - 1)(x - 5) = 0.", "x = 4"],
        ["S = 165 * 6/11", "S = 9 * 6"],
        ["$x^2 = 9$", "$x = 5$ or $x = 4$"],
        ["2 + 2 = 5 or 2 + 2 = 3"],
        ["2x = 8 and x = 5"],
        ["Total cost = 52 + 24. Total cost = 78."],
        [r"\[ \text{Total fruits} = 52 + 24 \] \[ \text{Total fruits} = 78 \]"],
    ],
)
def test_what_does_not_follow_is_flagged(steps: list[str]) -> None:
    assert find_flags(*steps) != []


@pytest.mark.parametrize(
    "steps",
    [
        ["2x + 3 = 11", "So x = 4."],
        ["2x + 3 = 11 or 2x + 3 = -11", "x = 4 or x = -7"],
        [r"\( x^2 - 5x + 6 = 0 \)", "(x - 2)(x - 3) = 0", "x = 2", "x = 3"],
        ["3x = 10", "x = 3.33"],
        [r"$x^2=\frac{384}{6}$ or $x^2=\frac{6}{6}$.", "So $x^2=64$ or $x^2=1$."],
        ["$x^2 = 9$", "$x = 5$ or $x = 3$"],
        ["Since $a=3$, we substitute this into our equation $a-c=11$ to get $3-c=11$."],
        ["We obtain $x^2+11x-8=0$, $x^2+2x-8=0$, and $x^2-13x-8=0$."],
        ["x = (16 + 32)/6", "x = (16 - 32)/6"],
        ["2x + 3 = 11", "When x = 7, the second term is zero."],
        ["2x + 3 = 11 and the other equation is x + 1 = 9"],
        ["x - 3 = 0, x - 7 = 0"],
        ["2x + y = 11", "x = 5"],
        ["P(1) = 3", "P(2) = 5"],
        ["x = 1/4", "x = 1/3"],
        ["Day 1: cost = 3 * 4. Day 2: cost = 13."],
        ["Total = 720 * 24 * 120. Total = 720 * 24"],
    ],
)
def test_what_may_follow_is_left_alone(steps: list[str]) -> None:
    assert find_flags(*steps) == []


HOSTILE = [
    "9" * 100_000 + " + 1 = 2",
    "10^10^10 + 1 = 5",
    "2^99999999999 = 3",
    "9!!!!!!!!!!!! = 3",
    "99999999! + 1 = 2",
    "(" * 50_000 + "1 + 1" + ")" * 50_000 + " = 3",
    "{" * 50_000 + " = " + "}" * 50_000,
    r"\frac{" * 20_000 + "1 = 2",
    r"\sqrt{" * 20_000 + "1" + "}" * 20_000 + " = 2",
    "1 + " * 50_000 + "1 = 2",
    "1 = " * 50_000 + "2",
    "1+1=3 " * 20_000,
    "x = 1 " * 20_000,
    "a " * 50_000 + "= 2",
    "= " * 50_000,
    "," * 100_000 + "=",
    "1,111" * 20_000 + " = 2",
    "1.1" * 30_000 + " = 2",
    "\\" * 100_000 + "=",
    "$" * 100_000 + "= 5",
    "\\text{" * 20_000 + "=",
    "\x00 1 + 1 = \x00 3 \x00",
    "١ + ٢ = ٤ and 1٢ + 1 = 3",
    "²³⁴ = 3 and 2² ² = 5",
    "\ud800 1/0 = 2, 0/0 = 1, 0^0 = 2, (-1)^(1/2) = 3",
    "1/3^500 + 7^500/11^400 = 2",
    "\n" * 100_000 + "=",
    "- " * 50_000 + "= 2",
    "not " * 25_000 + "1 + 1 = 3",
    "operation " * 10_000 + "1 + 1 = 3",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_end(text: str) -> None:
    for flag in check_steps(text, [text, "1 + 1 = 3", text]):
        assert 0 <= flag.start < flag.end
        assert len(flag.equality) <= 200
        assert len(flag.reason) <= 400


OPERATION = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
SPELLINGS = {"+": ["+"], "-": ["-", "−"], "*": ["*", r"\times", r"\cdot", "×"]}


@st.composite
def calculations(draw: st.DrawFn) -> tuple[str, int]:
    """Draw a formula of two numbers in some spelling, and return it with its value."""
    sign = draw(st.sampled_from(sorted(OPERATION)))
    a, b = (draw(st.integers(2, 9_999)) for _ in range(2))
    unit = draw(st.sampled_from(["", " pens", r" \text{ pens}"]))
    written = f"{a:,}" if draw(st.booleans()) else str(a)
    spelt = draw(st.sampled_from(SPELLINGS[sign]))
    return f"{written}{unit} {spelt} {b}", OPERATION[sign](a, b)


WRAPS = ["%s", "So \\( %s \\).", "\\[ %s \\]", "We get $%s$ now.", "- Total: %s.", "(%s)"]


@settings(deadline=None)
@given(calculations(), st.sampled_from(WRAPS))
def test_true_equalities_are_never_flagged(calculation: tuple[str, int], wrap: str) -> None:
    formula, value = calculation
    assert find_flags(wrap % f"{formula} = {value}") == []


@settings(deadline=None)
@given(calculations(), st.sampled_from(WRAPS), st.integers(1, 50))
def test_false_whole_numbers_are_always_flagged(
    calculation: tuple[str, int], wrap: str, off: int
) -> None:
    formula, value = calculation
    wrong = value + off
    ends = {int(n.replace(",", "")) for n in re.findall(r"[\d,]+", formula)}
    if (
        wrong * 100 == value
        or value * 100 == wrong
        or (value and wrong % value == 0)
        or (wrong and value % wrong == 0)
        or wrong in ends
    ):
        return  # the result may be a percentage or have another unit
    text = wrap % f"{formula} = {wrong}"
    (flag,) = find_flags(text)
    assert text[flag.start : flag.end] == flag.equality
    assert flag.equality.endswith(str(abs(wrong)))


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet="0123456789+-*/=()[]{}\\$.,%^!x \nfracsqt", max_size=80))
def test_any_text_is_read(text: str) -> None:
    for flag in find_flags(text, text):
        assert 0 <= flag.start < flag.end <= len(text)
        assert text[flag.start : flag.end] == flag.equality


def test_limited_numbers_of_signs_and_steps_are_read() -> None:
    assert find_flags("1 + 1 = 3")[0] == EqualityFlag(0, 0, 9, "1 + 1 = 3", "1 + 1 is 2, not 3")
    assert len(find_flags(*["1 + 1 = 3"] * 5_000)) == 1_000
    assert find_flags("x" * 5_000 + " 1 + 1 = 3") == []
