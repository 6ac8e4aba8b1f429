"""Keeps the priors of a run: learns them from finished problems, and holds to a budget.

A run begins with wide priors, or those of a run before it. With wide priors the posterior knows
little, so the price of a token is lowered and problems are rolled out about as much as `bisect`
would: the pilot. Its evidence fits the first priors; they are fitted again each time the evidence
has grown by half. Learners of one run, on other engines or before an interruption, are heard of
through the run's store: priors that were fitted on more solutions than one's own are adopted, and
no pilot is needed then. What a label rested on is named with it: id of the priors, and price.

A budget turns into a price: a little dearer after a problem that spent more than its share,
a little cheaper after one that spent less. So the price at which information is bought becomes the
same for all problems, and the budget goes where labels are least certain.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque

from mclabel.estimators.posterior.chain import Evidence
from mclabel.estimators.posterior.fit import fit_priors
from mclabel.estimators.posterior.priors import Priors, wide_priors

GROWTH = 1.5
MAX_PROBLEMS = 2000
"""Of an answer class, the latest, that priors are fitted on."""
PILOT_DISCOUNT = 0.1
ADAPTATION = 0.05
"""Largest relative change of the price after one problem."""


class PriorLearner:
    """Priors and price for the next problem."""

    def __init__(
        self,
        *,
        price: float,
        pilot: int,
        tokens_per_solution: float | None = None,
        priors: Priors | None = None,
    ) -> None:
        """Args:
        price: gain a token under which nothing is rolled out.
        pilot: solutions labelled before priors are first fitted.
        tokens_per_solution: budget that the price is led by, `price` being the first.
        priors: to begin with, in place of wide ones and of a pilot.
        """
        self.priors = priors or wide_priors()
        self._price, self._pilot, self._budget = price, pilot, tokens_per_solution
        self._evidence: dict[str, deque[Evidence]] = defaultdict(lambda: deque(maxlen=MAX_PROBLEMS))
        self._once: dict[str, deque[Evidence]] = defaultdict(lambda: deque(maxlen=MAX_PROBLEMS))
        self._num_solutions = 0
        self._fitted_at = self._adopted = 0

    @property
    def price(self) -> float:
        """Of the next problem."""
        learned = self.priors.num_solutions > 0
        return self._price if learned else self._price * PILOT_DISCOUNT

    def add(
        self,
        answer_class: str,
        evidence: Evidence,
        *,
        num_tokens: int,
        once: Evidence | None = None,
    ) -> None:
        """Take what was seen of a finished problem, and what its rollouts cost.

        Args:
            answer_class: of the problem's answer.
            evidence: that first errors were found on.
            num_tokens: of its rollouts.
            once: the same with every outcome counted once, where that is another.
        """
        solutions = len(evidence.num_steps)
        if not solutions:
            return
        self._evidence[answer_class].append(evidence)
        if once is not None:
            self._once[answer_class].append(once)
        self._num_solutions += solutions
        if self._budget is not None and self.priors.num_solutions:
            excess = num_tokens / (solutions * self._budget) - 1
            self._price *= math.exp(ADAPTATION * max(-1.0, min(1.0, excess)))

    @property
    def due(self) -> bool:
        """Whether there is evidence enough for another fit."""
        first = self._pilot if self.priors.num_solutions == 0 else 2 * self._pilot
        return self._num_solutions >= max(first, GROWTH * self._fitted_at, self._adopted)

    def adopt(self, priors: Priors) -> None:
        """Take priors that another learner of this run fitted, if it had seen more."""
        if priors.num_solutions > self.priors.num_solutions:
            self.priors, self._adopted = priors, priors.num_solutions

    def fit(self) -> None:
        """Fit the priors again; seconds, for thousands of solutions."""
        self._fitted_at = self._num_solutions
        evidence, once = (
            {name: list(parts) for name, parts in kept.items()}
            for kept in (self._evidence, self._once)
        )
        self.priors = fit_priors(evidence, once).as_written
