"""What every configuration is made of: strict keys, and fields that are semantic or operational."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import AfterValidator, BaseModel, ConfigDict

OPERATIONAL = "operational"
"""Marks a field that does not change what a label means."""
SENSITIVE = "sensitive"
"""Marks a field into which a secret could be put by mistake: messages do not repeat its value."""


def at_most(limit: int, why: str) -> AfterValidator:
    """A bound on a number, with its reason in the message.

    Args:
        limit: the largest number that is taken.
        why: a clause, such as "all of them are held in memory".
    """
    return AfterValidator(_bounded(limit, why))


def _bounded(limit: int, why: str) -> Callable[[int | None], int | None]:
    def check(value: int | None) -> int | None:
        if value is not None and value > limit:
            raise ValueError(f"must be at most {limit:,}, not {value:,}: {why}")
        return value

    return check


class Config(BaseModel):
    """Base of all configurations: frozen, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def semantic(self) -> dict[str, Any]:
        """The semantic fields, nested, as JSON-serialisable values."""
        content: dict[str, Any] = {}
        for name, info in type(self).model_fields.items():
            if OPERATIONAL in info.metadata:
                continue
            content[name] = _plain(getattr(self, name))
        return content


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return value.semantic()
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
