"""What a worker's engine is given: a bounded number of completions at a time.

Completions beyond the bound wait here, those of earlier blocks first. An engine that reports no KV
use has its own bound and its own queue, and gets everything.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mclabel.core.records import Completion
from mclabel.engines import EngineStats, Policy
from mclabel.engines.base import limited


class GatedPolicy:
    """A `Policy` that lets as many completions through to another as its controller allows."""

    def __init__(self, policy: Policy) -> None:
        """Let nothing through before the start.

        Args:
            policy: not started yet.
        """
        self._policy = policy
        self._controller: LiveController | None = None
        self._num_inside = self._num_ended = 0
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    async def start(self) -> None:
        await self._policy.start()
        stats = self._policy.stats()
        if stats.kv_usage is not None and stats.max_live:
            self._controller = LiveController(ceiling=stats.max_live)

    def adjust(self) -> None:
        """Let the controller look at the engine, and let through what it allows."""
        if self._controller is None:
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
        if self._controller is None:
            return stats
        waiting = stats.num_waiting + len(self._waiting)
        return replace(stats, num_waiting=waiting, max_live=self._controller.target)

    async def close(self) -> None:
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


# How many rollouts an engine is given at a time, from the use of memory that it reports.
#
# Too few leave the engine idle, too many make it throw started ones out of its KV cache and compute
# them again. How much memory a rollout takes shows only once it has run to its end, so the target
# moves once in a turnover: when as many have ended as were live.

FLOOR = 256
"""Live rollouts under which engines lose half their speed."""
GOAL = 0.9
"""Share of the KV cache to use: what is left takes the rollouts that grow longer than most."""
MAX_STEP = 2.0
"""The target at most doubles or halves in a turnover."""
BACK_OFF = 0.8
"""Of what was live when the engine threw rollouts out."""


@dataclass(frozen=True, kw_only=True)
class EngineLoad:
    """The load that an engine reports."""

    num_live: int
    """Rollouts it samples now."""
    num_waiting: int
    """Rollouts it was given and has not begun, or has thrown out."""
    kv_usage: float
    """Share of its KV cache that rollouts hold, in [0, 1]."""
    num_preemptions: int
    """Rollouts thrown out since it was loaded."""
    num_ended: int
    """Rollouts ended since it was loaded."""


class LiveController:
    """Decides how many rollouts are live."""

    def __init__(self, *, floor: int = FLOOR, ceiling: int) -> None:
        """Begin with `floor` rollouts.

        Args:
            floor: live rollouts to begin with, and to keep where the KV cache holds them.
            ceiling: that the engine can sample at a time.
        """
        if not ceiling >= 1:
            raise ValueError(f"ceiling={ceiling}: must be >= 1")
        self._floor, self._ceiling = min(floor, ceiling), ceiling
        self._num_preemptions = self._turned_over_at = 0
        self._live_seen, self._usage_seen = 0, 0.0  # sums over the looks of this turnover
        self.target = self._floor
        """Rollouts to give the engine."""

    def update(self, load: EngineLoad) -> int:
        """The new target. Call it about once a second."""
        preempted = load.num_preemptions > self._num_preemptions
        self._num_preemptions = load.num_preemptions
        if preempted:
            self._move(BACK_OFF * min(self.target, load.num_live), load)
            return self.target
        if load.num_live > 0:  # of an idle engine the use is that of its last step
            self._live_seen += load.num_live
            self._usage_seen += load.kv_usage
        if load.num_ended - self._turned_over_at >= self.target and self._usage_seen > 0:
            fits = GOAL * self._live_seen / self._usage_seen
            if load.num_waiting and load.kv_usage < GOAL:
                fits = min(fits, self.target)  # something else holds it back: no use in more
            wanted = min(max(fits, self.target / MAX_STEP), self.target * MAX_STEP)
            self._move(max(wanted, min(fits, self._floor)), load)
        return self.target

    def _move(self, target: float, load: EngineLoad) -> None:
        self.target = max(1, min(int(target), self._ceiling))
        self._turned_over_at = load.num_ended
        self._live_seen, self._usage_seen = 0, 0.0
