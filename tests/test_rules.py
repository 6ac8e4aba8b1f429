"""Rules between fields of settings are checked all at once, together with the fields."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError
from mclabel.core.settings import Settings, rule


class Part(Settings):
    low: int = Field(0, ge=0)
    high: int = 1

    @rule
    def _ordered(self) -> str | None:
        return None if self.low <= self.high else f"low={self.low}: above high={self.high}"


class Whole(Part):
    name: str
    other: int = 0
    part: Part = Part()

    @rule
    def _even(self) -> str | None:
        return f"other={self.other}: must be even" if self.other % 2 else None

    @rule
    def _named(self) -> str | None:
        return "name='x': is taken" if self.name == "x" else None


def faults(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(Whole, None, overrides)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_rules_of_all_classes_are_named_at_once() -> None:
    assert faults("name=x", "low=3", "other=1") == [
        "low=3: above high=1",
        "other=1: must be even",
        "name='x': is taken",
    ]


def test_faults_of_fields_and_of_rules_are_named_at_once() -> None:
    """Rules that read a field that is wrong or missing are left out."""
    assert faults("low=-3", "other=1", "part.low=2", "higgh=2") == [
        "low=-3: must be at least 0",
        "name: required. Set it in the file or pass name=…",
        "part: low=2: above high=1",
        "higgh: unknown key; did you mean high?",
        "other=1: must be even",
    ]


def test_values_of_other_types_are_converted_before_rules_read_them() -> None:
    assert "other=3: must be even" in faults("name=a", "other='3'", "high=a")


def test_settings_made_in_python_are_checked_alike() -> None:
    assert Whole(name="a", low=1).changed(high=2).high == 2
    with pytest.raises(ValidationError, match=r"(?s)2 validation errors.*above high.*is taken"):
        Whole(name="x", low=2)
    with pytest.raises(ValidationError, match="must be even"):
        Whole(name="a").changed(other=5)
