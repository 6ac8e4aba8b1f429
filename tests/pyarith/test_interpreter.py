"""The interpreter agrees with Python on the domain's programs and is bounded on all others."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mclabel.domains.pyarith.interpreter import run_solve
from mclabel.domains.pyarith.problems import Function, generate_problems
from mclabel.domains.pyarith.solutions import write_solution


def run_python(text: str, inputs: list[list[int]]) -> tuple[int, ...]:
    """Return the results of Python itself, which is safe only for texts in this file."""
    names: dict[str, Any] = {}
    exec(text, names)
    return tuple(names["solve"](*arguments) for arguments in inputs)


def test_it_returns_what_python_returns() -> None:
    for number, problem in enumerate(generate_problems(100, seed=5, split="test")):
        function = Function.from_json(problem.meta["function"])
        for strength in (0.0, 2.0):
            text = write_solution(
                function, rng=random.Random(number), varies_forms=True, strength=strength
            ).text
            assert run_solve(text, problem.gold["inputs"]) == run_python(
                text, problem.gold["inputs"]
            )


FORMS = [
    "def solve(p, q):\n    return p * q",
    'def solve(p, q):\n  "A product."\n\n  # of both\n  x = p * q  # here\n  return x\n\n',
    "def solve(p, q): return (p + q) // 2 - -q",
    "def solve(p, q):\n    x = 0\n    for i in range(p):\n        x += q + i\n    return x",
    "def solve(p, q):\n    x = q; x -= p\n    for _ in range(x - x): x = 7\n    return x",
    "def f(n, k):\n    return n // k\ndef g(n):\n    return n + 1\ndef solve(a, b):\n"
    "    return g(f(b, a)) * 3",
    "def solve(p, q):\n    for _ in range(p):\n        q = q + 1\n        p = p + q\n    return p",
]


@pytest.mark.parametrize("text", FORMS)
def test_other_forms_return_what_python_returns(text: str) -> None:
    inputs = [[3, 8], [2, 11], [5, 6]]
    assert run_solve(text, inputs) == run_python(text, inputs)


HEAD = "def solve(p, q):\n    "
HOSTILE = [
    "",
    "\0",
    HEAD + "return " + "(" * 90 + "p" + ")" * 95,
    HEAD + "return " + "-" * 150 + "p" + "\n" + HEAD,
    HEAD + "return " + "-" * 100_000 + "p",
    HEAD + "return " + "9" * 190,
    HEAD + "return 9 ** 9 ** 9",
    HEAD + "return p << 99999999",
    HEAD + "x = p\n" + "    x = x * x\n" * 60 + "    return x",
    HEAD + "x = 0\n    for _ in range(99999999999):\n        x = x + 1\n    return x",
    HEAD + "for _ in range(p):\n        for _ in range(p):\n            q = q + 1\n    return q",
    HEAD + "while p: q = q + 1\n    return q",
    HEAD + "import os\n    return p",
    HEAD + "return __import__('os').system('true')",
    HEAD + "return ().__class__",
    HEAD + "return solve(p, q)",
    "def f(n):\n    return f(n)\n" + HEAD + "return f(p)",
    "def f(n):\n    return n * m\n" + HEAD + "return f(p)",
    HEAD + "return p // (q - q)",
    HEAD + "return unknown",
    HEAD + "return p\n    return q",
    HEAD + "return p\nsolve = 3",
    HEAD + "return True",
    HEAD + "\treturn p",
    HEAD + "return p\rreturn q",
    HEAD + "x = y = p\n    return x",
    HEAD + "p.real = q\n    return p",
    HEAD + "for _ in range(p):\n    return p",
    HEAD + "x = p\n        return x",
    HEAD + "x = p\n  return x",
    "@f\n" + HEAD + "return p",
    "def solve(p, q=2):\n    return p",
    "def solve(p, *q):\n    return p",
    "def solve(p):\n    return p",
    "def solve(p, p):\n    return p",
    "x = 3\n" + HEAD + "return p",
    HEAD + "pass\n" * 100_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_whatever_is_not_of_the_domain_returns_nothing(text: str) -> None:
    assert run_solve(text, [[3, 8], [2, 11]]) is None


@settings(deadline=None, max_examples=150)
@given(st.text(alphabet="defsolvpq(,):=+-*/0123 \n_rangeturi'\"\\#\0", max_size=120))
def test_no_text_breaks_it(text: str) -> None:
    run_solve(HEAD + text, [[3, 8], [2, 11]])
    run_solve(text, [[3, 8], [2, 11]])
