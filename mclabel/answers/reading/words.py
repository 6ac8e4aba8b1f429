"""Comparison of answers in words, and phrases that stand for a set or for infinity."""

from __future__ import annotations

import re

from mclabel.answers.reading.dates import DATE, same_dates

_PHRASES = {
    "no solution": (
        "∅|no solution|no solutions|no real solution|no real solutions|none|empty|empty set|"
        "the empty set|null set|there is no solution|there are no solutions|no solution exists|"
        "no solutions exist|there are no real solutions|there is no real solution|no real roots|"
        "no roots|no real root|has no solution|has no solutions|no such solution|\\{\\}|{}|"
        "no such number exists|no such numbers|no such value|no such value exists|no such n|"
        "no such x|no such k|no values|"
        "no real values|no real number|no real numbers|there are none|no x|no possible values"
    ),
    "all reals": (
        "ℝ|all real numbers|all reals|all real x|any real number|every real number|real numbers|"
        "the real numbers|all real values|all real values of x|the set of all real numbers|"
        "set of all real numbers|set of real numbers|the set of real numbers|x is any real number|"
        "any real x|any real value|x is all real numbers|all real number|reals|the reals|"
        "for all real x|all x in the real numbers"
    ),
    "integers": "\\mathbb{z}|integers|all integers|the integers|set of integers|"
    "the set of integers|the set of all integers|any integer|all integer values",
    "naturals": "\\mathbb{n}|natural numbers|all natural numbers|the natural numbers|"
    "the set of natural numbers",
    "rationals": "\\mathbb{q}|rational numbers|all rational numbers|the rational numbers|rationals|"
    "the set of rational numbers",
    "complex numbers": "\\mathbb{c}|complex numbers|all complex numbers|the complex numbers",
    "positive integers": "\\mathbb{z}^+|\\mathbb{z}_+|\\mathbb{z}^{+}|positive integers|"
    "all positive integers|the positive integers",
    "∞": "∞|+∞|infinity|positive infinity|plus infinity",
    "-∞": "-∞|- ∞|negative infinity|minus infinity|-infinity",
    "undefined": (
        "undefined|does not exist|dne|doesn't exist|not defined|is undefined|limit does not exist|"
        "the limit does not exist|is not defined"
    ),
    "diverges": "diverges|divergent|it diverges|the series diverges|the limit diverges|"
    "the integral diverges|series diverges|limit diverges|integral diverges|does not converge",
    "infinitely many": (
        "infinitely many|infinitely many solutions|an infinite number of solutions|"
        "infinite solutions|infinite number of solutions|infinite|there are infinitely many|"
        "there are infinitely many solutions|an infinite number|infinitely many values"
    ),
}
SPECIAL = {phrase: name for name, phrases in _PHRASES.items() for phrase in phrases.split("|")}
"""Names of special values by the lower-case phrases that stand for them."""

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+")
_FILLERS = frozenset(
    "a an the it is its it's that they are be by on in at to of for so he she his her there was "
    "answer option choice this both my due".split()
)
_LATER_FILLERS = frozenset(
    "function number numbers only solution triangle day team case n all".split()
)
_SHORT_NAMES = {
    **{"mon": "monday", "tue": "tuesday", "tues": "tuesday", "wed": "wednesday"},
    **{"thu": "thursday", "thurs": "thursday", "fri": "friday", "sat": "saturday"},
    **{"sun": "sunday", "jan": "january", "feb": "february", "mar": "march", "apr": "april"},
    **{"aug": "august", "sept": "september", "sep": "september", "oct": "october"},
    **{"nov": "november", "dec": "december"},
}
_MONTHS = frozenset(
    "january february march april may june july august september october november december".split()
)
_TRUTH = {"yes": "true", "no": "false"}
_CONTRARY = frozenset("not no never neither nor or and but except non isn't aren't doesn't".split())


def split_words_without_leading_fillers(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case, without filler words at its start."""
    words = [word.lower() for word in _WORD.findall(text)]
    words[:1] = [_SHORT_NAMES.get(word, word) for word in words[:1]]
    while len(words) > 1 and words[0] in _FILLERS:
        words.pop(0)
    return tuple(words)


def is_prose(text: str) -> bool:
    """Return whether a normalised text is words rather than a formula."""
    if not _WORDY.fullmatch(text) or _CALL.search(text):
        return False
    words = _WORD.findall(text)
    if not _FUNCTIONS.isdisjoint(words):
        return False
    return any(len(word) > 3 or word.lower() in _SHORT for word in words)


_WORDY = re.compile(r"(?:[^\W\d_]|[ .,;:!?'()/&-])+|[^\W\d_]{3,}(?:,? (?:[^\W\d_]{2,}|\d{1,4}))+")
_CALL = re.compile(r"[A-Za-z]\((?!e?s\))")
"""A function call such as `f(x)`. The brackets of `apple(s)` are not a call."""
_FUNCTIONS = frozenset("sqrt sinh cosh tanh arcsin arccos arctan cbrt alpha beta theta".split())
_SHORT = frozenset(
    "yes no not odd one two six ten red day may jun jul jan feb mar apr aug sep oct nov dec mon "
    "tue wed thu fri sat sun east west all any the dne cat dog boy man men her his she amy ann bob "
    "dan joe jim kim leo max meg mia pat ray ron sam sue tim tom zoe rob ben eve ian lee ned roy "
    "ted van win tie none true".split()
)


def has_no_negation(words: tuple[str, ...]) -> bool:
    """Return whether words contain neither a negation nor a contrast, unlike `not 7`."""
    return _CONTRARY.isdisjoint(words)


def same_words(answer: tuple[str, ...], gold: tuple[str, ...]) -> bool | None:
    """Return whether two answers in words are equal.

    The result is None if one contains the other and further meaningful words.
    """
    if answer[:1] == gold[:1] == (DATE,):
        return same_dates(answer, gold)
    if len(answer) == len(gold) == 1:
        answer, gold = ((_TRUTH.get(words[0], words[0]),) for words in (answer, gold))
    if answer == gold or (
        len(gold) < 5 and any(word in _MONTHS for word in gold) and sorted(answer) == sorted(gold)
    ):
        return True
    longer, shorter = (answer, gold) if len(answer) > len(gold) else (gold, answer)
    if not shorter or not _contains_consecutive_words(longer, shorter):
        return False
    extra = [word for word in longer if word not in shorter]
    if any(word in _CONTRARY or word.isdigit() for word in extra):
        return False
    return True if all(word in _FILLERS or word in _LATER_FILLERS for word in extra) else None


def _contains_consecutive_words(longer: tuple[str, ...], shorter: tuple[str, ...]) -> bool:
    size = len(shorter)
    return any(longer[i : i + size] == shorter for i in range(len(longer) - size + 1))
