"""One score for all: a search that nothing steers, and the cost of the machinery alone."""

from __future__ import annotations

from pydantic import Field

from mclabel.search.scorers.base import Beginning, Scored, StepScorer, StepScorerSettings


class ConstantScorer(StepScorer):
    """Gives every step the same score."""

    class Settings(StepScorerSettings):
        """One score for every step, at no cost."""

        score: float = Field(0.5, ge=0, le=1)
        """Score of every step."""

    settings: Settings

    async def score(self, beginning: Beginning) -> Scored:
        """The same for every step."""
        return Scored(scores=(self.settings.score,) * len(beginning.steps))
