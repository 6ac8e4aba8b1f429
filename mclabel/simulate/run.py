"""A simulated run: many cases, one estimator, and what it learns over them."""

from __future__ import annotations

from mclabel.data.readers.remote import read_text
from mclabel.estimators import (
    CompleterRule,
    EstimatorSettings,
    ProblemEstimator,
    begin_estimator,
    begin_learner,
)
from mclabel.simulate.replay import Case, Replay


class SimulatedRun:
    """Makes the estimators of a run's cases, as labelling does on one engine.

    Where the estimator has a learner, cases begin with what it has learned so far.
    """

    def __init__(self, settings: EstimatorSettings, *, rule: CompleterRule = "strongest") -> None:
        """Begin a run.

        Args:
            settings: of the estimator.
            rule: by which judgements on several completers are combined.

        Raises:
            ConfigError: a file that the settings name cannot be read.
        """
        self.settings, self._rule = settings, rule
        self.learner = begin_learner(settings, read_text)

    def begin(self, case: Case) -> ProblemEstimator:
        """Make the estimator of a case."""
        knowledge, min_gain = None, None
        if self.learner is not None:
            knowledge, min_gain = self.learner.knowledge, self.learner.min_gain_per_token
        return begin_estimator(
            self.settings,
            case.problem,
            rule=self._rule,
            knowledge=knowledge,
            min_gain_per_token=min_gain,
        )

    def record(self, case: Case, checked: ProblemEstimator, done: Replay) -> None:
        """Let the learner record a finished case."""
        if self.learner is not None:
            checked.learned_by(self.learner, case.problem, num_tokens=done.num_tokens)

    def fit(self) -> None:
        """Let the learner learn from what it recorded, if that is evidence enough."""
        if self.learner is not None and self.learner.is_due:
            self.learner.fit()
