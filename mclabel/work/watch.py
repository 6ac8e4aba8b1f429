"""Whether an engine still works: one without a new token for too long by its own pace has stopped.

An engine stops without a word when its process is stopped, a kernel hangs, or a file system does
not answer. Nothing but its silence shows it, and how long a silence is too long depends on the
engine: a large model on a CPU needs seconds for a token. So an engine is measured by the longest
pause that it has made itself within the last minutes. Loading is not measured, and an engine that
has nothing to do is not silent.
"""

from __future__ import annotations

from collections import deque

from mclabel.work.worker import WorkerProgress

STALL_S = 120.0
"""Silence under which no engine is suspected."""
PACE = 5.0
"""Times the longest pause of late that a silence must last to be remarkable."""
FIRST = 5.0
"""Times the floor for the first token after loading, of which no pace is known."""
PATIENCE = 2.0
"""Times the remarkable silence after which the engine is replaced."""
WINDOW_S = 600.0
"""Time within which pauses count, by the watch's own clock."""
MAX_TICK_S = 2.0
"""Counted between two ticks at most: a driver that was itself held up has not listened."""


class Watch:
    """Measures the silence of one engine, from its loading on."""

    def __init__(self, *, stall_s: float = STALL_S) -> None:
        """Args:
        stall_s: seconds of silence under which the engine is never suspected.
        """
        self._stall_s = stall_s
        self._clock_s = 0.0
        self._ticked: float | None = None
        self._seen: tuple[int | None, ...] | None = None
        self._has_begun = False
        self._counts_as_sampled = True
        self._pauses: deque[tuple[float, float]] = deque()
        """When pauses ended and how long they were, each shorter than the one before."""
        self.silent_s = 0.0
        """Since the last sign of work."""

    def tick(self, now: float) -> None:
        """Let time pass.

        Args:
            now: clock reading in seconds.
        """
        passed = 0.0 if self._ticked is None else min(now - self._ticked, MAX_TICK_S)
        self._ticked = now
        self._clock_s += passed
        self.silent_s += passed

    def heard(self, progress: WorkerProgress) -> None:
        """Take what the engine's worker says; only new work ends a silence."""
        engine = progress.engine
        seen = (
            engine.num_sampled_tokens,
            engine.num_prefill_tokens,
            engine.num_cached_tokens,
            engine.num_preemptions,
            progress.num_completions,
        )
        is_idle = engine.num_live == 0 and engine.num_waiting == 0
        moved = seen != self._seen
        self._counts_as_sampled = engine.counts_as_sampled
        if self._seen is not None and moved:
            self._has_begun = True
        self._seen = seen
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

        Never one whose tokens are counted at the end of a completion alone: its silence may be a
        long completion, and its requests have time limits of their own.
        """
        return self._counts_as_sampled and self.silent_s >= PATIENCE * self.limit_s

    def report(self) -> str:
        """What there is to say of a silence."""
        longest = f"{self._pauses[0][1]:.1f} s" if self._pauses else "not known"
        return (
            f"gave no token and no answer for {self.silent_s:.0f} s (its longest pause of late: "
            f"{longest})"
        )

    def _note_pause(self) -> None:
        while self._pauses and self._pauses[-1][1] <= self.silent_s:
            self._pauses.pop()
        self._pauses.append((self._clock_s, self.silent_s))
        while self._clock_s - self._pauses[0][0] > WINDOW_S:
            self._pauses.popleft()
