"""Write your own estimator, and compare its labels with those of a built-in estimator.

    python examples/own_estimator.py

`UntilBothEstimator` samples rollouts from a prefix until it has a right and a wrong one, or `most`
rollouts. One right and one wrong rollout show that the prefix is neither hopeless nor always
successful. The estimator stops depending on outcomes, so the share of right rollouts would be
biased. Therefore it gives hard labels and no values.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

import mclabel as mc
from mclabel.core.records import Counts, Outcome
from mclabel.core.stats.values import NOTHING, find_first_error
from mclabel.domains.arith.problems import generate_problems
from mclabel.domains.registry import find_true_first_error
from mclabel.labeling.estimators import (
    Estimator,
    EstimatorSettings,
    Judgement,
    ProblemPaths,
    RecordedRollout,
)


class UntilBothEstimator(Estimator):
    """Estimator that samples rollouts from a prefix until one is right and one is wrong."""

    class Settings(EstimatorSettings):
        """Settings of `UntilBothEstimator`."""

        most: int = Field(16, ge=1, le=1024)
        """Maximum number of rollouts from a prefix."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        self._paths, self._most = problem.paths, settings.most
        prefixes = {prefix for path in self._paths for prefix in path.prefixes}
        self._outcomes: dict[int, list[Outcome]] = {prefix: [] for prefix in prefixes}
        self._asked = dict.fromkeys(prefixes, 0)

    def wanted(self) -> list[int]:
        """Request one more rollout from every prefix that does not have both outcomes yet."""
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
        """Record the outcome of a rollout."""
        self._outcomes[rollout.prefix].append(rollout.outcome)

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label a step sound if any rollout from it was right; the outcome labels the last step."""
        judgements = []
        for path in self._paths:
            hard = [bool(counts[prefix].num_right) for prefix in path.prefixes]
            hard.append(path.outcome is Outcome.RIGHT)
            judgements.append(
                Judgement(
                    hard=tuple(hard),
                    sources=("until_both",) * len(path.prefixes) + ("outcome",),
                    first_error=find_first_error(hard),
                    estimates=(NOTHING,) * len(hard),
                )
            )
        return judgements


def main() -> None:
    problems = list(generate_problems(4, seed=0, split="test"))
    for name, estimator in (
        ("fixed, 8 rollouts", {"kind": "fixed", "rollouts": 8}),
        ("until both, 8 at most", UntilBothEstimator.Settings(most=8)),
    ):
        run = mc.label(
            problems,
            policy={"model": "arith:policy", "max_tokens": 200},
            estimator=estimator,
        )
        found = [one.first_error == true_error(one) for one in run]
        counts = run.wait().counts
        print(
            f"{name:24} {sum(found) / len(found):.2f} of first errors found, "
            f"{counts['num_rollouts']:,} rollouts of {counts['num_solutions']} solutions' steps"
        )


def true_error(row: mc.LabeledSolution) -> int | None:
    """Return the 0-based true first error, which is known for problems of this domain."""
    return find_true_first_error(row.problem.meta, [step.text for step in row.solution.steps])


if __name__ == "__main__":
    main()
