"""Finds false equalities in the steps of a solution.

Each false equality becomes an `EqualityFlag`. The first error of the solution is at the step of
the flag or before it: the equality is a calculation error itself, or its numbers were forced to fit
after an earlier error. An equality that holds does not show that its step is right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import TypeVar

from mclabel.judge.symbolic.deciding import decide_equality
from mclabel.judge.symbolic.lexing import Side, Token, TokenKind, tokenize
from mclabel.judge.symbolic.solving import (
    MAX_EQUATIONS,
    Equation,
    are_consecutive_equations,
    explain_contradiction,
    find_equations,
    have_same_numbers,
    read_left_side,
    read_right_side,
)
from mclabel.judge.symbolic.vocabulary import (
    DENIED,
    OTHER_BASES,
    REMAINDERS,
    ROUNDED,
    TESTED,
    redefines_notation,
)

# Results that are stated twice: `Total = 52 + 24`, then `Total = 78`.
#
# Two values of the same name, with only words of solving between them, are compared like the two
# sides of an equality.

_MAX_NAME = 10
"""Maximum number of tokens in the name of a quantity, such as `total cost`."""
_OF_NAMES = (TokenKind.WORD, TokenKind.LETTER)
_ENDS = (TokenKind.STOP, TokenKind.DELIMITER, TokenKind.RELATION)
_CALCULATES = re.compile(r"[-+*/]")


@dataclass(frozen=True, slots=True)
class NamedResult:
    """A quantity that a step names in words, such as "total cost", and its value in that step."""

    name: tuple[str, ...]
    """Words of the name, in lower case."""
    side: Side
    """The value, as a formula."""
    is_approximate: bool
    """True if the relation is "about equal" instead of "equal"."""
    first_token_index: int
    """Index of the first token of the name."""
    end_token_index: int
    """Index after the last token of the value."""
    is_continued: bool
    """True if another relation follows the value."""


def find_named_results(tokens: Sequence[Token], relations: Sequence[int]) -> Iterator[NamedResult]:
    """Yield the results that have a name in words, among the relations of a step, in order.

    Args:
        tokens: tokens of the step.
        relations: indices of the relations among the tokens.
    """
    for at in relations[:MAX_EQUATIONS]:
        first = at
        while first > 0 and tokens[first - 1].kind not in _ENDS and at - first <= _MAX_NAME:
            first -= 1
        name = tokens[first:at]
        if not 0 < len(name) <= _MAX_NAME or any(token.kind not in _OF_NAMES for token in name):
            continue
        if not any(token.kind is TokenKind.WORD for token in name):
            continue
        side = read_right_side(tokens, at)
        if side is None:
            continue
        last = at + 1 + side.num_tokens
        continued = last < len(tokens) and tokens[last].kind is TokenKind.RELATION
        words = tuple(token.text.lower() for token in name)
        yield NamedResult(words, side, tokens[at].text == "≈", first, last, is_continued=continued)


def restates_formula_value(
    first: NamedResult, second: NamedResult, tokens_between: Sequence[Token]
) -> bool:
    """Return whether the second result can be compared with the formula of the first.

    Both must have the same name, with only words of solving between them.

    Args:
        first: result with a formula.
        second: later result.
        tokens_between: tokens between the two results.
    """
    return (
        first.name == second.name
        and not first.is_continued
        and _CALCULATES.search(first.side.text) is not None
        and not first.side.text.startswith(second.side.text)
        and not have_same_numbers(first.side.text, second.side.text)
        and are_consecutive_equations(tokens_between, "")
    )


MAX_STEPS = 1_000
"""Maximum number of steps that are checked in a solution."""
MAX_STEP_LENGTH = 4_000
"""Maximum number of characters that are read of a step."""
MAX_EQUALITIES = 60
"""Maximum number of equalities that are checked in a step."""
_MAX_PROBLEM_LENGTH = 10_000
"""Maximum number of characters that are read of a problem."""
_MAX_SHOWN = 200
"""Maximum number of characters of an equality in a flag."""
_DENIED_BEFORE = 200
"""Number of characters before an equality that are searched for words such as `suppose`, which mark
a test or an assumption."""
_DENIED_BEHIND = 80
"""Number of characters after an equality that are searched for words such as `wrong`, which deny
it."""
_DENIED_JUST_BEFORE = 40
"""Number of characters before an equality that are searched for words such as `not`, which deny
it."""
_CASES = frozenset(("or", "either", "case", "cases"))
_QUESTION = re.compile(r"[^.!?\n]*+(?:\.(?=[0-9])[^.!?\n]*+)*+\?")
"""Pattern of the rest of a sentence after an equality if the sentence is a question."""
_OR = re.compile(r"[\s$\\(),\[\]]*+\bor\b[\s$\\(),\[\]]*+")
"""Pattern of the word "or" after an equality, which announces an alternative."""
_ENDS_WITH_OR = re.compile(r"\bor\b[\s$\\(),\[\]]*+\Z")
_SEPARATORS = " \t\r\n$\\(),[]"
_JOINING = frozenset(("and", "or"))
_SENTENCE_END = re.compile(r"[.!?][\s\\$)]|\bthen\b|\bso\b")


_Found = TypeVar("_Found", "NamedResult", "_ClaimedEquations")


@dataclass(frozen=True, slots=True)
class EqualityFlag:
    """An equality that is false."""

    step: int
    """Index of the step, from 0."""
    start: int
    """Index of the equality's first character in the step's text."""
    end: int
    """Index after the equality's last character."""
    equality: str
    """Text of the equality, of at most 200 characters."""
    reason: str
    """Explanation in plain English why the equality is false."""


def check_steps(problem: str, steps: Sequence[str]) -> list[EqualityFlag]:
    """Return the false equalities of a solution, in order.

    Args:
        problem: text of the problem, which may give operators another meaning.
        steps: texts of the solution's steps, in order.

    Returns:
        One flag for each equality that is certainly false. The first error is at the step of the
        first flag or before it. Without flags, the solution may be right or wrong.
    """
    problem = problem[:_MAX_PROBLEM_LENGTH]
    if OTHER_BASES.search(problem) or redefines_notation(problem):
        return []
    flags: list[EqualityFlag] = []
    before: _Step | None = None
    for number, text in enumerate(steps[:MAX_STEPS]):
        step = _read_step(number, text[:MAX_STEP_LENGTH], steps)
        if step.relations:
            flagged = [
                *_find_equalities_without_true_alternative(step),
                *_find_changed_results(step, before),
                *_find_contradicted_equations(step, before),
            ]
            flags += sorted(
                {(flag.start, flag.end): flag for flag in reversed(flagged)}.values(),
                key=lambda flag: flag.start,
            )
        before = step
    return flags


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of the solution, split into tokens, results and equations."""

    number: int
    text: str
    tokens: Sequence[Token]
    relations: Sequence[int]
    """Indices of the relations among the tokens."""
    results: Sequence[NamedResult]
    equations: Sequence[Equation]
    next_text: str
    """First characters of the next step's text; empty after the last step."""

    def make_flag(self, start: int, end: int, reason: str) -> EqualityFlag:
        return EqualityFlag(self.number, start, end, self.text[start:end][:_MAX_SHOWN], reason)


def _read_step(number: int, text: str, steps: Sequence[str]) -> _Step:
    if "=" not in text and "≈" not in text and "approx" not in text and "equals" not in text:
        return _Step(number, text, (), (), (), (), "")
    tokens = tokenize(text)
    relations = [i for i, token in enumerate(tokens) if token.kind is TokenKind.RELATION][
        :MAX_EQUALITIES
    ]
    next_text = steps[number + 1][:_DENIED_BEHIND] if number + 1 < len(steps) else ""
    results = list(find_named_results(tokens, relations))
    return _Step(
        number, text, tokens, relations, results, list(find_equations(tokens, relations)), next_text
    )


def _find_equalities_without_true_alternative(step: _Step) -> list[EqualityFlag]:
    """Return the false numeric equalities of one step.

    Equalities that are joined by "or" are alternatives. They are returned only if all are false.
    """
    flags = list(_find_false_equalities(step))
    number = len(flags) + 1
    while len(flags) < number:  # repeat, since a removed alternative removes its neighbours too
        number = len(flags)
        starts, ends = {flag.start for flag in flags}, {flag.end for flag in flags}
        flags = [
            flag
            for flag in flags
            if (behind := _OR.match(step.text, flag.end)) is None or behind.end() in starts
            if (before := _find_end_of_alternative_before(step.text, flag.start)) is None
            or before in ends
        ]
    return flags


def _find_end_of_alternative_before(text: str, start: int) -> int | None:
    """Return the end of the alternative that `or` joins to an equality; None if there is none.

    Indices count characters of the text.
    """
    match = _ENDS_WITH_OR.search(text, max(0, start - _DENIED_JUST_BEFORE), start)
    return None if match is None else len(text[: match.start()].rstrip(_SEPARATORS))


def _find_false_equalities(step: _Step) -> Iterator[EqualityFlag]:
    """Yield the false numeric equalities of one step."""
    for at in step.relations:
        left = read_left_side(step.tokens, at)
        if left is None or not left.num_operations:
            continue
        right = read_right_side(step.tokens, at)
        if right is None:
            continue
        reason = explain_false_remainder_division(left, right, step.text[right.end :])
        if reason is None:
            reason = _explain_falsity(step, left, right, is_approximate=step.tokens[at].text == "≈")
        if reason and not _is_denied_or_tested(step, left.start, right.end):
            yield step.make_flag(left.start, right.end, reason)


def _find_changed_results(step: _Step, previous_step: _Step | None) -> Iterator[EqualityFlag]:
    """Yield results whose value differs from the preceding value of the same name."""
    for earlier, later, between in _pair_consecutive(
        step, previous_step, lambda side: side.results
    ):
        if restates_formula_value(earlier, later, between):
            reason = _explain_falsity(
                step,
                earlier.side,
                later.side,
                is_approximate=earlier.is_approximate or later.is_approximate,
            )
            if reason and not _is_denied_or_tested(step, later.side.start, later.side.end):
                yield step.make_flag(
                    step.tokens[later.first_token_index].start, later.side.end, reason
                )


def _find_contradicted_equations(
    step: _Step, previous_step: _Step | None
) -> Iterator[EqualityFlag]:
    """Yield equations of a step that do not follow from the preceding equation."""
    tokens = (*step.tokens, *(previous_step.tokens if previous_step else ()))
    for claims, others, between in _pair_consecutive(
        step, previous_step, _group_equations_into_claims
    ):
        earlier, later = claims.equations[-1], others.equations[0]
        if earlier.degree == 1 and any(
            token.kind is TokenKind.WORD and token.text.lower() in _CASES for token in tokens
        ):
            continue
        if are_consecutive_equations(between, later.letter):
            pairs = product(claims.equations, others.equations)
            reasons = [explain_contradiction(equation, other) for equation, other in pairs]
            reason = reasons[0] if all(reasons) else None
            if reason and not _is_denied_or_tested(step, later.left.start, later.right.end):
                yield step.make_flag(later.left.start, later.right.end, reason)


@dataclass(frozen=True, slots=True)
class _ClaimedEquations:
    """A claim: one equation, or several that are alternatives (`x = 1 or x = 2`) or a list."""

    equations: Sequence[Equation]

    @property
    def first_token_index(self) -> int:
        return self.equations[0].first_token_index

    @property
    def end_token_index(self) -> int:
        return self.equations[-1].end_token_index


def _group_equations_into_claims(step: _Step) -> list[_ClaimedEquations]:
    """Return the equations of a step as claims.

    Alternatives such as `x = 1 or x = 2` form one claim. Lists that end with "and" form one too.
    """
    runs: list[list[Equation]] = []
    joins: list[set[str]] = []
    for equation in step.equations:
        between = (
            step.tokens[runs[-1][-1].end_token_index : equation.first_token_index] if runs else ()
        )
        words = {
            word for s in between if s.kind is TokenKind.WORD for word in s.text.lower().split()
        }
        kinds = {s.kind for s in between} - {TokenKind.WORD, TokenKind.DELIMITER}
        listed = words <= _JOINING and all(
            s.text in ",;" for s in between if s.kind is TokenKind.STOP
        )
        if runs and listed and kinds <= {TokenKind.STOP}:
            runs[-1].append(equation)
            joins[-1] |= words
        else:
            runs.append([equation])
            joins.append(set())
    claims = []
    for run, words in zip(runs, joins, strict=True):
        is_one = "or" in words or ("and" in words and len(run) > 2)
        claims += (
            [_ClaimedEquations(run)]
            if is_one
            else [_ClaimedEquations([equation]) for equation in run]
        )
    return claims


def _pair_consecutive(
    step: _Step, previous_step: _Step | None, select: Callable[[_Step], Sequence[_Found]]
) -> Iterator[tuple[_Found, _Found, Sequence[Token]]]:
    """Yield pairs of consecutive results or claims, each pair with the tokens between the two.

    Args:
        step: step of the later element of each pair.
        previous_step: previous step, whose last element is paired with the first one of `step`;
            None for the first step.
        select: function that returns the results or claims of a step.
    """
    here: Sequence[_Found] = select(step)
    if previous_step is not None and here:
        for last in select(previous_step)[-1:]:
            tail: Sequence[Token] = previous_step.tokens[last.end_token_index :]
            yield last, here[0], (*tail, *step.tokens[: here[0].first_token_index])
    for earlier, later in pairwise(here):
        yield earlier, later, step.tokens[earlier.end_token_index : later.first_token_index]


def _explain_falsity(step: _Step, left: Side, right: Side, *, is_approximate: bool) -> str | None:
    """Return the reason why an equality is certainly false; None if it holds or may hold."""
    outcome = decide_equality(
        left,
        right,
        is_approximate=is_approximate,
        may_be_rounded=bool(right.units) or ROUNDED.search(step.text) is not None,
    )
    if outcome is None or outcome.holds or OTHER_BASES.search(step.text):
        return None
    return None if _may_hold_modulo(step, outcome.difference) else outcome.reason


def _may_hold_modulo(step: _Step, difference: Fraction | None) -> bool:
    """Return whether a step calculates with remainders and both sides may have the same one."""
    if REMAINDERS.search(step.text) is None:
        return False
    if difference is None or difference.denominator != 1:
        return difference is None
    numbers = (s.text for s in step.tokens if s.kind is TokenKind.NUMBER and "." not in s.text)
    return any(int(n) > 1 and difference % int(n) == 0 for n in numbers)


def _is_denied_or_tested(step: _Step, start: int, end: int) -> bool:
    """Return whether the words around an equality call it a test or deny it.

    Indices `start` and `end` count characters of the step's text.

    The words after the equality may belong to the next step.
    """
    before = step.text[max(0, start - _DENIED_BEFORE) : start]
    ends = list(_SENTENCE_END.finditer(before))
    sentence = before[ends[-1].end() :] if ends else before
    if TESTED.search(sentence) or DENIED.search(sentence[-_DENIED_JUST_BEFORE:]):
        return True
    text_after = step.text[end : end + _DENIED_BEHIND]
    if _QUESTION.match(text_after):
        return True
    if len(text_after) < _DENIED_BEHIND:
        text_after = f"{text_after}\n{step.next_text[: _DENIED_BEHIND - len(text_after)]}"
    return DENIED.search(text_after) is not None


# Divisions with a remainder: `1529 / 6 = 254 with a remainder of 5`.

_DIVISION = re.compile(r"(?:([0-9]+)/([0-9]+)|\\frac\{([0-9]+)\}\{([0-9]+)\})")
_REMAINDER = re.compile(
    r"[\s\\)\]$,;]{0,8}+(?:(?:with|and|leaving) )?(?:(?:a|the) )?"
    r"(?:remainder (?:(?:of|is) )?|\\(?:mathrm|text)\{ ?R ?\}[\s\\;]{0,4}+|R ?(?=[0-9]))"
    r"[\\($\s]{0,4}+([0-9]{1,12})(?![0-9]*[.,/^*]?[0-9])"
)
_MAX_LENGTH = 80


def explain_false_remainder_division(left: Side, right: Side, text_after: str) -> str | None:
    """Return why a division with a remainder, such as `17 / 5 = 3 remainder 1`, is false.

    Args:
        left: left side of the equality.
        right: right side of the equality.
        text_after: text after the right side.

    Returns:
        None if the equality is not such a division, "" if the division holds, else the reason in
        plain English why it is false.
    """
    division = _DIVISION.fullmatch(left.text)
    remainder = _REMAINDER.match(text_after[:_MAX_LENGTH])
    if division is None or remainder is None or not right.text.isdecimal():
        return None
    dividend, divisor = (int(group) for group in division.groups() if group)
    quotient, rest = int(right.text), int(remainder[1])
    total = divisor * quotient + rest
    if total == dividend:
        return ""
    return f"{divisor} * {quotient} + {rest} is {total}, not {dividend}"
