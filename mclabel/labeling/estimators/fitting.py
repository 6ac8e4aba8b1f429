"""Fits the knowledge of a run to its finished problems.

Knowledge is the parameters of an estimator; evidence is what estimators observed on finished
problems. A run begins with knowledge of the package or of an earlier run. Knowledge is first fitted
after the first solutions (the pilot), and again each time the evidence has grown by half. The
learners of a run's engines share their knowledge through the run's store, and a learner adopts
knowledge that was fitted to more solutions than its own. A label records the id of the knowledge on
which it is based.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, Self, TypeVar

from mclabel.labeling.estimators.base import Knowledge, RunLearner
from mclabel.labeling.estimators.paths import ProblemPaths

GROWTH = 1.5
"""Knowledge is fitted again once the number of solutions in the evidence has grown by this
factor."""
MAX_PROBLEMS = 2000
"""Maximum number of problems of one answer class (kind of gold answer) that a fit uses. The latest
problems are used."""


class FittedKnowledge(Knowledge, Protocol):
    """Parameters of an estimator that were fitted to the evidence of finished problems."""

    @property
    def num_solutions(self) -> int:
        """The number of solutions to which the parameters were fitted; 0 before the first fit."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the JSON that `to_json` wrote."""


class ProblemEvidence(Protocol):
    """Evidence on one problem."""

    @property
    def num_solutions(self) -> int:
        """The number of solutions in the evidence."""


E_co = TypeVar("E_co", covariant=True)


class EstimatorWithEvidence(Protocol[E_co]):
    """A finished estimator whose evidence the learner reads."""

    def evidence(self) -> E_co:
        """Return the observations on which the estimator's labels are based."""


K = TypeVar("K", bound=FittedKnowledge)
E = TypeVar("E", bound=ProblemEvidence)


class FittingLearner(RunLearner, Generic[K, E]):
    """A `RunLearner` that fits knowledge to the evidence of finished problems."""

    def __init__(
        self, knowledge: K, *, pilot: int, fit: Callable[[Mapping[str, Sequence[E]]], K]
    ) -> None:
        """Initialise the learner of a run.

        Args:
            knowledge: initial knowledge.
            pilot: number of solutions labelled before the first fit.
            fit: function that fits new knowledge. Its argument maps each answer class (kind of gold
                answer) to the evidence on its finished problems, one item per problem.
        """
        self._knowledge, self._pilot, self._fit_evidence = knowledge, pilot, fit
        self._evidence: dict[str, deque[E]] = defaultdict(lambda: deque(maxlen=MAX_PROBLEMS))
        self._num_solutions = 0
        self._fitted_at = self._adopted = 0

    @property
    def knowledge(self) -> K:
        """The parameters learned so far, from which the estimator of the next problem starts."""
        return self._knowledge

    def record(
        self, problem: ProblemPaths, estimator: EstimatorWithEvidence[E], *, num_tokens: int
    ) -> None:
        """Store the evidence of a finished problem for the next fit."""
        evidence = estimator.evidence()
        if solutions := evidence.num_solutions:
            self._evidence[problem.answer_class].append(evidence)
            self._num_solutions += solutions

    @property
    def is_due(self) -> bool:
        """Return whether there is enough evidence for another fit."""
        first = self._pilot if self._knowledge.num_solutions == 0 else 2 * self._pilot
        return self._num_solutions >= max(first, GROWTH * self._fitted_at, self._adopted)

    def adopt(self, content: str) -> None:
        """Adopt the knowledge of another learner of this run if it was fitted to more solutions."""
        knowledge = self._knowledge.from_json(content)
        if knowledge.num_solutions > self._knowledge.num_solutions:
            self._knowledge, self._adopted = knowledge, knowledge.num_solutions

    def fit(self) -> None:
        """Fit the knowledge to the recorded evidence; thousands of solutions take seconds.

        The knowledge is rounded as it is stored, so every engine that reads it uses the same.
        """
        self._fitted_at = self._num_solutions
        fitted = self._fit_evidence({name: list(seen) for name, seen in self._evidence.items()})
        self._knowledge = self._knowledge.from_json(fitted.to_json())
