"""Keeps the priors of a run: learns them from finished problems, and holds to a budget.

A run begins with wide priors, or with those of an earlier run. With wide priors the posterior is
uncertain, so a pilot lowers the minimum gain per token and rolls problems out about as much as
`bisect` would. Its evidence fits the first priors, which are fitted again each time the evidence
has grown by half. Learners of one run, on other engines or before an interruption, share their
priors through the run's store. A learner adopts priors that were fitted on more solutions than its
own, and then needs no pilot. A label records the id of its priors and the minimum gain per token.

A budget adjusts the minimum gain per token: it rises a little after a problem that spent more than
its share, and falls a little after one that spent less. So it converges to one value for all
problems, and the budget is spent where labels are least certain.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import Protocol

from mclabel.core.records import AUTHOR
from mclabel.labeling.estimators.paths import ProblemPaths
from mclabel.labeling.estimators.posterior.fit import Readings, fit_readings
from mclabel.labeling.estimators.posterior.priors import Priors, wide_priors

GROWTH = 1.5
"""Growth factor of the evidence after which priors are fitted again."""
MAX_PROBLEMS = 2000
"""Largest number of problems of an answer class, the latest, that priors are fitted on."""
PILOT_DISCOUNT = 0.1
"""Factor of the least gain a token during the pilot."""
ADAPTATION = 0.05
"""Largest relative change of the least gain a token after one problem."""


class HoldsEvidence(Protocol):
    """What the learner reads from a finished estimator."""

    def evidence(self) -> Readings:
        """The evidence on which the estimator's labels rest."""
        ...


def _latest() -> deque[Readings]:
    return deque(maxlen=MAX_PROBLEMS)


class PriorLearner:
    """Learns priors, and adjusts the minimum gain per token to a budget; see `RunLearner`."""

    def __init__(
        self,
        *,
        min_gain_per_token: float,
        pilot: int,
        tokens_per_solution: float | None = None,
        priors: Priors | None = None,
    ) -> None:
        """Begin a run.

        Args:
            min_gain_per_token: gain per token below which nothing is rolled out.
            pilot: solutions labelled before priors are first fitted.
            tokens_per_solution: budget to which `min_gain_per_token` is adjusted.
            priors: to begin with, instead of wide ones and a pilot.
        """
        self.knowledge = priors or wide_priors()
        self._min_gain, self._pilot, self._budget = min_gain_per_token, pilot, tokens_per_solution
        self._evidence: dict[str, deque[Readings]] = defaultdict(_latest)
        self._num_solutions = 0
        self._fitted_at = self._adopted = 0

    @property
    def min_gain_per_token(self) -> float:
        """The least gain a token of the next problem, rounded to six digits as it is stored."""
        learned = self.knowledge.num_solutions > 0
        return float(f"{self._min_gain if learned else self._min_gain * PILOT_DISCOUNT:.6g}")

    def record(self, problem: ProblemPaths, estimator: HoldsEvidence, *, num_tokens: int) -> None:
        """Add the evidence on a finished problem and the cost of its rollouts.

        Args:
            problem: that it labelled.
            estimator: when it is done.
            num_tokens: of the problem's rollouts.
        """
        answer_class = problem.answer_class
        evidence = estimator.evidence()
        solutions = len(evidence.outcomes[AUTHOR].num_steps)
        if not solutions:
            return
        self._evidence[answer_class].append(evidence)
        self._num_solutions += solutions
        if self._budget is not None and self.knowledge.num_solutions:
            excess = num_tokens / (solutions * self._budget) - 1
            self._min_gain *= math.exp(ADAPTATION * max(-1.0, min(1.0, excess)))

    @property
    def num_pilot(self) -> int:
        """Solutions labelled before priors are first fitted; 0 if it began with some."""
        return 0 if self.knowledge.num_solutions else self._pilot

    @property
    def is_due(self) -> bool:
        """Whether there is enough evidence for another fit."""
        first = self._pilot if self.knowledge.num_solutions == 0 else 2 * self._pilot
        return self._num_solutions >= max(first, GROWTH * self._fitted_at, self._adopted)

    def adopt(self, content: str) -> None:
        """Adopt the priors of another learner of this run if they rest on more solutions."""
        priors = Priors.from_json(content)
        if priors.num_solutions > self.knowledge.num_solutions:
            self.knowledge, self._adopted = priors, priors.num_solutions

    def fit(self) -> None:
        """Fit the priors again, which takes seconds for thousands of solutions."""
        self._fitted_at = self._num_solutions
        self.knowledge = fit_readings(self._evidence).as_written
