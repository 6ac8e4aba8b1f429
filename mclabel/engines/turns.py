"""Engines of one worker that take turns on its memory, where it does not hold them all at a time.

One is loaded. It keeps its turn until nothing is asked of it any more, and then the one of which
most is asked is loaded in its place. As the worker is given blocks by what is asked of the engine
whose turn it is (`mclabel.run.leases`), the policy writes the solutions of many problems before a
completer's turn comes, and that rolls out for all of them: a turn is some hundred problems long.
"""

from __future__ import annotations

import asyncio

from mclabel.core.errors import EngineDied, EngineError
from mclabel.engines import Policy

GRACE_S = 1.0
"""An engine of which nothing is asked keeps its turn so long: a problem may be about to ask, whose
rollouts are being graded. Changing too early costs two loads, and no more than that."""


class Turns:
    """Gives the turn to one engine of several that share an event loop."""

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        """Begin without an engine.

        Args:
            grace_s: seconds in which nothing is asked of an engine, after which others may have
                its turn.
        """
        self._grace_s = grace_s
        self._turns: list[Turn] = []
        self._holder: Turn | None = None
        self._changing: asyncio.Task[None] | None = None

    def of(self, policy: Policy) -> Turn:
        """Add an engine, which is not started yet."""
        turn = Turn(policy, self)
        self._turns.append(turn)
        return turn

    def is_held_by(self, turn: Turn) -> bool:
        """Whether an engine is loaded, and works."""
        return turn is self._holder

    async def give(self, turn: Turn) -> None:
        """Load an engine in the place of the one that is loaded.

        Raises:
            EngineError: it cannot be loaded; then none is.
        """
        holder, self._holder = self._holder, None
        if holder is not None:
            await holder.policy.close()
        await turn.policy.start()
        self._holder = turn

    def look(self) -> None:
        """Change turns soon, if nothing is asked of the engine whose turn it is."""
        is_free = self._holder is None or not self._holder.num_inside
        if self._changing is None and is_free and any(one.num_waiting for one in self._turns):
            self._changing = asyncio.create_task(self._change())

    async def close(self) -> None:
        """End a change under way, and what waits for it. The engine that is loaded stays."""
        if self._changing is not None:
            self._changing.cancel()
            await asyncio.gather(self._changing, return_exceptions=True)
        for one in self._turns:
            one.fail(EngineDied("the engine was closed"))

    async def _change(self) -> None:
        await asyncio.sleep(self._grace_s)
        following = max(self._turns, key=lambda one: one.num_waiting)
        is_free = self._holder is None or not self._holder.num_inside
        if is_free and following.num_waiting:
            try:
                await self.give(following)
            except EngineError as error:
                following.fail(EngineDied(f"could not be loaded for its turn: {error}"))
            except Exception as error:  # whatever an engine of somebody's own raises
                following.fail(error)
            following.let_in()
        self._changing = None
        self.look()


class Turn:
    """Lets callers of one engine wait for its turn: `async with` works within one."""

    def __init__(self, policy: Policy, turns: Turns) -> None:
        """Begin outside.

        Args:
            policy: of the engine.
            turns: of all engines.
        """
        self.policy, self._turns = policy, turns
        self._waiting: list[asyncio.Future[None]] = []
        self.num_inside = 0
        """What is asked of the engine in its turn, and not done."""

    @property
    def is_now(self) -> bool:
        """Whether it is the engine's turn."""
        return self._turns.is_held_by(self)

    @property
    def num_waiting(self) -> int:
        """What is asked of the engine and waits for its turn."""
        return sum(not one.done() for one in self._waiting)

    async def load(self) -> None:
        """Load the engine now, in the place of another."""
        await self._turns.give(self)

    def let_in(self) -> None:
        """Let in all that waits."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                self.num_inside += 1
                one.set_result(None)

    def fail(self, error: Exception) -> None:
        """Let all that waits fail."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_exception(error)

    async def __aenter__(self) -> None:
        """Wait for the engine's turn."""
        if self.is_now:
            self.num_inside += 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._turns.look()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._leave()  # let in and given up at once
            raise

    async def __aexit__(self, *raised: object) -> None:
        """Leave the turn."""
        self._leave()

    def _leave(self) -> None:
        self.num_inside -= 1
        self._turns.look()
