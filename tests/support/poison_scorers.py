"""A scorer that dies under some texts, as a model does whose device runs out of memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mclabel.core.errors import EngineDied
from mclabel.judge.score import ScorerJudge
from mclabel.prm.scoring.scorer import load_prm

POISON = "[poison]"


class DyingScorer:
    """A PRM that ends, or the process with it, when it is to score a poisoned solution."""

    def __init__(self, prm: str, hard: bool) -> None:
        self._scorer: Any = load_prm(prm, threads=1)
        self._poisoned: set[Any] = set()
        self._hard = hard

    def encode(self, problem: str, solution: str | Sequence[str], place: str) -> Any:
        encoded = self._scorer.encode(problem, solution, place)
        if POISON in "".join(solution):
            self._poisoned.add(encoded)
        return encoded

    def score_encoded(self, encoded: Sequence[Any]) -> list[list[float]]:
        if not self._poisoned.isdisjoint(encoded):
            if self._hard:
                os._exit(1)
            raise EngineDied("the device has no memory left, as it was told to")
        found: list[list[float]] = self._scorer.score_encoded(encoded)
        return found


class DyingJudge(ScorerJudge):
    """The judge that has such a PRM."""

    class Settings(ScorerJudge.Settings):
        """How it ends."""

        hard: bool
        """Whether the process ends with it."""

    settings: Settings

    def load(self, threads: int) -> Any:
        return DyingScorer(self.settings.prm, self.settings.hard)
