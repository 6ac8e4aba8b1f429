"""Replacements for Math-Verify's `parse` and `verify`: a reward function changes one import.

    from mclabel.answers.math_verify import LatexExtractionConfig, parse, verify

The signatures are those of Math-Verify 0.9: `parse` reads a gold or a completion, and `verify`
compares two answers. Both work in any thread, event loop or process. Budgets are counted in steps,
so the timeout arguments have no effect. The arguments for rounding and strictness have no effect
either, because answers are compared by this checker's default rules. Answers need not be LaTeX.
`verdict` distinguishes wrong answers from undecided ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mclabel.answers.checker import default_checker
from mclabel.answers.extraction.extract import ExtractedAnswer, find_answer
from mclabel.answers.extraction.phrases import find_answer_after_phrase
from mclabel.answers.golds import (
    Gold,
    InvalidGold,
    choose_best_grade,
    list_acceptable_answers,
    read_gold,
)
from mclabel.answers.grade import read_gold_form
from mclabel.answers.reading.normalize import MAX_LENGTH
from mclabel.answers.values.forms import Words
from mclabel.core.records import Verdict

_SENTENCE = re.compile(r"[.!?]\s*$|[;:] |(?<![\\A-Za-z])[A-Z][a-z']+[\s,]")


@dataclass(frozen=True)
class LatexExtractionConfig:
    """Configuration for LaTeX answers, of which only `try_extract_without_anchor` has an effect.

    If `try_extract_without_anchor` is true, the answer of a text without a marked answer is its
    last number.
    """

    try_extract_without_anchor: bool = True
    boxed_match_priority: int = 50
    normalization_config: Any = None


@dataclass(frozen=True)
class ExprExtractionConfig:
    """Configuration for plain expressions. It has the same effect as `LatexExtractionConfig`,
    because this checker reads both notations.
    """

    try_extract_without_anchor: bool = True


@dataclass(frozen=True)
class StringExtractionConfig:
    """Configuration for answers from a fixed set of words, such as the letters of options."""

    strings: tuple[str, ...] = ("A", "B", "C", "D")
    try_extract_without_anchor: bool = True
    lowercase: bool = True


class Answer(str):
    """An answer, with the `text` that it was extracted from. `verify` reads golds from `text`."""

    text: str

    def __new__(cls, answer: str, text: str = "") -> Answer:
        """Create an answer. If `text` is empty, the text is the answer itself."""
        made = super().__new__(cls, answer)
        made.text = text or answer
        return made


def parse(
    pred: str,
    extraction_config: Sequence[Any] = (LatexExtractionConfig(), ExprExtractionConfig()),
    fallback_mode: Literal["no_fallback", "first_match"] = "first_match",
    extraction_mode: Literal["first_match", "any_match"] = "any_match",
    parsing_timeout: int | None = 5,
    raise_on_error: bool = False,
) -> list[Answer]:
    """Return a list with the answer in the text `pred`; an empty list if it has no answer.

    The text is a completion or a gold.
    If every configuration is a `StringExtractionConfig`, the answer must be one of its strings.
    Math-Verify's own configuration classes are accepted, too. The arguments from `fallback_mode` to
    `parsing_timeout` have no effect.

    Raises:
        TypeError: `pred` is not a text and `raise_on_error` is true. If `raise_on_error` is false,
            the list is empty.
    """
    if not isinstance(pred, str) and raise_on_error:
        raise TypeError(f"pred={pred!r:.80}: must be a text, is a {type(pred).__name__}")
    if not isinstance(pred, str):
        return []
    whole = (
        _is_formula_or_amount(pred)
        and read_gold(pred) == Gold(pred.strip())
        and not find_answer_after_phrase(pred)
    )
    extracted = ExtractedAnswer(pred.strip()) if whole else find_answer(pred)
    guesses = any(config.try_extract_without_anchor for config in extraction_config)
    if extracted is None or (extracted.is_guess and not guesses):
        return []
    strings = [getattr(config, "strings", ()) for config in extraction_config]
    if strings and all(strings):
        word = extracted.answer.strip(" ()*.")
        shown = word.lower() if extraction_config[0].lowercase else word
        allowed = {word.casefold() for words in strings for word in words}
        return [Answer(shown)] if word.casefold() in allowed else []
    return [Answer(extracted.answer, pred)] if _list_accepted_answers(extracted.answer) else []


def verify(
    gold: Any,
    target: Any,
    float_rounding: int = 6,
    numeric_precision: int = 15,
    strict: bool = True,
    allow_set_relation_comp: bool = False,
    timeout_seconds: int | None = 5,
    raise_on_error: bool = False,
) -> bool:
    """Return whether an answer is right; False if the verdict is unknown.

    Only `gold` and `target` are used. Each is a result of `parse`, a text, a number, or a list of
    these. The result is True if any answer in `target` equals any gold in `gold`.
    """
    return verdict(gold, target) is Verdict.RIGHT


def verdict(gold: Any, target: Any) -> Verdict:
    """Return whether an answer is right, wrong or unknown.

    The verdict is wrong if there is no answer, and unknown if there is no gold. The arguments are
    those of `verify`.
    """
    golds = [accepted for given in _as_list(gold) for accepted in _list_accepted_answers(given)]
    if not golds:
        return Verdict.UNKNOWN
    pairs = [(str(answer), accepted) for answer in _as_list(target) for accepted in golds]
    return (
        choose_best_grade(default_checker().grade_many(pairs)).verdict if pairs else Verdict.WRONG
    )


def _as_list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple | set) else [given]


def _list_accepted_answers(given: Any) -> tuple[str, ...]:
    """Return the answers that a gold accepts as right.

    For a text that marks an answer, this is the marked answer. For a formula, it is the formula
    itself. For any other text, it is the answer that the text states.
    """
    text = given.text if isinstance(given, Answer) else given
    gold = read_gold(text if isinstance(text, str | int | float) else str(text))
    if isinstance(gold, InvalidGold):
        return ()
    if isinstance(text, str) and gold.answer == text.strip():
        if marked := find_answer_after_phrase(text):
            return (marked,)
        if (
            not _is_formula_or_amount(text)
            and (extracted := find_answer(text))
            and not extracted.is_guess
        ):
            return (extracted.answer,)
    return list_acceptable_answers(gold)


def _is_formula_or_amount(text: str) -> bool:
    """Return whether a text is a formula, an amount or a list of these, and not a sentence."""
    if len(text) > MAX_LENGTH or _SENTENCE.search(text):
        return False
    return not isinstance(read_gold_form(text), Words | None)
