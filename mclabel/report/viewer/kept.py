"""Results that are kept while they may be asked for again, for any number of threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """The results used last, up to a limit on the sum of their sizes."""

    def __init__(self, limit: int, *, size: Callable[[T], int] = lambda result: 1) -> None:
        """Begin with none.

        Args:
            limit: largest sum of sizes; a result above it is not kept.
            size: size of a result; by default results are counted.
        """
        self._limit, self._size = limit, size
        self._results: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of a key, made if it is not kept."""
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
