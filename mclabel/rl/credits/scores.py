"""Credit by the scores of a PRM.

A policy learns to please a PRM. So a step's credit is bounded, however many steps there are, by
each of these but `prm_sum`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import ClassVar

from pydantic import Field

from mclabel.rl.credits.base import (
    Credit,
    CreditSettings,
    Need,
    Segment,
    StepEvidence,
    centred_outcomes,
    each_step,
    mean,
    means_of_others,
    scores_of,
)

_SCORES: frozenset[Need] = frozenset({"scores"})


class _Weights(CreditSettings):
    """The weights of scores and outcome."""

    process_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the PRM's scores in the credit."""
    outcome_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the outcome: the reward minus the group's mean."""


class MinCredit(Credit):
    """The return of a step is the least score from it on (PURE, arXiv 2504.15275).

    Less the mean over the group's other solutions of their least score, plus the outcome. A
    solution that is alone has nothing to be compared with, and its scores count 0.
    """

    class Settings(_Weights):
        """Credits a step with the least score that follows."""

    settings: Settings
    needs: ClassVar[frozenset[Need]] = _SCORES

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """A segment for each step; see `Credit.assign`."""
        process, outcome = self.settings.process_weight, self.settings.outcome_weight
        least = [min(scores_of(one), default=0.0) for one in group]
        found = []
        for one, other, reward in zip(
            group, means_of_others(least), centred_outcomes(group), strict=True
        ):
            returns = list(accumulate(reversed(scores_of(one)), min))[::-1]
            credits = [0.0 if other is None else process * (low - other) for low in returns]
            found.append(each_step(credit + outcome * reward for credit in credits))
        return found


class DeltaCredit(Credit):
    """The change of the score from one step to the next, clipped (after arXiv 2410.15115).

    Plus the outcome. The changes add up to the last score less `start`, or to less where one is
    clipped, however many steps there are: repeating good steps gains nothing. The paper takes the
    other difference, of a step's score and the next one's.
    """

    class Settings(_Weights):
        """Credits a step with the change of the score."""

        start: float | None = Field(None, ge=0, le=1)
        """Score before the first step. null takes the mean of the group's first scores, so that
        high ones alone are not rewarded."""
        clip: float = Field(1.0, gt=0, le=1)
        """Maximum rise of the score that is credited; 1 clips nothing. Falls are not clipped, or
        slow rises and sudden falls would gain."""

    settings: Settings
    needs: ClassVar[frozenset[Need]] = _SCORES

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """A segment for each step; see `Credit.assign`."""
        settings, clip = self.settings, self.settings.clip
        firsts = [scores_of(one)[0] for one in group if one.num_steps]
        start = settings.start
        if start is None:
            start = mean(firsts) if firsts else 0.0
        found = []
        for one, reward in zip(group, centred_outcomes(group), strict=True):
            changes = [after - before for before, after in pairwise((start, *scores_of(one)))]
            found.append(
                each_step(
                    settings.process_weight * min(change, clip) + settings.outcome_weight * reward
                    for change in changes
                )
            )
        return found


class CentredCredit(Credit):
    """Scores centred among solutions of the same reward, plus the outcome (arXiv 2604.02341).

    A step has w * g * (its score - M) plus the reward less the mean of the group. M is the mean of
    the mean scores of the group's solutions with the same reward, g the least difference between
    two different rewards of the group (1 where all are equal), and w `process_weight`.

    A PRM never overturns an outcome: of two solutions of a group with steps, the one with the
    higher reward has the higher mean credit. Proof: scores lie in [0, 1], and a solution's own mean
    score is part of M, so that its mean score is less than 1 away from M. The scores' parts of two
    solutions hence differ by less than 2 * w * g <= g, as w is at most 1/2, and their rewards by g
    or more.
    """

    class Settings(CreditSettings):
        """Ranks steps within an outcome by their scores."""

        process_weight: float = Field(0.25, ge=0, le=0.5)
        """Weight of the scores, against 1 for the outcome. Up to 0.5, right solutions keep a higher
        mean credit than wrong ones."""

    settings: Settings
    needs: ClassVar[frozenset[Need]] = _SCORES

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """A segment for each step; see `Credit.assign`."""
        alike: defaultdict[float, list[float]] = defaultdict(list)
        for one in group:
            if one.num_steps:
                alike[one.reward].append(mean(scores_of(one)))
        gap = min((b - a for a, b in pairwise(sorted(alike))), default=1.0)
        weight = self.settings.process_weight * gap
        return [
            each_step(
                weight * (score - mean(alike[one.reward])) + reward for score in scores_of(one)
            )
            for one, reward in zip(group, centred_outcomes(group), strict=True)
        ]


class SumCredit(Credit):
    """The sum of the scores from a step on, less the mean sum of the group. For comparison only.

    It is hacked: a policy gains by more steps that score well, and comes to repeat itself or to
    say nothing at length (arXiv 2504.15275, 2410.15115). The outcome has no part in it.
    """

    needs: ClassVar[frozenset[Need]] = _SCORES

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """A segment for each step; see `Credit.assign`."""
        sums = [list(accumulate(reversed(scores_of(one))))[::-1] for one in group]
        middle = mean([to_go[0] if to_go else 0.0 for to_go in sums])
        return [each_step(left - middle for left in to_go) for to_go in sums]
