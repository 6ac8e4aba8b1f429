"""Where an estimator's answers come in: all jobs ask through here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from mclabel.boundary import Boundary, shown
from mclabel.estimators.base import (
    MAX_ROLLOUTS,
    Estimator,
    EstimatorSettings,
    Follow,
    Judgement,
    RunLearner,
)
from mclabel.estimators.paths import Probe, ProblemPaths, RecordedRollout
from mclabel.records import Counts


def begin_learner(settings: EstimatorSettings, read: Callable[[str], str]) -> RunLearner | None:
    """Make what learns over a run, where the estimator has it.

    Args:
        settings: that name the estimator.
        read: gives the text of a file or URL that the settings name.

    Raises:
        ComponentError: it cannot be made.
    """
    component = settings.component
    around = Boundary.around("estimators", component)
    learner: RunLearner | None = around.call("learner", component.learner, settings, read)
    return learner


class CheckedEstimator:
    """An estimator behind its boundary."""

    def __init__(self, estimator: Estimator, problem: ProblemPaths) -> None:
        """Stand before an estimator.

        Args:
            estimator: of the problem, without any rollouts so far.
            problem: with the paths of its solutions.
        """
        self.estimator = estimator
        self._num_steps = [path.num_steps for path in problem.paths]
        self._num_completers = len(problem.completers)
        self._asked: Counter[Probe] = Counter()
        self._around = Boundary.around("estimators", type(estimator))

    @property
    def estimators(self) -> list[Estimator]:
        """The estimator."""
        return [self.estimator]

    @property
    def follow(self) -> Follow:
        """Which prefixes of a rollout are reported to it."""
        return self.estimator.follow

    @property
    def takes_all(self) -> bool:
        """Whether it takes rollouts that it did not ask for."""
        return self.estimator.takes_all

    @property
    def is_due(self) -> bool:
        """Whether its next decision is worth making with those of other problems."""
        return self._around.call("is_due", lambda: self.estimator.is_due)

    def wanted(self, num_prefixes: int) -> list[Probe]:
        """What to start one more rollout of; see `Estimator.wanted`.

        Args:
            num_prefixes: that the problem has by now.

        Raises:
            ComponentError: it asks for something else, or without end.
        """
        wanted = self._around.call("wanted", self.estimator.wanted, must=Sequence[int | Probe])
        probes = [Probe(one) if isinstance(one, int) else Probe(*one) for one in wanted]
        self._asked.update(probes)
        for probe in probes:
            if fault := self._fault(probe, num_prefixes):
                raise self._around.broken("wanted", fault)
        return probes

    def _fault(self, probe: Probe, num_prefixes: int) -> str | None:
        if not 0 <= probe.prefix < num_prefixes:
            rule = f"of a problem whose prefixes are 0 to {num_prefixes - 1}"
            return f"asked for prefix {probe.prefix} {rule}"
        if not 0 <= probe.completer < self._num_completers:
            return f"asked completer {probe.completer}, must be 0 to {self._num_completers - 1}"
        if self._asked[probe] > MAX_ROLLOUTS:
            return f"asked for more than {MAX_ROLLOUTS:,} rollouts of prefix {probe.prefix}"
        return None

    def record(self, rollout: RecordedRollout) -> None:
        """Give it the outcome of a rollout that was asked for."""
        self._around.call("record", self.estimator.record, rollout)

    def judge(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Label the solutions; see `Estimator.judge_completers`.

        Raises:
            ComponentError: it does not give one sound judgement a solution.
        """
        one = self.estimator
        judge = (lambda: one.judge_completers(counts)) if one.joint else lambda: one.judge(*counts)
        found = self._around.call("judge", judge, must=list[Judgement], rule=self._misjudged)
        return list(found)

    def _misjudged(self, found: Sequence[Judgement]) -> str | None:
        if len(found) != len(self._num_steps):
            return f"gave {len(found)} judgements of {len(self._num_steps)} solutions"
        for number, (one, steps) in enumerate(zip(found, self._num_steps, strict=True)):
            place = f"(solution {number}, {steps} steps, the last one included)"
            for name in ("hard", "sources", "estimates"):
                if (given := len(getattr(one, name))) != steps:
                    return f"gave {given} {name}, must give one per step {place}"
            if one.first_error is not None and one.first_error >= steps:
                error = shown(one.first_error)
                return f"gave first_error={error}, must be an index of a step, or None {place}"
            if one.posterior is not None and len(one.posterior) != steps + 1:
                given = len(one.posterior)
                return f"gave {given} chances as posterior, must be one per step and one {place}"
        return None

    def learned_by(self, learner: RunLearner, problem: ProblemPaths, *, num_tokens: int) -> None:
        """Let the run's learner record what the estimator has seen; see `RunLearner.record`."""
        record = learner.record
        name = "the learner's record"
        self._around.call(name, record, problem, self.estimator, num_tokens=num_tokens)
