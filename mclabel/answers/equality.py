"""Which of several answers mean the same: for votes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence

from mclabel.answers.checker import Checker
from mclabel.answers.grade import answer_key, read
from mclabel.answers.reading.normalize import MAX_LENGTH
from mclabel.answers.rules import GradeRules
from mclabel.core.records import Verdict

MAX_GROUPS = 32
"""Commonest answers that the others are compared with: what many agree on matters in a vote."""
_EXACT = GradeRules(round_to_gold=False)

Grouping = list[int | None]
_Comparisons = Generator[tuple[str, str], bool, Grouping]
"""Yields pairs of answers, is sent whether they are equal, and returns the groups."""


def group_answers(answers: Sequence[str | None], checker: Checker) -> Grouping:
    """A number for each answer, the same for answers that mean the same; None stays None.

    Every answer is compared with the commonest other ones, and joins the first that it is equal
    to, exactly: one is not another's rounding.

    Args:
        answers: of the samples of one problem.
        checker: grades what is not equal as text or as number.
    """
    return group_many([answers], checker)[0]


def group_many(problems: Iterable[Sequence[str | None]], checker: Checker) -> list[Grouping]:
    """`group_answers` for the answers of many problems, compared side by side."""
    groupings = [_grouping(answers) for answers in problems]
    found: list[Grouping] = [[] for _ in groupings]
    due: list[tuple[int, bool | None]] = [(number, None) for number in range(len(groupings))]
    while due:
        asked = []
        for number, equal in due:
            try:
                pair = groupings[number].send(equal)  # type: ignore[arg-type]
            except StopIteration as end:
                found[number] = end.value
            else:
                asked.append((number, pair))
        grades = checker.grade_many([pair for _, pair in asked], rules=_EXACT)
        due = [
            (number, grade.verdict is Verdict.RIGHT)
            for (number, _), grade in zip(asked, grades, strict=True)
        ]
    return found


def _grouping(answers: Sequence[str | None]) -> _Comparisons:
    keys = [None if answer is None else answer_key(answer) for answer in answers]
    counts = Counter(key for key in keys if key is not None)
    text = {key: answer for key, answer in zip(keys, answers, strict=True) if key is not None}
    group: dict[str, int] = {}
    heads: list[tuple[str, bool, int]] = []
    num_groups = 0
    for key, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        answer = text[key] or ""
        is_number = len(answer) <= MAX_LENGTH and read(answer).literal is not None
        for head, head_is_number, number in heads:
            if is_number and head_is_number:
                continue  # exact numbers of different keys differ
            if (yield answer, head):
                group[key] = number
                break
        else:
            group[key] = num_groups
            if len(heads) < MAX_GROUPS:
                heads.append((answer, is_number, num_groups))
            num_groups += 1
    return [None if key is None else group[key] for key in keys]
