"""Binary search for the first error (OmegaPRM, arXiv 2406.06592), with early stops.

A prefix recovers if some rollout from it reaches the right answer. The search assumes that once a
prefix of a solution does not recover, no longer prefix does. Then a solution with a right answer
has no first error, and in a solution with a wrong answer the first error is found in log2(steps)
probes. A probe samples rollouts from a prefix, in batches, until the first right one or until there
are `rollouts` of them. Its result holds for every solution of the problem that begins with the same
prefix.

A probe stops at its first right rollout, so the share of right rollouts in a probe is a biased
estimate of the success rate. Steps therefore get hard labels and exact intervals, but no values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from mclabel.core.records import Counts, LabelSource, Outcome
from mclabel.core.settings import MAX_COUNT, at_most
from mclabel.core.stats.intervals import stop_at_first_success
from mclabel.core.stats.values import NOTHING, estimate_after_early_stop, find_first_error
from mclabel.labeling.estimators.base import (
    SLOW_DECISIONS,
    Estimator,
    Judgement,
    RolloutSettings,
    outcome_estimate,
)
from mclabel.labeling.estimators.paths import ProblemPaths, RecordedRollout, SolutionPath


class BisectEstimator(Estimator):
    """Probes prefixes of wrong solutions until the first error of each is located.

    A solution that was truncated or could not be graded gets no labels, because it may have no
    error to search for.
    """

    class Settings(RolloutSettings):
        """Locates the first errors of wrong solutions by binary search, with at most `rollouts`
        rollouts per prefix.
        """

        rollouts: Annotated[int, at_most(4_096, SLOW_DECISIONS)] = Field(16, ge=1)
        batch: int = Field(4, ge=1, le=MAX_COUNT)
        """Rollouts started together from a prefix before the next decision."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Initialise the estimator of a problem."""
        self._paths = problem.paths
        self._max_rollouts, self._batch = settings.rollouts, settings.batch
        self._truncated = settings.truncated
        self._num_asked: dict[int, int] = {}
        self._num_outstanding: dict[int, int] = {}
        self._num_failures: dict[int, int] = {}
        # Results of finished probes by prefix: True if the prefix recovers, None if all rollouts
        # were truncated or ungraded.
        self._recovers: dict[int, bool | None] = {}

    def wanted(self) -> list[int]:
        """Return the next batch of each probe, once all rollouts of the last round are recorded."""
        # The result of a probe can make a probe of another solution unnecessary. Waiting for the
        # whole round keeps the choice of probes independent of the order of arrival.
        if any(self._num_outstanding.values()):
            return []
        requests: list[int] = []
        for prefix in sorted(
            {p for path in self._paths if (p := self._choose_next_prefix(path)) is not None}
        ):
            asked = self._num_asked.get(prefix, 0)
            size = min(self._batch, self._max_rollouts - asked)
            self._num_asked[prefix] = asked + size
            self._num_outstanding[prefix] = size
            requests += [prefix] * size
        return requests

    def record(self, rollout: RecordedRollout) -> None:
        """Count a rollout, and store the result of its prefix's probe once the probe is decided."""
        prefix, outcome = rollout.prefix, rollout.outcome
        self._num_outstanding[prefix] -= 1
        if outcome is Outcome.RIGHT:
            self._recovers[prefix] = True
        elif outcome is Outcome.WRONG or (
            outcome is Outcome.TRUNCATED and self._truncated == "wrong"
        ):
            self._num_failures[prefix] = self._num_failures.get(prefix, 0) + 1
        exhausted = (
            self._num_asked[prefix] == self._max_rollouts and self._num_outstanding[prefix] == 0
        )
        if exhausted and prefix not in self._recovers:
            # If all rollouts were truncated or ungraded, the probe has no result.
            self._recovers[prefix] = False if self._num_failures.get(prefix) else None

    def _choose_next_prefix(self, path: SolutionPath) -> int | None:
        """Return the prefix to probe next for a solution; None if its search is over."""
        if path.outcome is not Outcome.WRONG:
            return None
        low, high = self._bracket_first_error(path)
        while high - low > 1:
            middle = (low + high) // 2
            prefix = path.prefixes[middle]
            if prefix not in self._recovers:
                return prefix
            # The search cannot continue to the right of a prefix without a verdict.
            low, high = (middle, high) if self._recovers[prefix] else (low, middle)
        return None

    def _bracket_first_error(self, path: SolutionPath) -> tuple[int, int]:
        """Return the last step known to be sound and the first step known to be wrong.

        Both are step indices from 0. The first is -1 if no step is known to be sound; a step is
        sound if its prefix recovers.
        """
        low, high = -1, len(path.prefixes)
        for step, prefix in enumerate(path.prefixes):
            is_recovered = self._recovers.get(prefix)
            if is_recovered is True:
                low = step
            elif is_recovered is False and step < high:
                high = step
        return (low, high) if low < high else (self._find_last_sound_step(path, high), high)

    def _find_last_sound_step(self, path: SolutionPath, high: int) -> int:
        """Return the last step before `high` whose prefix recovers; -1 if there is none.

        This excludes steps after `high`: their prefixes may recover, too, against the assumption of
        the search.
        """
        sound = [s for s in range(high) if self._recovers.get(path.prefixes[s])]
        return sound[-1] if sound else -1

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label the steps of each solution from the result of its search."""
        return [self._judge_solution(path, counts) for path in self._paths]

    def _judge_solution(self, path: SolutionPath, counts: Sequence[Counts]) -> Judgement:
        boundary = stop_at_first_success(batch=self._batch, cap=self._max_rollouts)
        estimates = [
            estimate_after_early_stop(counts[p], boundary, truncated=self._truncated)
            if counts[p].num_rollouts
            else NOTHING
            for p in path.prefixes
        ]
        hard: list[bool | None]
        if path.outcome is Outcome.RIGHT:
            hard = [True] * path.num_steps
        elif path.outcome is Outcome.WRONG:
            low, high = self._bracket_first_error(path)
            steps = range(path.num_steps)
            hard = [True if t <= low else False if t >= high else None for t in steps]
        else:
            hard = [None] * path.num_steps
        sources: list[LabelSource] = [
            "first_success"
            if counts[p].num_rollouts
            else "implied"
            if label is not None
            else "none"
            for p, label in zip(path.prefixes, hard, strict=False)
        ]
        return Judgement(
            hard=tuple(hard),
            sources=(*sources, "outcome"),
            first_error=find_first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
        )
