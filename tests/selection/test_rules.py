"""Values that selection rules compute from a scored solution."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from mclabel.core.errors import ComponentError, ConfigError, DataError
from mclabel.core.records import Outcome
from mclabel.select.pool import (
    ScoredSolution,
    find_rule,
    make_scored_solution,
)


def make_solution(scores: Any = (0.9, 0.5), **row: Any) -> ScoredSolution:
    content = {"scores": list(scores), **row}
    return make_scored_solution("solution x", "P", ("a\n", "b"), content, Outcome.WRONG, min)


def compute_key(name: str, row: ScoredSolution) -> float:
    rule_key = find_rule(name).key
    assert rule_key is not None
    return rule_key(row)


def test_convincing_is_the_score_of_the_solution() -> None:
    assert compute_key("convincing", make_solution()) == 0.5
    assert find_rule("uniform").key is None


@pytest.fixture
def own_rules(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("own_rules")
    monkeypatch.setitem(sys.modules, "own_rules", module)
    return module


def test_a_function_of_ones_own_takes_what_it_needs(own_rules: ModuleType) -> None:
    def measure_spread(
        scores: tuple[float, ...], outcome: Outcome | None, weight: float = 2.0
    ) -> float:
        return weight * (max(scores) - min(scores)) + (outcome == "wrong")

    own_rules.spread, own_rules.lines = measure_spread, lambda solution: solution.count("\n")
    assert compute_key("own_rules:spread", make_solution()) == pytest.approx(1.8)
    assert compute_key("own_rules:lines", make_solution()) == 1.0


@pytest.mark.parametrize("gives", [float("nan"), float("inf"), "high", None, True])
def test_what_is_no_number_names_the_solution(own_rules: ModuleType, gives: Any) -> None:
    own_rules.bad = lambda score: gives
    with pytest.raises(ComponentError, match=r"own_rules:bad: for solution x, the function gave"):
        compute_key("own_rules:bad", make_solution())


def test_a_function_that_raises_names_the_solution(own_rules: ModuleType) -> None:
    own_rules.bad = lambda score: score / 0
    with pytest.raises(ComponentError, match="for solution x, the function raised ZeroDivision"):
        compute_key("own_rules:bad", make_solution())


def test_what_a_function_may_take(own_rules: ModuleType) -> None:
    own_rules.bad, own_rules.number = lambda score, length: 0.0, 3
    with pytest.raises(ConfigError, match="parameter length gets no value"):
        find_rule("own_rules:bad")
    with pytest.raises(ConfigError, match="must be a function"):
        find_rule("own_rules:number")
    with pytest.raises(ConfigError, match="did you mean uniform"):
        find_rule("uniforms")


@pytest.mark.parametrize("scores", [[], [0.5, 1.5], [float("nan")], ["0.5"], "0.5", None, [True]])
def test_scores_that_are_none(scores: Any) -> None:
    with pytest.raises(DataError, match=r"solution x: scores=.*Give the output of `mclabel score`"):
        make_scored_solution("solution x", "P", ("a",), {"scores": scores}, None, min)
