"""Roll each step out until its value is decided, precise enough, or capped.

First the bare problem, whose value sets the scale: a step is wrong when its value is at most
`threshold` times the bare problem's (at 0.25 the best hard label on arith). A step stops as soon
as an anytime-valid interval (`repeated_interval`, the finite-horizon counterpart of the betting
sequences of arXiv 2010.09686) lies on one side of that line, the bare problem's own interval
included; or is narrower than `width`. Both intervals hold at once with probability
1 - 2 (1 - level), so that a decided label is wrong at most that often.

Once the bare problem is done its interval is a constant to the steps, so their stopping points
are known in advance: values are unbiased by path counting and intervals exact on the lattice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from mclabel.core.records import Counts, LabelSource
from mclabel.core.settings import MAX_COUNT, at_most
from mclabel.core.stats.intervals import Boundary, repeated_interval
from mclabel.core.stats.values import (
    NOTHING,
    StepEstimate,
    estimate_stopped,
    first_error,
    num_trials,
)
from mclabel.labeling.estimators.base import (
    EXACT,
    Estimator,
    Judgement,
    RolloutSettings,
    outcome_estimate,
    outcome_label,
)
from mclabel.labeling.estimators.paths import (
    ROOT,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
    distinct_prefixes,
    sibling_counts,
)

Interval = tuple[float, float]
LEVEL = 0.95


class SequentialEstimator(Estimator):
    """Each distinct prefix is a sequential test of its own, after that of the bare problem."""

    class Settings(RolloutSettings):
        """Values up to a width, or until a step is decided; at most `rollouts` of a prefix."""

        rollouts: Annotated[int, at_most(256, EXACT)] = Field(16, ge=1)
        batch: int = Field(4, ge=1, le=MAX_COUNT)
        """Rollouts sampled from a prefix between two decisions."""
        threshold: float = Field(0.25, ge=0, lt=1)
        """A step is wrong when its value is at most this fraction of the bare problem's."""
        width: float = Field(0.25, gt=0, le=1)
        """Rollouts from a prefix stop once the 95% interval of its value is at most this wide."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        self._paths, self._prefixes = problem.paths, distinct_prefixes(problem.paths)
        self._max_rollouts, self._batch = settings.rollouts, settings.batch
        self._threshold, self._width = settings.threshold, settings.width
        self._truncated = settings.truncated
        self._siblings = sibling_counts(problem.paths)
        self._counts: dict[int, Counts] = {}
        self._asked: dict[int, int] = {}
        self._due: dict[int, int] = {}
        self._root: Interval | None = None

    def wanted(self) -> list[int]:
        """The next batch of the bare problem, or of every step that is not decided."""
        if not self._prefixes:
            return []
        if self._root is None:
            if self._due.get(ROOT, 0):
                return []
            if not self._root_done():
                return self._ask(ROOT)
            trials = num_trials(self._root_counts(), truncated=self._truncated)
            self._root = (
                self._interval(self._root_counts(), self._root_horizon())
                if trials
                else (
                    0.0,
                    1.0,
                )
            )
        requests: list[int] = []
        for prefix in self._prefixes:
            if self._due.get(prefix, 0) == 0 and not self._step_done(prefix):
                requests += self._ask(prefix)
        return requests

    def record(self, rollout: RecordedRollout) -> None:
        """Count its outcome."""
        self._due[rollout.prefix] -= 1
        counts = self._counts.get(rollout.prefix, Counts())
        self._counts[rollout.prefix] = counts.plus(rollout.outcome, rollout.num_tokens)

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label by the intervals, with values by path counting."""
        if self._root is None:
            return [self._judge(path, counts, NOTHING, None) for path in self._paths]
        rule = _boundary(
            _looks(self._batch, self._max_rollouts, self._num_siblings()),
            self._root_horizon(),
            self._width,
            None,
            self._threshold,
        )
        root = estimate_stopped(self._root_counts(), rule, truncated=self._truncated)
        looks = _looks(self._batch, self._max_rollouts, 0)
        boundary = _boundary(looks, self._max_rollouts, self._width, self._root, self._threshold)
        return [self._judge(path, counts, root, boundary) for path in self._paths]

    def _ask(self, prefix: int) -> list[int]:
        asked = self._asked.get(prefix, 0)
        size = min(self._batch, self._max_rollouts - asked)
        self._asked[prefix] = asked + size
        self._due[prefix] = size
        return [prefix] * size

    def _root_counts(self) -> Counts:
        free, rolled = self._siblings, self._counts.get(ROOT, Counts())
        return Counts(
            num_right=free.num_right + rolled.num_right,
            num_wrong=free.num_wrong + rolled.num_wrong,
            num_truncated=free.num_truncated + rolled.num_truncated,
            num_ungraded=free.num_ungraded + rolled.num_ungraded,
        )

    def _num_siblings(self) -> int:
        return self._siblings.num_rollouts

    def _root_horizon(self) -> int:
        return self._max_rollouts + self._num_siblings()

    def _root_done(self) -> bool:
        if self._asked.get(ROOT, 0) >= self._max_rollouts:
            return True
        counts = self._root_counts()
        if not num_trials(counts, truncated=self._truncated):
            return False
        return _stops(self._interval(counts, self._root_horizon()), self._width, None, 0.0)

    def _step_done(self, prefix: int) -> bool:
        counts = self._counts.get(prefix, Counts())
        if self._asked.get(prefix, 0) >= self._max_rollouts:
            return True
        if not num_trials(counts, truncated=self._truncated):
            return False
        interval = self._interval(counts, self._max_rollouts)
        return _stops(interval, self._width, self._root, self._threshold)

    def _interval(self, counts: Counts, horizon: int) -> Interval:
        trials = num_trials(counts, truncated=self._truncated)
        return repeated_interval(counts.num_right, trials, horizon=horizon, level=LEVEL)

    def _judge(
        self,
        path: SolutionPath,
        counts: Sequence[Counts],
        root: StepEstimate,
        boundary: Boundary | None,
    ) -> Judgement:
        estimates = [
            NOTHING
            if boundary is None
            else estimate_stopped(counts[prefix], boundary, truncated=self._truncated)
            for prefix in path.prefixes
        ]
        hard = [self._hard(counts[prefix]) for prefix in path.prefixes]
        hard.append(outcome_label(path.outcome))
        sources: list[LabelSource] = ["sequential"] * len(path.prefixes)
        return Judgement(
            hard=tuple(hard),
            sources=(*sources, "outcome"),
            first_error=first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
            root=root,
        )

    def _hard(self, counts: Counts) -> bool | None:
        """Decided by the intervals, or by the shares where the cap came first."""
        trials = num_trials(counts, truncated=self._truncated)
        if not trials:
            return None
        root = self._root_counts()
        root_trials = num_trials(root, truncated=self._truncated)
        scale = root.num_right / root_trials if root_trials else 0.0
        return counts.num_right / trials > self._threshold * scale


def _stops(interval: Interval, width: float, root: Interval | None, threshold: float) -> bool:
    low, high = interval
    if high - low <= width:
        return True
    return root is not None and (high <= threshold * root[0] or low > threshold * root[1])


def _looks(batch: int, cap: int, free: int) -> tuple[int, ...]:
    """Numbers of trials at which the rule looks, `free` observations coming first."""
    rolled = [*range(batch, cap, batch), cap]
    return tuple(([free] if free else []) + [free + n for n in rolled])


@lru_cache(maxsize=4096)
def _boundary(
    looks: tuple[int, ...],
    horizon: int,
    width: float,
    root: Interval | None,
    threshold: float,
) -> Boundary:
    """The counts at which the rule stops: at each look, all but an interval of them."""
    low, high = [], []
    for n in looks:
        goes_on = _first_and_last(
            lambda k, n=n: (
                not _stops(  # type: ignore[misc]
                    repeated_interval(k, n, horizon=horizon, level=LEVEL), width, root, threshold
                )
            ),
            n,
        )
        low.append(n if goes_on is None else goes_on[0] - 1)
        high.append(0 if goes_on is None else goes_on[1] + 1)
    return Boundary(looks=looks, low=tuple(low), high=tuple(high))


def _first_and_last(holds: Callable[[int], bool], n: int) -> tuple[int, int] | None:
    found = [k for k in range(n + 1) if holds(k)]
    return (found[0], found[-1]) if found else None
