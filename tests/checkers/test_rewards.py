"""Unchanged reward functions of TRL, verl and reasoning-gym as checkers."""

from __future__ import annotations

from pathlib import Path

import pytest

from mclabel.core.records import Problem
from mclabel.data.readers.problem_rows import read_problem
from tests.checkers.test_checkers import grade_completion
from tests.support.own_package import write_module

ROW = {
    "question": "How many?",
    "answer": "12",
    "level": 3,
    "data_source": "gsm",
    "extra_info": {"index": 7, "unit": "cm"},
    "metadata": {"seed": [1, 2]},
}
OWN = """
import math
import numpy as np

def trl(prompts, completions, level, **columns):
    assert prompts == ["How many?"] and level == ["3"], (prompts, level)
    assert columns["extra_info"] == [{"index": 7, "unit": "cm"}]
    return [None if "?" in one else float("12" in one) for one in completions]

async def trl_chat(completions, solution):
    return [float(one[0]["content"].endswith(gold)) for one, gold in zip(completions, solution)]

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert (data_source, extra_info["index"]) == ("gsm", 7)
    if "?" in solution_str:
        return {"score": math.nan, "acc": False}
    return {"score": float(ground_truth in solution_str), "acc": True}

def plain_score(solution_str, ground_truth, *, bonus):
    return np.float32(bonus * (ground_truth in solution_str))

class Gym:
    def score_answer(self, answer, entry):
        assert entry["metadata"] == {"seed": [1, 2]} and entry["question"] == "How many?"
        return 1.0 if answer == entry["answer"] else 0.01

score_answer = Gym().score_answer

def wrong_shape(completions, **columns):
    return [1.0, 0.0]

def raises(solution_str, ground_truth):
    return {}[solution_str]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return write_module(tmp_path, OWN, monkeypatch)


@pytest.mark.parametrize(
    ("name", "completion", "settings", "verdict", "failure"),
    [
        ("trl", "It is 12", {}, "right", ""),
        ("trl", "It is 13", {}, "wrong", ""),
        ("trl", "It is 12?", {}, "unknown", ""),
        ("trl_chat", "It is 12", {"chat": True}, "right", ""),
        ("trl_chat", "It is 12.", {"chat": True}, "wrong", ""),
        ("compute_score", "It is 12", {}, "right", ""),
        ("compute_score", "It is 13", {}, "wrong", ""),
        ("compute_score", "It is 12?", {}, "unknown", ""),
        ("plain_score", "12", {"arguments": {"bonus": 0.5}}, "wrong", ""),
        ("plain_score", "12", {"arguments": {"bonus": 0.5}, "right_from": 0.5}, "right", ""),
        ("score_answer", "So <answer> 11 </answer> or <answer> 12 </answer>", {}, "right", ""),
        ("score_answer", "12", {}, "right", ""),
        ("score_answer", "It is 12", {}, "wrong", ""),
        ("wrong_shape", "12", {}, "unknown", "returned list"),
        ("raises", "12", {}, "unknown", "KeyError at MODULE.py:33"),
        ("trl.rewards:accuracy_reward", r"So it is $\boxed{12}$", {"chat": True}, "right", ""),
        ("trl.rewards:accuracy_reward", r"So it is $\boxed{13}$", {"chat": True}, "wrong", ""),
    ],
)
def test_a_reward_is_a_verdict(
    module: str,
    name: str,
    completion: str,
    settings: dict[str, object],
    verdict: str,
    failure: str,
) -> None:
    function = name if ":" in name else f"{module}:{name}"
    problem = read_problem(ROW)
    assert isinstance(problem, Problem)
    grade = grade_completion(function, completion, problem, **settings)
    assert (grade.verdict, (grade.failure or "").replace(module, "MODULE")) == (verdict, failure)
