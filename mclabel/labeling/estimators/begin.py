"""Makes the estimators of one problem: one estimator for all completers, or one for each.

Completers are the models that sample rollouts; the author is the model that wrote the solutions.
All jobs call estimators through the classes of this module, which check every value that an
estimator returns. If each completer has its own estimator, the labels are those of the strongest
completer's estimator (the one with the highest cost).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mclabel.core.boundary import Boundary, check_item_count, describe_value
from mclabel.core.records import Counts
from mclabel.labeling.estimators.base import (
    MAX_ROLLOUTS,
    Estimator,
    EstimatorSettings,
    Judgement,
    RunLearner,
)
from mclabel.labeling.estimators.paths import (
    Probe,
    ProblemPaths,
    RecordedRollout,
    find_strongest_completer_index,
)


def begin_learner(
    settings: EstimatorSettings, read_named_file: Callable[[str], str]
) -> RunLearner | None:
    """Make the learner of a run; None if the estimator has no learner.

    Args:
        settings: settings of the estimator, which name its class.
        read_named_file: function that returns the text of a file or URL named in the settings.

    Raises:
        ComponentError: the learner cannot be made.
    """
    component = settings.component
    boundary = Boundary("estimators", component)
    learner: RunLearner | None = boundary.call(
        "learner", component.learner, settings, read_named_file
    )
    return learner


class CheckedEstimator:
    """A wrapper that checks an estimator's return values, and turns its exceptions into
    `ComponentError`.
    """

    def __init__(self, estimator: Estimator, problem: ProblemPaths) -> None:
        """Wrap an estimator.

        Args:
            estimator: estimator of the problem, which has not received a rollout yet.
            problem: problem with the paths of its solutions.
        """
        self.estimator, self.estimators = estimator, [estimator]
        self.follow, self.takes_all = estimator.follow, estimator.takes_all
        self._num_steps = [path.num_steps for path in problem.paths]
        self._num_completers = len(problem.completers)
        self._num_asked: Counter[Probe] = Counter()
        self._boundary = Boundary("estimators", type(estimator))

    @property
    def is_due(self) -> bool:
        """Return whether `decide_together` should run before the next `wanted`."""
        return self._boundary.call("is_due", lambda: self.estimator.is_due)

    def wanted(self, num_prefixes: int) -> list[Probe]:
        """Return the rollouts that the estimator requests now, one entry per rollout.

        Args:
            num_prefixes: number of prefixes that the problem has so far.

        Raises:
            ComponentError: the estimator asks for a prefix or a completer that does not exist, or
                for more than `MAX_ROLLOUTS` rollouts of a prefix.
        """
        wanted = self._boundary.call(
            "wanted", self.estimator.wanted, result_type=Sequence[int | Probe]
        )
        probes = [Probe(prefix) if isinstance(prefix, int) else Probe(*prefix) for prefix in wanted]
        self._num_asked.update(probes)
        for probe in probes:
            if fault := self._find_probe_fault(probe, num_prefixes):
                raise self._boundary.make_protocol_error("wanted", fault)
        return probes

    def _find_probe_fault(self, probe: Probe, num_prefixes: int) -> str | None:
        if not 0 <= probe.prefix < num_prefixes:
            rule = f"the problem has prefixes 0 to {num_prefixes - 1}"
            return f"asked for prefix {probe.prefix}, but {rule}"
        if not 0 <= probe.completer < self._num_completers:
            rule = f"the problem has completers 0 to {self._num_completers - 1}"
            return f"asked for completer {probe.completer}, but {rule}"
        if self._num_asked[probe] > MAX_ROLLOUTS:
            return f"asked for more than {MAX_ROLLOUTS:,} rollouts of prefix {probe.prefix}"
        return None

    def record(self, rollout: RecordedRollout) -> None:
        """Pass the outcome of a rollout on to the estimator."""
        self._boundary.call("record", self.estimator.record, rollout)

    def judge(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Return the estimator's labels, one judgement per solution, and check them.

        Args:
            counts: for each completer, counts of rollout outcomes, one entry per prefix index.

        Raises:
            ComponentError: the estimator does not return one valid judgement per solution.
        """
        estimator = self.estimator
        judge = (
            (lambda: estimator.judge_completers(counts))
            if estimator.joint
            else lambda: estimator.judge(*counts)
        )
        judgements = self._boundary.call(
            "judge", judge, result_type=list[Judgement], rule=self._find_judgements_fault
        )
        return list(judgements)

    def _find_judgements_fault(self, judgements: Sequence[Judgement]) -> str | None:
        if fault := check_item_count("judgements of", judgements, "solution", len(self._num_steps)):
            return fault
        for number, (judgement, steps) in enumerate(zip(judgements, self._num_steps, strict=True)):
            if fault := _find_judgement_fault(judgement, steps):
                return f"{fault} (solution {number}, {steps} steps, the last one included)"
        return None

    def record_evidence(
        self, learner: RunLearner, problem: ProblemPaths, *, num_tokens: int
    ) -> None:
        """Pass what the finished estimator observed to the run's learner, which fits its parameters
        to it.
        """
        name, record = "the learner's record", learner.record
        self._boundary.call(name, record, problem, self.estimator, num_tokens=num_tokens)


def _find_judgement_fault(judgement: Judgement, steps: int) -> str | None:
    for name in ("hard", "sources", "estimates"):
        if fault := check_item_count(f"{name} of", getattr(judgement, name), "step", steps):
            return fault
    if judgement.first_error is not None and judgement.first_error >= steps:
        return (
            f"gave first_error={describe_value(judgement.first_error)}, must be the index of a "
            "step, or None"
        )
    if judgement.states is not None and (
        fault := check_item_count("states of", judgement.states, "step", steps)
    ):
        return fault
    if judgement.posterior is not None and len(judgement.posterior) != steps + 1:
        given = len(judgement.posterior)
        return f"gave a posterior of {given} entries, must be {steps + 1}: one more than steps"
    return None


class SeparateEstimators:
    """Independent checked estimators of a problem, one for each completer."""

    def __init__(self, parts: Sequence[CheckedEstimator], problem: ProblemPaths) -> None:
        """Combine the estimators of a problem.

        Args:
            parts: one estimator per completer. Each was made for the problem that
                `make_problem_for_completer` returns.
            problem: problem with all its completers.
        """
        self._parts, self._strongest = parts, find_strongest_completer_index(problem.completers)
        self._tokens = [0] * len(parts)
        self.estimators = [estimator for part in parts for estimator in part.estimators]
        self.follow, self.takes_all = parts[0].follow, parts[0].takes_all

    @property
    def is_due(self) -> bool:
        """Return whether `decide_together` should run before the next `wanted`."""
        return any(part.is_due for part in self._parts)

    def wanted(self, num_prefixes: int) -> list[Probe]:
        """Return the rollouts that all the estimators request now, one entry per rollout."""
        return [
            Probe(probe.prefix, number)
            for number, part in enumerate(self._parts)
            for probe in part.wanted(num_prefixes)
        ]

    def record(self, rollout: RecordedRollout) -> None:
        """Pass a rollout on to the estimator of the completer that sampled it."""
        self._tokens[rollout.completer] += rollout.num_tokens * rollout.is_requested
        self._parts[rollout.completer].record(replace(rollout, completer=0))

    def judge(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Label the solutions by the strongest completer's rollouts."""
        return self._parts[self._strongest].judge([counts[self._strongest]])

    def record_evidence(
        self, learner: RunLearner, problem: ProblemPaths, *, num_tokens: int
    ) -> None:
        """Pass what each finished estimator observed to the run's learner.

        The learner receives one problem per completer, with the tokens of that completer alone.
        """
        for number, part in enumerate(self._parts):
            part.record_evidence(
                learner,
                make_problem_for_completer(problem, number),
                num_tokens=self._tokens[number],
            )


def make_problem_for_completer(problem: ProblemPaths, completer_index: int) -> ProblemPaths:
    """Return a problem as the estimator of one completer receives it.

    Sampled solutions count as rollouts only for the author, because no other completer sampled
    them.

    Args:
        problem: problem with all its completers.
        completer_index: index of the completer in `problem.completers`.
    """
    completer = problem.completers[completer_index]
    paths = problem.paths
    if not completer.is_author:
        paths = [replace(path, sampled=False) for path in paths]
    return replace(problem, paths=paths, completers=(completer,))


ProblemEstimator = CheckedEstimator | SeparateEstimators
"""The estimator of one problem, or its estimators if there is one per completer. The two classes
have the same methods."""


def begin_estimator(
    settings: EstimatorSettings,
    problem: ProblemPaths,
    **learned: Any,
) -> ProblemEstimator:
    """Make the estimator of a problem.

    Args:
        settings: settings of the estimator, which name its class.
        problem: problem with the paths of its solutions and its completers.
        learned: keyword arguments `knowledge` and `min_gain` of `Estimator.begin`, from the run's
            learner; None keeps the estimator's default.

    Raises:
        ComponentError: the estimator cannot be made.
    """
    if settings.component.joint:
        return _begin_checked_estimator(settings, problem, learned)
    seen = [
        make_problem_for_completer(problem, number) for number in range(len(problem.completers))
    ]
    parts = [_begin_checked_estimator(settings, paths, learned) for paths in seen]
    return parts[0] if len(parts) == 1 else SeparateEstimators(parts, problem)


def _begin_checked_estimator(
    settings: EstimatorSettings, problem: ProblemPaths, learned: dict[str, Any]
) -> CheckedEstimator:
    component = settings.component
    begin = Boundary("estimators", component).call
    return CheckedEstimator(begin("begin", component.begin, settings, problem, **learned), problem)
