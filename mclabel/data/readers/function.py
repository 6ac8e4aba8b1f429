"""A plain function as a reader: `problems.source=my_package.mine:read`.

It takes one text, `place`: the source if `problems.kind` names the function, else empty. It
returns or yields rows, mappings with a problem and its gold, and is called anew each time that the
problems are gone through: it must give the same rows each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mclabel.core.components import find_target
from mclabel.data.readers.base import RowSettings


class FunctionReader:
    """Calls a function for its rows."""

    class Settings(RowSettings):
        """A function that reads."""

    def __init__(self, settings: Settings) -> None:
        """Find the function.

        Args:
            settings: whose `kind` is its `module:function`.
        """
        self._read: Callable[[str], Iterable[Any]] = find_target("readers", settings.kind)
        self._place = settings.place

    def rows(self) -> Iterable[tuple[int, Any]]:
        """What the function gives, numbered."""
        found: Any = self._read(self._place)
        # If it is not iterable, `Boundary.each` raises the error.
        return enumerate(found, 1) if isinstance(found, Iterable) else found
