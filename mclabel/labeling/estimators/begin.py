"""The estimators of one problem: one estimator for all completers, or one for each.

All jobs ask through here. An estimator's answers are checked where they come in. Where each
completer has an estimator, labels are those of the strongest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mclabel.core.boundary import Boundary, miscounted, shown
from mclabel.core.records import Counts
from mclabel.labeling.estimators.base import (
    MAX_ROLLOUTS,
    Estimator,
    EstimatorSettings,
    Follow,
    Judgement,
    RunLearner,
)
from mclabel.labeling.estimators.paths import Probe, ProblemPaths, RecordedRollout, strongest


def begin_learner(settings: EstimatorSettings, read: Callable[[str], str]) -> RunLearner | None:
    """Make what learns over a run, where the estimator has it.

    Args:
        settings: that name the estimator.
        read: gives the text of a file or URL that the settings name.

    Raises:
        ComponentError: it cannot be made.
    """
    component = settings.component
    around = Boundary("estimators", component)
    learner: RunLearner | None = around.call("learner", component.learner, settings, read)
    return learner


class CheckedEstimator:
    """An estimator behind its boundary."""

    def __init__(self, estimator: Estimator, problem: ProblemPaths) -> None:
        """Stand before an estimator.

        Args:
            estimator: estimator of the problem, without any rollouts so far.
            problem: with the paths of its solutions.
        """
        self.estimator, self.estimators = estimator, [estimator]
        self.follow, self.takes_all = estimator.follow, estimator.takes_all
        self._num_steps = [path.num_steps for path in problem.paths]
        self._num_completers = len(problem.completers)
        self._asked: Counter[Probe] = Counter()
        self._around = Boundary("estimators", type(estimator))

    @property
    def is_due(self) -> bool:
        """Return whether its next decision is worth making with those of other problems."""
        return self._around.call("is_due", lambda: self.estimator.is_due)

    def wanted(self, num_prefixes: int) -> list[Probe]:
        """Return what to start one more rollout of; see `Estimator.wanted`.

        Args:
            num_prefixes: that the problem has by now.

        Raises:
            ComponentError: it asks for something else, or without end.
        """
        wanted = self._around.call(
            "wanted", self.estimator.wanted, result_type=Sequence[int | Probe]
        )
        probes = [Probe(prefix) if isinstance(prefix, int) else Probe(*prefix) for prefix in wanted]
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
        estimator = self.estimator
        judge = (
            (lambda: estimator.judge_completers(counts))
            if estimator.joint
            else lambda: estimator.judge(*counts)
        )
        judgements = self._around.call(
            "judge", judge, result_type=list[Judgement], rule=self._misjudged
        )
        return list(judgements)

    def _misjudged(self, judgements: Sequence[Judgement]) -> str | None:
        if fault := miscounted("judgements of", judgements, "solution", len(self._num_steps)):
            return fault
        for number, (judgement, steps) in enumerate(zip(judgements, self._num_steps, strict=True)):
            if fault := _misjudgement(judgement, steps):
                return f"{fault} (solution {number}, {steps} steps, the last one included)"
        return None

    def learned_by(self, learner: RunLearner, problem: ProblemPaths, *, num_tokens: int) -> None:
        """Let the run's learner record what the estimator has seen; see `RunLearner.record`."""
        name, record = "the learner's record", learner.record
        self._around.call(name, record, problem, self.estimator, num_tokens=num_tokens)


def _misjudgement(judgement: Judgement, steps: int) -> str | None:
    for name in ("hard", "sources", "estimates"):
        if fault := miscounted(f"{name} of", getattr(judgement, name), "step", steps):
            return fault
    if judgement.first_error is not None and judgement.first_error >= steps:
        return (
            f"gave first_error={shown(judgement.first_error)}, must be an index of a step, or None"
        )
    if judgement.states is not None and (
        fault := miscounted("states of", judgement.states, "step", steps)
    ):
        return fault
    if judgement.posterior is not None and len(judgement.posterior) != steps + 1:
        return f"gave {len(judgement.posterior)} chances as posterior, must be one per step and one"
    return None


class EachCompleter:
    """A checked estimator for each completer, which knows of no other."""

    def __init__(self, parts: Sequence[CheckedEstimator], problem: ProblemPaths) -> None:
        """Stand around the estimators of a problem.

        Args:
            parts: one a completer, each of the problem as `seen_by` it.
            problem: with its completers.
        """
        self._parts, self._strongest = parts, strongest(problem.completers)
        self._tokens = [0] * len(parts)

    @property
    def estimators(self) -> list[Estimator]:
        """One a completer."""
        return [estimator for part in self._parts for estimator in part.estimators]

    @property
    def follow(self) -> Follow:
        """Which prefixes of a rollout are reported to them."""
        return self._parts[0].follow

    @property
    def takes_all(self) -> bool:
        """Return whether they take rollouts that they did not ask for."""
        return self._parts[0].takes_all

    @property
    def is_due(self) -> bool:
        """Return whether a decision of one of them is worth making with those of other problems."""
        return any(part.is_due for part in self._parts)

    def wanted(self, num_prefixes: int) -> list[Probe]:
        """Return what each of them wants of its completer; see `CheckedEstimator.wanted`."""
        return [
            Probe(probe.prefix, number)
            for number, part in enumerate(self._parts)
            for probe in part.wanted(num_prefixes)
        ]

    def record(self, rollout: RecordedRollout) -> None:
        """Give a rollout to the estimator of who sampled it."""
        self._tokens[rollout.completer] += rollout.num_tokens * rollout.asked
        self._parts[rollout.completer].record(replace(rollout, completer=0))

    def judge(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Label the solutions by the strongest completer's rollouts."""
        return self._parts[self._strongest].judge([counts[self._strongest]])

    def learned_by(self, learner: RunLearner, problem: ProblemPaths, *, num_tokens: int) -> None:
        """Let the run's learner record what each has seen; see `RunLearner.record`.

        To it each completer's is a problem of its own, with the tokens of this completer.
        """
        for number, part in enumerate(self._parts):
            part.learned_by(learner, seen_by(problem, number), num_tokens=self._tokens[number])


def seen_by(problem: ProblemPaths, number: int) -> ProblemPaths:
    """A problem as the estimator of one completer sees it.

    The solutions are free rollouts of the author alone.
    """
    completer = problem.completers[number]
    paths = problem.paths
    if not completer.is_author:
        paths = [replace(path, sampled=False) for path in paths]
    return replace(problem, paths=paths, completers=(completer,))


ProblemEstimator = CheckedEstimator | EachCompleter
"""The estimators of one problem; both classes have the same methods."""


def begin_estimator(
    settings: EstimatorSettings,
    problem: ProblemPaths,
    **learned: Any,
) -> ProblemEstimator:
    """Make the estimator of a problem.

    Args:
        settings: that name it.
        problem: with the paths of its solutions, and its completers.
        learned: `knowledge` and `min_gain` of the run's learner.

    Raises:
        ComponentError: it cannot be made.
    """
    if settings.component.joint:
        return _begin(settings, problem, learned)
    seen = [seen_by(problem, number) for number in range(len(problem.completers))]
    parts = [_begin(settings, paths, learned) for paths in seen]
    return parts[0] if len(parts) == 1 else EachCompleter(parts, problem)


def _begin(
    settings: EstimatorSettings, problem: ProblemPaths, learned: dict[str, Any]
) -> CheckedEstimator:
    component = settings.component
    begin = Boundary("estimators", component).call
    return CheckedEstimator(begin("begin", component.begin, settings, problem, **learned), problem)
