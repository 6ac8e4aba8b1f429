"""All faults of a configuration are listed at once, including faults between fields."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import Field, ValidationError

from mclabel.core.components import list_component_names
from mclabel.core.config.load import check_config, load_config
from mclabel.core.errors import ConfigError
from mclabel.core.faults import REQUIRED, RULE_BY_ERROR_TYPE, UNKNOWN_KEY
from mclabel.core.settings import (
    COMPONENT_FAULT,
    NESTED_FAULTS,
    Chosen,
    Settings,
    find_settings_class,
    rule,
)
from mclabel.evaluate.best_of_n.config import BestOfNConfig
from mclabel.judge.job import ScoreConfig
from mclabel.labeling.config import LabelConfig
from mclabel.prm.config import TrainConfig
from mclabel.quickstart.toy import QuickstartConfig

OURS = {NESTED_FAULTS, COMPONENT_FAULT, "value_error"}
VALUES: list[Any] = [
    *(None, True, "x", "", 5, -(10**9), 10**400, 1.5, -1e300, math.nan, math.inf, "9" * 5000),
    *([], [None], [1, 2, 3], ["x"], [["x"]], [{}], {}, {1: 2}, {"a": None}, {"a": 1}),
    *("\ud800", b"x", object(), {"a": object()}, [{"x": "y"}], [{"problem": 1}]),
]


def settings_classes() -> list[type[Settings]]:
    """Return all settings classes that a configuration can nest, including built-in components."""
    visited: dict[type[Settings], None] = {}
    pending: list[type[Settings]] = [LabelConfig, TrainConfig, ScoreConfig, BestOfNConfig]
    pending.append(QuickstartConfig)
    while pending:
        kind = pending.pop()
        if kind not in visited:
            visited[kind] = None
            pending += _list_nested(kind)
    return list(visited)


def _list_nested(kind: type[Settings]) -> Iterator[type[Settings]]:
    for info in kind.model_fields.values():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
            yield info.annotation
        for mark in info.metadata:
            if isinstance(mark, Chosen):
                for name in list_component_names(mark.component_kind, built_in=True):
                    yield find_settings_class(mark.component_kind, name)


def list_errors(kind: type[Settings], content: dict[str, Any]) -> list[dict[str, Any]]:
    try:
        kind.model_validate(content)
    except ValidationError as error:
        return [dict(fault) for fault in error.errors()]
    return []


@pytest.mark.parametrize("kind", settings_classes(), ids=lambda kind: kind.__qualname__)
def test_every_fault_of_every_setting_is_in_our_words(kind: type[Settings]) -> None:
    assert kind.model_fields
    for name in kind.model_fields:
        for value in VALUES:
            faults = list_errors(kind, {name: value})
            for fault in faults:
                assert (
                    fault["type"] in RULE_BY_ERROR_TYPE
                    or fault["type"] in OURS | UNKNOWN_KEY | REQUIRED
                ), f"{name}={value!r}: {fault['type']}: {fault['msg']}"
            if faults:
                with pytest.raises(ConfigError) as caught:
                    check_config(kind, {name: value})
                message = str(caught.value)
                for word in ("nput should", "nput string", "ctx", "function-wrap", "literal["):
                    assert word not in message


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"seed": "x"}, "seed='x': must be a whole number, is a string"),
        ({"seed": None}, "seed=None: must be a whole number, is null"),
        ({"seed": 1.5}, "seed=1.5: must be a whole number, without a fraction"),
        ({"seed": math.inf}, "seed=inf: must be a finite number"),
        ({"seed": -1}, "seed=-1: must be at least 0"),
        (
            {"policy": {"temperature": "hot"}},
            "policy.temperature='hot': must be a number, is a string",
        ),
        ({"policy": {"temperature": 3}}, "policy.temperature=3: must be at most 2"),
        ({"policy": {"top_p": 0}}, "policy.top_p=0: must be more than 0"),
        (
            {"keep_rollouts": "perhaps"},
            "keep_rollouts='perhaps': must be true or false, is a string",
        ),
        ({"out": 5}, "out=5: must be a string, is a number"),
        ({"policy": 5}, "policy=5: must be keys with values, is a number"),
        ({"policy": {"stop": "x"}}, "policy.stop='x': must be a list, is a string"),
        (
            {"policy": {"few_shot": 5}},
            "policy.few_shot=5: must be a list or be a string, is a number",
        ),
        ({"policy": {"few_shot": [3]}}, "policy.few_shot.0=3: must be keys with values"),
        ({"policy": {1: 2}}, "policy.1=1: must have a string in place of this key"),
        (
            {"split": {"think": ["a", "b", "c"]}},
            "split.think=['a', 'b', 'c']: must hold at most 2, holds 3",
        ),
        ({"checker": {"units_optional": 5}}, "checker.units_optional=5: must be"),
        ({"checker": {"a": 1}}, "checker.a: not a setting of kind=math"),
        (
            {"policy": {"engine": {"kind": "vllm", "per_request_seeds": 7}}},
            "policy.engine.per_request_seeds=7: must be 'auto' or be true or false",
        ),
        (
            {"policy": {"engine": {"kind": "openai", "endpoints": []}}},
            "policy.engine.endpoints: must hold at least 1, holds 0",
        ),
    ],
)
def test_a_fault_says_what_must_be_and_what_is_given(content: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(LabelConfig, {"out": "x", **content})
    assert fault in str(caught.value)


class Part(Settings):
    low: int = Field(0, ge=0)
    high: int = 1

    @rule
    def _check_order(self) -> str | None:
        return None if self.low <= self.high else f"low={self.low}: above high={self.high}"


class Whole(Part):
    name: str
    other: int = 0
    part: Part = Part()

    @rule
    def _check_even(self) -> str | None:
        return f"other={self.other}: must be even" if self.other % 2 else None

    @rule
    def _check_name(self) -> str | None:
        return "name='x': is taken" if self.name == "x" else None


def list_faults(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(Whole, None, overrides)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_faults_of_fields_and_of_rules_are_named_at_once() -> None:
    """Rules are skipped if they read a field that is wrong or missing."""
    assert list_faults("low=-3", "other=1", "part.low=2", "higgh=2") == [
        "low=-3: must be at least 0",
        "name: required. Set it in the file or pass name=…",
        "part: low=2: above high=1",
        "higgh: unknown key; did you mean high?",
        "other=1: must be even",
    ]


def test_settings_made_in_python_are_checked_alike() -> None:
    assert Whole(name="a", low=1).with_changes(high=2).high == 2
    with pytest.raises(ValidationError, match=r"(?s)2 validation errors.*above high.*is taken"):
        Whole(name="x", low=2)
    with pytest.raises(ValidationError, match="must be even"):
        Whole(name="a").with_changes(other=5)
