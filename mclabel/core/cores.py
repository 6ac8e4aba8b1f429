"""The number of CPU cores that this process may use."""

from __future__ import annotations

import os
import sys


def count_cores() -> int:
    """Return the number of cores that this process may run on; 1 if the number is unknown."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_to_cores(threads: int) -> int:
    """Return the configured number of threads, but at most one per core.

    More threads than cores would only wait for each other.

    Args:
        threads: number of threads in the configuration.
    """
    return min(threads, count_cores())
