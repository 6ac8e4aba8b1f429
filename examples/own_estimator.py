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
from mclabel.core.records import Counts, Outcome
from mclabel.core.stats.values import NOTHING, first_error
from mclabel.domains.arith.problems import generate
from mclabel.domains.registry import true_first_error
from mclabel.labeling.estimators import (
    Estimator,
    EstimatorSettings,
    Judgement,
    ProblemPaths,
    RecordedRollout,
)


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
    problems = list(generate(6, seed=0, split="test"))
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
    """The first wrong step in truth, which is known of the problems of this domain."""
    return true_first_error(row.problem.meta, [step.text for step in row.solution.steps])


if __name__ == "__main__":
    main()
