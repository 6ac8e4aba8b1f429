"""The `posterior` estimator, and the learner of its priors.

The estimator computes a posterior over the first error of each solution from all observations (the
evidence) by hidden Markov chains, one per solution, and computes it again after each batch of
rollouts. It rolls out the prefix whose rollouts have the highest expected gain per token, until no
gain reaches `min_gain`. This limit is the same for all problems of a run, so tokens are spent where
labels are least certain, and problems whose labels no rollout would change get none. The limit is
relative to the length of the problem's solutions, so it has the same effect on short and on long
solutions.

The estimator requests the next batches only when all rollouts of the previous ones are recorded, so
its requests do not depend on the order in which rollouts arrive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field

from mclabel.core.errors import ConfigError
from mclabel.core.records import Counts
from mclabel.core.settings import (
    CONTENT,
    MAX_AMOUNT,
    MAX_COUNT,
    MAX_TOKENS,
    MAX_TOTAL,
    at_most,
    rule,
)
from mclabel.labeling.estimators.base import (
    SLOW_DECISIONS,
    Estimator,
    Follow,
    Judgement,
    RolloutSettings,
)
from mclabel.labeling.estimators.fitting import EstimatorWithEvidence, FittingLearner
from mclabel.labeling.estimators.paths import (
    Probe,
    ProblemPaths,
    RecordedRollout,
    compute_mean_solution_tokens,
    find_strongest_completer_index,
    list_distinct_prefixes,
)
from mclabel.labeling.estimators.posterior.fit import EvidenceReadings, fit_priors_to_readings
from mclabel.labeling.estimators.posterior.judging import judge_solution
from mclabel.labeling.estimators.posterior.plan import make_plans
from mclabel.labeling.estimators.posterior.priors import (
    Priors,
    make_starting_priors,
    make_uninformed_priors,
)
from mclabel.labeling.estimators.posterior.views import (
    CompleterView,
    CompleterViews,
    choose_probes,
    share_agreement_likelihoods,
    update_plans,
)

PILOT_DISCOUNT = 0.1
"""Factor of `min_gain` for the first problems of a run with several completers (models that sample
rollouts). These problems begin with wide, uncertain priors, and more rollouts are needed to learn
the completers' error rates."""
ADAPTATION = 0.05
"""Largest relative change of `min_gain` after one problem."""


class PosteriorEstimator(Estimator):
    """Rolls out the prefix with the highest expected gain per token, in small batches."""

    class Settings(RolloutSettings):
        """Finds first errors with few tokens, using at most `rollouts` rollouts from each
        prefix.
        """

        rollouts: Annotated[int, at_most(1_024, SLOW_DECISIONS)] = Field(16, ge=1)
        batch: int = Field(4, ge=1, le=MAX_COUNT)
        """Rollouts started together from a prefix before the next decision."""
        min_gain: float = Field(0.004, gt=0, le=MAX_AMOUNT)
        """Minimum expected gain for which rollouts continue. The gain is roughly the probability of
        finding one more first error by sampling as many tokens as the problem's solutions have on
        average."""
        every: int = Field(0, ge=0, le=MAX_COUNT)
        """Minimum number of rollouts from every prefix. If it is above 0, every step gets a value
        from its own rollouts."""
        max_tokens: int | None = Field(None, ge=1, le=MAX_TOTAL)
        """Maximum number of rollout tokens for a problem; None sets no maximum."""
        tokens_per_solution: float | None = Field(None, gt=0, le=MAX_TOKENS)
        """Target for the mean number of rollout tokens per solution, to which `min_gain` is
        adjusted during the run; None keeps `min_gain` fixed."""
        agreement: bool = True
        """True if a step that several samples take counts as more likely to be right."""
        min_belief: float = Field(0.5, ge=0, le=1)
        """Minimum probability of the most likely first error; below it the solution is
        undecided."""
        pilot: Annotated[int, at_most(1_000_000, "evidence on them is held in memory")] = Field(
            100, ge=1
        )
        """Number of solutions that each engine labels before it first fits priors to the run."""
        priors: Annotated[str | None, CONTENT] = None
        """File of priors to start from, such as priors/ID.json of another run; None uses the priors
        of the package."""

        @rule
        def _check_batch_size(self) -> str | None:
            if self.every > self.rollouts:
                return (
                    f"every={self.every:,} must be at most rollouts={self.rollouts:,}, the "
                    "maximum per prefix. Raise rollouts, or lower every"
                )
            return None

    follow: ClassVar[Follow] = "known"
    joint: ClassVar[bool] = True
    takes_all: ClassVar[bool] = True

    def __init__(
        self,
        settings: Settings,
        problem: ProblemPaths,
        *,
        priors: Priors | None = None,
        min_gain: float | None = None,
    ) -> None:
        """Initialise the estimator of a problem.

        Args:
            settings: settings of the estimator.
            problem: problem with the paths of its solutions.
            priors: priors of the run; None uses the priors of the package.
            min_gain: minimum expected gain in place of the setting; None keeps the setting.
        """
        self._paths, self._completers = problem.paths, problem.completers
        self._min_gain_per_token = (min_gain or settings.min_gain) / compute_mean_solution_tokens(
            problem.paths
        )
        self._max_rollouts, self._batch = settings.rollouts, settings.batch
        self._tokens_left: float = settings.max_tokens or math.inf
        self._truncated, self._min_belief = settings.truncated, settings.min_belief
        priors = priors or make_starting_priors()
        if not priors.num_solutions and len(self._completers) > 1:
            # The starting priors were fitted to policies that alone rolled out their solutions.
            priors = make_uninformed_priors()
            self._min_gain_per_token *= PILOT_DISCOUNT
        self._outcome_views = CompleterViews(
            problem, priors, agreement=False, truncated=settings.truncated
        )
        self._agreement_views: CompleterViews | None = None
        if settings.agreement:
            own = priors.agreement or priors
            self._agreement_views = CompleterViews(
                problem, own, agreement=True, truncated=settings.truncated
            )
        self._requestable_views = self._outcome_views.requestable_views
        self._num_outstanding, self._every = 0, settings.every
        self._done = not self._paths

    @classmethod
    def begin(
        cls,
        settings: Settings,
        problem: ProblemPaths,
        *,
        knowledge: Priors | None = None,
        min_gain: float | None = None,
    ) -> Self:
        """Make the estimator of a problem, with `knowledge` as its priors; None uses those of the
        package.
        """
        return cls(settings, problem, priors=knowledge, min_gain=min_gain)

    @classmethod
    def learner(cls, settings: Settings, read: Callable[[str], str]) -> PriorLearner:
        """Make the learner of a run's priors.

        Raises:
            ConfigError: the file of priors is not readable.
        """
        priors = None
        if settings.priors is not None:
            try:
                priors = Priors.from_json(read(settings.priors))
            except (ValueError, RecursionError) as error:
                raise ConfigError(
                    f"estimator.priors={settings.priors!r}: not readable as priors ({error}). Give "
                    "a file priors/ID.json of a run that was labelled with estimator.kind=posterior"
                ) from error
        return PriorLearner(
            priors or make_starting_priors(),
            min_gain=settings.min_gain,
            pilot=settings.pilot,
            tokens_per_solution=settings.tokens_per_solution,
        )

    @classmethod
    def read_knowledge(cls, content: str) -> Priors:
        """Parse priors from the JSON text of a run's file."""
        return Priors.from_json(content)

    @classmethod
    def decide_together(cls, estimators: Sequence[PosteriorEstimator]) -> None:
        """Compute the next requests of many problems at once, for `wanted` to return."""
        pairs = [(estimator._outcome_views, estimator._agreement_views) for estimator in estimators]
        share_agreement_likelihoods(
            [(own, agreeing) for own, agreeing in pairs if agreeing is not None]
        )
        update_plans([own.views for own, _ in pairs])

    @property
    def is_due(self) -> bool:
        """Return whether the next call of `wanted` has to compute the posterior again."""
        return self._outcome_views.is_changed and not (
            self._done or self._num_outstanding or self._every
        )

    def wanted(self) -> Sequence[int | Probe]:
        """Return the rollouts with the highest gain; none until all previous requests are
        recorded.
        """
        if self._done or self._num_outstanding:
            return []
        if self._every:
            size, self._every = self._every, 0
            prefixes = list_distinct_prefixes(self._paths)
            if prefixes:
                return self._request_probes(
                    [
                        (view, prefix, size - view.num_asked.get(prefix, 0))
                        for view in self._requestable_views
                        for prefix in prefixes
                        if view.num_asked.get(prefix, 0) < size
                    ]
                )
        if self._outcome_views.is_changed:
            self.decide_together([self])
        choices = choose_probes(
            self._requestable_views,
            min_gain_per_token=self._min_gain_per_token,
            batch=self._batch,
            max_rollouts=self._max_rollouts,
            tokens_left=self._tokens_left,
        )
        self._done = not choices
        return self._request_probes(choices)

    def record(self, rollout: RecordedRollout) -> None:
        """Add the outcome of a rollout to the evidence."""
        view = self._requestable_views[rollout.completer]
        view.record(rollout)
        if self._agreement_views is not None:
            self._agreement_views.requestable_views[rollout.completer].record(rollout)
        if rollout.is_requested:
            self._num_outstanding -= 1
            self._tokens_left -= rollout.num_tokens
        else:
            view.register_rollouts(rollout.prefix, 1, self._max_rollouts)

    def evidence(self) -> EvidenceReadings:
        """Return the evidence recorded so far, in the form to which priors are fitted."""
        return EvidenceReadings(
            outcomes=self._outcome_views.evidence(),
            counted_once={
                view.completer.name: view.evidence_counted_once()
                for view in self._outcome_views.views
            },
            agreement=None if self._agreement_views is None else self._agreement_views.evidence(),
        )

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label every solution by its most likely first error."""
        return self.judge_completers([counts])

    def judge_completers(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Label every solution by the most likely first error, given all completers' rollouts.

        Values are those of the strongest completer, the one with the highest cost.
        """
        if not self._paths:
            return []
        number = find_strongest_completer_index(self._completers)
        views_by_reading = {False: self._outcome_views}
        if self._agreement_views is not None:
            views_by_reading[True] = self._agreement_views
        plans = {kind: family.plan_for_labels(number) for kind, family in views_by_reading.items()}
        view = self._outcome_views.requestable_views[number]
        by_outcomes = make_plans([view.evidence_for_values()])[0].mean
        means = [by_outcomes[view.table.chain_index]]
        if self._agreement_views is not None:
            chains = self._agreement_views.requestable_views[number].table.chain_index
            means.append(plans[True].mean[chains][:, : means[0].shape[1]])
        chances = [
            family.first_error_posterior(plans[kind], number)
            for kind, family in views_by_reading.items()
        ]
        return [
            judge_solution(
                path,
                counts[number],
                first_error_chances=[own[solution] for own in chances],
                expected_values=sum(own[solution] for own in means) / len(means),
                min_belief=self._min_belief,
                max_rollouts=self._max_rollouts,
                truncated=self._truncated,
            )
            for solution, path in enumerate(self._paths)
        ]

    def _request_probes(
        self, choices: Sequence[tuple[CompleterView, int, int]]
    ) -> list[int | Probe]:
        asked: list[int | Probe] = []
        for view, prefix, size in choices:
            view.register_rollouts(prefix, size, self._max_rollouts)
            self._num_outstanding += size
            request = (
                prefix
                if len(self._requestable_views) == 1
                else Probe(prefix, view.completer_index or 0)
            )
            asked += [request] * size
        return asked


class PriorLearner(FittingLearner[Priors, EvidenceReadings]):
    """Learns the priors of a run, and adjusts `min_gain` to a budget of tokens.

    With a budget, `min_gain` rises a little after each problem that spent more tokens per solution
    than the budget, and falls a little after each problem that spent less. It converges to one
    value for all problems, so the budget is spent where labels are least certain.
    """

    def __init__(
        self,
        knowledge: Priors,
        *,
        pilot: int,
        min_gain: float,
        tokens_per_solution: float | None = None,
    ) -> None:
        """Initialise the learner of a run.

        Args:
            knowledge: initial priors.
            pilot: number of solutions labelled before the first fit.
            min_gain: initial minimum gain for which rollouts are requested.
            tokens_per_solution: target for the mean number of rollout tokens per solution; None
                keeps `min_gain` fixed.
        """
        super().__init__(knowledge, pilot=pilot, fit=fit_priors_to_readings)
        self._min_gain, self._budget = min_gain, tokens_per_solution

    @property
    def min_gain(self) -> float:
        """Minimum expected gain (see `Settings.min_gain`) for rollouts of the next problem, rounded
        to six digits as it is stored.
        """
        return float(f"{self._min_gain:.6g}")

    def record(
        self,
        problem: ProblemPaths,
        estimator: EstimatorWithEvidence[EvidenceReadings],
        *,
        num_tokens: int,
    ) -> None:
        """Add the evidence of a finished problem and the cost of its rollouts."""
        super().record(problem, estimator, num_tokens=num_tokens)
        if self._budget is not None and self._knowledge.num_solutions and problem.paths:
            excess = num_tokens / (estimator.evidence().num_solutions * self._budget) - 1
            self._min_gain *= math.exp(ADAPTATION * max(-1.0, min(1.0, excess)))
