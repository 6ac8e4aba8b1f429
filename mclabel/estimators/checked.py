"""Where an estimator's answers come in: labelling, regrading and simulation all ask through here.

What the protocol does not allow ends in a `ComponentError` that names the estimator, the method
and what it gave (`mclabel.boundary`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence

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
from mclabel.stats.values import StepEstimate

MAX_SOURCE = 64
"""Characters of the name of a label's source."""


def begin_learner(settings: EstimatorSettings, read: Callable[[str], str]) -> RunLearner | None:
    """Make what learns over a run, where the estimator has it.

    Args:
        settings: that name the estimator.
        read: gives the text of a file or URL that the settings name.

    Raises:
        ComponentError: it cannot be made.
    """
    component = settings.component
    with Boundary.around("estimators", component).calling("learner"):
        learner: RunLearner | None = component.learner(settings, read)
    return learner


class CheckedEstimator:
    """An estimator whose answers are checked."""

    def __init__(self, estimator: Estimator, problem: ProblemPaths) -> None:
        """Stand around an estimator.

        Args:
            estimator: of the problem, without any rollouts so far.
            problem: with the paths of its solutions.
        """
        self.estimator = estimator
        self._num_steps = [path.num_steps for path in problem.paths]
        self._num_completers = len(problem.completers)
        self._asked: Counter[Probe] = Counter()
        self._boundary = Boundary.around("estimators", type(estimator))

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
        with self._boundary.calling("is_due"):
            return self.estimator.is_due

    def wanted(self, num_prefixes: int) -> list[Probe]:
        """What to start one more rollout of; see `Estimator.wanted`.

        Args:
            num_prefixes: that the problem has by now.

        Raises:
            ComponentError: it asks for something else, or without end.
        """
        with self._boundary.calling("wanted"):
            wanted = self.estimator.wanted()
        if not isinstance(wanted, Sequence) or isinstance(wanted, str | bytes):
            raise self._broken("wanted", f"gave {shown(wanted)}, must give a sequence of indices")
        probes = [self._probe(one) for one in wanted]
        for prefix, completer in probes:
            if not 0 <= prefix < num_prefixes:
                raise self._broken(
                    "wanted",
                    f"asked for prefix {prefix} of a problem whose prefixes are 0 to "
                    f"{num_prefixes - 1}",
                )
            if not 0 <= completer < self._num_completers:
                raise self._broken(
                    "wanted",
                    f"asked completer {completer}, must be 0 to {self._num_completers - 1}",
                )
        self._asked.update(probes)
        for probe in probes:
            if self._asked[probe] > MAX_ROLLOUTS:
                raise self._broken(
                    "wanted",
                    f"asked for more than {MAX_ROLLOUTS:,} rollouts of prefix {probe.prefix}",
                )
        return probes

    def _probe(self, one: object) -> Probe:
        if type(one) is int:
            return Probe(one)
        if type(one) is Probe and all(type(number) is int for number in one):
            return one
        raise self._broken(
            "wanted", f"gave {shown(one)} among its indices, must give whole numbers"
        )

    def record(self, rollout: RecordedRollout) -> None:
        """Give it the outcome of a rollout that was asked for."""
        with self._boundary.calling("record"):
            self.estimator.record(rollout)

    def judge(self, counts: Sequence[Sequence[Counts]]) -> list[Judgement]:
        """Label the solutions; see `Estimator.judge_completers`.

        Raises:
            ComponentError: it does not give one sound judgement a solution.
        """
        with self._boundary.calling("judge"):
            estimator = self.estimator
            found = (
                estimator.judge_completers(counts) if estimator.joint else estimator.judge(*counts)
            )
        if not isinstance(found, Sequence):
            raise self._broken("judge", f"gave {shown(found)}, must give a list of judgements")
        if len(found) != len(self._num_steps):
            raise self._broken(
                "judge", f"gave {len(found)} judgements of {len(self._num_steps)} solutions"
            )
        for number, (one, steps) in enumerate(zip(found, self._num_steps, strict=True)):
            if fault := _fault_of(one, steps):
                raise self._broken(
                    "judge", f"{fault} (solution {number}, {steps} steps, the last one included)"
                )
        return list(found)

    def learned_by(self, learner: RunLearner, problem: ProblemPaths, *, num_tokens: int) -> None:
        """Let the run's learner record what the estimator has seen; see `RunLearner.record`."""
        with self._boundary.calling("the learner's record"):
            learner.record(problem, self.estimator, num_tokens=num_tokens)

    def _broken(self, method: str, fault: str) -> Exception:
        return self._boundary.broken(method, fault)


def _fault_of(one: object, steps: int) -> str | None:
    """What is wrong with a judgement, as a predicate; None if nothing is."""
    if not isinstance(one, Judgement):
        return f"gave {shown(one)}, must give Judgement"
    for name in ("hard", "sources", "estimates"):
        given = getattr(one, name)
        if not isinstance(given, Collection) or isinstance(given, str):
            return f"gave {name}={shown(given)}, must give a tuple"
        if len(given) != steps:
            return f"gave {len(given)} {name}, must give one per step"
    for hard in one.hard:
        if hard is not None and type(hard) is not bool:
            return f"gave {shown(hard)} as a hard label, must give True, False or None"
    for source in one.sources:
        if not isinstance(source, str) or not 0 < len(source) <= MAX_SOURCE:
            return f"gave {shown(source)} as a source, must give 1 to {MAX_SOURCE} characters"
    if one.first_error is not None and (
        type(one.first_error) is not int or not 0 <= one.first_error < steps
    ):
        return f"gave first_error={shown(one.first_error)}, must give an index of a step, or None"
    for estimate in (*one.estimates, *(() if one.root is None else (one.root,))):
        if fault := _fault_of_estimate(estimate):
            return fault
    if one.posterior is not None:
        if len(one.posterior) != steps + 1:
            given = len(one.posterior)
            return f"gave {given} chances as its posterior, must give one per step and one more"
        odd = [chance for chance in one.posterior if not _is_chance(chance)]
        if odd:
            return f"gave {shown(odd[0])} in its posterior, must give numbers in [0, 1]"
    return None


def _fault_of_estimate(estimate: object) -> str | None:
    if not isinstance(estimate, StepEstimate):
        return f"gave {shown(estimate)} as an estimate, must give StepEstimate"
    for name in ("value", "low", "high", "mean"):
        number = getattr(estimate, name)
        if number is not None and not _is_chance(number):
            return (
                f"gave {name}={shown(number)} in an estimate, must give a number in [0, 1], or None"
            )
    return None


def _is_chance(number: object) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1
