"""OmegaPRM's tree (arXiv 2406.06592): search for first errors inside rollouts of rollouts.

States are prefixes; a state that was probed has MC(s), the share of its k rollouts that end right.
Its wrong rollouts are candidates where 0 < MC(s) < 1. A search takes the candidate with the largest
Q(s, r) + U(s), where

    Q(s, r) = alpha ** (1 - MC(s)) * beta ** (len(r) / length)
    U(s)    = c_puct * sqrt(sum of N over states) / (1 + N(s)),

counts a visit N(s), and finds the rollout's first error by binary search, each probe being a new
state with k rollouts and, by its wrong ones, new candidates. A state that several rollouts go
through is probed once.

Departs from the paper in that a problem's given solutions are the bare problem's first rollouts
and are searched before any others, whatever MC of the bare problem is, for it is them that are
labelled; and that rollouts are cut at steps, not at token counts. Every probe has k rollouts
whatever their outcomes, so values are unbiased and intervals exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from mclabel.core.records import Counts, LabelSource, Outcome
from mclabel.core.settings import at_most
from mclabel.core.stats.values import NOTHING, estimate_fixed, first_error, num_trials, value
from mclabel.labeling.estimators.base import (
    Estimator,
    Follow,
    Judgement,
    RolloutSettings,
    outcome_estimate,
)
from mclabel.labeling.estimators.paths import (
    ROOT,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
    sibling_counts,
)

ALPHA, BETA, LENGTH, C_PUCT = 0.5, 0.9, 500, 0.125
"""The paper's, `LENGTH` in tokens."""


@dataclass(frozen=True)
class Candidate:
    """A wrong rollout that a search can start from."""

    state: int
    """Prefix it was rolled out from."""
    path: tuple[int, ...]
    """Prefixes that it went through after that."""
    num_tokens: int
    given: bool
    """It is one of the problem's solutions."""


@dataclass
class State:
    """A probed prefix."""

    counts: Counts = field(default_factory=Counts)
    visits: int = 0
    num_due: int = 0


class TreeEstimator(Estimator):
    """One search of a problem at a time; problems side by side keep the engine full."""

    class Settings(RolloutSettings):
        """OmegaPRM's tree of rollouts; `rollouts` of every probed prefix."""

        searches: Annotated[int, at_most(10_000, "each adds rollouts that are held in memory")] = (
            Field(16, ge=0)
        )
        """Maximum number of tree searches for a problem, besides one per wrong solution."""

    follow: ClassVar[Follow] = "all"
    replayable: ClassVar[bool] = False

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        paths = problem.paths
        self._paths, self._truncated = paths, settings.truncated
        self._rollouts, self._searches_left = settings.rollouts, settings.searches
        self.states: dict[int, State] = {ROOT: State(counts=sibling_counts(paths))}
        self.candidates = [
            Candidate(ROOT, path.prefixes, sum(path.step_tokens), given=True)
            for path in dict.fromkeys(p for p in paths if p.outcome is Outcome.WRONG)
        ]
        self._found: dict[tuple[int, ...], int] = {}
        """First error of each searched rollout of the bare problem, by its prefixes."""
        self._search: Candidate | None = None
        self._low, self._high = -1, 0

    def score(self, candidate: Candidate) -> float:
        """Q + U of the paper."""
        mc = self._mc(candidate.state) or 0.0
        quality = ALPHA ** (1 - mc) * BETA ** (candidate.num_tokens / LENGTH)
        visits = sum(state.visits for state in self.states.values())
        explored = 1 + self.states[candidate.state].visits
        return float(quality + C_PUCT * visits**0.5 / explored)

    def wanted(self) -> list[int]:
        """All rollouts of the next probe, once those of the last one are recorded."""
        if any(state.num_due for state in self.states.values()):
            return []
        while self._search is not None or self._select():
            probe = self._probe()
            if probe is not None:
                self.states[probe] = State(num_due=self._rollouts)
                return [probe] * self._rollouts
        return []

    def record(self, rollout: RecordedRollout) -> None:
        """Count its outcome; a wrong one becomes a candidate to be searched."""
        state = self.states[rollout.prefix]
        state.num_due -= 1
        state.counts = state.counts.plus(rollout.outcome, rollout.num_tokens)
        if rollout.outcome is Outcome.WRONG and rollout.path:
            # Sorted in where they are chosen from, so that the order of arrival does not matter.
            self.candidates.append(
                Candidate(rollout.prefix, rollout.path, rollout.num_tokens, given=False)
            )

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label by what the searches of the given solutions have found."""
        return [self._judge(path, counts) for path in self._paths]

    def _mc(self, prefix: int) -> float | None:
        state = self.states.get(prefix)
        return None if state is None else value(state.counts, truncated=self._truncated)

    def _select(self) -> bool:
        """Begin the next search; False when there is nothing left or allowed."""
        given = [c for c in self.candidates if c.given]
        pool = given or (
            [c for c in self.candidates if 0 < (self._mc(c.state) or 0.0) < 1]
            if self._searches_left > 0
            else []
        )
        if not pool:
            return False
        best = max(pool, key=lambda c: (round(self.score(c), 12), c.state == ROOT, c.path))
        self.candidates.remove(best)
        self.states[best.state].visits += 1
        self._searches_left -= 1
        self._search, self._low, self._high = best, -1, len(best.path)
        return True

    def _probe(self) -> int | None:
        """The prefix to probe next in the search under way; None ends the search."""
        assert self._search is not None
        while self._high - self._low > 1:
            middle = (self._low + self._high) // 2
            prefix = self._search.path[middle]
            if prefix not in self.states:
                return prefix
            if self._mc(prefix):
                self._low = middle
            else:  # nothing of it was right, or nothing could be graded: look to its left
                self._high = middle
        if self._search.state == ROOT:
            self._found[self._search.path] = self._high
        self._search = None
        return None

    def _judge(self, path: SolutionPath, counts: Sequence[Counts]) -> Judgement:
        error = self._found.get(path.prefixes)
        hard: list[bool | None]
        if path.outcome is Outcome.RIGHT:
            hard = [True] * path.num_steps
        elif path.outcome is Outcome.WRONG and error is not None:
            # A probe without a verdict proves nothing of its step, nor of later ones: they are
            # wrong from the next on that never recovers.
            lost = (t for t, prefix in enumerate(path.prefixes) if self._mc(prefix) == 0)
            wrong = next((t for t in lost if t >= error), len(path.prefixes))
            hard = [t < error or (False if t >= wrong else None) for t in range(path.num_steps)]
            for t, prefix in enumerate(path.prefixes):
                if prefix in self.states and not self._graded(prefix):
                    hard[t] = None
        else:
            hard = [None] * path.num_steps
        probed = [prefix in self.states for prefix in path.prefixes]
        sources: list[LabelSource] = [
            "fixed" if there else "implied" if label is not None else "none"
            for there, label in zip(probed, hard, strict=False)
        ]
        estimates = [
            estimate_fixed(counts[prefix], truncated=self._truncated) if there else NOTHING
            for prefix, there in zip(path.prefixes, probed, strict=True)
        ]
        return Judgement(
            hard=tuple(hard),
            sources=(*sources, "outcome"),
            first_error=first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
        )

    def _graded(self, prefix: int) -> bool:
        return num_trials(self.states[prefix].counts, truncated=self._truncated) > 0
