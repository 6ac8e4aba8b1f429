"""Grade an answer against the gold: exact rationals first, then strings, else unknown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from mclabel.answers.extract import extract_answer
from mclabel.answers.normalize import as_rational, normalize
from mclabel.records import Verdict

CHECKER_VERSION = "1"
"""Stored with every shard: a change of any verdict raises it."""


@dataclass(frozen=True, kw_only=True)
class Grade:
    """A verdict and how it came about."""

    verdict: Verdict
    reason: str
    """Machine-readable, e.g. `equal`, `different_numbers`, `no_answer`."""
    layer: str
    """The layer that decided: `extract`, `rational`, `string` or `none`."""


@lru_cache(maxsize=100_000)
def grade(answer: str, gold: str) -> Grade:
    """Whether `answer` means what `gold` means. Never raises on any pair of strings."""
    ours, theirs = normalize(answer), normalize(gold)
    if ours and ours == theirs:
        return Grade(verdict=Verdict.RIGHT, reason="equal", layer="string")
    left, right = as_rational(ours), as_rational(theirs)
    if left is not None and right is not None:
        if left == right:
            return Grade(verdict=Verdict.RIGHT, reason="equal", layer="rational")
        return Grade(verdict=Verdict.WRONG, reason="different_numbers", layer="rational")
    if not ours:
        return Grade(verdict=Verdict.WRONG, reason="empty_answer", layer="string")
    return Grade(verdict=Verdict.UNKNOWN, reason="not_comparable", layer="none")


def grade_completion(text: str, gold: str) -> tuple[str | None, Grade]:
    """The answer a completion gives, and its grade. No answer at all is a wrong one."""
    answer = extract_answer(text)
    if answer is None:
        return None, Grade(verdict=Verdict.WRONG, reason="no_answer", layer="extract")
    return answer, grade(answer, gold)
