r"""Reader of golds in every form that data sets and trainers use.

A gold is one of these:

- a text: `72`, `$72$`, or a solution that ends in `#### 72`, `\boxed{72}`, `Answer: 72`
  or `<answer>72</answer>`;
- a number;
- a list of acceptable answers, or the JSON text of such a list;
- an object that has one of these under `ground_truth`.

Any other object is data for a user-defined checker. Some data sets mark a missing answer by a word,
such as NuminaMath's `proof` and `notfound`. Such a word is not a gold.

`verdict_on` returns the verdict on one completion, for reward functions and scorers of trainers:

    from mclabel.answers import verdict_on

    verdict_on(r"So it is \boxed{0.5}.", "1/2")  # Verdict.RIGHT

Any thread, process or actor may call `verdict_on`. In an event loop, call it by
`asyncio.to_thread`, because the first pair that needs sympy takes seconds. `examples/trainers/`
uses the function in TRL, verl, verifiers and inspect_ai. `mc.grade` also returns the reason of a
verdict and accepts other checkers.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isfinite, isnan
from typing import Any, Literal, Protocol, TypeVar, cast

from mclabel.answers.checker import default_checker
from mclabel.answers.extraction.extract import extract_reference_answer
from mclabel.answers.grade import GUESS, IN_WORDS
from mclabel.core.errors import DataError
from mclabel.core.records import Verdict

SENTINELS = frozenset(
    ("", "proof", "notfound", "not found", "not_found", "none", "null", "nan", "n/a", "na", "<na>")
)
"""Texts in the place of a gold that mean that there is none, in lower case."""
_NO_VALUE = re.compile(
    r"[-?.…_–—\s]+|"
    r"\(?(?:please )?(?:see|refer to|check) (?:the )?(?:above |below |attached |full )?"
    r"(?:solutions?|answers?|explanations?|proofs?|work|figure|graph|text|above|below)"
    r"(?: (?:above|below|provided|given|in the text))?\)?|"
    r"(?:sample )?(?:answers?|responses?|solutions?)(?: (?:may|will|can|could) (?:vary|differ)|"
    r" varies| vary)(?: .{0,60})?|"
    r"no answer|(?:no|unknown|missing) (?:answer|solution|gold) (?:given|provided|available)|"
    r"(?:the )?(?:answer|solution)(?: is)? "
    r"(?:not (?:given|provided|available|found)|omitted|unknown)|"
    r"not (?:applicable|available|provided|given)|tbd|todo|omitted|unknown|q\.?e\.?d|proved|proven|"
    r"(?:(?:.{0,80}[.\n] ?)?(?:(?:thus|hence|so|therefore),? )?)"
    r"(?:(?:the|this|our) (?:proof|claim|statement|theorem) is "
    r"(?:now |thus |therefore |hence )?(?:complete|completed|finished|proved|proven|shown)|"
    r"(?:this|which) (?:completes|concludes|finishes) (?:the|our) proof)"
)
"""Pattern of further texts that mean that there is no gold, in lower case and without surrounding
punctuation."""
_MAX_NO_VALUE = 160
"""Maximum number of characters at the end of a gold that `_NO_VALUE` is matched with."""
MAX_GOLDS = 1024
"""Maximum number of acceptable answers of one problem."""
_LONG = 10**4_000
"""Smallest absolute value of an integer that is stored as a string, because Python reads integers
of at most 4,300 digits."""
_MAX_LIST = 1 << 16
"""Maximum number of characters of a text that is parsed as a list."""
_GROUND_TRUTH = "ground_truth"
"""Key of the gold in the objects of verl."""
_NAMED = re.compile(
    r"[ \t*_#>]*+(?:the )?(?:final )?answer[ \t*_]*+[:=\uff1a][ \t*_]*+(\S.*)", re.IGNORECASE
)
"""A line such as `Answer: 72`. The colon may be a full-width one."""
_TAG = ("<answer>", "</answer>")
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mbox)\{([^{}]*)\}")


class GradeLike(Protocol):
    """A grade of any class: it has a verdict and a reason."""

    @property
    def verdict(self) -> Verdict:
        """Return the verdict."""

    @property
    def reason(self) -> str:
        """Return the reason for the verdict."""


G = TypeVar("G", bound=GradeLike)


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold in the form in which a problem stores it."""

    answer: str
    is_json: bool = False
    """True if `answer` is the JSON text of a list or an object."""


@dataclass(frozen=True, slots=True)
class InvalidGold:
    """The reason why a value is not a gold."""

    reason: Literal["no_gold", "wrong_type"]
    """`no_gold` if the value marks a missing gold, `wrong_type` if its type is not supported."""
    detail: str
    """Predicate of an error message, such as `is empty`. The caller puts the name of the value
    before it."""


def read_gold(value: Any) -> Gold | InvalidGold:
    """Return a value as a gold, or the reason why it is not one.

    Args:
        value: a value from a row of a data set, a request or a caller. NumPy arrays and numbers are
            allowed.
    """
    value = _convert_numpy_values(value)
    if isinstance(value, Mapping) and _GROUND_TRUTH in value:
        value = _convert_numpy_values(value[_GROUND_TRUTH])
    if isinstance(value, str):
        return _read_gold_text(value)
    if isinstance(value, bool):
        return InvalidGold("wrong_type", "must be a string or a number, is a bool")
    if value is None or (isinstance(value, float | Decimal) and isnan(value)):
        return InvalidGold("no_gold", _MISSING[value is None])
    if isinstance(value, int | float | Decimal):
        if isinstance(value, int) or isfinite(value):
            return Gold(_format_plain_digits(value))
        return InvalidGold(
            "wrong_type", f"is {value}: must be finite, or a string such as '\\infty'"
        )
    if isinstance(value, Mapping | list):
        return _read_gold_data(value)
    return InvalidGold("wrong_type", f"must be a string or a number, is a {type(value).__name__}")


def list_acceptable_answers(gold: Gold) -> tuple[str, ...]:
    """Return all answers that a gold accepts as right.

    The result is empty if the gold is data for a user-defined checker.

    Args:
        gold: the gold as `read_gold` returns it.
    """
    if not gold.is_json:
        return (gold.answer,)
    data = json.loads(gold.answer)
    if not isinstance(data, list) or not 0 < len(data) <= MAX_GOLDS:
        return ()
    golds = [read_gold(entry) for entry in data]
    if any(isinstance(entry, InvalidGold) and entry.reason != "no_gold" for entry in golds):
        return ()
    return tuple(entry.answer for entry in golds if isinstance(entry, Gold) and not entry.is_json)


def choose_best_grade(grades: Sequence[G]) -> G:
    """Return the best grade of one answer against several golds.

    It is the first right grade, otherwise the first unknown one, otherwise the first one.
    """
    for verdict in (Verdict.RIGHT, Verdict.UNKNOWN):
        for grade in grades:
            if grade.verdict is verdict:
                return grade
    return grades[0]


def penalize_guess(grade: G) -> G:
    """Return the grade for use in a reward: a completion that states no answer is wrong.

    If its verdict were unknown, the completion would be masked in training. A policy could then
    avoid wrong answers by stating none.
    """
    if not (grade.reason.startswith(GUESS) or grade.reason == IN_WORDS):
        return grade
    return cast(G, replace(cast(Any, grade), verdict=Verdict.WRONG, reason=GUESS))


_MISSING = {
    True: "is empty. Remove the row",
    False: "is NaN, which stands for a missing value. Fill it in or remove the row",
}


def _read_gold_text(text: str) -> Gold | InvalidGold:
    if (listed := _parse_gold_list(text)) is not None:
        return _read_gold_data(listed)
    answer = extract_reference_answer(text)
    if answer == text.strip():
        answer = _extract_named_answer(answer)
    bare = _WRAPPED.sub(r"\1", answer).strip(" \t\n$*.()[]\\").casefold()
    if not text.strip():
        return InvalidGold("no_gold", _MISSING[True])
    if bare == "nan":
        return InvalidGold("no_gold", _MISSING[False])
    last_line = bare.rpartition("\n")[2][-_MAX_NO_VALUE:]
    if (bare in SENTINELS and (bare or not answer.strip())) or _NO_VALUE.fullmatch(
        last_line or answer.strip()
    ):
        return InvalidGold(
            "no_gold", f"is {answer.strip()[:40]!r}, which says that there is no answer"
        )
    return Gold(answer)


def _extract_named_answer(text: str) -> str:
    """Return the answer in a final `<answer>` tag or in a last line such as `Answer: 72`; the whole
    text if it has neither.
    """
    opening, closing = _TAG
    if text.endswith(closing) and opening in text:
        return text.removesuffix(closing).rpartition(opening)[2].strip()
    match = _NAMED.fullmatch(text.rpartition("\n")[2])
    return match[1].strip() if match else text


def _read_gold_data(value: Mapping[str, Any] | list[Any]) -> Gold | InvalidGold:
    if isinstance(value, list):
        value = [
            _format_plain_digits(item) if isinstance(item, int) and abs(item) >= _LONG else item
            for item in value
        ]
    if not value:
        return InvalidGold("no_gold", "is an empty list or object. Remove the row")
    if isinstance(value, list) and all(
        isinstance(leaf := _read_gold_entry(item), InvalidGold) and leaf.reason == "no_gold"
        for item in value
    ):
        return InvalidGold("no_gold", "is a list in which every entry says that there is no answer")
    try:
        text = json.dumps(
            value,
            ensure_ascii=False,
            sort_keys=True,
            allow_nan=False,
            default=_convert_to_json_type,
        )
    except (TypeError, ValueError, RecursionError) as error:
        return InvalidGold("wrong_type", f"holds a value that JSON cannot store ({error})")
    return Gold(text, is_json=True)


def _read_gold_entry(item: Any) -> Gold | InvalidGold | None:
    """Return an entry of a list as a gold; None if the entry is a list or an object."""
    item = _convert_numpy_values(item)
    return None if isinstance(item, Mapping | list) else read_gold(item)


def _parse_gold_list(text: str) -> list[Any] | None:
    """Parse a text as a list of strings in JSON or Python notation; return None if it is not one.

    A list of numbers is not parsed, because `[1, 2]` may be an interval or a point.
    """
    text = text.strip()
    if len(text) > _MAX_LIST or text[:1] != "[" or text[1:].lstrip()[:1] not in ("'", '"'):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            items = read(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return items
    return None


def _format_plain_digits(number: int | float | Decimal) -> str:
    """Write a number in digits. An exponent is expanded if it is below 40 in size."""
    if isinstance(number, int):
        return f"{Decimal(number):f}"  # `str` refuses integers of more than 4,300 digits
    exact = Decimal(repr(number)) if isinstance(number, float) else number
    short = str(number)
    return f"{exact:f}" if "e" in short.casefold() and abs(exact.adjusted()) < 40 else short


def _convert_numpy_values(value: Any) -> Any:
    """Convert NumPy arrays and numbers to plain Python values, and tuples to lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _convert_to_json_type(value: Any) -> Any:
    if isinstance(value, Decimal):
        return _format_plain_digits(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON has no type for a {type(value).__name__}")


def verdict_on(completion: str, gold: Any) -> Verdict:
    """Return whether the answer of a completion is right, wrong or unknown.

    The verdict is also unknown if the gold marks a missing answer, such as `proof` or None. The
    reward of such a row carries no signal.

    A completion that states no answer is wrong, even if its last number is the gold. Otherwise a
    trained policy could avoid wrong answers by stating none.

    Args:
        completion: a whole solution, or an answer alone.
        gold: the right answer in any form that docs/answers.md lists, or a list of acceptable
            answers.

    Raises:
        DataError: the type of the gold is not supported, or the gold is data for a user-defined
            checker.
    """
    parsed_gold = read_gold(gold)
    if isinstance(parsed_gold, InvalidGold) and parsed_gold.reason == "no_gold":
        return Verdict.UNKNOWN
    answers = () if isinstance(parsed_gold, InvalidGold) else list_acceptable_answers(parsed_gold)
    if not answers:
        raise DataError(
            f"gold={ascii(gold)[:80]}: must be a string, a number, or a list of them, is a "
            f"{type(gold).__name__}. Give the right answer as one of these"
        )
    checker = default_checker()
    grades = [checker.grade_completion(completion, answer)[1] for answer in answers]
    return penalize_guess(choose_best_grade(grades)).verdict
