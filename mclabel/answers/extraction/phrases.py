"""Extracts answers after a phrase such as "the answer is", formulas at the end of a text, and its
last number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mclabel.answers.extraction.conclusions import (
    find_corrected_answer,
    is_value_denied,
    split_at_last_equals,
)
from mclabel.answers.extraction.doubts import (
    find_doubt_words,
    find_retraction,
    is_answer_called_false,
    remove_unrelated_numbers,
)
from mclabel.answers.reading.scripts import convert_east_asian_numerals

_KEYWORDS = ("ans", "correct ", "right ", "best ", "final ", "# ")
"""Strings that begin every announcement. Searching for them first saves most of the time."""
_MAX_KEYWORDS = 60
_PHRASE = re.compile(
    r"(?:"
    r"(?<![a-z])answers?\b(?: (?:to|of|for) [^.\n:=]{0,80}?)?"
    r"(?:\*\*|\*|_)?\s{0,3}(?::|=| is\b| are\b| would be\b| should be\b| must be\b| will be\b|\n)"
    r"|(?<![a-z])(?:correct|right|best|final) (?:option|choice|value|result)\b"
    r"(?: (?:is|would be)\b|\s*:)"
    r"|# *(?:final )?(?:answer|result|solution)\b[: ]*\n"
    r"|(?<=\n)ans\b\.?\s*[:=]"
    r")"
    r"(?:\*\*|\*|_)?\s*+:?\s*+(?:therefore|thus|simply|indeed|then|just|actually|equal to|given by|"
    r"(?:the )?final answer is|the answer is|the number(?: is)?|option|choice)?\s*+:?\s*+",
    re.IGNORECASE,
)
_SKIP_AFTER = re.compile(r"(?:not|wrong|incorrect|correct\b|in the form|of the form|unclear)", re.I)
_SUPPOSED_BEFORE = re.compile(
    r"\b(?:if|suppose|supposing|assume|assuming|imagine|pretend|say)(?: that)? (?:the|my|our) "
    r"(?:final |correct )?$"
)
"""Words that make an announcement a supposition: `suppose the answer is 42`."""
_MAX_SUPPOSED = 40
_SENTENCE_END = re.compile(
    r"(?<![.\s][ap])(?<!\b[Aa]pprox)(?![!](?<=[\dn)]!) ?[*(/+=-])[.!?]"
    r"(?=\s+[A-Z$\\*(\n]|\s*\n|\s*$)|\n[^\S\n]*+\n|\n(?=[A-Z#*])|"
    r"(?<=[\d$)}%\w]),? (?:because|since|which|as|so that|where|when|given|if)\b|"
    r"(?<=[\d$)}%\w]),? \(?(?:i\.e\.|that is,|in other words)|"
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
"""Number of characters at the end of a text that are searched, so that the cost is bounded."""


def find_answer_after_phrase(text: str) -> str | None:
    """Return the answer after the last phrase such as "the answer is"; None without such a phrase.

    The result is empty if the text retracts the answer or only supposes it.
    """
    text = text[-_WINDOW:]
    lower = text.lower()
    lower = lower if len(lower) == len(text) else text
    is_supposed = False
    for place in sorted(_find_keyword_positions(lower), reverse=True)[:_MAX_KEYWORDS]:
        match = _PHRASE.match(text, place)
        if match is None or _SKIP_AFTER.match(text, match.end()):
            continue
        if _SUPPOSED_BEFORE.search(lower, max(0, place - _MAX_SUPPOSED), place):
            is_supposed = True
            continue
        rest = text[match.end() :]
        answer = find_corrected_answer(rest)
        if answer is None and (is_answer_called_false(rest) or find_retraction(rest) is not None):
            return ""
        answer = answer or _find_answer_in_first_sentence(rest)
        if answer:
            return answer
    return "" if is_supposed else None


def _find_keyword_positions(lowercase_text: str) -> Iterator[int]:
    for keyword in _KEYWORDS if "#" in lowercase_text else _KEYWORDS[:-1]:
        place = lowercase_text.rfind(keyword)  # takes a third of the time of `find`
        while place >= 0:
            yield place
            place = lowercase_text.rfind(keyword, 0, place)


def find_closing_formula(text: str, *, allows_other_numbers: bool = False) -> str | None:
    """Return the right side of the formula at the end of a text, or the whole formula without an
    equals sign; None if no formula ends the text.

    A few words without a number may follow the formula, such as its unit.

    Args:
        text: text of a completion.
        allows_other_numbers: also return a formula that is a single number in a sentence with other
            numbers.
    """
    bare = text[-_WINDOW:].rstrip(".!* \n")
    if "$" in bare[-_MAX_QUANTIFIER:]:
        quantifier = _QUANTIFIER.search(bare, max(0, len(bare) - _MAX_QUANTIFIER))
        bare = bare[: quantifier.start()].rstrip() if quantifier else bare
    low = max(0, len(bare) - _MAX_CLOSING)
    end = max(bare.rfind("$", low) + 1, bare.rfind("\\)", low) + 2, bare.rfind("\\]", low) + 2)
    if end < 2 or not _CLOSING.fullmatch(bare, end):
        return None
    last = None
    for match in _MATH.finditer(bare, _find_delimiter_pairing_start(bare, end)):
        last = match
    if (
        last is None
        or not _CLOSING.fullmatch(bare, last.end())
        or is_value_denied(bare, last.start())
    ):
        return None
    formula = next(group for group in last.groups() if group).strip()
    if allows_other_numbers:
        return _get_right_side(formula)
    sentence = bare[max(bare.rfind(mark, 0, last.start()) for mark in _SENTENCE_MARKS) + 1 :]
    if _PLAIN.fullmatch(formula) and _DIGIT.search(sentence[: last.start() - len(bare)]):
        return None  # the sentence has several numbers; `find_asserted_value` decides between them
    return _get_right_side(formula)


def _find_delimiter_pairing_start(text: str, end: int) -> int:
    """Return an index from which opening and closing delimiters of formulas can be told apart.

    Args:
        text: text that contains a formula.
        end: index at which its last formula ends.
    """
    if "$" not in text:
        return max(text.rfind("\\(", 0, end), text.rfind("\\[", 0, end), 0)
    return 0 if _OVER_LINES.search(text) else text.rfind("\n", 0, end) + 1


_OVER_LINES = re.compile(r"\$\$|\\[(\[]")
"""Opening delimiter of a formula that may span several lines."""
_NO_MONEY = re.compile(r"\$(?!\d)|\\[(\[]")
"""A delimiter of a formula that cannot be the dollar sign of an amount of money."""


_CLOSING = re.compile(
    r"(?: (?:is|are)(?: (?:the|our|my|your|all|a))?+(?: [a-z]{3,10})?? "
    r"(?:solutions?|answers?|result))?"
    r"(?:,? (?!not\b|is\b|or\b|and\b)[A-Za-z]{1,20}){0,6}"
)
"""Words that may follow a formula at the end of a text."""
_QUANTIFIER = re.compile(
    r",? (?:for|where|with) (?:(?:some|any|all|every|each|an?|arbitrary|positive|negative|"
    r"nonnegative|non-negative|integers?|natural|real|numbers?) ){0,4}+\$[A-Za-z]\$"
    r"(?: is (?:an?|any)(?: [a-z-]{3,12}){1,2})?$|,? \$[A-Za-z] ?\\in ?[^$]{1,20}\$$"
)
"""The range of a variable after a formula: `for some integer $k$`, `where $k$ is an integer`,
`$k \\in Z$`."""
_MAX_QUANTIFIER = 80
"""Maximum number of characters of a quantifier."""
_MAX_CLOSING = 200
"""Number of characters at the end of a text that are searched for the end of a formula."""


def find_last_number(text: str) -> str | None:
    """Return the last number of a text; None if it has none or the number is part of a formula that
    cannot be read.

    A formula counts as a number if it is a number or ends with one after an equals sign.
    """
    prose = replace_formulas_by_right_sides(
        _find_last_paragraph_with_digit(text[-_WINDOW:]).replace("**", "")
    )
    number = _find_last_stated_number(prose)
    if number is None:
        return None
    after = prose[number.end() :]
    later = _NUMBER.search(prose, number.end())
    if later and is_value_denied(prose, later.start()):
        after = prose[number.end() : later.start()]
    if _ORDINAL.match(after) and not any(c.isdecimal() for c in after):
        return number[0]
    if (
        _TORN.match(after)
        or _NOT_UNDERSTOOD in after
        or any(not _ORDINAL.match(after, match.end()) for match in _DIGITS.finditer(after))
    ):
        return None
    unit = _UNIT_AFTER.match(after)
    return (number[0] + (unit[0] if unit else "")).strip()


def replace_formulas_by_right_sides(text: str) -> str:
    """Return the end of a text in which each formula is replaced by its right side.

    If the right side is not a number, a placeholder replaces the formula.
    """
    text = text[-_WINDOW:]
    if not text.isascii():
        text = _MYRIADS.sub(lambda match: convert_east_asian_numerals(match[0]), text)
        text = _IDEOGRAPHS.sub(" ", text)
    pieces, end = [], 0
    is_math = ("$" in text or "\\(" in text or "\\[" in text) and (
        _NO_MONEY.search(text) or not text.count("$")
    )
    for match in _MATH.finditer(text) if is_math else ():
        value = _get_right_side(next(group for group in match.groups() if group).strip())
        plain = value if _PLAIN.fullmatch(value) else _NOT_UNDERSTOOD
        pieces += [text[end : match.start()], f" {plain} "]
        end = match.end()
    return "".join([*pieces, text[end:]])


def _find_last_stated_number(prose: str) -> re.Match[str] | None:
    """Return the last number that is not negated, in the last sentence with a number, or None.

    A cardinal takes precedence over an ordinal such as 3rd.

    Args:
        prose: text in which formulas are replaced by numbers or placeholders.
    """
    last_digit = max(map(prose.rfind, "0123456789"))
    begin = max(prose.rfind(mark, 0, last_digit) for mark in _SENTENCE_MARKS)
    numbers = [match for match in _NUMBER.finditer(prose, max(begin, 0)) if match[0].strip()]
    numbers = numbers[-_MAX_NUMBERS:]
    if not numbers:
        return None
    end = max(prose.rfind(mark, 0, numbers[-1].start()) for mark in _SENTENCE_MARKS)
    stated = [m for m in numbers if m.start() > end and not is_value_denied(prose, m.start())]
    cardinal = [m for m in stated if not _ORDINAL.match(prose, m.end())]
    if cardinal and cardinal[-1] is not numbers[-1]:
        last = cardinal[-1]
        between = prose[last.end() : numbers[-1].start()]
        return last if not any(c in between for c in "+*/=^") else None
    return cardinal[-1] if cardinal else stated[-1] if stated else None


_DIGITS = re.compile(r"[0-9]++")
_MAX_NUMBERS = 12
_SENTENCE_MARKS = (". ", "\n", "? ", "! ")
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b")
_IDEOGRAPHS = re.compile(
    r"[\u0600-\u0669\u066e-\u06ff\u0900-\u0eff\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff01-\uff60]++"
)
"""Characters of scripts in which no space separates a number from a word."""
_MYRIADS = re.compile(r"(?<![\d.])\d++(?:\.\d++)?+ ?[万萬亿億]++")
"""A number followed by the sign for ten thousand or a hundred million: `1.2万`."""


def _find_last_paragraph_with_digit(text: str) -> str:
    """Return the last paragraph that contains a digit; empty if there is none."""
    return next((part for part in reversed(text.split("\n\n")) if _DIGIT.search(part)), "")


_DIGIT = re.compile(r"\d")
_NOT_UNDERSTOOD = "\x00"
_PLAIN = re.compile(
    r"-?(?:\\?\$)?-?(?:\d{1,3}(?:(?:,|\{,\}|,\\!)\d{3})+|\d+)?(?:\.\d+)?(?:\s*/\s*\d+)?(?:\\?%|\^\\circ)?|"
    r"-?\\[dt]?frac\{-?\d+\}\{\d+\}"
)
_TORN = re.compile(
    r"(?!(?:km|cm|mm|m|kg|g|€|£|\$)[²³]?+(?![\w^]))[\w^_{}\\]|\s?[*/^=<>+]\s?[\w(\\]|\s?[-−]\s?\d|\("
)
_UNIT_AFTER = re.compile(
    r" (?:cents|cm|mm|km|kg|g|m|feet|foot|inches|miles|meters|dollars|hours|minutes|seconds|days|"
    r"weeks|years|degrees|percent|mph|pm|am|p\.m\.|a\.m\.)(?![\w])"
)


_QUALIFIED = re.compile(
    r"\b(?:except|than|least|most|greater|less|between|not|or|and|even|odd|other|multiples?|up to|"
    r"thousand|million|billion|hundred|dozen|base|to|power|over|by|times|per|point|quadrant)\b",
    re.IGNORECASE,
)


_NO_EQUALITY = ("<", ">", "≤", "≥", "≠", "!=", "\\le", "\\ge", "\\ne", "\\not")


def _get_right_side(formula: str) -> str:
    """Return the right side of an equation, which is the last member of a chain of equalities.

    An inequality or a formula without an equals sign is returned unchanged.
    """
    formula = formula.strip().rstrip(".,")
    if "\\begin" in formula:
        _, ends, right = formula.rpartition("\\end")
        return right.rpartition("=")[2].strip() if ends and "=" in right else formula
    _, equals, right = split_at_last_equals(formula)
    if not equals or any(sign in formula for sign in _NO_EQUALITY):
        return formula
    return right.strip() or formula


def _find_answer_in_first_sentence(text_after_phrase: str) -> str | None:
    """Return the answer in the first sentence after a phrase such as "the answer is", or None."""
    text_after_phrase = text_after_phrase.lstrip(" \n\t:")[:1500]
    for pattern in (_BOLD, _MATH):
        match = pattern.match(text_after_phrase)
        if match:
            inner = next(group for group in match.groups() if group)
            end = _SENTENCE_END.search(text_after_phrase, match.end())
            more = text_after_phrase[match.end() : end.start() if end else len(text_after_phrase)]
            if pattern is _BOLD or not more.strip(" .,"):
                return strip_answer_markup(inner)
            joined = text_after_phrase[: match.end()] + more
            return strip_answer_markup(joined if len(more.split()) <= 6 else inner)
    sentence = _cut_after_first_sentence(text_after_phrase)
    return _find_answer_in_sentence(sentence) if sentence else None


def _cut_after_first_sentence(text: str) -> str:
    """Return the text up to the end of its first sentence. A formula never contains this end."""
    spans = [match.span() for match in _MATH.finditer(text)]
    for match in _SENTENCE_END.finditer(text):
        if not any(start < match.start() < end for start, end in spans):
            return text[: match.start()]
    return text


def _find_answer_in_sentence(sentence: str) -> str | None:
    """Return the answer in a sentence; None if there is none.

    It is the whole sentence if it is short. Otherwise it is its numeric predicate, its bold text,
    its last formula or its only number.
    """
    sentence = strip_answer_markup(remove_unrelated_numbers(sentence, find_doubt_words(sentence)))
    if not sentence:
        return None
    letter = _CHOICE_FIRST.match(sentence) if " " in sentence else None
    if letter:
        return letter[1] or letter[2]
    statement = find_numeric_predicate(sentence)
    if statement is not None:
        return statement
    words = sentence.split()
    if len(words) <= 8 and (len(words) < 4 or not _find_only_number(sentence)):
        return sentence
    for pattern in (_BOLD, _MATH):
        matches = pattern.findall(sentence)
        if matches:
            last = (
                matches[-1] if isinstance(matches[-1], str) else next(g for g in matches[-1] if g)
            )
            return strip_answer_markup(_get_right_side(last))
    return _find_only_number(sentence) or (sentence if len(sentence) <= 200 else None)


_CHOICE_FIRST = re.compile(
    r"(?i:for sure|definitely|clearly|probably|most likely|certainly|likely|obviously|indeed|"
    r"option|choice|the letter|letter)?[ :]{0,2}+"
    r"(?:([A-H])(?:,(?= [a-z]{2})(?! (?:and|or)\b)|"
    r"(?= (?:and (?:then|not)|because|since|but|rather|not|it|that|for)\b))"
    r"|\(?([A-H])\)?(?= (?:and (?:then|not)|is\b|as\b|it's\b|can't)))"
)
"""An option letter followed by a remark: `D, it can't be A or B`."""
_COPULAS = (" is ", " are ", " equals ", " was ", " were ", " be ")
_COPULA = re.compile(
    r"(?<! that)(?<! which)(?<! who) (?:is|are|equals|was|were|(?:must|should|would|will) be) "
    r"(?:equal to |exactly |simply |just )?+"
)


def find_numeric_predicate(sentence: str) -> str | None:
    """Return the short numeric predicate of a sentence, such as 34 for `the largest $n$ is 34`.

    The result is None if the predicate is long or qualified, as by "at least".
    """
    if len(sentence) > 300 or not any(word in sentence for word in _COPULAS):
        return None
    spans = [match.span() for match in _MATH.finditer(sentence)]
    places = [
        match
        for match in _COPULA.finditer(sentence)
        if not any(start < match.start() < end for start, end in spans)
    ]
    if len(places) != 1:
        return None
    value = sentence[places[0].end() :].strip()
    if not value or len(value.split()) > 5 or not any(c.isdigit() for c in value):
        return None
    if _QUALIFIED.search(value) or is_value_denied(sentence, places[0].end()):
        return None
    return strip_answer_markup(value)


def _find_only_number(sentence: str) -> str | None:
    """Return the only number of a sentence, with its unit.

    The result is None if the sentence has another number or qualifies it, as by "at least".
    """
    if _QUALIFIED.search(sentence) or any(c in sentence for c in "\\^=<>≤≥_({["):
        return None
    numbers = [m for m in _NUMBER.finditer(sentence) if m[0].strip()]
    if len({m[0] for m in numbers}) != 1 or sum(c.isdigit() for c in sentence) != sum(
        c.isdigit() for m in numbers for c in m[0]
    ):
        return None
    unit = _UNIT_AFTER.match(sentence[numbers[0].end() :])
    return (numbers[0][0] + (unit[0] if unit else "")).strip()


def strip_answer_markup(answer: str) -> str:
    """Remove surrounding Markdown and closing punctuation from an answer."""
    answer = answer.strip().strip("*_`").strip()
    answer = answer.rstrip(" \n,;:!")
    if answer.endswith(".") and not answer.endswith(("...", ".m.")):
        answer = answer[:-1].rstrip("*_` ")
    return answer
