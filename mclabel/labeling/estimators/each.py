"""Several completers, each judged on its own, and their judgements combined by a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from mclabel.core.records import Counts
from mclabel.core.stats.values import NOTHING, first_error
from mclabel.labeling.estimators.base import Estimator, Follow, Judgement, RunLearner
from mclabel.labeling.estimators.checked import CheckedEstimator
from mclabel.labeling.estimators.paths import Probe, ProblemPaths, RecordedRollout, strongest

CompleterRule = Literal["strongest", "any", "all"]
"""Whose recovery makes a step right: the strongest completer's, anyone's, or everyone's."""


class EachCompleter:
    """A checked estimator for each completer, which knows of no other."""

    def __init__(
        self, parts: Sequence[CheckedEstimator], problem: ProblemPaths, rule: CompleterRule
    ) -> None:
        """Stand around the estimators of a problem.

        Args:
            parts: one a completer, each of the problem as `seen_by` it.
            problem: with its completers.
            rule: by which judgements are combined.
        """
        self._parts, self._rule, self._strongest = parts, rule, strongest(problem.completers)
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
        """Whether they take rollouts that they did not ask for."""
        return self._parts[0].takes_all

    @property
    def is_due(self) -> bool:
        """Whether a decision of one of them is worth making with those of other problems."""
        return any(part.is_due for part in self._parts)

    def wanted(self, num_prefixes: int) -> list[Probe]:
        """What each of them wants of its completer; see `CheckedEstimator.wanted`."""
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
        """Combine the judgements on each solution."""
        found = [part.judge([own]) for part, own in zip(self._parts, counts, strict=True)]
        if self._rule == "strongest":
            return found[self._strongest]
        most = self._rule == "any"
        return [_combined(judgements, most=most) for judgements in zip(*found, strict=True)]

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


def _combined(judgements: Sequence[Judgement], *, most: bool) -> Judgement:
    """The judgement under which a step is right if any (`most`) or all of these find it right.

    It has hard labels alone, but for the last step: the largest of several estimates, or the least,
    would be no estimate of anybody's value.
    """
    steps = range(len(judgements[0].hard))
    hard = [_verdict([one.hard[t] for one in judgements], most=most) for t in steps]
    return Judgement(
        hard=tuple(hard),
        sources=judgements[0].sources,
        first_error=first_error(hard),
        estimates=(*[NOTHING] * (len(hard) - 1), judgements[0].estimates[-1]),
        root=NOTHING,
    )


def _verdict(verdicts: Sequence[bool | None], *, most: bool) -> bool | None:
    """True if any is, or if all are; None where those without a verdict could turn it."""
    if most in verdicts:
        return most
    return None if None in verdicts else not most
