"""A policy whose engine is given a bounded number of completions at a time.

The others wait here, those of earlier blocks first. An engine that reports no KV use has its
own bound and its own queue, and gets everything. Engines that take turns (`mclabel.engines.turns`)
are given nothing before theirs.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from mclabel.engines import EngineStats, Policy
from mclabel.engines.base import limited
from mclabel.engines.live import EngineLoad, LiveController
from mclabel.engines.turns import Turn
from mclabel.records import Completion


class GatedPolicy:
    """A `Policy` that lets as many completions through to another as its controller allows."""

    def __init__(self, policy: Policy, *, turn: Turn | None = None) -> None:
        """Let nothing through before the start.

        Args:
            policy: not started yet.
            turn: of its engine, where it takes turns with others.
        """
        self._policy, self._turn = policy, turn
        self._controller: LiveController | None = None
        self._num_inside = self._num_ended = 0
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    async def start(self) -> None:
        await (self._policy.start() if self._turn is None else self._turn.load())
        stats = self._policy.stats()
        if stats.kv_usage is not None and stats.max_live:
            self._controller = LiveController(ceiling=stats.max_live)

    def adjust(self) -> None:
        """Let the controller look at the engine, and let through what it allows."""
        if self._controller is None or (self._turn is not None and not self._turn.is_now):
            return
        stats = self._policy.stats()
        assert stats.kv_usage is not None
        self._controller.update(
            EngineLoad(
                num_live=stats.num_live,
                num_waiting=stats.num_waiting,
                kv_usage=stats.kv_usage,
                num_preemptions=stats.num_preemptions,
                num_ended=self._num_ended,
            )
        )
        self._let_in()

    @property
    def max_context(self) -> float:
        return self._policy.max_context

    def room(self, num_prompt: int, num_prefix: int) -> float:
        return self._policy.room(num_prompt, num_prefix)

    @property
    def max_token_chars(self) -> int:
        return self._policy.max_token_chars

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        return self._policy.prompt_ids(problem)

    def encode(self, text: str) -> tuple[int, ...]:
        return self._policy.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._policy.decode(ids)

    async def sample(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        priority: int = 0,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        how: dict[str, Any] = {"seed": seed, "priority": priority, **limited(max_tokens, stop)}
        async with self._turn or nullcontext():
            if self._controller is None:
                return await self._policy.sample(prompt, prefix, **how)
            await self._enter(priority)
            try:
                return await self._policy.sample(prompt, prefix, **how)
            finally:
                self._num_inside -= 1
                self._num_ended += 1
                self._let_in()

    def stats(self) -> EngineStats:
        stats = self._policy.stats()
        if self._turn is not None and not self._turn.is_now:  # what waits for it is no demand now
            return replace(stats, num_live=0, num_waiting=0)
        if self._controller is None:
            return stats
        waiting = stats.num_waiting + len(self._waiting)
        return replace(stats, num_waiting=waiting, max_live=self._controller.target)

    async def close(self) -> None:
        if self._turn is None or self._turn.is_now:
            await self._policy.close()

    async def _enter(self, priority: int) -> None:
        assert self._controller is not None
        if not self._waiting and self._num_inside < self._controller.target:
            self._num_inside += 1
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (priority, next(self._order), future))
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # let in and given up at once
                self._num_inside -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        assert self._controller is not None
        while self._waiting and self._num_inside < self._controller.target:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                self._num_inside += 1
                future.set_result(None)
