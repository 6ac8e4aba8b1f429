"""An engine's actor as the driver sees it: what it runs, and how it ends once it has stopped."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from mclabel.run.ray_cluster import Place
from mclabel.run.running import Watch
from mclabel.run.worker import WorkerProgress

logger = logging.getLogger(__name__)

ABANDON_S = 5.0
"""For the process of a stopped engine to end itself, before Ray is asked to kill it."""
KILL_S = 60.0
"""For Ray to kill it. A process that survives even that, as one does that waits for a dead file
system, is left to its node, and another actor takes its place."""


@dataclass(eq=False)
class EngineActor:
    """An actor as the driver sees it."""

    actor: Any
    place: Place
    node: str | None = None
    """Where it has found room."""
    loaded_at: float | None = None
    """Since when it takes blocks; None while it waits, loads, or is down."""
    progress: WorkerProgress | None = None
    watch: Watch | None = None
    """Since it was loaded."""
    blocks: list[str] = field(default_factory=list)
    is_draining: bool = False
    """Whether its node is about to go. Blocks lost on it then do not count against their items."""
    ask_again: bool = False
    """Whether to ask again where it has found room, as the last call was not answered."""
    stage: str | None = None
    """What it does while it loads, and for how long, by its last answer."""
    asking: bool = False
    """Whether it is being asked for its stage."""
    num_loads: int = 0
    """Begun so far."""
    exchanging: bool = False
    """Whether an exchange is under way."""
    why: str | None = None
    """Why it is being ended, where it has stopped."""
    _ended_at: float = 0.0
    _is_killed: bool = False

    @property
    def is_silent(self) -> bool:
        """Whether it has given no sign of work for too long."""
        return self.watch is not None and self.watch.is_silent

    def forget_load(self) -> None:
        """Record that its process is gone, or no longer counted on."""
        self.loaded_at = self.progress = self.node = self.watch = self.why = self.stage = None

    def watch_over(self, watch: Watch, now: float) -> bool:
        """Report a silence that is too long, then end the process, by harder and harder means.

        Once the process is gone, the exchange under way fails, and Ray starts the actor anew.

        Args:
            watch: of the engine.
            now: clock reading in seconds.

        Returns:
            Whether the process has survived all means, so that another actor is needed.
        """
        import ray

        was_silent = watch.is_silent
        watch.tick(now)
        if watch.is_silent and not was_silent:
            logger.warning("the engine on node %s %s", self.node, watch.report())
        if self.why is None:
            if watch.has_stopped:
                self.why = f"the engine {watch.report()}, and was ended"
                logger.warning("the engine on node %s has stopped: it is replaced", self.node)
                self.actor.abandon.remote()
                self._ended_at, self._is_killed = now, False
        elif not self._is_killed and now - self._ended_at >= ABANDON_S:
            ray.kill(self.actor, no_restart=False)
            self._is_killed = True
        elif self._is_killed and now - self._ended_at >= ABANDON_S + KILL_S:
            ray.kill(self.actor)
            return True
        return False
