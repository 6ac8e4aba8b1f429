"""Bounds the work that grading a pair takes in the caller's own process, in counted units.

Not seconds: a verdict does not depend on the machine. A unit is about a microsecond; what could
take many of them says so before it begins.
"""

from __future__ import annotations

import threading

MAX_UNITS = 6_000
"""Units of work for reading an answer, again for reading a gold, and again for comparing the two.
Real answers take 20 to 500."""
_UNLIMITED = 1 << 62


class TooMuchWork(Exception):
    """A pair needs more work than is allowed: its verdict is unknown."""


class _Meter(threading.local):
    left = _UNLIMITED


_meter = _Meter()


def allow(units: int | None = MAX_UNITS) -> None:
    """Allow `units` of work in this thread from now on; None lifts the limit."""
    _meter.left = _UNLIMITED if units is None else units


def spend(units: int) -> None:
    """Count work that is about to be done.

    Raises:
        TooMuchWork: more than is allowed.
    """
    remaining = _meter.left - units
    _meter.left = remaining
    if remaining < 0:
        raise TooMuchWork
