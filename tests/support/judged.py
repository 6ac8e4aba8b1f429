"""Reads the tables of human-judged cases, such as `cases.txt` and `holdout.txt`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mclabel.answers import Checker, Grade
from mclabel.core.records import Verdict

FOLDER = Path(__file__).parents[1] / "answers"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One pair and what a careful human grader says of it."""

    kind: str
    right: bool
    open: bool = False
    """The text does not say enough for any verdict, so that it must be unknown."""
    gold: str
    answer: str
    """A whole completion in the kinds that begin with "completion"."""

    @property
    def is_completion(self) -> bool:
        return self.kind.startswith("completion")

    def grade(self, checker: Checker) -> Grade:
        if self.is_completion:
            return checker.grade_completion(self.answer, self.gold)[1]
        return checker.grade(self.answer, self.gold)

    def agrees(self, grade: Grade) -> bool:
        if self.open:
            return grade.verdict is Verdict.UNKNOWN
        return (grade.verdict is Verdict.RIGHT) == self.right


def read_cases(name: str) -> Iterator[Case]:
    """The cases of a table in this folder, in order."""
    kind = ""
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            kind = line[2:]
        elif kind and line[:2] in ("= ", "! ", "? "):
            gold, _, answer = line[2:].partition(" ;;")
            yield Case(
                kind=kind,
                right=line[0] == "=",
                open=line[0] == "?",
                gold=gold,
                answer=answer.strip().replace("⏎", "\n"),
            )
