"""What every configuration is made of: strict keys, and fields that are semantic or operational."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

OPERATIONAL = "operational"
"""Marks a field that does not change what a label means."""
SENSITIVE = "sensitive"
"""Marks a field into which a secret could be put by mistake: messages do not repeat its value."""


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
