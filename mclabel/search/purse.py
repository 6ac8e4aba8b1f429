"""What one problem's search may spend, kept exactly."""

from __future__ import annotations

import asyncio
from math import inf


class Purse:
    """Tokens that may still be sampled. What is under way is set aside until it has ended.

    So the limit holds whatever is sampled; the price is that a request waits where all that is left
    is set aside for others.
    """

    def __init__(self, limit: int | None) -> None:
        """Hold all that may be spent.

        Args:
            limit: tokens; None for any number.
        """
        self.left: float = inf if limit is None else limit
        """Tokens that are neither spent nor set aside."""
        self._num_out = 0
        self._changed = asyncio.Condition()

    async def take(self, most: int) -> int:
        """Set tokens aside for a request.

        Args:
            most: that it can need, at least 1.

        Returns:
            How many it may use: `most`, or fewer where no more will ever be left; 0 for none.
        """
        if self.left == inf:
            return most
        async with self._changed:
            await self._changed.wait_for(lambda: self.left >= most or self._num_out == 0)
            given = int(min(most, self.left))
            self.left -= given
            self._num_out += given > 0
            return given

    async def give_back(self, given: int, spent: int) -> None:
        """Say what came of what was taken.

        Args:
            given: as `take` gave it, more than 0.
            spent: of it.
        """
        if self.left == inf:
            return
        async with self._changed:
            self.left += given - spent
            self._num_out -= 1
            self._changed.notify_all()
