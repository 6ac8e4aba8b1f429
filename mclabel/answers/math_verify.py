"""Math-Verify's `parse` and `verify` by this checker: a reward function changes one import.

    from mclabel.answers.math_verify import LatexExtractionConfig, parse, verify

Signatures are those of Math-Verify 0.9: `parse` reads a gold or a completion, `verify` compares.
Both may be called in any thread, event loop or process: budgets are counted in steps, so arguments
about time have no effect. Neither have those about rounding and strictness: answers are compared by
the default rules, and need not be LaTeX. `verdict` tells wrong answers from undecided ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mclabel.answers.checker import default_checker
from mclabel.answers.extraction.extract import ExtractedAnswer, find_answer
from mclabel.answers.extraction.phrases import after_phrase
from mclabel.answers.golds import Gold, NoGold, acceptable_answers, best_grade, read_gold
from mclabel.answers.grade import gold_form
from mclabel.answers.reading.normalize import MAX_LENGTH
from mclabel.answers.values.forms import Words
from mclabel.core.records import Verdict

_SENTENCE = re.compile(r"[.!?]\s*$|[;:] |(?<![\\A-Za-z])[A-Z][a-z']+[\s,]")


@dataclass(frozen=True)
class LatexExtractionConfig:
    """Configuration of which only `try_extract_without_anchor` counts: take the last number where
    nothing is marked.
    """

    try_extract_without_anchor: bool = True
    boxed_match_priority: int = 50
    normalization_config: Any = None


@dataclass(frozen=True)
class ExprExtractionConfig:
    """The same as `LatexExtractionConfig`: formulas are read in either notation."""

    try_extract_without_anchor: bool = True


@dataclass(frozen=True)
class StringExtractionConfig:
    """Configuration for answers that are given words, such as the letters of choices."""

    strings: tuple[str, ...] = ("A", "B", "C", "D")
    try_extract_without_anchor: bool = True
    lowercase: bool = True


class Answer(str):
    """The answer of a text, with the whole `text`, in which `verify` looks for a gold."""

    text: str

    def __new__(cls, answer: str, text: str = "") -> Answer:
        """Make it; without a text the answer is all of it."""
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
    """Return the answer of a completion, or a gold, in a list; an empty one if the text has none.

    Where all configurations are of strings, the answer must be one of them. Math-Verify's own
    classes serve, too. The arguments from `fallback_mode` to `parsing_timeout` have no effect.

    Raises:
        TypeError: `raise_on_error` is set, and `pred` is no text. Without it there is no answer.
    """
    if not isinstance(pred, str) and raise_on_error:
        raise TypeError(f"pred={pred!r:.80}: must be a text, is a {type(pred).__name__}")
    if not isinstance(pred, str):
        return []
    whole = _is_read(pred) and read_gold(pred) == Gold(pred.strip()) and not after_phrase(pred)
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
    return [Answer(extracted.answer, pred)] if _golds(extracted.answer) else []


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
    these. Every gold of a list is accepted, and one answer of a list must be right.
    """
    return verdict(gold, target) is Verdict.RIGHT


def verdict(gold: Any, target: Any) -> Verdict:
    """Compare like `verify`. No answer gives the verdict wrong, no gold the verdict unknown."""
    golds = [accepted for given in _as_list(gold) for accepted in _golds(given)]
    if not golds:
        return Verdict.UNKNOWN
    pairs = [(str(answer), accepted) for answer in _as_list(target) for accepted in golds]
    return best_grade(default_checker().grade_many(pairs)).verdict if pairs else Verdict.WRONG


def _as_list(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple | set) else [given]


def _golds(given: Any) -> tuple[str, ...]:
    """Return the right answers by a gold: what its text marks, itself if it is a formula, what it
    asserts.
    """
    text = given.text if isinstance(given, Answer) else given
    gold = read_gold(text if isinstance(text, str | int | float) else str(text))
    if isinstance(gold, NoGold):
        return ()
    if isinstance(text, str) and gold.answer == text.strip():
        if marked := after_phrase(text):
            return (marked,)
        if not _is_read(text) and (extracted := find_answer(text)) and not extracted.is_guess:
            return (extracted.answer,)
    return acceptable_answers(gold)


def _is_read(text: str) -> bool:
    """Return whether a text is no sentence, but as a whole a formula, an amount or a list of
    them.
    """
    if len(text) > MAX_LENGTH or _SENTENCE.search(text):
        return False
    return not isinstance(gold_form(text), Words | None)
