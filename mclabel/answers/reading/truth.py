"""Parser of sentences that say only whether a statement is true: `The statement is not true.`"""

from __future__ import annotations

import re

_TRUE = frozenset("true correct valid".split())
_CLAIM = r"(?:statement|claim|proposition|assertion|conjecture|hypothesis|inequality|identity)"
_SENTENCE = re.compile(
    r"(?:(?:so|thus|hence|therefore|then|we conclude that|this means that|in conclusion),? )?"
    r"(?:(?P<subject>(?:the |this |that |our )?(?:given |above |original |following )?"
    rf"{_CLAIM}|it|this|that)"
    r"(?: (?P<copula>is|was|isn't|is not|does not|doesn't))?"
    r"(?: (?P<adverb>not|never|always|not always|indeed|indeed not|therefore|clearly|also|"
    r"necessarily|not necessarily|in fact|actually))?"
    r"|(?P<bare>not)?)"
    r" ?(?P<word>true|false|untrue|correct|incorrect|valid|invalid|holds?|wrong)"
    r"(?P<told> (?:that|for|because|since|when|if|in general)(?: .{0,200})?|"
    r",? (?:because|since|as) .{0,200})?",
    re.IGNORECASE | re.DOTALL,
)
_TOLD_TWICE = re.compile(
    r"\b(?:true|false|untrue|(?:in)?correct|(?:in)?valid|wrong|statement|claim|if|unless|or)\b",
    re.IGNORECASE,
)
_WORDS = ("true", "false", "correct", "valid", "hold", "wrong")
MAX_LENGTH = 260
"""Maximum number of characters of such a sentence."""
NAMES_CLAIM = re.compile(rf"\b{_CLAIM}\b", re.IGNORECASE)
"""A word for a statement, such as "claim"."""


def read_truth_value(text: str) -> str | None:
    """Return `true` or `false` if a text says only that a statement is true or false, else None."""
    lower = text.lower() if len(text) <= MAX_LENGTH else ""
    if not any(word in lower for word in _WORDS):
        return None
    match = _SENTENCE.fullmatch(text.strip(" .!*"))
    if match is None or (match["told"] and _TOLD_TWICE.search(match["told"].strip(" ,")[5:])):
        return None
    word, copula = match["word"].lower(), (match["copula"] or "").lower()
    is_verb, does = word.startswith("hold"), copula.startswith("does")
    if copula and is_verb is not does:
        return None
    if not copula and (word == "wrong" or bool(match["subject"]) is not is_verb):
        return None
    qualifiers = {
        *copula.replace("n't", " not").split(),
        *(match["adverb"] or match["bare"] or "").split(),
    }
    is_denied = bool(qualifiers & {"not", "never"})
    return "true" if (word in _TRUE or is_verb) is not is_denied else "false"
