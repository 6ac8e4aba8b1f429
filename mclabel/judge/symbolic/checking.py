"""Finds false equalities in the steps of a solution.

A flag says that the first error lies at its step or before it: a slip of calculation, or numbers
that were forced to fit after one. That an equality holds says nothing about its step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import TypeVar

from mclabel.judge.symbolic.deciding import decide
from mclabel.judge.symbolic.lexing import Kind, Side, Sign, signs_of
from mclabel.judge.symbolic.solving import (
    MAX_EQUATIONS,
    Equation,
    are_branches,
    equations_of,
    follows,
    left_side,
    right_side,
    stand_together,
)
from mclabel.judge.symbolic.vocabulary import (
    DENIED,
    OTHER_BASES,
    REMAINDERS,
    ROUNDED,
    TESTED,
    has_other_operations,
)

# Results that are said twice: `Total = 52 + 24`, then `Total = 78`.
#
# Two values of one name that follow each other with nothing but words of solving between them are
# two sides of an equality, as if they stood in one chain.

_MAX_NAME = 10
"""Signs of a name."""
_OF_NAMES = (Kind.WORD, Kind.LETTER)
_ENDS = (Kind.STOP, Kind.DELIMITER, Kind.RELATION)
_CALCULATES = re.compile(r"[-+*/]")


@dataclass(frozen=True, slots=True)
class Result:
    """A name and what it is said to be."""

    name: tuple[str, ...]
    side: Side
    about: bool
    first: int
    """Index of the first of its signs."""
    last: int
    """Behind its signs."""
    is_continued: bool
    """Another relation follows."""


def results_of(signs: Sequence[Sign], relations: Sequence[int]) -> Iterator[Result]:
    """The results with a name in words among the relations of a step, in order."""
    for at in relations[:MAX_EQUATIONS]:
        first = at
        while first > 0 and signs[first - 1].kind not in _ENDS and at - first <= _MAX_NAME:
            first -= 1
        name = signs[first:at]
        if not 0 < len(name) <= _MAX_NAME or any(sign.kind not in _OF_NAMES for sign in name):
            continue
        if not any(sign.kind is Kind.WORD for sign in name):
            continue
        side = right_side(signs, at)
        if side is None:
            continue
        last = at + 1 + side.signs_used
        continued = last < len(signs) and signs[last].kind is Kind.RELATION
        words = tuple(sign.text.lower() for sign in name)
        yield Result(words, side, signs[at].text == "≈", first, last, is_continued=continued)


def is_restated(first: Result, second: Result, between: Sequence[Sign]) -> bool:
    """Return whether the second result says what the first one comes to."""
    return (
        first.name == second.name
        and not first.is_continued
        and _CALCULATES.search(first.side.text) is not None
        and not first.side.text.startswith(second.side.text)
        and not are_branches(first.side.text, second.side.text)
        and stand_together(between, "")
    )


MAX_STEPS = 1_000
MAX_STEP_LENGTH = 4_000
"""Characters; of a longer step only the start is read."""
MAX_EQUALITIES = 60
"""In one step."""
_MAX_PROBLEM_LENGTH = 10_000
_MAX_SHOWN = 200
"""Characters of an equality in a flag."""
_DENIED_BEFORE = 200
_DENIED_BEHIND = 80
_DENIED_JUST_BEFORE = 40
"""Characters around an equality in which it may be denied or called a test."""
_CASES = frozenset(("or", "either", "case", "cases"))
_QUESTION = re.compile(r"[^.!?\n]*+(?:\.(?=[0-9])[^.!?\n]*+)*+\?")
"""Behind an equality: its sentence ends with a question mark."""
_OR = re.compile(r"[\s$\\(),\[\]]*+\bor\b[\s$\\(),\[\]]*+")
"""Behind an equality: an alternative follows."""
_ENDS_WITH_OR = re.compile(r"\bor\b[\s$\\(),\[\]]*+\Z")
_SEPARATORS = " \t\r\n$\\(),[]"
_JOINING = frozenset(("and", "or"))
_SENTENCE_END = re.compile(r"[.!?][\s\\$)]|\bthen\b|\bso\b")


_Found = TypeVar("_Found", "Result", "_Claims")


@dataclass(frozen=True, slots=True)
class Flag:
    """An equality that is false."""

    step: int
    """0-based."""
    start: int
    end: int
    """Characters of the step's text, `end` exclusive."""
    equality: str
    """Text of the equality, of limited length."""
    reason: str
    """In plain English."""


def check_steps(problem: str, steps: Sequence[str]) -> list[Flag]:
    """The false equalities of a solution, in order.

    Args:
        problem: the question, which may give signs another meaning.
        steps: the texts of the solution's steps, in order.

    Returns:
        one flag for each equality that is certainly false. The first error then lies at or before
        the first flag's step. No flag means nothing.
    """
    problem = problem[:_MAX_PROBLEM_LENGTH]
    if OTHER_BASES.search(problem) or has_other_operations(problem):
        return []
    flags: list[Flag] = []
    before: _Step | None = None
    for number, text in enumerate(steps[:MAX_STEPS]):
        step = _read(number, text[:MAX_STEP_LENGTH], steps)
        if step.relations:
            flagged = [
                *_false_alternatives(step),
                *_restated(step, before),
                *_unsolved(step, before),
            ]
            flags += sorted(_without_repeats(flagged), key=lambda flag: flag.start)
        before = step
    return flags


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that has been read."""

    number: int
    text: str
    signs: Sequence[Sign]
    relations: Sequence[int]
    """Places of the relations among the signs."""
    results: Sequence[Result]
    equations: Sequence[Equation]
    behind: str
    """The start of the next step."""

    def flag(self, start: int, end: int, reason: str) -> Flag:
        return Flag(self.number, start, end, self.text[start:end][:_MAX_SHOWN], reason)


def _read(number: int, text: str, steps: Sequence[str]) -> _Step:
    if "=" not in text and "≈" not in text and "approx" not in text and "equals" not in text:
        return _Step(number, text, (), (), (), (), "")
    signs = signs_of(text)
    relations = [i for i, sign in enumerate(signs) if sign.kind is Kind.RELATION][:MAX_EQUALITIES]
    behind = steps[number + 1][:_DENIED_BEHIND] if number + 1 < len(steps) else ""
    results = list(results_of(signs, relations))
    return _Step(
        number, text, signs, relations, results, list(equations_of(signs, relations)), behind
    )


def _without_repeats(flags: Sequence[Flag]) -> list[Flag]:
    return list({(flag.start, flag.end): flag for flag in reversed(flags)}.values())


def _false_alternatives(step: _Step) -> list[Flag]:
    """The false numeric equalities of one step; of alternatives none, unless all are false."""
    flags = list(_false(step))
    number = len(flags) + 1
    while len(flags) < number:  # an alternative beside one that is left out is left out, too
        number = len(flags)
        starts, ends = {flag.start for flag in flags}, {flag.end for flag in flags}
        flags = [
            flag
            for flag in flags
            if (behind := _OR.match(step.text, flag.end)) is None or behind.end() in starts
            if (before := _or_before(step.text, flag.start)) is None or before in ends
        ]
    return flags


def _or_before(text: str, start: int) -> int | None:
    """Return where the alternative before an equality ends, None if there is none."""
    at = max(0, start - _DENIED_JUST_BEFORE)
    match = _ENDS_WITH_OR.search(text, at, start)
    return None if match is None else len(text[: match.start()].rstrip(_SEPARATORS))


def _false(step: _Step) -> Iterator[Flag]:
    """The false numeric equalities of one step."""
    for at in step.relations:
        left = left_side(step.signs, at)
        if left is None or not left.operations:
            continue
        right = right_side(step.signs, at)
        if right is None:
            continue
        reason = divided_with_remainder(left, right, step.text[right.end :])
        if reason is None:
            reason = _why_false(step, left, right, about=step.signs[at].text == "≈")
        if reason and not _is_denied(step, left.start, right.end):
            yield step.flag(left.start, right.end, reason)


def _restated(step: _Step, before: _Step | None) -> Iterator[Flag]:
    """Results of a step that are another value than the same name had just before."""
    for earlier, later, between in _neighbours(step, before, lambda side: side.results):
        if is_restated(earlier, later, between):
            reason = _why_false(step, earlier.side, later.side, about=earlier.about or later.about)
            if reason and not _is_denied(step, later.side.start, later.side.end):
                start = step.signs[later.first].start
                yield step.flag(start, later.side.end, reason)


def _unsolved(step: _Step, before: _Step | None) -> Iterator[Flag]:
    """Equations of a step that do not follow from the one just before."""
    signs = (*step.signs, *(before.signs if before else ()))
    for claims, others, between in _neighbours(step, before, _claims_of):
        earlier, later = claims.equations[-1], others.equations[0]
        if earlier.degree == 1 and _has_cases(signs):
            continue
        if stand_together(between, later.letter):
            pairs = product(claims.equations, others.equations)
            reasons = [follows(equation, other) for equation, other in pairs]
            reason = reasons[0] if all(reasons) else None
            if reason and not _is_denied(step, later.left.start, later.right.end):
                yield step.flag(later.left.start, later.right.end, reason)


@dataclass(frozen=True, slots=True)
class _Claims:
    """Equations that are alternatives or items of a list, or one alone."""

    equations: Sequence[Equation]

    @property
    def first(self) -> int:
        return self.equations[0].first

    @property
    def last(self) -> int:
        return self.equations[-1].last


def _claims_of(step: _Step) -> list[_Claims]:
    """The equations of a step: `x = 1 or x = 2`, and lists that end with "and", are one claim."""
    runs: list[list[Equation]] = []
    joins: list[set[str]] = []
    for equation in step.equations:
        between = step.signs[runs[-1][-1].last : equation.first] if runs else ()
        words = {word for s in between if s.kind is Kind.WORD for word in s.text.lower().split()}
        kinds = {s.kind for s in between} - {Kind.WORD, Kind.DELIMITER}
        listed = words <= _JOINING and all(s.text in ",;" for s in between if s.kind is Kind.STOP)
        if runs and listed and kinds <= {Kind.STOP}:
            runs[-1].append(equation)
            joins[-1] |= words
        else:
            runs.append([equation])
            joins.append(set())
    claims = []
    for run, words in zip(runs, joins, strict=True):
        is_one = "or" in words or ("and" in words and len(run) > 2)
        claims += [_Claims(run)] if is_one else [_Claims([equation]) for equation in run]
    return claims


def _neighbours(
    step: _Step, before: _Step | None, select: Callable[[_Step], Sequence[_Found]]
) -> Iterator[tuple[_Found, _Found, Sequence[Sign]]]:
    """Return what was found in a step with what was found before it, and the signs between the
    two.
    """
    here: Sequence[_Found] = select(step)
    if before is not None and here:
        for last in select(before)[-1:]:
            tail: Sequence[Sign] = before.signs[last.last :]
            yield last, here[0], (*tail, *step.signs[: here[0].first])
    for earlier, later in pairwise(here):
        yield earlier, later, step.signs[earlier.last : later.first]


def _why_false(step: _Step, left: Side, right: Side, *, about: bool) -> str | None:
    """Why an equality is certainly false, else None."""
    rounds = bool(right.units) or ROUNDED.search(step.text) is not None
    outcome = decide(left, right, about=about, rounds=rounds)
    if outcome is None or outcome.holds or OTHER_BASES.search(step.text):
        return None
    return None if _is_remainder(step, outcome.difference) else outcome.reason


def _has_cases(signs: Sequence[Sign]) -> bool:
    """Return whether equations are alternatives: `x - 8 = 12 or x - 8 = -12`."""
    return any(sign.kind is Kind.WORD and sign.text.lower() in _CASES for sign in signs)


def _is_remainder(step: _Step, difference: Fraction | None) -> bool:
    """Return whether a step calculates remainders and the sides may leave the same one."""
    if REMAINDERS.search(step.text) is None:
        return False
    if difference is None or difference.denominator != 1:
        return difference is None
    numbers = (s.text for s in step.signs if s.kind is Kind.NUMBER and "." not in s.text)
    return any(int(n) > 1 and difference % int(n) == 0 for n in numbers)


def _is_denied(step: _Step, start: int, end: int) -> bool:
    """Return whether the words around an equality test it or say that it is false.

    The words behind it may be those of the next step.
    """
    before = step.text[max(0, start - _DENIED_BEFORE) : start]
    ends = list(_SENTENCE_END.finditer(before))
    sentence = before[ends[-1].end() :] if ends else before
    if TESTED.search(sentence) or DENIED.search(sentence[-_DENIED_JUST_BEFORE:]):
        return True
    behind = step.text[end : end + _DENIED_BEHIND]
    if _QUESTION.match(behind):
        return True
    if len(behind) < _DENIED_BEHIND:
        behind = f"{behind}\n{step.behind[: _DENIED_BEHIND - len(behind)]}"
    return DENIED.search(behind) is not None


# Divisions with a remainder: `1529 / 6 = 254 with a remainder of 5`.

_DIVISION = re.compile(r"(?:([0-9]+)/([0-9]+)|\\frac\{([0-9]+)\}\{([0-9]+)\})")
_REMAINDER = re.compile(
    r"[\s\\)\]$,;]{0,8}+(?:(?:with|and|leaving) )?(?:(?:a|the) )?"
    r"(?:remainder (?:(?:of|is) )?|\\(?:mathrm|text)\{ ?R ?\}[\s\\;]{0,4}+|R ?(?=[0-9]))"
    r"[\\($\s]{0,4}+([0-9]{1,12})(?![0-9]*[.,/^*]?[0-9])"
)
_MAX_LENGTH = 80


def divided_with_remainder(left: Side, right: Side, behind: str) -> str | None:
    """Return whether an equality is a division with a remainder, and why it is false.

    Args:
        left: left side of the equality.
        right: right side of the equality.
        behind: the text behind the right side.

    Returns:
        None where it is no such division, "" where it holds, else the reason in plain English.
    """
    division = _DIVISION.fullmatch(left.text)
    remainder = _REMAINDER.match(behind[:_MAX_LENGTH])
    if division is None or remainder is None or not right.text.isdecimal():
        return None
    dividend, divisor = (int(group) for group in division.groups() if group)
    quotient, rest = int(right.text), int(remainder[1])
    total = divisor * quotient + rest
    if total == dividend:
        return ""
    return f"{divisor} * {quotient} + {rest} is {total}, not {dividend}"
