"""Where the answers of somebody's own engine come in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mclabel.core.boundary import Boundary, Guard, shown
from mclabel.core.records import Completion
from mclabel.engines.base import Engine, EngineStats
from mclabel.engines.settings import PolicySettings


class CheckedEngine(Guard):
    """An engine behind its boundary, whose load is counted here where it has no statistics."""

    def __init__(self, target: type[Engine], policy: PolicySettings, *, seed: int = 0) -> None:
        """Make an engine; see `make_engine`."""
        around = Boundary("engines", target)
        super().__init__(
            around.call("__init__", target, policy, seed=seed, slow=True), Engine, around
        )
        self.policy, self.settings, self.seed = policy, policy.engine, seed
        self._num_live = self._num_tokens = 0

    async def sample(self, prompt: Sequence[int], prefix: Sequence[int], **how: Any) -> Completion:
        """One completion; see `Policy.sample`."""
        sample, rule = self.component.sample, self._fault
        self._num_live += 1
        try:
            found: Completion = await self.around.acall(
                "sample", sample, prompt, prefix, must=Completion, rule=rule, **how
            )
        finally:
            self._num_live -= 1
        self._num_tokens += found.num_tokens
        return found

    def _fault(
        self,
        found: Completion,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        **how: object,
    ) -> str | None:
        room = self.room(len(prompt), len(prefix))
        if max_tokens is not None:
            room = self.policy.room(len(prompt), len(prefix), self.max_context, max_tokens)
        if found.at_stop and not stop:
            return "gave at_stop=True, but was not asked to stop at a text"
        if found.num_tokens > room:
            return (
                f"gave {found.num_tokens:,} ids after a prefix of {len(prefix):,}, must give "
                f"{room:,} at most (policy.max_tokens, and what the model takes)"
            )
        if (text := self.decode(found.ids)) != found.text:
            return (
                f"gave text={shown(found.text)}, but its decode of the ids gives {shown(text)}: a "
                "prefix is continued by its ids, so both must be the same"
            )
        return None

    def stats(self) -> EngineStats:
        """Statistics of the engine, or what is counted here if it has none of its own."""
        found: EngineStats = self.around.call("stats", self.component.stats, must=EngineStats)
        if type(self.component).stats is not Engine.stats:
            return found
        return replace(
            found,
            num_live=self._num_live,
            num_sampled_tokens=self._num_tokens,
            counts_as_sampled=False,
        )
