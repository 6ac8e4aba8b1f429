"""The posterior over the first error from every piece of evidence, and the next best probe.

After each batch the chains of the problem's solutions are inferred anew, and the prefix whose
probe promises most for each token is rolled out next, until nothing is worth its price. The price
is a rate, gain a token, and the same for all problems of a run: so tokens go where labels are
least certain, and hopeless cases, from which nothing can be learned, cost nothing.

One prefix of a problem is rolled out at a time, so that what is asked does not depend on the
order in which rollouts arrive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from mclabel.errors import ConfigError
from mclabel.estimators.base import (
    EXACT,
    ROOT,
    Estimator,
    Follow,
    Judgement,
    ProblemPaths,
    RecordedRollout,
    RolloutSettings,
    SolutionPath,
    distinct_prefixes,
    outcome_estimate,
    outcome_label,
)
from mclabel.estimators.posterior.calibration import Kind, calibrated
from mclabel.estimators.posterior.chain import Evidence
from mclabel.estimators.posterior.evidence import EvidenceTable
from mclabel.estimators.posterior.learner import PriorLearner
from mclabel.estimators.posterior.plan import Candidates, Question, Thought, answer, rates
from mclabel.estimators.posterior.priors import Priors, wide_priors
from mclabel.records import Counts, LabelSource, Outcome
from mclabel.settings import CONTENT, at_most
from mclabel.stats.values import estimate_anytime

UNKNOWN_STEP_TOKENS = 20
"""Number of tokens assumed for a step whose length is unknown."""


class PosteriorEstimator(Estimator):
    """Rolls out the prefix that promises most, in small batches."""

    class Settings(RolloutSettings):
        """First errors for a small part of others' tokens; at most `rollouts` a prefix."""

        rollouts: Annotated[int, at_most(1_024, EXACT)] = Field(16, ge=1)
        batch: int = Field(4, ge=1)
        """Rollouts of a prefix that are started together."""
        min_gain_per_token: float = Field(3e-4, gt=0, allow_inf_nan=False)
        """Gain a token under which nothing is rolled out. Gain is about the chance that one more
        first error is found: lower costs more tokens and finds more."""
        every: int = Field(0, ge=0)
        """Rollouts of every prefix before the search begins: soft values of all steps."""
        max_tokens: int | None = Field(None, ge=1)
        """Tokens of a problem's rollouts, as expected: no batch is started that would exceed it."""
        tokens_per_solution: float | None = Field(None, gt=0, allow_inf_nan=False)
        """Tokens of rollouts that a solution may cost: `min_gain_per_token` is led by it as the
        run goes on."""
        agreement: bool = True
        """Compare solutions' steps with each other."""
        pilot: Annotated[int, at_most(1_000_000, "what they show is held in memory")] = Field(
            100, ge=1
        )
        """Solutions that an engine labels before it first fits priors."""
        priors: Annotated[str | None, CONTENT] = None
        """File of priors to begin with in place of a pilot: a run's priors/ID.json."""

        @model_validator(mode="after")
        def _check(self) -> Self:
            if self.every > self.rollouts:
                raise ValueError(
                    f"every={self.every:,} must be at most rollouts={self.rollouts:,}, which caps "
                    "a prefix. Raise rollouts, or lower every"
                )
            return self

    follow: ClassVar[Follow] = "known"
    takes_all: ClassVar[bool] = True

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
            priors: what is believed beforehand; None takes wide ones.
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
        self._asked: dict[int, int] = {}
        self._full: set[int] = set()  # candidates that may not be asked for again
        self._num_due, self._every = 0, settings.every
        self._done = not paths
        self.candidates = _candidates(self._table)
        self._thought: Thought | None = None
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
        """The estimator of a problem, with the priors of the run; see `Estimator`."""
        return cls(settings, problem, priors=knowledge, min_gain_per_token=min_gain_per_token)

    @classmethod
    def learner(cls, settings: Settings, read: Callable[[str], str]) -> PriorLearner:
        """What learns priors over a run; see `Estimator`.

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
        """The priors in a file of a run; see `Estimator`."""
        return Priors.from_json(content)

    @classmethod
    def decide_together(cls, estimators: Sequence[PosteriorEstimator]) -> None:
        """Decide for many problems at once; each then wants what it would have wanted alone."""
        think_together(estimators)

    @property
    def is_due(self) -> bool:
        """Whether `wanted` has to infer anew."""
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
        """What was seen, for fitting priors."""
        return self._table.evidence(self._table.counts)

    def evidence_once(self) -> Evidence | None:
        """The same with every outcome counted once; None where `evidence` does so."""
        return None if self._agreement else self._table.evidence(self._table.once())

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Labels by the posterior's mode."""
        if not self._paths:
            return []
        if self._changed:
            think_together([self])
        assert self._thought is not None
        error, mean = self._thought.first_error, self._means()
        return [
            self._judge(path, counts, error[chain], mean[chain])
            for path, chain in zip(self._paths, self._table.chain_of.tolist(), strict=True)
        ]

    def _means(self) -> NDArray[np.float64]:
        """[chain, R + 1]: expected values."""
        assert self._thought is not None
        if self._agreement:
            return self._thought.mean
        every = range(len(self._table.num_steps))
        plain = replace(
            self.question(),
            counts=self._table.once(),
            priors=self._value_priors,
            before=None,
            changed=every,
        )
        return answer([plain])[0].mean

    def question(self) -> Question:
        """What is known so far."""
        return Question(
            num_steps=self._table.num_steps,
            counts=self._table.counts,
            outcome=self._table.outcome,
            priors=self._priors,
            before=self._thought,
            changed=sorted(self._changed),
        )

    def hear(self, thought: Thought, rates: NDArray[np.float64]) -> None:
        """Take the answer to the last question."""
        self._thought, self._rates = thought, rates
        self._changed = set()

    def _ask(self, prefix: int, size: int) -> None:
        self._asked[prefix] = self._asked.get(prefix, 0) + size
        self._num_due += size
        candidates = self.candidates.prefixes
        if self._asked[prefix] == self._max_rollouts and prefix in candidates:
            self._full.add(candidates.index(prefix))

    def _choose(self) -> list[tuple[int, int]]:
        """Prefixes worth their price and how many rollouts of each, the best of each solution.

        Rollouts of one solution's prefix teach of others only what they share, so prefixes that
        no solution has both of are rolled out side by side: fewer rounds, the same rollouts.
        """
        if self._changed:
            think_together([self])
        assert self._rates is not None
        rates = self._rates
        if self._full:
            rates = rates.copy()
            rates[list(self._full)] = -1.0
        found: list[tuple[int, int]] = []
        tokens_left = self._tokens_left
        free = set(range(len(self._table.num_steps)))
        for best in np.argsort(-rates, kind="stable").tolist():
            if not free or rates[best] <= self._min_gain:
                break
            if not free.issuperset(self.candidates.chains[best]):
                continue
            prefix = self.candidates.prefixes[best]
            asked = self._asked.get(prefix, 0)
            # The first rollouts say most: begin with one, and double.
            size = min(self._batch, max(1, asked), self._max_rollouts - asked)
            tokens_left -= size * self.candidates.tokens[best]
            if tokens_left < 0:
                break
            found.append((prefix, size))
            free -= self.candidates.chains[best]
        return found

    def _kind(self, path: SolutionPath, counts: Sequence[Counts]) -> Kind:
        if path.outcome is Outcome.RIGHT:
            return "right"
        siblings = any(p.sampled and p.outcome is Outcome.RIGHT for p in self._paths)
        rolled = any(counts[prefix].num_right for prefix in (ROOT, *path.prefixes))
        return "found" if siblings or rolled else "lost"

    def _judge(
        self,
        path: SolutionPath,
        counts: Sequence[Counts],
        by_steps_to_go: NDArray[np.float64],
        means: NDArray[np.float64],
    ) -> Judgement:
        steps = path.num_steps
        told = calibrated(
            np.append(by_steps_to_go[steps:0:-1], by_steps_to_go[0]),
            agreement=self._agreement,
            kind=self._kind(path, counts),
            min_gain_per_token=self._min_gain,
        )
        posterior = tuple(told.tolist())
        mode = int(told.argmax())
        # The last step's label is the outcome: it is wrong only if that is.
        spared = mode == steps - 1 and path.outcome is not Outcome.WRONG
        first_error = None if mode == steps or spared else mode
        hard = [first_error is None or t < first_error for t in range(steps - 1)]
        sources: list[LabelSource] = ["posterior"] * (steps - 1)
        estimates = [
            estimate_anytime(
                counts[prefix],
                horizon=self._max_rollouts,
                truncated=self._truncated,
                mean=float(means[steps - 1 - t]),
            )
            for t, prefix in enumerate(path.prefixes)
        ]
        return Judgement(
            hard=(*hard, outcome_label(path.outcome)),
            sources=(*sources, "outcome"),
            first_error=first_error,
            estimates=(*estimates, outcome_estimate(path.outcome)),
            posterior=posterior,
        )


def _candidates(table: EvidenceTable) -> Candidates:
    """Prefixes to choose from, where each lies in the chains, and its rollouts' expected tokens."""
    prefixes: list[int] = []
    tokens: list[float] = []
    places: list[tuple[int, int]] = []
    starts: list[int] = []
    held: list[frozenset[int]] = []
    seen: set[tuple[tuple[int, int], ...]] = set()
    for prefix, holders in sorted(table.holders.items()):
        if tuple(holders) in seen:
            continue  # says the same as one that is there already
        seen.add(tuple(holders))
        starts.append(len(places))
        held.append(frozenset(chain for chain, _ in holders))
        prefixes.append(prefix)
        left = 0.0
        for chain, depth in holders:
            to_go = table.paths[chain].num_steps - depth
            known = table.paths[chain].step_tokens
            left += sum(known[depth:]) if known else UNKNOWN_STEP_TOKENS * to_go
            places.append((chain, to_go))
        tokens.append(max(1.0, left / len(holders)))
    chains, to_go_ = np.array(places, dtype=np.intp).reshape(-1, 2).T
    return Candidates(
        prefixes=tuple(prefixes),
        tokens=np.array(tokens),
        places=(chains, to_go_),
        copies=table.copies[chains].astype(np.float64),
        starts=np.array(starts, dtype=np.intp),
        chains=tuple(held),
    )


def think_together(estimators: Iterable[PosteriorEstimator]) -> None:
    """Think for many estimators at once; they then want what they would have wanted alone."""
    thinking = list(estimators)
    thoughts = answer([estimator.question() for estimator in thinking])
    found = rates([(e.candidates, t) for e, t in zip(thinking, thoughts, strict=True)])
    for estimator, thought, rate in zip(thinking, thoughts, found, strict=True):
        estimator.hear(thought, rate)
