"""Whether an engine still works: one without a sign of life for too long has stopped.

An engine stops without a word when its process is stopped, a kernel hangs, or a file system does
not answer. Nothing but its silence shows it, and how long a silence is too long depends on the
engine: a large model on a CPU needs seconds for a token. So an engine is measured by the longest
pause that it has made itself within the last minutes. Loading is not measured, and an engine that
has nothing to do is not silent.

Signs of life are the counts that rise as an engine works (`RunnerState`).
"""

from __future__ import annotations

from collections import deque

from mclabel.run.worker import WorkerProgress

STALL_S = 120.0
"""Silence under which no engine is suspected."""
PACE = 5.0
"""Times the longest pause of late that a silence must last to be remarkable."""
FIRST = 5.0
"""Times the floor for the first sign after loading, of which no pace is known."""
PATIENCE = 2.0
"""Times the remarkable silence after which the engine is replaced."""
WINDOW_S = 600.0
"""Time within which pauses count, by the watch's own clock."""
MAX_TICK_S = 2.0
"""Counted between two ticks at most: a driver that was itself held up could receive nothing."""


class Watch:
    """Measures the silence of one engine, from its loading on."""

    def __init__(self, *, stall_s: float = STALL_S) -> None:
        """Begin to watch an engine that has just been loaded.

        Args:
            stall_s: seconds of silence under which the engine is never suspected.
        """
        self._stall_s = stall_s
        self._clock_s = 0.0
        self._ticked: float | None = None
        self._signs: tuple[int | None, ...] | None = None
        self._has_begun = False
        self._is_steady = True
        self._pauses: deque[tuple[float, float]] = deque()
        """When pauses ended and how long they were, each shorter than the one before."""
        self.silent_s = 0.0
        """Seconds since the last sign of life."""

    def tick(self, now: float) -> None:
        """Let time pass.

        Args:
            now: clock reading in seconds.
        """
        passed = 0.0 if self._ticked is None else min(now - self._ticked, MAX_TICK_S)
        self._ticked = now
        self._clock_s += passed
        self.silent_s += passed

    def record(self, progress: WorkerProgress) -> None:
        """Take in a snapshot of the engine's worker; only new work ends a silence."""
        engine = progress.runner
        signs = (engine.num_tokens, engine.num_signs, *engine.counters.values())
        is_idle = engine.num_live == 0 and engine.num_waiting == 0
        moved = signs != self._signs
        self._is_steady = engine.is_steady
        if self._signs is not None and moved:
            self._has_begun = True
        self._signs = signs
        if moved or is_idle:
            self._note_pause()
            self.silent_s = 0.0

    @property
    def limit_s(self) -> float:
        """Silence from which on the engine is taken to have stopped."""
        if not self._has_begun:
            return FIRST * self._stall_s
        longest = self._pauses[0][1] if self._pauses else 0.0
        return max(self._stall_s, PACE * longest)

    @property
    def is_silent(self) -> bool:
        """Whether the silence is remarkable."""
        return self.silent_s >= self.limit_s

    @property
    def has_stopped(self) -> bool:
        """Whether the engine is to be replaced.

        Never one that gives signs only when a request has ended: its silence may be a long request,
        and its requests have time limits of their own.
        """
        return self._is_steady and self.silent_s >= PATIENCE * self.limit_s

    def report(self) -> str:
        """A clause that describes the silence."""
        longest = f"{self._pauses[0][1]:.1f} s" if self._pauses else "not known"
        return (
            f"produced no token and did not respond for {self.silent_s:.0f} s (its longest recent "
            f"pause: {longest})"
        )

    def _note_pause(self) -> None:
        while self._pauses and self._pauses[-1][1] <= self.silent_s:
            self._pauses.pop()
        self._pauses.append((self._clock_s, self.silent_s))
        while self._clock_s - self._pauses[0][0] > WINDOW_S:
            self._pauses.popleft()
