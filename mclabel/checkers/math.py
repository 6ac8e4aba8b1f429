"""The checker of mathematical answers: `mclabel.answers` behind the protocol."""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.answers import (
    CHECKER_VERSION,
    PASSING,
    GradeRules,
    answer_key,
    default_checker,
    group_many,
)
from mclabel.checkers.base import Aside, Checker, CheckerSettings, Grade, GradeItem, here
from mclabel.records import Problem


class MathChecker(Checker):
    """Takes the final answer out of a completion and compares its meaning with the gold's."""

    class Settings(CheckerSettings):
        """Where careful human graders differ."""

        rules: GradeRules = GradeRules()
        """Rules for answers that careful human graders judge differently; docs/answers.md lists
        them with their defaults."""

    def __init__(self, settings: Settings) -> None:
        """Make a checker; workers are shared by all of this process.

        Args:
            settings: with the rules of its verdicts.
        """
        rules = settings.rules
        self._rules = None if rules == GradeRules() else rules
        self.name, self.version = settings.kind, CHECKER_VERSION

    async def refuse(self, problem: Problem, aside: Aside = here) -> str | None:
        """Say why a gold is not understood; see `Checker`."""
        if problem.answer_is_json:
            return "the gold is data, not a text"
        reason = await default_checker().unparsed_gold_async(problem.answer, aside=aside)
        return None if reason in PASSING else reason

    async def grade(self, items: Sequence[GradeItem], aside: Aside = here) -> list[Grade]:
        """Grade the final answers of completions; see `Checker`."""
        graded = await default_checker().grade_completions(
            [(item.completion, item.problem.answer) for item in items],
            rules=self._rules,
            aside=aside,
        )
        return [
            Grade(verdict=grade.verdict, answer=answer, reason=grade.reason, layer=grade.layer)
            for answer, grade in graded
        ]

    def key(self, answer: str) -> str:
        """The normalised answer; see `Checker`."""
        return answer_key(answer)

    def group(self, answers: Sequence[Sequence[str | None]]) -> list[list[int | None]]:
        """Number answers by proofs that they are equal; see `Checker`."""
        return group_many(answers, default_checker())
