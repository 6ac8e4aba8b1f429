"""OmegaPRM's tree (arXiv 2406.06592), which also searches for first errors inside rollouts.

A state s is a prefix. A probe of the state samples k rollouts, and MC(s) is the share of them that
end right. If 0 < MC(s) < 1, the wrong rollouts from s are candidates for a search. A search takes
the candidate (s, r), a state with one of its rollouts, that has the largest Q(s, r) + U(s):

    Q(s, r) = alpha ** (1 - MC(s)) * beta ** (len(r) / length)
    U(s)    = c_puct * sqrt(sum of N over states) / (1 + N(s))

N(s) is the number of searches that began at s. The search finds the first error of the rollout r
by binary search. Each of its probes makes a prefix of r a new state with k rollouts, and the wrong
ones are new candidates. A state that several rollouts pass through is probed once.

This implementation departs from the paper in two points. A problem's given solutions count as the
first rollouts from the state without steps. They are searched before all others, whatever MC of
this state is, because they are the solutions to label. And rollouts are split at steps instead of
token counts. Every probe has k rollouts whatever their outcomes, so values are unbiased and
intervals exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from pydantic import Field

from mclabel.core.records import Counts, LabelSource, Outcome
from mclabel.core.settings import at_most
from mclabel.core.stats.values import (
    NOTHING,
    count_trials,
    estimate_fixed,
    estimate_value,
    find_first_error,
)
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
    count_sampled_outcomes,
)

ALPHA, BETA, LENGTH, C_PUCT = 0.5, 0.9, 500, 0.125
"""Constants of the paper: alpha, beta, length (in tokens) and c_puct of the formulas above."""


@dataclass(frozen=True)
class SearchCandidate:
    """A wrong rollout that a search can start from."""

    state: int
    """Index of the prefix from which the rollout was sampled."""
    path: tuple[int, ...]
    """Indices of the prefixes that the rollout reached after `state`, in order, without its last
    step."""
    num_tokens: int
    is_given_solution: bool
    """True if the rollout is one of the problem's given solutions."""


@dataclass
class PrefixState:
    """A prefix from which rollouts were requested."""

    counts: Counts = field(default_factory=Counts)
    num_searches: int = 0
    num_outstanding: int = 0


class TreeEstimator(Estimator):
    """Labels a problem's solutions by searching its tree of rollouts for first errors.

    Each search locates the first error of one wrong solution or rollout. The searches of a problem
    run one after another; many problems together keep the engine busy. `Estimator` explains the
    class attributes.
    """

    class Settings(RolloutSettings):
        """Builds OmegaPRM's tree of rollouts, with `rollouts` rollouts from every probed prefix."""

        searches: Annotated[int, at_most(10_000, "each adds rollouts that are held in memory")] = (
            Field(16, ge=0)
        )
        """Maximum number of tree searches for a problem. Each wrong solution is searched in any
        case, and counts towards this number."""

    follow: ClassVar[Follow] = "all"
    replayable: ClassVar[bool] = False

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Initialise the estimator of a problem, with each wrong solution as a candidate."""
        paths = problem.paths
        self._paths, self._truncated = paths, settings.truncated
        self._rollouts, self._searches_left = settings.rollouts, settings.searches
        self.states: dict[int, PrefixState] = {
            ROOT: PrefixState(counts=count_sampled_outcomes(paths))
        }
        self.candidates = [
            SearchCandidate(ROOT, path.prefixes, sum(path.step_tokens), is_given_solution=True)
            for path in dict.fromkeys(p for p in paths if p.outcome is Outcome.WRONG)
        ]
        self._first_errors: dict[tuple[int, ...], int] = {}
        """Index of the first wrong step (from 0) of each searched rollout from the problem without
        steps. A key is the tuple of the rollout's prefix indices."""
        self._search: SearchCandidate | None = None
        self._low, self._high = -1, 0

    def score(self, candidate: SearchCandidate) -> float:
        """Return Q(s, r) + U(s) of a candidate, by the formulas in the module's docstring."""
        mc = self._estimate_prefix_value(candidate.state) or 0.0
        quality = ALPHA ** (1 - mc) * BETA ** (candidate.num_tokens / LENGTH)
        num_searches = sum(state.num_searches for state in self.states.values())
        explored = 1 + self.states[candidate.state].num_searches
        return float(quality + C_PUCT * num_searches**0.5 / explored)

    def wanted(self) -> list[int]:
        """Return all requests of the next probe, once the rollouts of the last are recorded."""
        if any(state.num_outstanding for state in self.states.values()):
            return []
        while self._search is not None or self._begin_next_search():
            probe = self._choose_next_prefix()
            if probe is not None:
                self.states[probe] = PrefixState(num_outstanding=self._rollouts)
                return [probe] * self._rollouts
        return []

    def record(self, rollout: RecordedRollout) -> None:
        """Count the outcome of a rollout; a wrong rollout becomes a candidate for a search."""
        state = self.states[rollout.prefix]
        state.num_outstanding -= 1
        state.counts = state.counts.plus(rollout.outcome, rollout.num_tokens)
        if rollout.outcome is Outcome.WRONG and rollout.path:
            # `_begin_next_search` breaks ties by path, so that the order of arrival does not
            # matter.
            self.candidates.append(
                SearchCandidate(
                    rollout.prefix, rollout.path, rollout.num_tokens, is_given_solution=False
                )
            )

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label the given solutions by the first errors that their searches located."""
        return [self._judge_solution(path, counts) for path in self._paths]

    def _estimate_prefix_value(self, prefix: int) -> float | None:
        state = self.states.get(prefix)
        return None if state is None else estimate_value(state.counts, truncated=self._truncated)

    def _begin_next_search(self) -> bool:
        """Begin the next search; return False if no candidate or no search is left."""
        given = [c for c in self.candidates if c.is_given_solution]
        pool = given or (
            [c for c in self.candidates if 0 < (self._estimate_prefix_value(c.state) or 0.0) < 1]
            if self._searches_left > 0
            else []
        )
        if not pool:
            return False
        best = max(pool, key=lambda c: (round(self.score(c), 12), c.state == ROOT, c.path))
        self.candidates.remove(best)
        self.states[best.state].num_searches += 1
        self._searches_left -= 1
        self._search, self._low, self._high = best, -1, len(best.path)
        return True

    def _choose_next_prefix(self) -> int | None:
        """Return the prefix to probe next in the current search; None if the search has ended."""
        assert self._search is not None
        while self._high - self._low > 1:
            middle = (self._low + self._high) // 2
            prefix = self._search.path[middle]
            if prefix not in self.states:
                return prefix
            if self._estimate_prefix_value(prefix):
                self._low = middle
            else:  # no rollout was right, or none could be graded: search to the left
                self._high = middle
        if self._search.state == ROOT:
            self._first_errors[self._search.path] = self._high
        self._search = None
        return None

    def _judge_solution(self, path: SolutionPath, counts: Sequence[Counts]) -> Judgement:
        error = self._first_errors.get(path.prefixes)
        hard: list[bool | None]
        if path.outcome is Outcome.RIGHT:
            hard = [True] * path.num_steps
        elif path.outcome is Outcome.WRONG and error is not None:
            # A probe without a verdict proves nothing about its step or the steps after it. Steps
            # are labelled wrong from the next step whose probe never recovered.
            lost = (
                t
                for t, prefix in enumerate(path.prefixes)
                if self._estimate_prefix_value(prefix) == 0
            )
            wrong = next((t for t in lost if t >= error), len(path.prefixes))
            hard = [t < error or (False if t >= wrong else None) for t in range(path.num_steps)]
            for t, prefix in enumerate(path.prefixes):
                state = self.states.get(prefix)
                if state is not None and not count_trials(state.counts, truncated=self._truncated):
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
            first_error=find_first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
        )
