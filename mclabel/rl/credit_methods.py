"""The built-in credits, which compute one advantage per step: by outcome, by first error, and by
the scores of a PRM.

A group consists of several solutions of one problem, which are compared. A policy learns to exploit
a PRM. `MinCredit` therefore limits the advantage of each step, for any number of steps.

Credit by step values measures how much a step changes the probability of a right answer. The caller
estimates the values: by rollouts from every step, by the posterior of fewer rollouts, or from
states that the solutions of a group share. A step without a value is joined with the steps after it
into one segment, up to the next value (SPO, arXiv 2505.23564). The value after the last step is the
reward, which is always known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from pydantic import Field

from mclabel.rl.credits import (
    Credit,
    CreditSettings,
    Need,
    Segment,
    StepEvidence,
    center_rewards,
    compute_means_of_others,
    make_single_segment,
)


class OutcomeCredit(Credit):
    """Credit of Dr. GRPO (arXiv 2503.20783): the reward minus the mean reward of the group.

    The credit is not divided by the group's standard deviation. All steps of a solution have the
    same credit.
    """

    class Settings(CreditSettings):
        """Settings of the credit that depends only on the outcomes of solutions."""

        leave_one_out: bool = False
        """True to subtract the mean reward of the group's other solutions (RLOO, arXiv
        2402.14740) instead of the mean of the whole group."""

    settings: Settings

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """Return for each solution one segment that covers all its steps."""
        credits = center_rewards(group)
        if self.settings.leave_one_out:
            means_of_others = compute_means_of_others([evidence.reward for evidence in group])
            credits = [
                0.0 if mean_of_others is None else evidence.reward - mean_of_others
                for evidence, mean_of_others in zip(group, means_of_others, strict=True)
            ]
        return [
            make_single_segment(evidence.num_steps, credit)
            for evidence, credit in zip(group, credits, strict=True)
        ]


class FirstErrorCredit(Credit):
    """Credit that penalises only the steps from the first error on (VPPO, arXiv 2601.18984).

    A is the reward minus the mean reward of the group. If A is negative and the solution has a
    first error, the steps before the error have the credit 0, and the other steps have A. Otherwise
    all steps have A. So a solution that is better than its group is not penalised for an error, and
    a worse solution without a known error is penalised at all steps.
    """

    class Settings(CreditSettings):
        """The credit that penalises the steps from the first error on has no settings."""

    needs: ClassVar[frozenset[Need]] = frozenset({"first_error"})

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """Return for each solution one segment, or two that meet at the first error."""
        pairs = zip(group, center_rewards(group), strict=True)
        return [_make_segments_around_error(evidence, credit) for evidence, credit in pairs]


def _make_segments_around_error(evidence: StepEvidence, credit: float) -> tuple[Segment, ...]:
    if credit >= 0 or not evidence.first_error:  # no first error, or it is the first step
        return make_single_segment(evidence.num_steps, credit)
    steps_before_error = Segment(end=evidence.first_error, credit=0.0)
    return (steps_before_error, Segment(end=evidence.num_steps, credit=credit))


class MinCredit(Credit):
    """Credit by the lowest PRM score of the remaining steps (PURE, arXiv 2504.15275).

    The return of a step is the lowest score of the step itself and all later steps. From it, the
    mean lowest score of the group's other solutions is subtracted. The credit is this difference,
    times `process_weight`, plus the credit of the outcome. In a group with a single solution the
    difference is 0, because there is no solution to compare with.
    """

    class Settings(CreditSettings):
        """Settings of the credit that depends on the lowest PRM score of the remaining steps."""

        process_weight: float = Field(1.0, ge=0, le=100)
        """Weight of the PRM's scores. The outcome has the weight 1."""

    settings: Settings
    needs: ClassVar[frozenset[Need]] = frozenset({"scores"})

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """Return for each solution one segment per step."""
        scores_of_all = [evidence.scores or () for evidence in group]
        means = compute_means_of_others([min(scores, default=0.0) for scores in scores_of_all])
        return [
            tuple(
                Segment(
                    end=end,
                    credit=outcome
                    + self.settings.process_weight
                    * (0.0 if mean_of_others is None else lowest_score - mean_of_others),
                )
                for end, lowest_score in enumerate(
                    (list(accumulate(reversed(scores), min))[::-1]), 1
                )
            )
            for scores, mean_of_others, outcome in zip(
                scores_of_all, means, center_rewards(group), strict=True
            )
        ]
