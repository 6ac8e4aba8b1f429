"""Keeps Python's garbage collector off what a process held before a job began."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen_heap() -> Iterator[None]:
    """While it lasts, the collector goes through newer objects alone.

    A job makes and drops millions of items, and libraries' own objects are many: going through
    those again and again is a third of the time of leasing blocks. Where somebody else has frozen
    the heap, nothing is done. Nothing is collected before, as that takes longer than a small job:
    what was garbage already is kept until the end.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
