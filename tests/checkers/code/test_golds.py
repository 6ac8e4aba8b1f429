"""Golds in the formats of public data sets, and the ways in which their tests call a solution."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mclabel.checkers import GradeItem
from mclabel.checkers.code.checker import CodeChecker
from mclabel.checkers.code.completions import NoCodeFound, extract_program
from mclabel.checkers.code.golds import Gold, read_gold
from mclabel.checkers.guarded import is_guessed_or_forgeable
from mclabel.core.records import Verdict
from tests.support.code_checks import code_checker, grades, problem, refusal

HEAD = "def add(a, b):\n    '''The sum.'''\n"
ADD = {"test": "def check(candidate):\n    assert candidate(2, 3) == 5\n", "entry_point": "add"}
RIGHT, WRONG, UNKNOWN = Verdict.RIGHT, Verdict.WRONG, Verdict.UNKNOWN


@pytest.fixture(scope="module")
def checker() -> Iterator[CodeChecker]:
    yield code_checker(time_s=2)


PAIR = (
    "class Pair:\n    def __init__(s, a, b): s.a, s.b = a, b\n"
    "def most(ps): return max(p.a for p in ps)"
)
ROOT = "def f(x): return x ** .5"
CASES: list[tuple[Any, str, Verdict, str, str]] = [
    ({"test_list": ["assert f(1) == 2"]}, "def f(x): return x + 1", RIGHT, "passed", "split"),
    (
        {"test_list": ["assert f(1) == 2", "assert f(2) == 2"], "test_setup_code": ""},
        "def f(x): return x + 1", WRONG, "test_failed:1", "split",
    ),
    ("import math\nassert math.isclose(f(4), 2)", ROOT, RIGHT, "passed", "split"),
    ({"tests": ["assert math.isclose(f(4), 2)"]}, ROOT, RIGHT, "passed", "split"),
    ("assert f(1) == g(1)", "def f(x): return x\ndef g(x): return x", RIGHT, "passed", "split"),
    ("assert f(1) == 1", "def g(x): return x", WRONG, "no_function", "split"),
    ("assert f(1) == 1", "def f(x): return x / 0", WRONG, "raised:ZeroDivisionError", "split"),
    ("assert f(1) == 1", "import nothing_there", WRONG, "raised:ModuleNotFoundError", "split"),
    ("assert f(1)[0] == 1", "def f(x): return None", WRONG, "raised:TypeError", "split"),
    ("assert f(1) == 1", "return 1", WRONG, "no_code", "text"),
    (
        "try:\n    f(1)\nexcept ValueError as error:\n    assert str(error) == 'no'\n"
        "else:\n    assert False",
        "class Own(ValueError): pass\ndef f(x): raise Own('no')", RIGHT, "passed", "split",
    ),
    (
        "x = [[3, 1], {2}, {1: [2]}]\ny = x[0]\nf(x)\n"
        "assert y == [1, 3] and x == [y, {2, 4}, {1: []}]",
        "def f(x): x[0].sort(); x[1].add(4); x[2][1].clear()", RIGHT, "passed", "split",
    ),
    ("assert list(f(3)) == [0, 1, 2]", "def f(n): yield from range(n)", RIGHT, "passed", "split"),
    ("assert f(3) == [0, 1, 2]", "def f(n): yield from range(n)", WRONG, "test_failed:0", "split"),
    ("assert sum(f(iter([1, 2]))) == 3", "def f(x): return list(x)", RIGHT, "passed", "split"),
    ("assert f() == 1\nassert f() == 2", "n = 0\ndef f():\n    global n\n    n += 1\n    return n",
     RIGHT, "passed", "split"),
    ("assert sorted([3, 1], key=f) == [3, 1]", "def f(x): return -x", RIGHT, "passed", "split"),
    ("assert f(lambda x: x + 1, 1) == 2", "def f(g, x): return g(x)", RIGHT, "passed", "split"),
    ("assert f(len, 'ab') == 2\nassert f(str, 1) == '1'", "def f(g, x): return g(x)", RIGHT,
     "passed", "split"),
    ("assert most([Pair(1, 2), Pair(3, 4)]) == 3", PAIR, RIGHT, "passed", "split"),
    ("assert Find_Max([1, 3]) == 3", "def Find_Max(x): return max(x)", RIGHT, "passed", "split"),
    ({"tests": ["assert f(1) == 1"], "inside": True}, "def f(x): return x", RIGHT, "passed",
     "inside"),
    ({"tests": ["assert f(1) == 2"], "inside": True}, "def f(x): return x", WRONG, "test_failed:0",
     "inside"),
    ("import sys\nassert f(sys) == 1", "def f(x): return 1", UNKNOWN,
     "gold: the tests pass a value that cannot be sent (module): set inside: true", "none"),
    ("x = 1 / 0\nassert f(x) == 1", "def f(x): return 1", UNKNOWN,
     "gold: the tests raise ZeroDivisionError before they call the program", "none"),
    ({"inputs": [[1, [2]]], "outputs": [[1, 2]], "fn_name": "f"},
     "def f(a, b): return (a, *b)", RIGHT, "passed", "split"),
    ({"inputs": [[1], [2]], "outputs": [1, 3], "fn_name": "f"}, "def f(a): return a", WRONG,
     "test_failed:1", "split"),
    ({"inputs": [[2]], "outputs": [4], "fn_name": "f"},
     "class Solution:\n    def f(self, a): return a * 2", RIGHT, "passed", "split"),
    ({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7"]},
     "print(sum(map(int, input().split())), ' ')\n\n", RIGHT, "passed", "split"),
    ({"inputs": ["1 2", "3 4"], "outputs": ["3", "8"]},
     "import sys\nprint(sum(map(int, sys.stdin.read().split())))", WRONG, "test_failed:1", "split"),
    ({"inputs": ["1"], "outputs": ["1"]}, "print(1); raise KeyError", WRONG,
     "raised:KeyError", "split"),
    ({"inputs": ["1"], "outputs": ["1"]}, "print(1); raise SystemExit(3)", WRONG, "exited",
     "split"),
    ({"inputs": ["1"], "outputs": ["1"]}, "if __name__ == '__main__': print(1); exit()", RIGHT,
     "passed", "split"),
    ({"inputs": ["1"], "outputs": ["1"]}, "while True: print('x' * 1000)", WRONG, "output",
     "split"),
    ({"inputs": ["1"], "outputs": ["1"]}, "import os\nos.write(4, b'X' + bytes(4))\nwhile 1: pass",
     WRONG, "timeout", "split"),
    (json.dumps({"inputs": ["1"], "outputs": ["1"]}), "print(input())", RIGHT, "passed", "split"),
    (
        {**ADD, "prompt": "def twice(x):\n    return 2 * x\n\n" + HEAD, "test":
         "def check(candidate):\n    assert candidate(2, 2) == twice(2)\n"},
        "def twice(x): return 0\ndef add(a, b): return 0", WRONG, "test_failed:0", "split",
    ),
]  # fmt: skip


@pytest.mark.slow
def test_verdicts(checker: CodeChecker) -> None:
    for gold, code, *wanted in CASES:
        (graded,) = grades(checker, gold, [code])
        weak = "weak: " if graded.layer == "inside" else ""
        verdict, reason, layer = wanted
        assert [graded.verdict, graded.reason, graded.layer] == [verdict, weak + reason, layer]
        assert is_guessed_or_forgeable(graded.reason) == (layer == "inside")


def test_programs_that_behave_alike_on_the_examples_vote_together(checker: CodeChecker) -> None:
    gold = {"fn_name": "f", "inputs": [[2], [3]], "outputs": [4, 6], "examples": [[2], [-1]]}
    codes = ["def f(x): return 2 * x", "def f(x):\n    return x + x", "def f(x): return 4"]
    codes += [
        "def f(x): return 1 / 0",
        "def f(x):\n    return [] * 1 + 1 / 0",
        "def g(x): return 4",
    ]
    answers = [grade.answer for grade in grades(checker, gold, codes)]
    assert checker.group([answers]) == [[0, 0, 1, 2, 2, 3]]
    assert answers[2:] == [
        "4; 4",
        *2 * ["ZeroDivisionError; ZeroDivisionError"],
        "no_function; no_function",
    ]


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("", "no tests"),
        ("f(1)", "no tests"),
        ("assert f(1) ==", "do not parse"),
        ("assert 1 == 1", "no name of the program"),
        ("def f(x): return x\nassert f(1) == 1", "no name of the program"),
        ("import numpy\nassert f(numpy.array(1)) == 1", "need numpy, which"),
        ([1], "with `input` and `output`"),
        ({"question": 1}, "no tests"),
        ({"tests": [], "more": 1}, "unknown keys beside tests: more"),
        ({"tests": [1]}, "neither a string nor a list"),
        ({"test": "def test(): pass", "entry_point": "f"}, "asserts nothing"),
        (
            {"test": "def check(candidate): assert True", "entry_point": "1f"},
            "must name a function",
        ),
        ({"inputs": [], "outputs": []}, "no tests"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs and 0 outputs"),
        ({"inputs": [1], "outputs": [1]}, "must be strings"),
        ({"tests": "assert f(1) == 2", "solution": "def f(x): return x"}, "own solution.*failed:0"),
        ({**ADD, "prompt": HEAD, "canonical_solution": "    return a\n"}, "own solution.*failed:0"),
        ({"tests": "assert f(1) == 2", "inside": 1}, "true or false"),
    ],
)
def test_golds_that_cannot_be_used_are_refused(
    checker: CodeChecker, gold: Any, reason: str
) -> None:
    message = refusal(checker, gold)
    assert message is not None
    assert re.search(reason, message), message


def test_golds_that_can_be_used_are_not_refused(checker: CodeChecker) -> None:
    assert (
        refusal(checker, {**ADD, "prompt": HEAD, "canonical_solution": "    return a + b\n"})
        is None
    )
    assert refusal(checker, {"tests": "assert f(1) == 1", "solution": "def f(x): return x"}) is None
    assert read_gold({**ADD, "prompt": HEAD}).tested_names == ("add",)


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("A\n```python\nx = 1\n```\nB\n```python\ny = 2\n```\nC", "y = 2\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1\n```\n```text\nout\n```", "x = 1\n"),
        ("```python\nx = 1\n", "x = 1\n"),
        ("x = 1", "x = 1"),
    ],
)
def test_the_program_of_a_completion(completion: str, code: str) -> None:
    assert extract_program(completion, Gold()).strip() == code.strip()


def test_bodies_continue_the_prompt() -> None:
    for body in ("    return a + b", "return a + b", "```python\n    return a + b\n```"):
        names: dict[str, Any] = {}
        exec(extract_program(body, Gold(prompt=HEAD, tested_names=("add",))), names)
        assert names["add"](1, 2) == 3
    for text, reason in [
        ("I do not know.", "no_code"),
        ("", "no_code"),
        ("```\nx =\n```", "syntax"),
    ]:
        with pytest.raises(NoCodeFound, match=reason):
            extract_program(text, Gold())


def test_it_works_without_threads_and_after_a_fork(checker: CodeChecker) -> None:
    import os

    item = GradeItem(problem=problem("assert f(1) == 1"), completion="def f(x): return x")
    assert asyncio.run(checker.grade([item, item]))[1].verdict is RIGHT
    if (pid := os.fork()) == 0:
        os._exit(0 if asyncio.run(checker.grade([item]))[0].verdict is RIGHT else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert asyncio.run(checker.grade([item]))[0].verdict is RIGHT


def _read_cases() -> list[dict[str, Any]]:
    lines = Path(__file__).with_name("golds.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_golds_of_every_form_have_the_verdicts_that_their_programs_deserve() -> None:
    """A verdict may be unknown only if the program needs a package outside the standard library."""
    checker = code_checker(time_s=2)
    grade_by_name = {
        case["name"]: grades(checker, case["gold"], [case["completion"]])[0]
        for case in _read_cases()
    }
    wanted = {case["name"]: case["want"] for case in _read_cases() if case["want"] is not None}
    assert len(wanted) >= 74
    wrong = {name for name, want in wanted.items() if grade_by_name[name].verdict.value != want}
    assert {name: grade_by_name[name] for name in wrong} == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ("def check(candidate):\n    def test(): assert candidate(1) == 2\ncheck(f)", "never call"),
        ("for x in []: assert f(x) == 1", "never call"),
        ("if __name__ == 'tests': assert f(1) == 1", "never call"),
        ("def helper(): assert f(1) == 1", "never call"),
        ("import pytest\n@pytest.mark.skip\ndef test_f(): assert f(1) == 1", "never call"),
        ("import unittest\nclass T(unittest.TestCase):\n"
         "    @unittest.skip('')\n    def test_f(self): self.assertEqual(f(1), 1)", "never call"),
        ("while True: pass\nassert f(1) == 1", "take too long"),
        ("import os\nos._exit(0)\nassert f(1) == 1", "end \\(exited\\)"),
        ("raise SystemExit(0)\nassert f(1) == 1", "raise SystemExit"),
        ("import ctypes\nctypes.string_at(0)\nassert f(1) == 1", "end \\(signal:11\\)"),
        (
            "x = [bytearray(1 << 28) for _ in range(9)]\nassert f(1) == 1",
            "raise MemoryError|memory",
        ),
        ("assert False\nassert f(1) == 1", "fail"),
        ("try:\n    assert f(1) == 2\nexcept: pass", "compute nothing"),
        ("def test_f(capsys): assert f(1) == 1", "fixture capsys"),
        ("import pytest\nwith pytest.warns(UserWarning): assert f(1)", "pytest.warns"),
        ("class G(F): pass\nassert G().x == 1", "inside|passed"),
    ],
)  # fmt: skip
def test_golds_that_fail_by_themselves_are_unknown(
    checker: CodeChecker, tests: str, reason: str
) -> None:
    (graded,) = grades(checker, tests, ["class F: x = 1\ndef f(x): return x"])
    assert graded.verdict is UNKNOWN or reason == "inside|passed"
    assert re.search(reason, graded.reason), graded
    assert reason == "inside|passed" or re.search(reason, refusal(checker, tests) or "")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("10 ** 5000", "0x3"),
        ("__import__('fractions').Fraction(1, 3)", "Fraction(1, 3)"),
        ("range(3)", "range(0, 3)"),
        ("iter({3, 1, 2})", "set_iterator [1, 2, 3]"),
        ("{'b', 'a', 'c'}", "{'a', 'b', 'c'}"),
        ("object()", "<object object>"),
        ("f", "<function f>"),
        ("[i * (2 ** 61 - 1) for i in range(40_000)]", "[0, 2305843009213693951"),
        ("set(i * (2 ** 61 - 1) for i in range(3_000))", "{0, "),
        ("'x' * 10 ** 6", "'xxx"),
    ],
)
def test_what_a_program_gives_for_examples_is_short_and_repeats(
    checker: CodeChecker, result: str, text: str
) -> None:
    gold = {"fn_name": "f", "inputs": [[2]], "outputs": [4], "examples": [[2]]}
    code = f"def f(x): return {result}"
    first, second = grades(checker, gold, [code, f"{code}  # again"])
    assert first.answer == second.answer and len(first.answer or "") <= 500
    assert (first.answer or "").startswith(text), first.answer
