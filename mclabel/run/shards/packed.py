"""Many names in little memory: of a run of a million blocks, some twenty bytes each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from itertools import islice

import numpy as np
from numpy.typing import NDArray

PART = 10_000
"""Names that are packed together."""


class PackedNames(Set[str]):
    """A set of names, kept as one sorted array of their bytes; iterates in order."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        parts = [np.array([n.encode() for n in part], dtype=bytes) for part in _parts(iter(names))]
        found = np.concatenate(parts) if parts else np.array([], dtype="S1")
        parts.clear()
        found.sort()
        if (again := found[1:] == found[:-1]).any():
            found = found[np.append(True, ~again)]
        self._names: NDArray[np.bytes_] = found

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return (name.decode() for name in self._names)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        packed = name.encode()
        place = int(np.searchsorted(self._names, packed))
        return place < len(self._names) and self._names[place] == packed


def _parts(names: Iterator[str]) -> Iterator[list[str]]:
    while part := list(islice(names, PART)):
        yield part
