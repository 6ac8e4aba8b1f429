"""Judges whose opinions are read from a column of the row."""

from __future__ import annotations

import json
from typing import ClassVar

from mclabel.core.records import Claim
from mclabel.judge.base import AnswerSampler, Judge, JudgedItem, JudgeSettings, Opinion


class RowJudge(Judge):
    """A judge that names the first error in the row's `says`: an index, null or "unknown"."""

    class Settings(JudgeSettings):
        """Settings of a judge that reads its opinions from the row."""

        name: str
        """Key of the judge's opinion in `says`."""

    settings: Settings

    async def judge(self, item: JudgedItem, ask: AnswerSampler) -> Opinion:
        """Return the opinion in the row."""
        error = json.loads(item.row)["says"][self.settings.name]
        if error == "unknown":
            return Opinion(is_known=False, reason="the script says nothing")
        return Opinion(is_known=True, first_error=error)


class FlaggingRowJudge(RowJudge):
    """A judge that claims only that an error lies at or before a step."""

    claim: ClassVar[Claim] = "at_or_before"


class ScoringRowJudge(RowJudge):
    """A judge that names the first error and scores it 0.3; other steps score 0.9."""

    claim: ClassVar[Claim] = "scores"

    async def judge(self, item: JudgedItem, ask: AnswerSampler) -> Opinion:
        """Return the scores of the steps."""
        opinion = await super().judge(item, ask)
        scores = tuple(0.3 if n == opinion.first_error else 0.9 for n in range(len(item.steps)))
        return Opinion(is_known=opinion.is_known, first_error=opinion.first_error, scores=scores)
