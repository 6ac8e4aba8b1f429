"""The checker of mathematical answers, which grades completions with `mclabel.answers`."""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.answers import (
    CHECKER_VERSION,
    PASSING,
    answer_key,
    default_checker,
    group_answers_per_problem,
)
from mclabel.answers import Grade as AnswerGrade
from mclabel.answers.extraction.extract import find_answer_marked_in_part
from mclabel.answers.golds import Gold, choose_best_grade, list_acceptable_answers
from mclabel.checkers.base import (
    Checker,
    CheckerSettings,
    Grade,
    GradeItem,
    ThreadRunner,
    run_inline,
)
from mclabel.core.records import Problem, Verdict


class MathChecker(Checker):
    """Checker that extracts the final answer and compares its value with the gold answer."""

    class Settings(CheckerSettings):
        """Settings of the mathematical checker."""

        units_optional: bool = True
        """Treat 5 cm as equal to 5 if only one side has a unit."""
        grade_guesses: bool = True
        """Grade a completion without a stated answer by its last number. If false, the verdict on
        such a completion is unknown."""

    def __init__(self, settings: Settings) -> None:
        """Create a checker. All mathematical checkers of a process share the same workers.

        Args:
            settings: settings of the checker.
        """
        self._units_optional = settings.units_optional
        self._grade_guesses = settings.grade_guesses
        self.name, self.version = settings.kind, CHECKER_VERSION

    async def refuse(self, problem: Problem, run_blocking: ThreadRunner = run_inline) -> str | None:
        """Return the reason why no gold answer can be parsed; None if at least one can.

        Args:
            problem: the problem with its gold answers.
            run_blocking: function that runs blocking work outside the event loop.
        """
        golds, reason = (
            _list_acceptable_golds(problem),
            "the gold is data, not a string or a list of strings",
        )
        for gold in golds:
            refusal = await default_checker().explain_unparsed_gold(gold, run_blocking=run_blocking)
            if refusal is None or refusal in PASSING:
                return None
            reason = refusal
        return reason

    async def grade(
        self, items: Sequence[GradeItem], run_blocking: ThreadRunner = run_inline
    ) -> list[Grade]:
        """Return one grade per completion, in order, by comparing its final answer with the gold.

        If a problem has several gold answers, an answer is right if it equals any of them.

        Args:
            items: completions of one or several problems.
            run_blocking: function that runs blocking work outside the event loop.
        """
        golds_by_item = [_list_acceptable_golds(item.problem) for item in items]
        answer_grades = iter(
            await default_checker().grade_completions(
                [
                    (item.completion, gold)
                    for item, gold_answers in zip(items, golds_by_item, strict=True)
                    for gold in gold_answers
                ],
                units_optional=self._units_optional,
                grade_guesses=self._grade_guesses,
                run_blocking=run_blocking,
            )
        )
        return [
            choose_best_grade([_convert_answer_grade(*next(answer_grades)) for _ in gold_answers])
            if gold_answers
            else _NO_GOLD
            for gold_answers in golds_by_item
        ]

    def grade_now(self, item: GradeItem) -> Grade:
        """Grade one completion in the caller's thread, which blocks while a worker computes."""
        grades = [
            _convert_answer_grade(
                *default_checker().grade_completion(
                    item.completion,
                    gold,
                    units_optional=self._units_optional,
                    grade_guesses=self._grade_guesses,
                )
            )
            for gold in _list_acceptable_golds(item.problem)
        ]
        return choose_best_grade(grades) if grades else _NO_GOLD

    def states_answer(self, step: str) -> bool:
        """Return whether a step states an answer, by a box or by words such as "the answer is"."""
        return find_answer_marked_in_part(step) is not None

    def key(self, answer: str) -> str:
        """Return the normalised answer, which is equal for many equivalent answers."""
        return answer_key(answer)

    def group(self, answers: Sequence[Sequence[str | None]]) -> list[list[int | None]]:
        """Return, for each problem, a group number per answer; None for a missing answer.

        Answers with equal values have equal numbers.

        Args:
            answers: for each problem, the answers of its completions; None for no answer.
        """
        return group_answers_per_problem(answers, default_checker())


def _list_acceptable_golds(problem: Problem) -> tuple[str, ...]:
    """Return the acceptable answers of a problem; empty if its gold is data."""
    return list_acceptable_answers(Gold(problem.answer, is_json=problem.answer_is_json))


def _convert_answer_grade(answer: str | None, answer_grade: AnswerGrade) -> Grade:
    return Grade(
        verdict=answer_grade.verdict,
        answer=answer,
        reason=answer_grade.reason,
        layer=answer_grade.layer,
    )


_NO_GOLD = Grade(verdict=Verdict.UNKNOWN, reason="gold_is_data", layer="none")
