"""Python source can be parsed in several threads at once."""

from __future__ import annotations

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from mclabel.core.python_source import parse_python


def yield_to_others(phase: str, info: dict[str, int]) -> None:
    time.sleep(0)


def test_threads_parse_at_once() -> None:
    """Garbage collection runs Python code during a parse, so threads switch there."""
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    source = "\n".join(f"x = (({number} + 1) * [a, b, {{c: d}}][0])" for number in range(50))
    gc.callbacks.append(yield_to_others)
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            trees = list(threads.map(parse_python, [source] * 60))
    finally:
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
        gc.callbacks.remove(yield_to_others)
    assert all(len(tree.body) == 50 for tree in trees)
