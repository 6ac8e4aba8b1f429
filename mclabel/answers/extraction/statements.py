"""Extracts the value that the last sentence of a text in a language other than English states, such
as `Elle a 12 pommes.`

The sentence must have exactly one number or formula, directly after a verb that gives a value. The
module also replaces `not B but C` by `C`, before a text is searched for announcements.
"""

from __future__ import annotations

import re

from mclabel.answers.extraction.doubts import ends_with_denial, is_followed_by_denial

_NOT_BUT = {
    " 是": r"(?:不是|并非|並非|不为)[^，,。\n]{1,24}[，,]?\s?而是",
    "": (
        r"[^はがも、，,。\s]{1,24}ではなく(?:て)?[、,]?\s?|[^\s은는]{1,24} ?아니라,? ?|"
        r"\bне\b[^.,\n]{1,24}, а |[^\s।]{1,24} नहीं,? बल्कि "
    ),
    "es ": r"\bno es\b[^.\n]{1,24}?,? sino (?:que )?",
    "est ": r"\bn['’]est pas\b[^.\n]{1,24}?,? mais ",
    "is ": r"\b(?:is not|isn't)\b[^.\n]{1,24}?,? but (?:rather )?",
    "ist ": r"\bist nicht\b[^.\n]{1,24}?,? sondern ",
    "é ": r"\bnão é\b[^.\n]{1,24}?,? mas (?:sim )?",
    "è ": r"\bnon è\b[^.\n]{1,24}?,? (?:ma|bensì) ",
    "هو ": r"\bليست?\b[^.،\n]{1,24}?،? بل ",
    "adalah ": r"\bbukan\b[^.\n]{1,24}?,? (?:melainkan|tetapi) ",
}
"""Patterns of a negated value before the asserted value, by the text that replaces the match."""
_CORRECTING = (
    *("而是", "なく", "아니라", ", а ", "बल्कि", " sino ", " mais ", " sondern ", " mas "),
    *(" ma ", "bensì", " بل ", " melainkan ", " tetapi ", " but "),
)
_PATTERNS = tuple((stays, re.compile(pattern)) for stays, pattern in _NOT_BUT.items())


def remove_contrasts(text: str) -> str:
    """Replace `the answer is not B but C`, in any supported language, by `the answer is C`."""
    if not any(map(text.__contains__, _CORRECTING)):
        return text
    for stays, pattern in _PATTERNS:
        text = pattern.sub(stays, text)
    return text


_LATIN_VERBS = (
    r"est|sont|vaut|coûte|reste(?:nt)?|es|son|hay|cuesta|cuestan|queda|quedan|vale|é|são|custa|"
    r"custam|restam|ist|sind|beträgt|lautet|kostet|kosten|bleiben|è|sono|costa|costano|adalah|"
    r"(?:elle|il|ils|elles|on) (?:a|ont)|tiene|tienen|tem|têm|hat|haben|ha|hanno|"
    r"равн[аоы]|равен|составляет|составит|осталось|будет|это|là|ni"
)
_OTHER_VERBS = r"等于|等於|是|为|為|有|剩下?|得到?|共|花了?|需要|は|が|には|은|는|이|가"
_NEGATIONS = re.compile(
    r"(?:\b(?:no|non|não|nicht|kein|pas|не|bukan|không|si|если|wenn|falls|se|jika|nếu)\b|"
    r"n['’](?:est|a)|不|非|没|沒|如果|もし|만약|아니|ない)"
)
"""Words of negation or supposition. A sentence with such a word states no answer."""
_STATED = re.compile(
    rf"(?:(?:^|(?<=[\s,:(])|(?<=c['’]))(?:{_LATIN_VERBS})(?: (?:de|donc|por|igual|also|somit|então|"
    r"exactamente|exactement|genau|exatamente|en tout|insgesamt))?(?: à| a)?\s|"
    rf"(?:{_OTHER_VERBS})\s?)"
    r"(?P<value>[$€£¥]?\s?[-−]?\d[\d.,/]{0,20}+(?:[ \u00a0\u202f]\d{3}){0,4}+%?|\$[^$\n]{1,60}\$)"
    r"(?P<unit>\s?[^\W\d]{0,14}(?: [^\W\d]{1,14}){0,3}[€%°²³]?)[.!*\s]{0,8}+",
)
_FIRST = re.compile(r"\d")
_SENTENCE = re.compile(r"[。！!\n]|\.(?=\s|$)")
_MAX_SENTENCE = 200


def find_stated_value(sentence: str) -> str | None:
    """Return the value that a sentence in a language other than English states; None if it states
    none.

    Args:
        sentence: the last sentence of a text.
    """
    parts = [part for part in _SENTENCE.split(sentence[-_MAX_SENTENCE:]) if part.strip()]
    if not parts or _NEGATIONS.search(parts[-1].lower()):
        return None
    match = _STATED.search(parts[-1])
    if match is None or match.end() < len(parts[-1]) or _FIRST.search(parts[-1][: match.start()]):
        return None
    start, end = match.span("value")
    if ends_with_denial(parts[-1][:start].rstrip()) or is_followed_by_denial(parts[-1], end):
        return None
    return match["value"] + match["unit"].rstrip()
