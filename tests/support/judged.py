"""Tables of human-judged answer cases, such as `cases.txt` and `holdout.txt`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mclabel.answers import Checker, Grade
from mclabel.core.records import Verdict

FOLDER = Path(__file__).parents[1] / "answers"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One pair of gold and answer, with the verdict of a careful human grader."""

    kind: str
    right: bool
    open: bool = False
    """True if the text is insufficient for a verdict, so that the verdict must be unknown."""
    gold: str
    answer: str
    """Answer; a whole completion for kinds that begin with "completion"."""

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
    """Yield the cases of a table in tests/answers, in order."""
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
