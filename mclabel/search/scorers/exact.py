"""The truth as a scorer: what a method of search reaches that nothing misleads."""

from __future__ import annotations

from typing import ClassVar

from mclabel.domains import carries_truth, true_first_error
from mclabel.errors import DataError
from mclabel.search.scorers.base import Beginning, Scored, StepScorer, StepScorerSettings


class ExactScorer(StepScorer):
    """Scores 1 up to the first wrong step, and 0 from there."""

    class Settings(StepScorerSettings):
        """The truth, which problems of arith and pyarith carry: 1 up to the first wrong step, 0
        from there. It shows what a method could reach with a scorer that never errs.
        """

    is_truth: ClassVar[bool] = True

    async def score(self, beginning: Beginning) -> Scored:
        """Compute the first wrong step."""
        problem = beginning.problem
        if not carries_truth(problem.meta):
            raise DataError(
                f"problem {problem.id}: scorer.kind=exact works only for arith and pyarith, and "
                "this is not one"
            )
        error = true_first_error(problem.meta, [step.text for step in beginning.steps])
        num_sound = len(beginning.steps) if error is None else error
        return Scored(scores=tuple(float(i < num_sound) for i in range(len(beginning.steps))))
