"""The checker protocol, the maths checker behind it, and plain functions as checkers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mclabel import jobs
from mclabel.answers import CHECKER_VERSION
from mclabel.checkers import Grade, GradeItem, make_checker
from mclabel.checkers.math import MathChecker
from mclabel.core.errors import ConfigError, ShardError
from mclabel.core.records import LabeledSolution, Outcome, Problem, Verdict
from mclabel.core.settings import find_settings_class
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.own_package import write_module
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems

ENDS_RIGHT = '''
def ends_right(completion, gold):
    """Right only where the gold itself stands in a box."""
    return "boxed{%s}" % gold in completion

async def later(completion, gold, *, least):
    return None if len(completion) < least else ends_right(completion, gold)

def broken(completion, gold):
    raise RuntimeError("no such test")

def nonsense(completion):
    return 0.7

def all_of_it(**given):
    assert sorted(given) == ["completion", "gold", "meta", "problem", "tolerance"]
    return given["meta"]["unit"] == "cm" and given["gold"]["tests"] == [1, 2]

def unfilled(completion, tokens):
    return True

from mclabel.checkers import Checker

class Gradeless(Checker):
    pass
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return write_module(tmp_path, ENDS_RIGHT, monkeypatch)


def grade_completion(kind: str, completion: str, problem: Problem, **settings: object) -> Grade:
    checker = make_checker(
        find_settings_class("checkers", kind).model_validate({"kind": kind, **settings})
    )
    (grade,) = asyncio.run(checker.grade([GradeItem(problem=problem, completion=completion)]))
    return grade


PROBLEM = Problem(id="p", text="?", answer="12")


def test_the_maths_checker_says_what_it_read_and_why() -> None:
    grade = grade_completion("math", "so it is \\boxed{24/2}.", PROBLEM)
    assert grade == Grade(verdict=Verdict.RIGHT, answer="24/2", reason="equal", layer=grade.layer)
    assert (
        grade_completion("math", "\\boxed{12 cm}", PROBLEM, units_optional=False).verdict == "wrong"
    )
    checker = MathChecker(MathChecker.Settings())
    assert checker.group([["1/2", "0.5", None, "2"], ["x"]]) == [[0, 0, None, 1], [0]]


def test_the_maths_checker_refuses_a_gold_that_it_does_not_understand() -> None:
    checker = MathChecker(MathChecker.Settings())

    def find_refusal(answer: str, **more: bool) -> str | None:
        return asyncio.run(checker.refuse(Problem(id="p", text="?", answer=answer, **more)))

    assert find_refusal("12") is None
    assert find_refusal("\\frac{1}{") is not None
    assert "data" in (find_refusal('{"tests": [1]}', answer_is_json=True) or "")


DATA = Problem(
    id="p", text="?", answer='{"tests": [1, 2]}', meta={"unit": "cm"}, answer_is_json=True
)


@pytest.mark.parametrize(
    ("name", "completion", "problem", "arguments", "verdict", "failure"),
    [
        ("ends_right", "\\boxed{12}", PROBLEM, {}, "right", None),
        ("ends_right", "\\boxed{24/2}", PROBLEM, {}, "wrong", None),
        ("later", "\\boxed{12}", PROBLEM, {"least": 5}, "right", None),
        ("later", "\\boxed{12}", PROBLEM, {"least": 50}, "unknown", None),
        ("all_of_it", "any", DATA, {"tolerance": 1}, "right", None),
        ("broken", "x", PROBLEM, {}, "unknown", "RuntimeError at MODULE.py:10"),
        ("nonsense", "x", PROBLEM, {}, "unknown", "returned float"),
    ],
)
def test_a_function_takes_what_it_names(
    module: str,
    name: str,
    completion: str,
    problem: Problem,
    arguments: dict[str, object],
    verdict: str,
    failure: str | None,
) -> None:
    grade = grade_completion(f"{module}:{name}", completion, problem, arguments=arguments)
    verdict_and_failure = (grade.verdict, (grade.failure or "").replace(module, "MODULE"))
    assert verdict_and_failure == (verdict, failure or "")
    assert name != "broken" or grade.reason == f"the checker raised {grade.failure}: no such test"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("checker=maths", "maths: is not among the checkers. did you mean math?"),
        ("checker=MODULE:Gradeless", "Gradeless: lacks the methods grade, which all checkers"),
        ("checker=no_such_module:f", "no_such_module:f: cannot be imported"),
        ("checker={kind: math, unit_optional: true}", "checker.unit_optional"),
        ("checker=MODULE:unfilled", "its parameter tokens gets no value"),
        (
            "checker={kind: 'MODULE:later', arguments: {most: 1}}",
            "its parameter least gets no value",
        ),
        ("checker={kind: 'MODULE:ends_right', arguments: {x: 1}}", "has no parameter x"),
    ],
)
def test_a_checker_that_cannot_be_is_refused_at_the_start(
    tmp_path: Path, module: str, override: str, message: str
) -> None:
    write_problems(tmp_path, 2)
    with pytest.raises(ConfigError) as caught:
        label_problems(tmp_path, override.replace("MODULE", module))
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def label_problems(folder: Path, *overrides: str) -> list[LabeledSolution]:
    source = folder / "problems.jsonl"
    base = scripted_overrides(source, folder / "out", "ray.address=none", "estimator=fixed")
    run_label_job([*base, *overrides])
    return read_rows(folder / "out")


def read_rows(run: Path) -> list[LabeledSolution]:
    return sorted(read_labels(Store(str(run))), key=lambda row: row.solution.id)


def test_a_job_with_an_own_function_and_the_same_run_graded_again(
    tmp_path: Path, module: str
) -> None:
    write_problems(tmp_path, 6)
    own_rows = label_problems(tmp_path, f"checker={module}:ends_right")
    assert {row.solution.outcome for row in own_rows} >= {Outcome.RIGHT, Outcome.WRONG}
    for row in own_rows:
        boxed = f"boxed{{{row.problem.answer}}}" in row.solution.text
        assert (row.solution.outcome is Outcome.RIGHT) == boxed
    recorded = json.loads((tmp_path / "out" / "run.json").read_text())["config"]["checker"]
    assert recorded["kind"] == f"{module}:ends_right" and recorded["version"]
    with pytest.raises(ShardError, match=r"checker.kind: .*ends_right' there, 'math' here"):
        label_problems(tmp_path)

    jobs.regrade(str(tmp_path / "out"), str(tmp_path / "same"), allow=[module])
    assert [row.solution.outcome for row in read_rows(tmp_path / "same")] == [
        row.solution.outcome for row in own_rows
    ]
    command = ["regrade", str(tmp_path / "out"), "-o", str(tmp_path / "maths"), "checker=math"]
    refused = run_verb(command, code=2)
    assert not (tmp_path / "maths").exists()
    message = " ".join(refused.output.split())
    assert f"checker.kind=math: {tmp_path / 'out'} was graded by {module}:ends_right" in message
    assert "pass --change-checker to change it" in message
    result = run_verb([*command, "--change-checker"])
    assert (
        f"checker {module}:ends_right" in result.output
        and f"then, math {CHECKER_VERSION} now" in result.output
    )
    assert all(row.solution.prediction is not None for row in read_rows(tmp_path / "maths"))
    assert (
        json.loads((tmp_path / "maths" / "run.json").read_text())["config"]["checker"]["kind"]
        == "math"
    )
