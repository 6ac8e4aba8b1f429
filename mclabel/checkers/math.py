"""The checker of mathematical answers: `mclabel.answers` behind the protocol."""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.answers import (
    CHECKER_VERSION,
    PASSING,
    answer_key,
    default_checker,
    group_many,
)
from mclabel.answers import Grade as AnswerGrade
from mclabel.answers.extraction.extract import stated_answer
from mclabel.answers.golds import Gold, acceptable_answers, best_grade
from mclabel.checkers.base import Aside, Checker, CheckerSettings, Grade, GradeItem, here
from mclabel.core.records import Problem, Verdict


class MathChecker(Checker):
    """Takes the final answer out of a completion and compares its meaning with the gold's."""

    class Settings(CheckerSettings):
        """Where careful human graders differ."""

        units_optional: bool = True
        """Treat 5 cm as equal to 5 if only one side has a unit."""
        grade_guesses: bool = True
        """Grade a completion without a stated answer by its last number. If false, its verdict is
        unknown."""

    def __init__(self, settings: Settings) -> None:
        """Make a checker; workers are shared by all of this process.

        Args:
            settings: rules of the verdicts.
        """
        self._units_optional = settings.units_optional
        self._grade_guesses = settings.grade_guesses
        self.name, self.version = settings.kind, CHECKER_VERSION

    async def refuse(self, problem: Problem, aside: Aside = here) -> str | None:
        """Say why a gold is not understood; see `Checker`. Of several, one must be."""
        golds, reason = _golds(problem), "the gold is data, not a text or a list of texts"
        for gold in golds:
            found = await default_checker().unparsed_gold_async(gold, aside=aside)
            if found is None or found in PASSING:
                return None
            reason = found
        return reason

    async def grade(self, items: Sequence[GradeItem], aside: Aside = here) -> list[Grade]:
        """Grade the final answers of completions; see `Checker`.

        An answer is right if it is one of several golds, and wrong if it is none.
        """
        golds = [_golds(item.problem) for item in items]
        graded = iter(
            await default_checker().grade_completions(
                [
                    (item.completion, gold)
                    for item, several in zip(items, golds, strict=True)
                    for gold in several
                ],
                units_optional=self._units_optional,
                grade_guesses=self._grade_guesses,
                aside=aside,
            )
        )
        return [
            best_grade([_graded(*next(graded)) for _ in several]) if several else _NO_GOLD
            for several in golds
        ]

    def grade_now(self, item: GradeItem) -> Grade:
        """Grade one completion in the caller's thread, which waits for what needs a worker."""
        found = [
            default_checker().grade_completion(
                item.completion,
                gold,
                units_optional=self._units_optional,
                grade_guesses=self._grade_guesses,
            )
            for gold in _golds(item.problem)
        ]
        return best_grade([_graded(*one) for one in found]) if found else _NO_GOLD

    def states_answer(self, step: str) -> bool:
        """Whether it marks one, by a box or in words; see `Checker`."""
        return stated_answer(step) is not None

    def key(self, answer: str) -> str:
        """The normalised answer; see `Checker`."""
        return answer_key(answer)

    def group(self, answers: Sequence[Sequence[str | None]]) -> list[list[int | None]]:
        """Number answers by proofs that they are equal; see `Checker`."""
        return group_many(answers, default_checker())


def _golds(problem: Problem) -> tuple[str, ...]:
    """The acceptable answers of a problem; none where its gold is data."""
    return acceptable_answers(Gold(problem.answer, is_json=problem.answer_is_json))


def _graded(answer: str | None, found: AnswerGrade) -> Grade:
    return Grade(verdict=found.verdict, answer=answer, reason=found.reason, layer=found.layer)


_NO_GOLD = Grade(verdict=Verdict.UNKNOWN, reason="gold_is_data", layer="none")
