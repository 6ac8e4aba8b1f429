"""How many rollouts an engine is given at a time, from the use of memory that it reports.

Too few leave the engine idle, too many make it throw started ones out of its KV cache and
compute them again. How much memory a rollout takes shows only once it has run to its end, so
the target moves once in a turnover: when as many have ended as were live.
"""

from __future__ import annotations

from dataclasses import dataclass

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
