"""The registry of built-in domains: each problem's truth comes from its own domain."""

from __future__ import annotations

from random import Random

import pytest

from mclabel.core.records import Problem
from mclabel.domains.arith.problems import generate_problems as generate_arith
from mclabel.domains.arith.program import Program, write_reference_solution
from mclabel.domains.pyarith.problems import Function
from mclabel.domains.pyarith.problems import generate_problems as generate_pyarith
from mclabel.domains.pyarith.solutions import write_solution
from mclabel.domains.registry import DOMAINS, bundled_model, find_true_first_error, has_known_truth


def make_solved(name: str) -> tuple[Problem, str]:
    if name == "arith":
        problem = generate_arith(1, seed=1, split="test")[0]
        return problem, write_reference_solution(Program.from_json(problem.meta["program"]))
    problem = generate_pyarith(1, seed=1, split="test")[0]
    return problem, write_solution(Function.from_json(problem.meta["function"]), rng=Random(0)).text


@pytest.mark.parametrize("name", DOMAINS)
def test_truth_is_found_by_the_domain_of_the_problem(name: str) -> None:
    problem, solution = make_solved(name)
    assert [d for d, domain in DOMAINS.items() if domain.has_known_truth(problem.meta)] == [name]
    assert has_known_truth(problem.meta)
    steps = solution.splitlines(keepends=True)
    assert find_true_first_error(problem.meta, steps) is None
    assert find_true_first_error(problem.meta, [*steps[:2], "\nsomething else", *steps[2:]]) == 2


def test_others_carry_no_truth() -> None:
    assert not has_known_truth({"program": "x = 1", "function": "solve"})
    with pytest.raises(KeyError):
        find_true_first_error({}, ["x"])


def test_bundled_models_are_named_by_their_domain() -> None:
    folder = bundled_model("arith:policy")
    assert folder is not None and (folder / "config.json").is_file()
    assert bundled_model("Qwen/Qwen2.5-1.5B") is bundled_model("smollm2:135m") is None
    with pytest.raises(ValueError, match="pyarith:strong: must be pyarith:policy"):
        bundled_model("pyarith:strong")
