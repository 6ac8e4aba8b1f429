"""The posterior over the first error from every piece of evidence, and the next best probe.

After each batch the chains of the problem's solutions are inferred anew, and the prefix whose
probe promises most for each token is rolled out next, until no probe promises `min_gain_per_token`.
This rate is the same for all problems of a run: so tokens go where labels are least certain, and
hopeless cases, from which nothing can be learned, cost nothing.

One prefix of a problem is rolled out at a time, so that what is asked does not depend on the
order in which rollouts arrive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from mclabel.errors import ConfigError
from mclabel.estimators.base import EXACT, Estimator, Follow, Judgement, RolloutSettings
from mclabel.estimators.paths import ProblemPaths, RecordedRollout, distinct_prefixes
from mclabel.estimators.posterior.candidates import find_candidates, gain_rates
from mclabel.estimators.posterior.chain import Evidence
from mclabel.estimators.posterior.evidence import EvidenceTable
from mclabel.estimators.posterior.judging import judge_solution
from mclabel.estimators.posterior.learner import PriorLearner
from mclabel.estimators.posterior.plan import Plan, PlanRequest, make_plans
from mclabel.estimators.posterior.priors import Priors, wide_priors
from mclabel.records import Counts, Outcome
from mclabel.settings import CONTENT, at_most, rule


class PosteriorEstimator(Estimator):
    """Rolls out the prefix that promises most, in small batches."""

    class Settings(RolloutSettings):
        """First errors for a small part of others' tokens; at most `rollouts` a prefix."""

        rollouts: Annotated[int, at_most(1_024, EXACT)] = Field(16, ge=1)
        batch: int = Field(4, ge=1)
        """Number of rollouts started together from a prefix before the estimator decides again."""
        min_gain_per_token: float = Field(3e-4, gt=0, allow_inf_nan=False)
        """Rollouts of a problem stop when the expected gain per token falls below this. The gain is
        roughly the probability of locating one more first error. A lower value costs more tokens
        and locates more first errors."""
        every: int = Field(0, ge=0)
        """Number of rollouts sampled from every prefix before the search for the first error
        begins, so that every step gets a soft value. 0 samples only where the search needs it."""
        max_tokens: int | None = Field(None, ge=1)
        """Maximum number of rollout tokens for a problem, by expected length. A batch that would
        exceed it is not started. null sets no limit."""
        tokens_per_solution: float | None = Field(None, gt=0, allow_inf_nan=False)
        """Target for the average number of rollout tokens per solution. `min_gain_per_token` is
        adjusted during the run to meet it. null keeps `min_gain_per_token` fixed."""
        agreement: bool = True
        """Whether to use the steps that several solutions to the same problem have in common as
        evidence about the correctness of steps."""
        pilot: Annotated[int, at_most(1_000_000, "what they show is held in memory")] = Field(
            100, ge=1
        )
        """Number of solutions that each engine labels with uninformative priors before it fits
        priors to the run."""
        priors: Annotated[str | None, CONTENT] = None
        """File of fitted priors to start from, such as priors/ID.json of another run; null fits
        priors after the first `pilot` solutions."""

        @rule
        def _ordered(self) -> str | None:
            if self.every > self.rollouts:
                return (
                    f"every={self.every:,} must be at most rollouts={self.rollouts:,}, which caps "
                    "a prefix. Raise rollouts, or lower every"
                )
            return None

    follow: ClassVar[Follow] = "known"
    takes_all: ClassVar[bool] = True
    simulated: ClassVar[Mapping[str, Any]] = {"rollouts": 64, "min_gain_per_token": 1e-3}

    def __init__(
        self,
        settings: Settings,
        problem: ProblemPaths,
        *,
        priors: Priors | None = None,
        min_gain_per_token: float | None = None,
    ) -> None:
        """Begin with a problem.

        Args:
            settings: of the estimator.
            problem: with the paths of its solutions.
            priors: of the run; None takes wide ones.
            min_gain_per_token: in place of the settings'.
        """
        agreement, paths = settings.agreement, problem.paths
        priors = priors or wide_priors()
        own = priors.of(problem.answer_class)
        self._paths, self._priors = paths, own.with_rare_luck if agreement else own
        self._value_priors = priors.of_values(problem.answer_class)
        self._min_gain = min_gain_per_token or settings.min_gain_per_token
        self._max_rollouts, self._batch = settings.rollouts, settings.batch
        self._tokens_left: float = settings.max_tokens or math.inf
        self._truncated, self._agreement = settings.truncated, agreement
        self._table = EvidenceTable(paths, agreement=agreement, truncated=settings.truncated)
        self._num_asked: dict[int, int] = {}
        self._full: set[int] = set()  # candidates that may not be asked for again
        self._num_due, self._every = 0, settings.every
        self._done = not paths
        self._candidates = find_candidates(self._table)
        self._plan: Plan | None = None
        self._rates: NDArray[np.float64] | None = None
        self._changed = set(range(len(self._table.num_steps)))

    @classmethod
    def begin(
        cls,
        settings: Settings,
        problem: ProblemPaths,
        *,
        knowledge: Priors | None = None,
        min_gain_per_token: float | None = None,
    ) -> Self:
        """Make the estimator of a problem, with the priors of the run; see `Estimator`."""
        return cls(settings, problem, priors=knowledge, min_gain_per_token=min_gain_per_token)

    @classmethod
    def learner(cls, settings: Settings, read: Callable[[str], str]) -> PriorLearner:
        """Make the learner of a run's priors; see `Estimator`.

        Raises:
            ConfigError: the file of priors holds none.
        """
        priors = None
        if settings.priors is not None:
            try:
                priors = Priors.from_json(read(settings.priors))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise ConfigError(
                    f"estimator.priors={settings.priors!r}: not readable as priors ({error}). Give "
                    "a file priors/ID.json of a run labelled with estimator.kind=posterior"
                ) from error
        return PriorLearner(
            min_gain_per_token=settings.min_gain_per_token,
            pilot=settings.pilot,
            tokens_per_solution=settings.tokens_per_solution,
            priors=priors,
        )

    @classmethod
    def read_knowledge(cls, content: str) -> Priors:
        """Read the priors in a file of a run; see `Estimator`."""
        return Priors.from_json(content)

    @classmethod
    def decide_together(cls, estimators: Sequence[PosteriorEstimator]) -> None:
        """Plan for many problems at once; each then wants what it would have wanted alone."""
        plans = make_plans([one.plan_request() for one in estimators])
        pairs = [(one._candidates, plan) for one, plan in zip(estimators, plans, strict=True)]
        for one, plan, rates in zip(estimators, plans, gain_rates(pairs), strict=True):
            one._plan, one._rates, one._changed = plan, rates, set()

    @property
    def is_due(self) -> bool:
        """Whether the next `wanted` has to infer anew."""
        return bool(self._changed) and not (self._done or self._num_due or self._every)

    def wanted(self) -> list[int]:
        """The batches that promise most, once all rollouts of the last ones are recorded."""
        if self._done or self._num_due:
            return []
        if self._every:
            prefixes, size = distinct_prefixes(self._paths), self._every
            self._every = 0
            for prefix in prefixes:
                self._ask(prefix, size)
            if prefixes:
                return [prefix for prefix in prefixes for _ in range(size)]
        choices = self._choose()
        self._done = not choices
        for prefix, size in choices:
            self._ask(prefix, size)
        return [prefix for prefix, size in choices for _ in range(size)]

    def record(self, rollout: RecordedRollout) -> None:
        """Take its outcome as evidence."""
        self._num_due -= 1
        self._changed |= self._table.record(rollout)
        self._tokens_left -= rollout.num_tokens

    def evidence(self) -> Evidence:
        """The evidence so far, for fitting priors."""
        return self._table.evidence(self._table.counts)

    def evidence_once(self) -> Evidence | None:
        """The evidence with every outcome counted once; None where `evidence` is counted so."""
        return None if self._agreement else self._table.evidence(self._table.once())

    def plan_request(self) -> PlanRequest:
        """The evidence so far, for the next plan."""
        return PlanRequest(
            num_steps=self._table.num_steps,
            counts=self._table.counts,
            outcome=self._table.outcome,
            priors=self._priors,
            previous=self._plan,
            changed=sorted(self._changed),
        )

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label every solution by the mode of its posterior."""
        if not self._paths:
            return []
        plan = self._current_plan()
        means = self._means(plan)
        any_right = any(path.sampled and path.outcome is Outcome.RIGHT for path in self._paths)
        return [
            judge_solution(
                path,
                counts,
                first_error=plan.first_error[chain],
                means=means[chain],
                any_sampled_right=any_right,
                agreement=self._agreement,
                min_gain_per_token=self._min_gain,
                max_rollouts=self._max_rollouts,
                truncated=self._truncated,
            )
            for path, chain in zip(self._paths, self._table.chain_of.tolist(), strict=True)
        ]

    def _means(self, plan: Plan) -> NDArray[np.float64]:
        """Expected values, [chain, R + 1]."""
        if self._agreement:
            return plan.mean
        every = range(len(self._table.num_steps))
        plain = replace(
            self.plan_request(),
            counts=self._table.once(),
            priors=self._value_priors,
            previous=None,
            changed=every,
        )
        return make_plans([plain])[0].mean

    def _current_plan(self) -> Plan:
        if self._changed:
            self.decide_together([self])
        assert self._plan is not None
        return self._plan

    def _ask(self, prefix: int, size: int) -> None:
        self._num_asked[prefix] = self._num_asked.get(prefix, 0) + size
        self._num_due += size
        candidates = self._candidates.prefixes
        if self._num_asked[prefix] == self._max_rollouts and prefix in candidates:
            self._full.add(candidates.index(prefix))

    def _choose(self) -> list[tuple[int, int]]:
        """Prefixes to roll out next, and how many rollouts of each."""
        self._current_plan()
        assert self._rates is not None
        return self._candidates.best(
            self._rates,
            self._num_asked,
            full=self._full,
            min_gain=self._min_gain,
            batch=self._batch,
            max_rollouts=self._max_rollouts,
            tokens_left=self._tokens_left,
        )
