"""Every field of every settings class, also of requests, is checked for possible harm."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from annotated_types import Ge, Gt, Le, Lt
from pydantic import ValidationError
from pydantic.fields import FieldInfo

import mclabel
from mclabel.core.config.load import check_config
from mclabel.core.errors import ConfigError
from mclabel.core.settings import AtMost, Harmless, Settings, TrustsCode, list_risky_values
from mclabel.search.config import ServeSearchConfig

OF_OTHER_TRAINERS = ("mclabel.rl.adapters.",)
"""Prefixes of modules that need packages which are not installed, and that have no settings."""
RISKY = (
    "trust",
    "code",
    "secret",
    "api_key",
    "token_env",
    "password",
    "plugin",
    "module",
    "cluster",
)
"""Name parts of fields that run code or read a secret."""


@cache
def all_settings() -> list[type[Settings]]:
    """Return all settings classes of the package, including those of components and requests."""
    for module in pkgutil.walk_packages(mclabel.__path__, "mclabel."):
        if not module.name.startswith(OF_OTHER_TRAINERS) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return sorted(
        (
            kind
            for kind in set(_list_subclasses(Settings))
            if kind.__module__.startswith("mclabel.")
        ),
        key=lambda kind: (kind.__module__, kind.__qualname__),
    )


def _list_subclasses(kind: type[Settings]) -> Iterator[type[Settings]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _list_subclasses(subclass)


@pytest.fixture(scope="module")
def fields() -> dict[str, FieldInfo]:
    return {
        f"{kind.__module__}.{kind.__qualname__}.{name}": info
        for kind in all_settings()
        for name, info in kind.model_fields.items()
    }


def test_every_field_that_runs_code_or_reads_a_secret_is_marked(
    fields: dict[str, FieldInfo],
) -> None:
    risky = {
        name: info
        for name, info in fields.items()
        if any(part in name.rpartition(".")[2] for part in RISKY)
        or name.rpartition(".")[2] in ("address", "engine_args")
    }
    assert sum("trust_remote_code" in name for name in risky) >= 6
    assert any(name.endswith("api_key_env") for name in risky)
    unmarked = [
        name
        for name, info in risky.items()
        if not any(isinstance(mark, Harmless) for mark in info.metadata)
    ]
    assert not unmarked


def test_every_number_is_bounded(fields: dict[str, FieldInfo]) -> None:
    assert len(fields) > 300
    unbounded = [
        name
        for name, info in fields.items()
        for bounds in _list_numbers(info.annotation, tuple(info.metadata))
        if not _is_bounded(bounds)
    ]
    assert not unbounded


def _list_numbers(annotation: Any, marks: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the annotations of each number in a type, at any level of nesting."""
    if annotation in (int, float):
        yield marks
    elif get_origin(annotation) is Annotated:
        inner, *more = get_args(annotation)
        inner_marks = [
            m for mark in more for m in (mark.metadata if isinstance(mark, FieldInfo) else [mark])
        ]
        yield from _list_numbers(inner, (*marks, *inner_marks))
    elif is_dataclass(annotation) and isinstance(annotation, type):
        for inner_type in get_type_hints(annotation, include_extras=True).values():
            yield from _list_numbers(inner_type, ())
    elif get_origin(annotation) is not Literal:
        for inner_type in get_args(annotation):
            yield from _list_numbers(inner_type, marks)


def _is_bounded(marks: tuple[Any, ...]) -> bool:
    above = [
        float(getattr(mark, name))
        for mark in marks
        for kind, name in ((Le, "le"), (Lt, "lt"), (AtMost, "limit"))
        if isinstance(mark, kind)
    ]
    return any(isinstance(mark, Ge | Gt) for mark in marks) and any(
        math.isfinite(bound) for bound in above
    )


@pytest.mark.parametrize("value", [True, False, math.nan, math.inf, 10**30, 1e300, "x", []])
def test_no_field_takes_what_is_no_number_in_its_place(value: object) -> None:
    taken = [
        f"{kind.__module__}.{kind.__qualname__}.{name}"
        for kind in all_settings()
        for name, info in kind.model_fields.items()
        if {*(get_args(info.annotation) or [info.annotation])} - {type(None)} in ({int}, {float})
        if not _is_refused(kind, name, value)
    ]
    assert not taken


def _is_refused(kind: type[Settings], name: str, value: object) -> bool:
    try:
        kind.model_validate({name: value})
    except ValidationError as error:
        return any(fault["loc"][:1] == (name,) for fault in error.errors())
    return False


@pytest.mark.parametrize("value", [1, 0, 1.0])
def test_truth_is_true_or_false(value: object) -> None:
    for kind in all_settings():
        for name, info in kind.model_fields.items():
            assert info.annotation is not bool or _is_refused(kind, name, value)


@pytest.mark.parametrize("width", [10**12, 4097])
def test_a_bound_costs_nothing_to_check(width: int) -> None:
    with pytest.raises(ConfigError, match=r"search.width=\d+: must be at most 4096"):
        check_config(ServeSearchConfig, {"scorer": "constant", "search": {"n": 4, "width": width}})


def test_settings_by_key_are_looked_into() -> None:
    """The test uses its own component, since no built-in method has such a field."""

    class Risky(Settings):
        trust_remote_code: TrustsCode = False

    class Outer(Settings):
        methods: dict[str, Risky]

    risky_keys = list(
        list_risky_values(Outer.model_validate({"methods": {"a": {"trust_remote_code": True}}}))
    )
    assert [(key, value) for key, value, _ in risky_keys] == [("methods.a.trust_remote_code", True)]
