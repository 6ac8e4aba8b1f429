"""Judges that say what a column of the row tells them to."""

from __future__ import annotations

import json
from typing import ClassVar

from mclabel.core.records import Claim
from mclabel.judge.base import Asks, Judge, JudgedItem, JudgeSettings, Opinion


class RowJudge(Judge):
    """Names the first error that `says` of the row has for it: an index, null or "unknown"."""

    class Settings(JudgeSettings):
        """Says what is in the row."""

        name: str
        """Key of `says`."""

    settings: Settings

    async def judge(self, item: JudgedItem, ask: Asks) -> Opinion:
        """Read it."""
        error = json.loads(item.row)["says"][self.settings.name]
        if error == "unknown":
            return Opinion(is_known=False, reason="the script says nothing")
        return Opinion(is_known=True, first_error=error)


class FlaggingRowJudge(RowJudge):
    """Only claims an error at a step or before it."""

    claim: ClassVar[Claim] = "at_or_before"


class ScoringRowJudge(RowJudge):
    """Scores steps: .3 at the first error, .9 elsewhere, and has a threshold of its own."""

    claim: ClassVar[Claim] = "scores"

    async def judge(self, item: JudgedItem, ask: Asks) -> Opinion:
        """Score the steps."""
        said = await super().judge(item, ask)
        scores = tuple(0.3 if n == said.first_error else 0.9 for n in range(len(item.steps)))
        return Opinion(is_known=said.is_known, first_error=said.first_error, scores=scores)
