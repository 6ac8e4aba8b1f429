"""An estimator of your own, measured beside a built-in one, then used in a job.

    python examples/own_estimator.py

`UntilBothEstimator` rolls a prefix out until it has seen a right and a wrong completion, or `most`
of them: one of each is enough to know that the step neither is hopeless nor always works out. It
stops by outcomes, so it gives hard labels and no values.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

import mclabel as mc
from mclabel.arith.problems import generate
from mclabel.arith.truth import arith_truth
from mclabel.estimators import (
    Estimator,
    EstimatorSettings,
    Judgement,
    ProblemPaths,
    RecordedRollout,
)
from mclabel.records import Counts, Outcome
from mclabel.stats.values import NOTHING, first_error


class UntilBothEstimator(Estimator):
    """Rolls a prefix out until one completion was right and one was wrong."""

    class Settings(EstimatorSettings):
        """Hard labels from as few rollouts as show both outcomes."""

        most: int = Field(16, ge=1, le=1024)
        """Rollouts of a prefix at most."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        self._paths, self._most = problem.paths, settings.most
        prefixes = {prefix for path in self._paths for prefix in path.prefixes}
        self._outcomes: dict[int, list[Outcome]] = {prefix: [] for prefix in prefixes}
        self._asked = dict.fromkeys(prefixes, 0)

    def wanted(self) -> list[int]:
        """One more rollout of every prefix that has not shown both outcomes yet."""
        open_prefixes = [
            prefix
            for prefix, outcomes in self._outcomes.items()
            if len(outcomes) == self._asked[prefix] < self._most
            and not {Outcome.RIGHT, Outcome.WRONG} <= set(outcomes)
        ]
        for prefix in open_prefixes:
            self._asked[prefix] += 1
        return open_prefixes

    def record(self, rollout: RecordedRollout) -> None:
        """Take the outcome of a rollout."""
        self._outcomes[rollout.prefix].append(rollout.outcome)

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """A step is sound where any completion from it was right; the last by the answer."""
        judgements = []
        for path in self._paths:
            hard = [bool(counts[prefix].num_right) for prefix in path.prefixes]
            hard.append(path.outcome is Outcome.RIGHT)
            judgements.append(
                Judgement(
                    hard=tuple(hard),
                    sources=("until_both",) * len(path.prefixes) + ("outcome",),
                    first_error=first_error(hard),
                    estimates=(NOTHING,) * len(hard),
                )
            )
        return judgements


def main() -> None:
    problems = list(generate(24, seed=0, split="test"))
    for name, estimator in (
        ("fixed, 16 rollouts", {"kind": "fixed", "rollouts": 16}),
        ("until both, 16 at most", UntilBothEstimator.Settings(most=16)),
    ):
        run = mc.label(
            problems,
            policy={"model": "arith:policy", "max_tokens": 200},
            estimator=estimator,
        )
        solutions = list(run)
        truths = [arith_truth(one.problem, one.solution) for one in solutions]
        found = sum(
            one.first_error == truth.first_error
            for one, truth in zip(solutions, truths, strict=True)
        )
        tokens = sum(step.num_tokens for one in solutions for step in one.steps)
        print(f"{name:24} {found / len(solutions):.2f} of first errors, {tokens:,} tokens of rollouts")


if __name__ == "__main__":
    main()
