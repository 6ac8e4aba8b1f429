"""An engine like that of another package: it writes one solution, token by token."""

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
    """An engine that writes `solution` for every problem; tokens are characters."""

    class Settings(EngineSettings):
        """Settings of a policy that always writes the same text."""

        solution: str = "One and one is two.\nThe answer is \\boxed{2}."
        """Text that the engine writes; labels depend on it."""
        needs: Annotated[str | None, OPERATIONAL] = None
        """Name of a requirement that no machine meets, for tests; None for no requirement."""
        num_cpus: Annotated[float, OPERATIONAL] = Field(0.5, gt=0)
        """Number of CPUs of the engine's actor."""

    settings: Settings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Start without sampled tokens."""
        super().__init__(policy, seed=seed)
        self._num_tokens = 0

    def resources(self) -> EngineResources:
        """Return a part of a CPU core."""
        return EngineResources(num_cpus=self.settings.num_cpus)

    def check_environment(self) -> None:
        """Refuse the environment if `needs` names a requirement."""
        if self.settings.needs is not None:
            raise ConfigError(
                f"policy.engine.needs={self.settings.needs}: this machine does not have it"
            )

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """Return the characters of a problem."""
        return self.encode(problem)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the characters of a text."""
        return tuple(map(ord, text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of characters."""
        return "".join(map(chr, ids))

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        """Return the part of the solution after a prefix."""
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
        """Return the number of written characters."""
        return EngineStats(num_sampled_tokens=self._num_tokens)
