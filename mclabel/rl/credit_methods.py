"""Credit by the outcome, by the scores of a PRM, and by step values.

A policy learns to please a PRM. So each credit by scores but `prm_sum` bounds a step's credit,
however many steps there are.

Credit by step values goes by how much a step changes the chance that the solution ends right.
Whoever computes the values chooses how: by rollouts from every step, by the posterior of fewer
rollouts, or from states that the solutions of a group share. A step whose value is not known is
joined with those after it into one segment, up to the next known value (SPO, arXiv 2505.23564). The
value after the last step is the reward, which is always known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import ClassVar

from pydantic import Field

from mclabel.rl.credits import (
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
    whole,
)


class OutcomeCredit(Credit):
    """GRPO without a deviation (arXiv 2503.20783): the reward less the mean of the group.

    All steps of a solution are one segment.
    """

    class Settings(CreditSettings):
        """Compares the outcomes of a group."""

        leave_one_out: bool = False
        """Compare a reward with the mean of the others (RLOO, arXiv 2402.14740), not
        of the whole group."""

    settings: Settings

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """One segment for each solution; see `Credit.assign`."""
        credits = centred_outcomes(group)
        if self.settings.leave_one_out:
            others = means_of_others([one.reward for one in group])
            credits = [
                0.0 if other is None else one.reward - other
                for one, other in zip(group, others, strict=True)
            ]
        return [whole(one.num_steps, credit) for one, credit in zip(group, credits, strict=True)]


class FirstErrorCredit(Credit):
    """The outcome gives the sign, the first error the place (VPPO, arXiv 2601.18984).

    A is the reward less the mean of the group. Where A is negative and a first error is named, the
    steps before it have 0, and it and those after it have A. Else all steps have A: a solution that
    is better than the group is not blamed for an error that was found in it, and one that is worse
    is blamed as a whole where no error is named.
    """

    class Settings(CreditSettings):
        """Blames the steps from the first error on."""

    needs: ClassVar[frozenset[Need]] = frozenset({"first_error"})

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """One or two segments for each solution; see `Credit.assign`."""
        pairs = zip(group, centred_outcomes(group), strict=True)
        return [_around_error(one, credit) for one, credit in pairs]


def _around_error(one: StepEvidence, credit: float) -> tuple[Segment, ...]:
    if credit >= 0 or not one.first_error:  # none, or nothing is before it
        return whole(one.num_steps, credit)
    sound = Segment(end=one.first_error, credit=0.0)
    return (sound, Segment(end=one.num_steps, credit=credit))


_SCORES: frozenset[Need] = frozenset({"scores"})


class _Weighted(CreditSettings):
    """The weight of the scores beside the outcome."""

    process_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the PRM's scores, against 1 for the outcome."""


class MinCredit(Credit):
    """The return of a step is the least score from it on (PURE, arXiv 2504.15275).

    Less the mean over the group's other solutions of their least score, plus the outcome. A
    solution that is alone has nothing to be compared with, and its scores count 0.
    """

    class Settings(_Weighted):
        """Credits a step with the least score that follows."""

    settings: Settings
    needs: ClassVar[frozenset[Need]] = _SCORES

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """A segment for each step; see `Credit.assign`."""
        process = self.settings.process_weight
        least = [min(scores_of(one), default=0.0) for one in group]
        found = []
        for one, other, reward in zip(
            group, means_of_others(least), centred_outcomes(group), strict=True
        ):
            returns = list(accumulate(reversed(scores_of(one)), min))[::-1]
            credits = [0.0 if other is None else process * (low - other) for low in returns]
            found.append(each_step(credit + reward for credit in credits))
        return found


class DeltaCredit(Credit):
    """The change of the score from one step to the next (after arXiv 2410.15115).

    Plus the outcome. The first step is compared with the mean of the group's first scores, so that
    high ones alone are not rewarded. The changes add up to the last score less that mean, however
    many steps there are: repeating good steps gains nothing. The paper takes the other difference,
    of a step's score and the next one's, and clips.
    """

    class Settings(_Weighted):
        """Credits a step with the change of the score."""

    settings: Settings
    needs: ClassVar[frozenset[Need]] = _SCORES

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """A segment for each step; see `Credit.assign`."""
        process = self.settings.process_weight
        firsts = [scores_of(one)[0] for one in group if one.num_steps]
        start = mean(firsts) if firsts else 0.0
        found = []
        for one, reward in zip(group, centred_outcomes(group), strict=True):
            changes = [after - before for before, after in pairwise((start, *scores_of(one)))]
            found.append(each_step(process * change + reward for change in changes))
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
        """Weight of the PRM's scores, against 1 for the outcome."""

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


class ValueCredit(Credit):
    """The value after a step less the value before it (VinePPO, arXiv 2410.01679).

    The credits of a solution's segments add up to its reward less the value of the problem alone.
    Where that is not known, the mean reward of the group's other solutions stands in its place;
    where there are none either, the first segment has 0.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"values"})

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """A segment up to each known value; see `Credit.assign`."""
        others = means_of_others([one.reward for one in group])
        return [_changes(one, root) for one, root in zip(group, others, strict=True)]


class ProgressCredit(Credit):
    """Progress under another prover beside the outcome (PAV, arXiv 2410.08146).

    `alpha` times the change of the value under another completer than the policy, plus the reward
    less the mean of the group. The values that it is given must be those of the other completer: a
    policy's own values tell its outcome a second time. Where the value of the problem alone is not
    known, the first segment has the outcome alone.
    """

    class Settings(CreditSettings):
        """Adds the progress under another prover to the outcome."""

        alpha: float = Field(1.0, ge=0, le=100)
        """Weight of the progress, against 1 for the outcome."""

    settings: Settings
    needs: ClassVar[frozenset[Need]] = frozenset({"values"})
    by_prover: ClassVar[bool] = True

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """A segment up to each known value; see `Credit.assign`."""
        alpha = self.settings.alpha
        return [
            tuple(
                Segment(end=change.end, credit=alpha * change.credit + outcome)
                for change in _changes(one, None)
            )
            for one, outcome in zip(group, centred_outcomes(group), strict=True)
        ]


def _changes(one: StepEvidence, root: float | None) -> tuple[Segment, ...]:
    """The changes from each known value to the next.

    Args:
        one: solution with values.
        root: replaces the value of the problem alone where that is not known; where it is None
            too, the first segment has 0.
    """
    assert one.values is not None
    before = one.values[0] if one.values[0] is not None else root
    segments: list[Segment] = []
    for end, after in enumerate(one.values[1:], 1):
        if after is not None:
            segments.append(Segment(end=end, credit=0.0 if before is None else after - before))
            before = after
    return tuple(segments)
