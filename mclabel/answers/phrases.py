"""Answers that a text announces in words, ends with, or only mentions last."""

from __future__ import annotations

import re
from collections.abc import Iterator

_KEYWORDS = ("ans", "correct ", "right ", "best ", "final ", "# ")
"""An announcement begins with one of these; finding them first is what makes this fast."""
_MAX_KEYWORDS = 60
_PHRASE = re.compile(
    r"(?:"
    r"(?<![a-z])answers?\b(?: (?:to|of|for) [^.\n:=]{0,80}?)?"
    r"(?:\*\*|\*|_)?\s*(?::|=| is\b| are\b| would be\b| should be\b| must be\b| will be\b|\n)"
    r"|(?<![a-z])(?:correct|right|best|final) (?:option|choice|value|result)\b"
    r"(?: (?:is|would be)\b|\s*:)"
    r"|# *(?:final )?(?:answer|result|solution)\b[: ]*\n"
    r"|(?<=\n)ans\b\.?\s*[:=]"
    r")"
    r"(?:\*\*|\*|_)?\s*:?\s*(?:therefore|thus|simply|indeed|then|just|equal to|given by|(?:the )?"
    r"final answer is|the answer is|the number|option|choice)?\s*:?\s*",
    re.IGNORECASE,
)
_SKIP_AFTER = re.compile(r"(?:not|wrong|incorrect|correct\b|in the form|of the form|unclear)", re.I)
_SENTENCE_END = re.compile(
    r"(?<![.\s][ap])(?<!\b[Aa]pprox)[.!?](?=\s+[A-Z$\\*(\n]|\s*\n|\s*$)|\n\s*\n|\n(?=[A-Z#*])|"
    r"(?<=[\d$)}%\w]),? (?:because|since|which|as|so that|where|i\.e\.|when|given|if)\b|"
    r"(?<=\S),? (?:so|hence|therefore|thus|and (?:so|the|we|that))\b|(?<!\s)\s++I hope\b"
)
_BOLD = re.compile(r"\*\*([^*\n]{1,200})\*\*")
_MATH = re.compile(
    r"\\\[((?:[^\\]|\\(?![\[\]])){1,1500}+)\\\]|\$\$((?:[^$]|\$(?!\$)){1,1500}+)\$\$|"
    r"\\\(((?:[^\\]|\\(?![()])){1,800}+)\\\)|(?<!\\)\$([^$\n]{1,800}+)(?<!\\)\$"
)
_NUMBER = re.compile(
    r"(?<![\w.,^_/*\\{}+-])[-+−]?[$€£]?-?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d))"
    r"(?:\s?/\s?\d+)?(?:e[+-]?\d+)?(?:\s?%)?"
)
_WINDOW = 4000
"""Only so much of a text's end is searched for announcements, so that cost is bounded."""


def after_phrase(text: str) -> str | None:
    """What follows the last "the answer is" or one of its variants."""
    text = text[-_WINDOW:]
    lower = text.lower()
    lower = lower if len(lower) == len(text) else text
    for place in sorted(_keyword_places(lower), reverse=True)[:_MAX_KEYWORDS]:
        match = _PHRASE.match(text, place)
        if match is None or _SKIP_AFTER.match(text, match.end()):
            continue
        answer = _first_sentence(text[match.end() :])
        if answer:
            return answer
    return None


def _keyword_places(lower: str) -> Iterator[int]:
    for keyword in _KEYWORDS:
        place = lower.find(keyword)
        while place >= 0:
            yield place
            place = lower.find(keyword, place + 1)


def closing_formula(text: str) -> str | None:
    """The formula that ends a text: what its last equals sign gives, or all of it.

    A few words without a number may follow it, such as its unit.
    """
    bare = text[-_WINDOW:].rstrip(".!* \n")
    last = None
    for match in _MATH.finditer(bare):
        last = match
    if last is None or not _CLOSING.fullmatch(bare, last.end()):
        return None
    return _right_side(next(group for group in last.groups() if group).strip())


_CLOSING = re.compile(r"(?:,? (?!not\b|is\b|or\b|and\b)[A-Za-z]{1,20}){0,6}")
"""What may stand behind a formula that ends a text."""


def last_number(text: str) -> str | None:
    """The last number of a text, unless a formula that is not understood contains it.

    A formula counts as a number where it ends in one after an equals sign, or is one.
    """
    text = _last_part_with_a_digit(text[-_WINDOW:]).replace("**", "")
    pieces, end = [], 0
    for match in _MATH.finditer(text):
        value = _right_side(next(group for group in match.groups() if group).strip())
        plain = value if _PLAIN.fullmatch(value) else _NOT_UNDERSTOOD
        pieces += [text[end : match.start()], f" {plain} "]
        end = match.end()
    prose = "".join([*pieces, text[end:]])
    found = None
    for match in _NUMBER.finditer(prose):
        found = match if match[0].strip() else found
    if found is None:
        return None
    after = prose[found.end() :]
    if _TORN.match(after) or _NOT_UNDERSTOOD in after or any(c.isdigit() for c in after):
        return None
    unit = _UNIT_AFTER.match(after)
    return (found[0] + (unit[0] if unit else "")).strip()


def _last_part_with_a_digit(text: str) -> str:
    """The last paragraph that holds a digit."""
    parts = text.split("\n\n")
    return next((part for part in reversed(parts) if _DIGIT.search(part)), "")


_DIGIT = re.compile(r"\d")
_NOT_UNDERSTOOD = "\x00"
_PLAIN = re.compile(
    r"-?(?:\\?\$)?-?(?:\d{1,3}(?:(?:,|\{,\}|,\\!)\d{3})+|\d+)?(?:\.\d+)?(?:\s*/\s*\d+)?(?:\\?%|\^\\circ)?|"
    r"-?\\[dt]?frac\{-?\d+\}\{\d+\}"
)
_TORN = re.compile(r"[\w^_{}\\]|\s?[*/^=<>+]\s?[\w(\\]|\s?[-−]\s?\d|\(")
_UNIT_AFTER = re.compile(
    r" (?:cents|cm|mm|km|kg|g|m|feet|foot|inches|miles|meters|dollars|hours|minutes|seconds|days|"
    r"weeks|years|degrees|percent|mph|pm|am|p\.m\.|a\.m\.)(?![\w])"
)


_QUALIFIED = re.compile(
    r"\b(?:except|than|least|most|greater|less|between|not|or|and|even|odd|other|multiples?|up to|"
    r"thousand|million|billion|hundred|dozen|base|to|power|over|by|times|per|point|quadrant)\b",
    re.IGNORECASE,
)


def _right_side(formula: str) -> str:
    """What a chain of equalities arrives at; an inequality or a plain formula as it stands."""
    formula = formula.strip().rstrip(".,")
    if "\\begin" in formula:
        return formula
    _, equals, right = formula.rpartition("=")
    if not equals or any(c in formula for c in "<>") or "\\le" in formula or "\\ge" in formula:
        return formula
    return right.strip() or formula


def _first_sentence(rest: str) -> str | None:
    """The answer at the start of what follows an announcement."""
    rest = rest.lstrip(" \n\t:")[:1500]
    for pattern in (_BOLD, _MATH):
        match = pattern.match(rest)
        if match:
            inner = next(group for group in match.groups() if group)
            tail = rest[match.end() :]
            more = _SENTENCE_END.split(tail, maxsplit=1)[0]
            if pattern is _BOLD or not more.strip(" .,"):
                return clean(inner)
            joined = rest[: match.end()] + more
            return clean(joined if len(more.split()) <= 6 else inner)
    sentence = _first_part(rest)
    return _essence(sentence) if sentence else None


def _first_part(rest: str) -> str:
    """Up to the end of the sentence, never cutting inside of a formula."""
    spans = [match.span() for match in _MATH.finditer(rest)]
    for match in _SENTENCE_END.finditer(rest):
        if not any(start < match.start() < end for start, end in spans):
            return rest[: match.start()]
    return rest


def _essence(sentence: str) -> str | None:
    """A short phrase as it is; of a longer one its bold text, its last formula, or its number."""
    sentence = clean(sentence)
    if not sentence:
        return None
    words = sentence.split()
    if len(words) <= 8 and (len(words) < 4 or not _only_number(sentence)):
        return sentence
    for pattern in (_BOLD, _MATH):
        found = pattern.findall(sentence)
        if found:
            last = found[-1] if isinstance(found[-1], str) else next(g for g in found[-1] if g)
            return clean(_right_side(last))
    return _only_number(sentence) or (sentence if len(sentence) <= 200 else None)


def _only_number(sentence: str) -> str | None:
    """The one number of a sentence that says no more than that number."""
    if _QUALIFIED.search(sentence) or any(c in sentence for c in "\\^=<>≤≥_({["):
        return None
    found = [m for m in _NUMBER.finditer(sentence) if m[0].strip()]
    if len({m[0] for m in found}) != 1 or sum(c.isdigit() for c in sentence) != sum(
        c.isdigit() for m in found for c in m[0]
    ):
        return None
    unit = _UNIT_AFTER.match(sentence[found[0].end() :])
    return (found[0][0] + (unit[0] if unit else "")).strip()


def clean(answer: str) -> str:
    """Without Markdown and closing punctuation."""
    answer = answer.strip().strip("*_`").strip()
    answer = answer.rstrip(" \n,;:!")
    if answer.endswith(".") and not answer.endswith(("...", ".m.")):
        answer = answer[:-1].rstrip("*_` ")
    return answer
