"""Texts that are written to hang the checker, crash it, fill its memory or run code."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from mclabel.answers import Checker, extract_answer
from mclabel.answers.workers.pool import PASSING
from mclabel.core.records import Verdict


def list_bombs() -> list[str]:
    """Return the hostile texts, of which only the Chinese numeral for 12 equals 12."""
    return [
        # towers
        "9^9^9^9", "9^{9^{9^{9}}}", "9**9**9**9", "2^{2^{2^{2^{2^2}}}}", "(9^9)^{9^9}",
        "((2^{99})^{99})^{99}", "10^{10^{10}}", "1/2^{10^9}", "x^{10^{10^{10}}}",
        "\\sqrt[9^9]{9^{9^9}}", "9^{-9^{9^9}}", "1e999999999", "1e-999999999", "0.1^{99999999}",
        "\\left(1+x\\right)^{99999}", "(a+b+c+d+e)^{50}", "(x+y)^{64}(x+z)^{64}(y+z)^{64}",
        # functions
        "99999999!", "9!!!!!!", "(10^9)!", "((9!)!)!", "\\binom{10^9}{10^8}", "e^{e^{e^{e^9}}}",
        "\\binom{99999}{5000}",
        "\\sum_{n=1}^{10^{10}} n^n",
        "\\prod_{n=1}^{10^9} n", "\\int_0^{1} x^x dx",
        "\\int e^{-x^2} \\sin(x^2) \\ln(x) dx", "\\lim_{x\\to 0} \\frac{\\sin^{99} x}{x^{99}}",
        "\\sin(\\sin(\\sin(\\sin(10^{99}))))", "\\sin(2^{10^6})", "\\tan^{999} x",
        "\\gcd(9^{99},3)",
        "\\log_{10^{-99999}} 5", "\\lfloor 10^{99999} \\rfloor", "10^{10^7} \\mod 7", "\\zeta(9^9)",
        "\\sqrt{1+\\sqrt{2+\\sqrt{3+\\sqrt{5+\\sqrt{6+\\sqrt{7+\\sqrt{10}}}}}}}",
        "\\sin x+\\cos(x+1)\\tan(x^2)\\log(x^3+\\sqrt{x})-\\sin(x+\\pi)\\cos^7(3x)\\tan(5x+1)",
        # shapes
        "(" * 10_000, "[" * 10_000, "{" * 10_000, "(" * 900 + "1" + ")" * 900, "\\frac{1}{" * 3_000,
        "\\sqrt{" * 5_000, "-" * 1_900 + "1", "+".join(["1"] * 900), "1," * 950, "((1,2)," * 200,
        "\\begin{pmatrix}" * 100, "&" * 1_900, "\\\\" * 900, "\\boxed{" * 300, "|" * 1_999,
        "{{{{" * 400 + "x" + "}}}}" * 400, "^" * 1_000, "_" * 1_000, "!" * 1_000, "x" * 1_990,
        "1" * 1_990, "9" * 100_000, "x+" * 50_000, "a" * 100_000, "1/" * 900, ":" * 1_000,
        "<" * 1_000, "x<" * 400 + "1", "\u222a".join(["(1,2)"] * 150), "\u00b1" * 500,
        "1\u00b12\u00b13\u00b14\u00b15", " or ".join("12345678"), " and ".join(["1"] * 400),
        # signs
        "\x00", "12\x00", "\x00" * 1_000, "\u202e21", "\u2066" * 500, "\ud800", "\udfff12",
        "\U0001f4a3" * 400, "\u0301" * 1_000, "1\u0305" * 300, "\ufeff", "\r\n\t\v\f", "\x1b[2J",
        "\u00bd" * 300, "\u2082" * 500, "\u00b2" * 500, "\u221a" * 500, "\ufdfa" * 300,
        "\u0663\u0664", "\u2160\u2161", "\u5341\u4e8c",
        # code
        "__import__('os').system('touch PLANTED')", "().__class__.__bases__[0].__subclasses__()",
        "eval('1+11')", "exec('open(\"PLANTED\", \"w\")')", "open('PLANTED','w').write('x')",
        "{0.__class__.__init__.__globals__}", "%s%s%n%n", "{}{}{}{!r}", "${7*7}", "{{7*7}}",
        "lambda: 1", "x.__class__", "\\text{__import__('os')}", "\\input{/etc/passwd}",
        "\\write18{touch PLANTED}", "\\def\\x{\\x\\x}\\x", "\\csname x\\endcsname", "import os",
        "Symbol('x').subs", "f'{1}'", "'+open(\"PLANTED\",\"w\").name+'", "`touch PLANTED`",
        "$(touch PLANTED)", "\"; touch PLANTED; \"", "S('1').__class__", "Function('f')(2)",
        # regexes
        "a" * 1_000 + "!", "1 " * 900 + "x", "1,111," * 300 + "x", "0." + "3" * 1_900 + "x",
        "0." + "12" * 900 + "...", "\\text{" + "a " * 800, "\\frac{" * 5 + "1" * 1_000,
        "$" * 1_999, "$1$" * 600, "\\$" * 900, "1\\!" * 600, "1,\\!" * 450, "^{\\circ" * 250,
        "the answer is " * 140, "option " * 250, "(A)" * 600, "base " * 380, "1_" * 900,
        "5 ft " * 380, "x=" * 900, "=" * 1_900, "x\u2208" * 900, "\\{" * 900, "a b " * 480,
        "12:" * 600, "1 to " * 380, "one hundred " * 150, "-" * 1_000 + "x" * 900,
        # languages
        "\u7b54\u6848\u662f" * 600, "\u7b54\uff1a" * 900, "\u4e07" * 1_900, "\u5341" * 1_900,
        "\u5206\u4e4b" * 900, "1\u4e07" * 900, "\u4e09\u5206\u4e4b" * 600, "\u0661\u066b" * 900,
        "\u096a" * 1_900, "\u0420 " * 900, "\u041e\u0442\u0432\u0435\u0442: " * 240,
        "respuesta a " * 160, "die Antwort auf " * 120, "jibu sahihi " * 160, "1,5 " * 480,
        "1.234," * 300, "2 \u0438 " * 480, "2\u6216" * 900, "\u0915\u093f" * 900,
        "\u0e04\u0e33\u0e15\u0e2d\u0e1a" * 380, "1 234 " * 320, "2\u3001" * 900,
        "\u4e00\u53c8" * 900, "\u7b54\u6848\u662f" + "1\u548c" * 900,
    ]  # fmt: skip


def test_bombs_end_in_time_and_are_not_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checker = Checker(num_workers=1)
    pairs = [
        pair
        for bomb in list_bombs()
        for pair in ((bomb, "12"), (bomb, "x^2+\\sin x"), ("12", bomb))
    ]
    grades = checker.grade_many(pairs)
    checker.close()
    for bomb in list_bombs():
        extract_answer(bomb)
    right = [p for p, grade in zip(pairs, grades, strict=True) if grade.verdict is Verdict.RIGHT]
    assert right == [("\u5341\u4e8c", "12"), ("12", "\u5341\u4e8c")]
    assert {grade.reason for grade in grades}.isdisjoint(PASSING)  # no timeout was reached
    assert list(tmp_path.iterdir()) == []


def test_memory_of_the_parent_stays_flat() -> None:
    checker = Checker(num_workers=1)
    texts = [f"{'9' * 90_000}{i}" for i in range(20)] + ["9" * 1_500 + f"^{i}" for i in range(200)]
    for text in texts:
        checker.grade(text, "12")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in range(2000):
        checker.grade(f"{'9' * 90_000}x{i}", "12")
        checker.grade(f"{i}^{{{'9' * 1000}}}", "12")
        checker.grade(f"\\frac{{x+{i}}}{{{'(' * 300}", "12")
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    checker.close()
    assert grown_kib < 30 * 1024
