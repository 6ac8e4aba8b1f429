"""Credit by step values: how much a step changes the chance that the solution ends right.

Whoever computes the values chooses how: by rollouts from every step, by the posterior of fewer
rollouts, or from states that the solutions of a group share. A step whose value is not known is
joined with those after it into one segment, up to the next known value (SPO, arXiv 2505.23564).
The value after the last step is the reward, which is always known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from mclabel.rl.credits.base import (
    Credit,
    CreditSettings,
    Need,
    Segment,
    StepEvidence,
    centred_outcomes,
    means_of_others,
)


class ValueCredit(Credit):
    """The value after a step less the value before it (VinePPO, arXiv 2410.01679).

    The credits of a solution's segments add up to its reward less the value of the bare problem.
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
    policy's own values tell its outcome a second time. Where the value of the bare problem is not
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
        root: stands in place of the bare problem's value where that is not known; where it is None
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
