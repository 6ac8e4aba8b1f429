"""A scorer that dies under some texts, as a model does whose device runs out of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mclabel.core.errors import EngineDied
from mclabel.judge.score import ScorerJudge
from mclabel.prm.scoring.scorer import load_prm

POISON = "[poison]"


class DyingScorer:
    """A PRM that ends when it is to score a poisoned solution."""

    def __init__(self, prm: str) -> None:
        self._scorer: Any = load_prm(prm, threads=1)
        self._poisoned: set[Any] = set()

    def encode(self, problem: str, solution: str | Sequence[str], place: str) -> Any:
        encoded = self._scorer.encode(problem, solution, place)
        if POISON in "".join(solution):
            self._poisoned.add(encoded)
        return encoded

    def score_encoded(self, encoded: Sequence[Any]) -> list[list[float]]:
        if not self._poisoned.isdisjoint(encoded):
            raise EngineDied("the device has no memory left, as it was told to")
        found: list[list[float]] = self._scorer.score_encoded(encoded)
        return found


class DyingJudge(ScorerJudge):
    """The judge that has such a PRM."""

    class Settings(ScorerJudge.Settings):
        """By which it is chosen."""

    def load(self, threads: int) -> Any:
        return DyingScorer(self.settings.prm)
