"""Problems of pyarith: their tests, their splits, and the truth of their lines."""

from __future__ import annotations

import json
import random

import pytest

from mclabel.core.records import Problem
from mclabel.domains.pyarith.interpreter import MAX_LINES, run_solve
from mclabel.domains.pyarith.problems import Function, generate_problems
from mclabel.domains.pyarith.solutions import WrittenSolution, write_solution
from mclabel.domains.registry import find_true_first_error, has_known_truth


def read_function(problem: Problem) -> Function:
    return Function.from_json(problem.meta["function"])


def passes_cases(problem: Problem, text: str) -> bool:
    return run_solve(text, problem.gold["inputs"]) == tuple(problem.gold["outputs"])


def test_references_pass_the_hidden_tests(problems: list[Problem]) -> None:
    for problem in problems:
        assert set(problem.gold) == {"fn_name", "inputs", "outputs", "examples"}
        assert len(problem.gold["inputs"]) == len(problem.gold["outputs"]) >= 5
        assert passes_cases(
            problem, write_solution(read_function(problem), rng=random.Random(0)).text
        )


def test_nothing_else_of_the_story_passes_them(problems: list[Problem]) -> None:
    for problem in problems:
        function, gold = read_function(problem), problem.gold
        assert len(set(gold["outputs"])) > 1  # the function is not constant
        columns = list(zip(*gold["inputs"], strict=True))
        values = [function.compute_values(inputs) or [] for inputs in gold["inputs"]]
        nodes = list(zip(*values, strict=True))
        assert nodes.pop(function.target) == tuple(gold["outputs"])
        assert tuple(gold["outputs"]) not in {*columns, *nodes}
        assert all(min(row) >= 1 for row in values)


def test_splits_are_apart_and_families_are_held_out() -> None:
    texts = {
        s: {p.text for p in generate_problems(20, seed=0, split=s)}
        for s in ("train", "validation", "test")
    }
    assert len(set().union(*texts.values())) == 60
    with pytest.raises(ValueError, match="kept out of training"):
        generate_problems(1, seed=0, split="train", families=["gifts"])
    assert {
        p.meta["family"] for p in generate_problems(5, seed=0, split="test", families=["riddles"])
    } == {"riddles"}


def split_steps(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def first_affected(function: Function, written: WrittenSolution) -> int:
    """Return the first line that states a misread node, or a node that depends on one."""
    wrong: set[int] = set()
    for index in function.find_needed_nodes():
        if index in written.misread_nodes or wrong & set(function.nodes[index].needs):
            wrong.add(index)
    lines = [number for number, node in enumerate(written.nodes) if node in wrong]
    return lines[0] if lines else len(written.nodes) - 1


def test_references_in_all_forms_have_no_wrong_step(problems: list[Problem]) -> None:
    for number, problem in enumerate(problems):
        function = Function.from_json(problem.meta["function"])
        assert has_known_truth(problem.meta)
        for text in (
            write_solution(function, rng=random.Random(0)).text,
            write_solution(function, rng=random.Random(number), varies_forms=True).text,
        ):
            assert find_true_first_error(problem.meta, split_steps(text)) is None


def test_misreadings_are_found_where_they_are(problems: list[Problem]) -> None:
    misread = 0
    for number, problem in enumerate(problems):
        function = Function.from_json(problem.meta["function"])
        written = write_solution(function, rng=random.Random(number), strength=2.0)
        first_error = find_true_first_error(problem.meta, split_steps(written.text))
        if written.misread_nodes:
            misread += 1
            assert first_error == first_affected(function, written), (problem.text, written.text)
        else:
            assert first_error is None
    assert misread > 24


# Ada fills p boxes with q pens each. Ada gives r pens away, and half of the remaining pens are
# left.
NODES = (
    {"op": "*", "left": "p", "right": "q", "variable": "boxes", "event": "start"},
    {"op": "-", "left": "#0", "right": "r", "variable": "ada", "event": "give"},
    {"op": "/", "left": "#1", "right": "2", "variable": "ada", "event": "sell_half"},
)


@pytest.fixture(scope="module")
def meta() -> dict[str, str]:
    states = [[3, 8, 4], [4, 5, 6], [5, 7, 3], [2, 9, 8]]
    content = {"nodes": NODES, "target": 2, "story": [3, 8, 4], "states": states}
    return {"function": json.dumps(content)}


HEAD = "def solve(p, q, r):\n"
RIGHT = [
    "    boxes = p * q\n    ada = boxes - r\n    boxes = q * p\n    return ada // 2",
    "    boxes = p * q\n    ada = boxes - r\n    ada = ada // 2\n    return ada",
    "    boxes = q * p\n    boxes -= r\n    return boxes // 2",
    "    return (q * p - r) // 2",
    "    x = 0\n    for _ in range(q):\n        x = x + p\n    x = x - r\n    return x // 2",
    "    x = 0\n    for i in range(p): x += q\n    y = r\n    x = x - y\n    half = 2\n"
    "    return x // half",
    "    boxes = p * q\n\n    # what is left\n    ada = -r + boxes\n    return ada // 2\n",
]
WRONG = [
    ("    boxes = p * q\n    ada = boxes - r\n    ada = ada + r\n    return ada // 2", 3),
    ("    boxes = p * q\n    zero = boxes - boxes\n    return boxes", 2),
    ("    boxes = p + q\n    ada = boxes - r\n    return ada // 2", 1),
    ("    boxes = p * q\n    ada = boxes + r\n    return ada // 2", 2),
    ("    boxes = p * q\n    ada = boxes - r\n    return ada", 3),
    ("    boxes = p * q\n    ada = boxes // 2\n    return ada", 2),
    ("    boxes = p * q\n    ada = boxes - r\n    ada = ada // 3\n    return ada", 3),
    ("    x = 0\n    for _ in range(r):\n        x = x + p\n    return x", 2),
    ("    x = 0\n    for _ in range(q):\n        x = x + q\n    return x", 3),
    ("    x = 1\n    for _ in range(q):\n        x = x + p\n    return x", 1),
    ("    boxes = p * q\n    import os\n    return boxes", 2),
    ("    return (q * p - r) // 2\n    return p", 2),
    ("    return 10", 1),
]


@pytest.mark.parametrize("body", RIGHT)
def test_equivalent_forms_are_right(body: str, meta: dict[str, str]) -> None:
    assert find_true_first_error(meta, split_steps(HEAD + body)) is None


@pytest.mark.parametrize(("body", "error"), WRONG)
def test_wrong_statements_are_found(body: str, error: int, meta: dict[str, str]) -> None:
    text = split_steps(HEAD + body)
    assert find_true_first_error(meta, text) == error
    # Later lines do not change the verdict on a step.
    assert find_true_first_error(meta, text[:error]) is None
    assert find_true_first_error(meta, text[: error + 1]) == error


def test_helpers_are_right_by_their_operation(meta: dict[str, str]) -> None:
    body = "    boxes = p * q\n    ada = boxes - r\n    return share(ada, 2)\n"
    half = "def share(n, k):\n    return n // k\n"
    assert find_true_first_error(meta, split_steps(half + HEAD + body)) is None
    add = "def share(n, k):\n    return n + k\n"
    assert find_true_first_error(meta, split_steps(add + HEAD + body)) == 1
    assert (
        find_true_first_error(meta, split_steps(half + HEAD + body.replace("ada, 2", "ada, r")))
        == 5
    )


def test_several_lines_in_a_step_and_fences(meta: dict[str, str]) -> None:
    text = ["```python\n" + HEAD, "    boxes = p * q\n    ada = boxes + r\n", "    return ada\n```"]
    assert find_true_first_error(meta, text) == 1
    assert find_true_first_error(meta, ["```python\n" + HEAD + RIGHT[0] + "\n```\n"]) is None
    assert find_true_first_error(meta, ["The answer is 4.\n", HEAD]) == 0


def test_truth_is_bounded(meta: dict[str, str]) -> None:
    assert find_true_first_error(meta, ["# x\n"] * 2 * MAX_LINES) == MAX_LINES
    assert find_true_first_error(meta, [HEAD, "    x = " + "-" * 10**6 + "p\n"]) == 1
    assert find_true_first_error(meta, [HEAD, "    x = \0\n"]) == 1


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '{"nodes":[],"target":0,"story":[1]}'])
def test_a_field_function_of_others_is_no_truth(text: str) -> None:
    assert not has_known_truth({"function": text})
    with pytest.raises(KeyError):
        find_true_first_error({"function": text}, ["x = 1\n"])
