"""Generated problems: their tests tell the right function from all others, and splits are apart."""

from __future__ import annotations

import pytest

from mclabel.core.records import Problem
from mclabel.data.readers.base import reader_settings
from mclabel.data.readers.problems import read_problems
from mclabel.domains.pyarith.interpreter import run
from mclabel.domains.pyarith.problems import Function, generate
from mclabel.domains.pyarith.solutions import reference


def function_of(problem: Problem) -> Function:
    return Function.from_json(problem.meta["function"])


def passes(problem: Problem, text: str) -> bool:
    return run(text, problem.gold["inputs"]) == tuple(problem.gold["outputs"])


def test_references_pass_the_hidden_tests(problems: list[Problem]) -> None:
    for problem in problems:
        assert set(problem.gold) == {"fn_name", "inputs", "outputs", "examples"}
        assert len(problem.gold["inputs"]) == len(problem.gold["outputs"]) >= 5
        assert passes(problem, reference(function_of(problem)))


def test_nothing_else_of_the_story_passes_them(problems: list[Problem]) -> None:
    for problem in problems:
        function, gold = function_of(problem), problem.gold
        assert len(set(gold["outputs"])) > 1  # no constant
        columns = list(zip(*gold["inputs"], strict=True))
        values = [function.values(inputs) or [] for inputs in gold["inputs"]]
        nodes = list(zip(*values, strict=True))
        assert nodes.pop(function.target) == tuple(gold["outputs"])
        assert tuple(gold["outputs"]) not in {*columns, *nodes}
        assert all(min(row) >= 1 for row in values)


def test_splits_are_apart_and_families_are_held_out() -> None:
    texts = {
        s: {p.text for p in generate(20, seed=0, split=s)} for s in ("train", "validation", "test")
    }
    assert len(set().union(*texts.values())) == 60
    with pytest.raises(ValueError, match="kept out of training"):
        generate(1, seed=0, split="train", families=["gifts"])
    assert {p.meta["family"] for p in generate(5, seed=0, split="test", families=["riddles"])} == {
        "riddles"
    }


def test_the_reader_gives_problems_with_their_gold(problems: list[Problem]) -> None:
    found = list(read_problems(reader_settings("pyarith", limit=5, seed=3)))
    assert found == problems[:5]
    assert found[0].gold["fn_name"] == "solve"
