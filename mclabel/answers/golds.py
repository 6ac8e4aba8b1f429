r"""The one reader of golds, in every form in which data sets and trainers carry them.

A gold is a text (`72`, `$72$`, a whole solution that ends in `#### 72`, `\boxed{72}`, `Answer: 72`
or `<answer>72</answer>`), a number, a list of acceptable answers or its JSON text, or an object
that has them as `ground_truth`. Any other object is data for a checker of one's own. Words by which
data sets say that there is no answer, such as NuminaMath's `proof` and `notfound`, are no gold.

`verdict_on` gives the verdict on one completion, as reward functions and scorers of trainers ask:

    from mclabel.answers import verdict_on

    verdict_on(r"So it is \boxed{0.5}.", "1/2")  # Verdict.RIGHT

Any thread, process or actor may call it. In an event loop, call it by `asyncio.to_thread`: the
first pair that needs sympy takes seconds. `examples/trainers/` has it in TRL, verl, verifiers and
inspect_ai. `mc.grade` gives the reason, too, and takes other checkers.
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
from mclabel.answers.extraction.extract import reference_answer
from mclabel.answers.grade import GUESS, IN_WORDS
from mclabel.core.errors import DataError
from mclabel.core.records import Verdict

SENTINELS = frozenset(
    ("", "proof", "notfound", "not found", "not_found", "none", "null", "nan", "n/a", "na", "<na>")
)
"""Texts that stand for no gold, in lower case."""
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
"""Words that stand for no value, in lower case and without signs around them."""
_MAX_NO_VALUE = 160
"""Characters at the end of a text that are read so."""
MAX_GOLDS = 1024
"""Acceptable answers of one problem."""
_LONG = 10**4_000
"""Integers with at least this many digits are kept as texts: Python reads at most 4,300."""
_MAX_LIST = 1 << 16
"""Characters of a text that is tried as a list."""
_GROUND_TRUTH = "ground_truth"
"""Key of the gold in the objects of verl and SkyRL."""
_NAMED = re.compile(
    r"[ \t*_#>]*+(?:the )?(?:final )?answer[ \t*_]*+[:=\uff1a][ \t*_]*+(\S.*)", re.IGNORECASE
)
"""`Answer: 72`, alone or as the last line; the colon may be of full width."""
_TAG = ("<answer>", "</answer>")
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mbox)\{([^{}]*)\}")


class Graded(Protocol):
    """A grade of either kind."""

    @property
    def verdict(self) -> Verdict:
        """Return the verdict."""

    @property
    def reason(self) -> str:
        """Return the reason for the verdict."""


G = TypeVar("G", bound=Graded)


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold as a problem holds it."""

    answer: str
    is_json: bool = False
    """True if it is the JSON text of a list or an object."""


@dataclass(frozen=True, slots=True)
class NoGold:
    """Why a value is no gold."""

    reason: Literal["no_gold", "wrong_type"]
    """`no_gold` where there is none, `wrong_type` where the value is not understood."""
    detail: str
    """A predicate: who shows it puts the name of the value before it."""


def read_gold(value: Any) -> Gold | NoGold:
    """Read a gold.

    Args:
        value: the gold of a row, a request or a caller; also an array or a number of numpy.
    """
    value = _without_numpy(value)
    if isinstance(value, Mapping) and _GROUND_TRUTH in value:
        value = _without_numpy(value[_GROUND_TRUTH])
    if isinstance(value, str):
        return _read_text(value)
    if isinstance(value, bool):
        return NoGold("wrong_type", "must be a text or a number, is a bool")
    if value is None or (isinstance(value, float | Decimal) and isnan(value)):
        return NoGold("no_gold", _MISSING[value is None])
    if isinstance(value, int | float | Decimal):
        if isinstance(value, int) or isfinite(value):
            return Gold(_write_digits(value))
        return NoGold("wrong_type", f"is {value}: must be finite, or a text such as '\\infty'")
    if isinstance(value, Mapping | list):
        return _read_data(value)
    return NoGold("wrong_type", f"must be a text or a number, is a {type(value).__name__}")


def acceptable_answers(gold: Gold) -> tuple[str, ...]:
    """Return the answers of which each is right; none where the gold is data that only its checker
    reads.

    Args:
        gold: the gold as `read_gold` returns it.
    """
    if not gold.is_json:
        return (gold.answer,)
    data = json.loads(gold.answer)
    if not isinstance(data, list) or not 0 < len(data) <= MAX_GOLDS:
        return ()
    golds = [read_gold(entry) for entry in data]
    if any(isinstance(entry, NoGold) and entry.reason != "no_gold" for entry in golds):
        return ()
    return tuple(entry.answer for entry in golds if isinstance(entry, Gold) and not entry.is_json)


def best_grade(grades: Sequence[G]) -> G:
    """Return the grade against several golds: the first that is right, else unknown if any is."""
    for verdict in (Verdict.RIGHT, Verdict.UNKNOWN):
        for grade in grades:
            if grade.verdict is verdict:
                return grade
    return grades[0]


def rewarded(grade: G) -> G:
    """Return the grade as a reward counts it: an answer that is only guessed at is wrong.

    If it were unknown, the completion would be masked, and a policy could avoid wrong answers by
    stating none.
    """
    if not (grade.reason.startswith(GUESS) or grade.reason == IN_WORDS):
        return grade
    return cast(G, replace(cast(Any, grade), verdict=Verdict.WRONG, reason=GUESS))


_MISSING = {
    True: "is empty. Remove the row",
    False: "is NaN, which stands for a missing value. Fill it in or remove the row",
}


def _read_text(text: str) -> Gold | NoGold:
    if (listed := _read_list(text)) is not None:
        return _read_data(listed)
    answer = reference_answer(text)
    if answer == text.strip():
        answer = _named_answer(answer)
    bare = _WRAPPED.sub(r"\1", answer).strip(" \t\n$*.()[]\\").casefold()
    if not text.strip():
        return NoGold("no_gold", _MISSING[True])
    if bare == "nan":
        return NoGold("no_gold", _MISSING[False])
    last_line = bare.rpartition("\n")[2][-_MAX_NO_VALUE:]
    if (bare in SENTINELS and (bare or not answer.strip())) or _NO_VALUE.fullmatch(
        last_line or answer.strip()
    ):
        return NoGold("no_gold", f"is {answer.strip()[:40]!r}, which says that there is no answer")
    return Gold(answer)


def _named_answer(text: str) -> str:
    """Return the answer that a text names in its last line, else all of the text."""
    opening, closing = _TAG
    if text.endswith(closing) and opening in text:
        return text.removesuffix(closing).rpartition(opening)[2].strip()
    match = _NAMED.fullmatch(text.rpartition("\n")[2])
    return match[1].strip() if match else text


def _read_data(value: Mapping[str, Any] | list[Any]) -> Gold | NoGold:
    if isinstance(value, list):
        value = [_write_digits(item) if _is_long(item) else item for item in value]
    if not value:
        return NoGold("no_gold", "is an empty list or object. Remove the row")
    if isinstance(value, list) and all(
        isinstance(leaf := _read_entry(item), NoGold) and leaf.reason == "no_gold" for item in value
    ):
        return NoGold("no_gold", "is a list in which every entry says that there is no answer")
    try:
        text = json.dumps(
            value, ensure_ascii=False, sort_keys=True, allow_nan=False, default=_plain_or_refuse
        )
    except (TypeError, ValueError, RecursionError) as error:
        return NoGold("wrong_type", f"holds a value that JSON cannot store ({error})")
    return Gold(text, is_json=True)


def _read_entry(item: Any) -> Gold | NoGold | None:
    """Return an entry of a list as a gold; None of a list or an object."""
    item = _without_numpy(item)
    return None if isinstance(item, Mapping | list) else read_gold(item)


def _read_list(text: str) -> list[Any] | None:
    """Return the list of texts that a text is, as JSON or Python writes it.

    A list of numbers is left as it is: `[1, 2]` may be an interval or a point.
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


def _is_long(item: Any) -> bool:
    """Return whether an entry is an integer of more digits than JSON reads."""
    return isinstance(item, int) and abs(item) >= _LONG


def _write_digits(number: int | float | Decimal) -> str:
    """Return a number as digits, without an exponent where that would take few more."""
    if isinstance(number, int):
        return f"{Decimal(number):f}"  # `str` refuses integers of more than 4,300 digits
    exact = Decimal(repr(number)) if isinstance(number, float) else number
    short = str(number)
    return f"{exact:f}" if "e" in short.casefold() and abs(exact.adjusted()) < 40 else short


def _without_numpy(value: Any) -> Any:
    """Return a value without the types of numpy; tuples are lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _plain_or_refuse(value: Any) -> Any:
    if isinstance(value, Decimal):
        return _write_digits(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON has no type for a {type(value).__name__}")


def verdict_on(completion: str, gold: Any) -> Verdict:
    """Return whether the answer of a completion is right, wrong or unknown.

    It is unknown, too, where the gold says that there is none, such as `proof` or None: the reward
    of such a row is no signal.

    A guess, the last number of a text that states no answer, is wrong: see `rewarded`.

    Args:
        completion: a whole solution, or an answer alone.
        gold: the right answer in any form that data sets have (docs/answers.md), or a list of
            acceptable ones.

    Raises:
        DataError: the gold is not understood, or is no answer but data.
    """
    parsed_gold = read_gold(gold)
    if isinstance(parsed_gold, NoGold) and parsed_gold.reason == "no_gold":
        return Verdict.UNKNOWN
    answers = () if isinstance(parsed_gold, NoGold) else acceptable_answers(parsed_gold)
    if not answers:
        raise DataError(
            f"gold={ascii(gold)[:80]}: must be a text, a number, or a list of them, is a "
            f"{type(gold).__name__}. Give the right answer as one of these"
        )
    checker = default_checker()
    grades = [checker.grade_completion(completion, answer)[1] for answer in answers]
    return rewarded(best_grade(grades)).verdict
