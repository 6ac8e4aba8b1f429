"""An engine as somebody else's package has it: it writes one solution, token by token."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from mclabel.core.errors import ConfigError
from mclabel.core.records import Completion
from mclabel.core.settings import OPERATIONAL
from mclabel.engines import Engine, EngineResources, EngineSettings, EngineStats, PolicySettings


class ConstantEngine(Engine):
    """Writes `solution` whatever the problem; tokens are characters."""

    class Settings(EngineSettings):
        """A policy that always writes the same."""

        solution: str = "One and one is two.\nThe answer is \\boxed{2}."
        """What it writes: labels depend on it."""
        needs: Annotated[str | None, OPERATIONAL] = None
        """Something that no machine has, for tests."""
        num_cpus: Annotated[float, OPERATIONAL] = Field(0.5, gt=0)
        """Of its actor."""

    settings: Settings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Keep what is written."""
        super().__init__(policy, seed=seed)
        self._num_tokens = 0

    def resources(self) -> EngineResources:
        """A part of a core."""
        return EngineResources(num_cpus=self.settings.num_cpus)

    def check_environment(self) -> None:
        """Refuse what `needs` names."""
        if self.settings.needs is not None:
            raise ConfigError(f"policy.engine.needs={self.settings.needs}: not here")

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """Characters of a problem."""
        return self.encode(problem)

    def encode(self, text: str) -> tuple[int, ...]:
        """Characters of a text."""
        return tuple(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of characters."""
        return "".join(map(chr, ids))

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        """The rest of the solution after a prefix."""
        ids: list[int] = []
        room = self.policy.room(len(prompt), len(prefix), self.max_context)
        rest = self.encode(self.settings.solution)[len(prefix) :]
        for token in rest[:room]:
            await asyncio.sleep(0)
            ids.append(token)
            self._num_tokens += 1
        ended = "stop" if len(rest) <= room else "length"
        return Completion(ids=tuple(ids), text=self.decode(ids), finish_reason=ended)

    def stats(self) -> EngineStats:
        """Characters written."""
        return EngineStats(num_sampled_tokens=self._num_tokens)
