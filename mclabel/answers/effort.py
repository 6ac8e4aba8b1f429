"""Limit on the work of grading one pair in the caller's process, in counted units.

The limit is not in seconds, because a verdict must not depend on the machine. A unit of work takes
about a microsecond. A function that may need many units calls `spend_work` before it starts.
"""

from __future__ import annotations

import threading

MAX_WORK_UNITS = 6_000
"""Maximum units of work for each of three stages: reading an answer, reading a gold, and comparing
the two. Answers of real models take 20 to 500 units."""
_UNLIMITED = 1 << 62


class TooMuchWork(Exception):
    """Grading a pair needs more work than its limit allows, so that its verdict is unknown."""


class _WorkMeter(threading.local):
    units_left = _UNLIMITED


_meter = _WorkMeter()


def set_work_limit(units: int | None = MAX_WORK_UNITS) -> None:
    """Set the remaining units of work of this thread; None removes the limit."""
    _meter.units_left = _UNLIMITED if units is None else units


def spend_work(units: int) -> None:
    """Subtract `units` from the remaining work of this thread, before that work is done.

    Raises:
        TooMuchWork: fewer than `units` units remain.
    """
    remaining = _meter.units_left - units
    _meter.units_left = remaining
    if remaining < 0:
        raise TooMuchWork
