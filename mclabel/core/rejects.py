"""Why a row or a problem cannot be used: a reason that readers return in place of a row."""

from __future__ import annotations

from dataclasses import dataclass

MAX_DETAIL = 500
"""Characters; a detail may quote data."""


@dataclass(frozen=True, slots=True)
class RejectReason:
    """Why a row or a problem cannot be used."""

    reason: str
    """A short code."""
    detail: str


def bounded(detail: str) -> str:
    """The detail on one line, at most `MAX_DETAIL` characters."""
    text = " ".join(detail.split())
    return text if len(text) <= MAX_DETAIL else text[: MAX_DETAIL - 1] + "…"
