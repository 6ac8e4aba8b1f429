"""An engine that sees whether it is alone: of those in one process, one at a time may be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from mclabel.core.errors import EngineError
from mclabel.core.records import Completion
from mclabel.core.settings import OPERATIONAL
from mclabel.engines.scripted import ScriptedEngine

LOADS: list[str] = []
"""Models in the order in which they were loaded."""
_LOADED: list[str] = []


class LoneEngine(ScriptedEngine):
    """The scripted policy, with a memory that holds one of its kind."""

    class Settings(ScriptedEngine.Settings):
        """A policy that must be alone."""

        fails_if: Annotated[str | None, OPERATIONAL] = None
        """A file: once it is there, the engine can no longer be loaded."""

    settings: Settings

    async def start(self) -> None:
        """Take the memory."""
        if _LOADED:
            raise EngineError(f"{self.policy.model}: the memory is {_LOADED[0]}'s")
        if self.settings.fails_if is not None and Path(self.settings.fails_if).exists():
            raise EngineError(f"{self.policy.model}: no memory is left")
        LOADS.append(self.policy.model)
        _LOADED.append(self.policy.model)

    async def sample(self, prompt: Sequence[int], prefix: Sequence[int], **how: Any) -> Completion:
        """What the scripted policy writes, if it is loaded."""
        assert [self.policy.model] == _LOADED, f"{self.policy.model} is not loaded, but {_LOADED}"
        return await super().sample(prompt, prefix, **how)

    async def close(self) -> None:
        """Give the memory back."""
        _LOADED.remove(self.policy.model)
