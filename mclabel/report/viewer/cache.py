"""A thread-safe cache of recent results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class ResultCache(Generic[T]):
    """Thread-safe cache of the most recently used results, with a limit on their total size."""

    def __init__(self, limit: int, *, size: Callable[[T], int] = lambda result: 1) -> None:
        """Make an empty cache.

        Args:
            limit: maximum total size; a larger result is not cached.
            size: function that returns the size of a result; by default, each result has size 1.
        """
        self._limit, self._size = limit, size
        self._results: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached result of a key.

        If it is not cached, call `make`, and cache and return its result.
        """
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = make()
        with self._lock:
            self._results[key] = result
            while sum(map(self._size, self._results.values())) > self._limit:
                self._results.popitem(last=False)
        return result
