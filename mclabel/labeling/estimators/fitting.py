"""Keeps what a run has learned: fits it to finished problems, and holds to a budget.

A run begins with what is believed of any, or with what an earlier run has learned. Knowing nothing,
the posterior is uncertain, so a pilot lowers the minimum gain per token and rolls problems out
about as much as `bisect` would. Its evidence gives the first fit, which is repeated each time the
evidence has grown by half. Learners of one run, on other engines or before an interruption, share
what they learn through the run's store. A learner adopts what was fitted on more solutions than its
own, and then needs no pilot. A label records the id of it and the minimum gain per token.

A budget adjusts the minimum gain per token: it rises a little after a problem that spent more than
its share, and falls a little after one that spent less. So it converges to one value for all
problems, and the budget is spent where labels are least certain.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, Protocol, TypeVar

from mclabel.labeling.estimators.base import Knowledge, RunLearner
from mclabel.labeling.estimators.paths import ProblemPaths

GROWTH = 1.5
"""Growth factor of the evidence after which it is fitted again."""
MAX_PROBLEMS = 2000
"""Largest number of problems of an answer class, the latest, that are fitted."""
ADAPTATION = 0.05
"""Largest relative change of the least gain a token after one problem."""


class Fitted(Knowledge, Protocol):
    """Knowledge that was fitted."""

    @property
    def num_solutions(self) -> int:
        """Number of solutions that it was fitted to."""
        ...


E_co = TypeVar("E_co", covariant=True)


class HoldsEvidence(Protocol[E_co]):
    """What the learner reads from a finished estimator."""

    def evidence(self) -> E_co:
        """The evidence on which the estimator's labels rest."""
        ...


K = TypeVar("K", bound=Fitted)
E = TypeVar("E")


class FittingLearner(RunLearner, ABC, Generic[K, E]):
    """Fits what a run learns, and adjusts the minimum gain per token to a budget.

    See `RunLearner`.
    """

    pilot_discount: ClassVar[float] = 0.1
    """Factor of the least gain a token during the pilot."""

    def __init__(
        self,
        knowledge: K,
        *,
        min_gain_per_token: float,
        pilot: int,
        tokens_per_solution: float | None = None,
    ) -> None:
        """Begin a run.

        Args:
            knowledge: to begin with; with what was fitted there is no pilot.
            min_gain_per_token: gain per token below which nothing is rolled out.
            pilot: solutions labelled before the first fit.
            tokens_per_solution: budget to which `min_gain_per_token` is adjusted.
        """
        self._knowledge = knowledge
        self._min_gain, self._pilot, self._budget = min_gain_per_token, pilot, tokens_per_solution
        self._evidence: dict[str, deque[E]] = defaultdict(lambda: deque(maxlen=MAX_PROBLEMS))
        self._num_solutions = 0
        self._fitted_at = self._adopted = 0

    @abstractmethod
    def read(self, content: str) -> K:
        """What `to_json` of the knowledge wrote."""

    @abstractmethod
    def size(self, evidence: E) -> int:
        """Number of solutions of a problem that its evidence is on."""

    @abstractmethod
    def fitted(self, evidence: Mapping[str, Sequence[E]]) -> K:
        """What is learned from the evidence on problems, by answer class."""

    @property
    def knowledge(self) -> K:
        """What the next problem starts from."""
        return self._knowledge

    @property
    def min_gain_per_token(self) -> float:
        """The least gain a token of the next problem, rounded to six digits as it is stored."""
        learned = self._knowledge.num_solutions > 0
        return float(f"{self._min_gain if learned else self._min_gain * self.pilot_discount:.6g}")

    def record(
        self, problem: ProblemPaths, estimator: HoldsEvidence[E], *, num_tokens: int
    ) -> None:
        """Add the evidence on a finished problem and the cost of its rollouts.

        Args:
            problem: that it labelled.
            estimator: when it is done.
            num_tokens: of the problem's rollouts.
        """
        answer_class = problem.answer_class
        evidence = estimator.evidence()
        solutions = self.size(evidence)
        if not solutions:
            return
        self._evidence[answer_class].append(evidence)
        self._num_solutions += solutions
        if self._budget is not None and self._knowledge.num_solutions:
            excess = num_tokens / (solutions * self._budget) - 1
            self._min_gain *= math.exp(ADAPTATION * max(-1.0, min(1.0, excess)))

    @property
    def num_pilot(self) -> int:
        """Solutions labelled before the first fit; 0 if it began with some."""
        return 0 if self._knowledge.num_solutions else self._pilot

    @property
    def is_due(self) -> bool:
        """Whether there is enough evidence for another fit."""
        first = self._pilot if self._knowledge.num_solutions == 0 else 2 * self._pilot
        return self._num_solutions >= max(first, GROWTH * self._fitted_at, self._adopted)

    def adopt(self, content: str) -> None:
        """Adopt what another learner of this run has learned if it rests on more solutions."""
        found = self.read(content)
        if found.num_solutions > self._knowledge.num_solutions:
            self._knowledge, self._adopted = found, found.num_solutions

    def fit(self) -> None:
        """Fit again, which takes seconds for thousands of solutions."""
        self._fitted_at = self._num_solutions
        evidence = {name: list(seen) for name, seen in list(self._evidence.items())}
        self._knowledge = self.fitted(evidence)  # while others are recorded
