"""Extracts unmarked answers: texts that are only an answer, and options or pairs at the end.

The module also finds corrections and negations of an answer. Every pattern is applied to a bounded
part of a text.
"""

from __future__ import annotations

import re

from mclabel.answers.extraction.announcements import find_value_in_other_language
from mclabel.answers.reading.languages import is_special_value_phrase, translate_to_english

_MAX_WHOLE = 160
"""Maximum number of characters of a text that may be an answer as a whole."""
_IDEOGRAPHIC = "\u3000"
"""First character of the range of scripts without spaces between words."""
_MAX_WORDS = 3
"""Maximum number of words of a text without digits that may be an answer as a whole."""
_TAIL = 240
_MAX_EQUALS = 20
"""Maximum number of equals signs of a formula that are tried, from the last backwards."""

_ONLY_LETTER = re.compile(
    r"[\s*_(\[$\"'#>]{0,8}+(?:\\text\{)?+\(?([A-Ja-j])[\s*_)\].,:;!$}\"']{0,8}+"
)
_LETTER_FIRST = re.compile(r"\*{0,2}+(?:\(([A-J])\)|([A-J])[).:])\*{0,2}+\s")
_TRUTH = re.compile(r"(?:yes|no|true|false)\b", re.IGNORECASE)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}+(?:['’][a-z]{1,2}+)?+")
_FORMULA_WORDS = frozenset(
    "and or cm mm km kg ft in mi min hr sec sqrt sin cos tan cot sec csc log ln exp arcsin arccos "
    "arctan pi theta infty inf gcd lcm mod max min am pm mph".split()
)
_SPOKEN = frozenset(
    "i'm i sorry unable unknown undetermined unclear cannot can't could couldn't don't didn't know "
    "not sure unsure give none-given idea answer is are was were has have think guess maybe hmm "
    "let me we the so then therefore thus hence option choice would go with it it's".split()
)
"""Words that never occur in an answer in words, but do in sentences."""
_GROUPED_TEXT = re.compile(
    r"\\text(?:bf|it|rm)?\{[^{}]{0,60}+\}|\\(?:mathrm|mathbf)\{[^{}]{0,40}+\}"
)
_PAIR = re.compile(
    r"(?<![\w\\)}])(\((?:[^()\n]|\([^()\n]{0,40}+\)){1,120}+\))[\s.!*$]{0,6}+$|"
    r"(?<![\w\\)}])([\[(][^\[\]()\n]{1,80}+[\])])[\s.!*$]{0,6}+$"
)
_LONG_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_CHOSEN = re.compile(
    r"(?:(?i:\b(?:options?|choices?|letter|choose|chose|pick|select|selected|selecting|go with|"
    r"going with|it's|it is|that's|that is|must be|be|is|answer|ans\.?|leaves|leaving|only|"
    r"therefore|thus|hence|so))"
    r"|[:→]|(?i:\banswer) -)[\s*:]{0,4}+"
    r"(?:\(([A-Ja-j])\)|([A-J])(?![\w'’]))[\s*.!)$]{0,6}+$"
)
_LETTERS = frozenset("ABCDEFGHIJabcdefghij")
_AFTER_LETTER = " \n.*!)$]}_:;,\"'"
_CHOSEN_LENGTH = 40
_PRAISE = (
    " correct", " right", " best", " true", " answer", " appropriate", " it is", " works",
)  # fmt: skip
_CALLED_RIGHT = re.compile(
    r"(?:\b(?i:option|choice|answer|therefore|thus|hence|so|but|only|that),? |(?:^|[.,:\n] {0,2}+))"
    r"\*{0,2}+\(?([A-J])\)?\*{0,2}+ "
    r"(?:(?:is|would be|must be|seems|matches)(?: the)?(?: most| only)? "
    r"(?:correct|right|best|true|answer|appropriate)|it is\b|works\b)"
)
_BRACKETED, _LONE = re.compile(r"\([A-J]\)"), re.compile(r"(?<![A-Za-z])[A-J](?![A-Za-z])")
"""Cheap patterns for an option letter. A text end that matches neither names no option."""
_WITH_CONTENT = re.compile(
    r"(?:[:→]|\b(?i:option|choice|answer|be|is|choose|pick|select|(?:therefore|thus|hence|so),?)) "
    r"\*{0,2}+(\([A-J]\)\*{0,2}+ [^.?!\n]{1,60}+)\.?$"
)
"""An option letter with the content of the option at the end of a text."""
_LAST_SENTENCE = re.compile(r"(?<=[.!?:]) {1,2}+\(?([A-J])\)?[.!]?$")
_MARKED_FIRST = re.compile(
    r"[\s>+*`_~-]{0,12}+(?:\d{1,2}\. )?[*_`~]{0,2}\(?([A-J])[).:]{1,3}[*_`~]{1,2} +(?=\S)"
)
"""An option letter in Markdown before the content of the option: `- **B.** No`."""
_DENIALS = frozenset(
    "not cannot never neither nor isn't isnt aren't wasn't can't cant won't wouldn't shouldn't "
    "doesn't don't couldn't except without excluding than n't ≠ \\ne \\neq != of-not".split()
)
_BETWEEN = frozenset(
    "be equal equals to the a an exactly just simply actually option choice answer number value "
    "have it is as by x n y z going".split()
)
"""Words that may stand between a negation and the value that it negates."""
_RATHER = (
    "instead of", "rather than", "other than", "different from", "no longer", "far from",
    "anything but", "less than", "more than", "greater than", "fewer than", "smaller than",
    "larger than", "bigger than", "higher than", "lower than",
)  # fmt: skip
_BOUNDING = frozenset("most least to than over under above below between and".split())
_BOUNDED = re.compile(
    r"\b(?:it|this|that|answer|result|value|number|sum|total|price|cost)"
    r"(?: is| are| was|'s| must be| should be| can be| lies| will be)"
    r"(?: (?:at (?:most|least)|up to|no (?:more|less) than|over|under|above|below)|"
    r" between(?: \S{1,12} and)?) ?\$?$"
)


def read_whole_text_as_answer(text: str) -> str | None:
    """Return the answer of a text that is an answer and nothing else; None for any other text."""
    text = text.strip().removeprefix("=>").lstrip()
    if not text or len(text) > _MAX_WHOLE or "\n" in text or "\\boxed" in text:
        return None
    if not text.isascii():
        stated = find_value_in_other_language(text)
        if stated is not None:
            return stated
        if any(c >= _IDEOGRAPHIC for c in text):
            return _read_ideographic_answer(text)
        words = _OTHER_SCRIPT.findall(text)
        if len(words) >= _MAX_WORDS or sum(map(len, words)) > _MAX_OTHER_LETTERS:
            return None
    letter = _ONLY_LETTER.fullmatch(text)
    if letter:
        return letter[1].upper()
    if _LETTER_FIRST.match(text) or _TRUTH.match(text):
        return text
    marked = _MARKED_FIRST.match(text)
    if marked:
        return f"({marked[1]}) {text[marked.end() :]}"
    words = [word.lower() for word in _WORD.findall(_GROUPED_TEXT.sub(" ", text))]
    if any(word not in _FORMULA_WORDS for word in words):
        return _read_short_answer_in_words(text, words)
    has_content = any(c.isalnum() for c in text)
    left, equals, right = split_at_last_equals(text.strip("$ ."))
    if (
        equals
        and "," not in text
        and not _RELATION.search(text)
        and not _SHORT_NAME.fullmatch(left)
    ):
        return right.strip() or None
    return (
        text.strip("*").rstrip(".;,").strip() if has_content and text[-1] not in "+-*/=:" else None
    )


def _read_ideographic_answer(text: str) -> str | None:
    """Return the answer that a short Chinese, Japanese or Korean text is; None for other texts.

    It is the option letter at the start of the text, or the text itself if it is a number such as
    `十三` or `1.2万`, perhaps with a counter word.
    """
    if text[0] in _LETTERS and text[1:2] >= _IDEOGRAPHIC:
        return text[0]
    plain = translate_to_english(text)
    is_value = plain[:1].isdigit() or plain[:1] in ("-", "(", "\\")
    return text if is_value and sum(c >= _IDEOGRAPHIC for c in plain) <= _MAX_COUNTER else None


_MAX_COUNTER = 4
_OTHER_SCRIPT = re.compile("[\u0400-\u1fff]{2,}")
_MAX_OTHER_LETTERS = 16
"""Maximum number of letters of a non-Latin script in a text that is a number with its unit."""
_RELATION = re.compile(r"[<>≤≥≠!]|\\(?:le|ge|ne|lt|gt|in|approx|pm|equiv)(?![a-z])|≈| and | or ")
_SHORT_NAME = re.compile(r"\s*+[A-Za-z](?:_\{?\w\}?|'|\([a-z]\)|\^2)?\s*+|[^=xyz]*+[xyz][^=]*+")


def split_at_last_equals(formula: str) -> tuple[str, str, str]:
    """Partition a formula at its last equals sign outside braces, as `str.rpartition` does.

    Without such a sign, the first two parts are empty and the third is the formula. Braces enclose,
    for example, the bound of a sum.
    """
    end = len(formula)
    for _ in range(_MAX_EQUALS):
        place = formula.rfind("=", 0, end)
        if place < 0:
            break
        behind = formula[place:]
        if behind.count("{") == behind.count("}"):
            return formula[:place], "=", formula[place + 1 :]
        end = place
    return "", "", formula


def _read_short_answer_in_words(text: str, words: list[str]) -> str | None:
    """Return a short answer in words, such as `Thursday` or `no solution`; None for a sentence."""
    if is_special_value_phrase(text):
        return text
    words = words[1:] if words[0] in ("the", "a", "an") else words
    if len(words) > _MAX_WORDS or any(c.isdigit() or c in "=\\^$?" for c in text):
        return None
    if not _SPOKEN.isdisjoint(words) and not {"no", "none"} & set(words[:1]):
        return None
    return text.strip("*").rstrip(".!").strip()


def find_chosen_letter(text: str) -> str | None:
    """Return the option letter that a text ends with or calls correct; None if there is none.

    If the content of the option follows, it is included.
    """
    tail = text[-_TAIL:].rstrip()
    bare = tail.rstrip(_AFTER_LETTER)
    if bare[-1:] in _LETTERS and not bare[-2:-1].isalnum():
        last_line = tail[tail.rfind("\n") + 1 :]
        letter = _ONLY_LETTER.fullmatch(last_line)
        if letter and (letter[1].isupper() or "(" in last_line):
            return letter[1].upper()
        chosen = _CHOSEN.search(tail, max(0, len(tail) - _CHOSEN_LENGTH))
        if chosen and not is_value_denied(tail, chosen.start(1) if chosen[1] else chosen.start(2)):
            return (chosen[1] or chosen[2]).upper()
        last = _LAST_SENTENCE.search(tail, max(0, len(tail) - _CHOSEN_LENGTH))
        if last:
            return last[1]
    if tail[-1:] not in _LETTERS and "(" in tail and _BRACKETED.search(tail):
        bracketed = _WITH_CONTENT.search(tail)
        if bracketed and not is_value_denied(tail, bracketed.start(1)):
            return bracketed[1].replace("*", "")
    first_line, more, _ = text[:_CHOSEN_LENGTH].lstrip().partition("\n")
    if more and _ONLY_LETTER.fullmatch(first_line):
        return first_line.strip("*_ .:()").upper()
    if not any(map(tail.__contains__, _PRAISE)) or not _LONE.search(tail):
        return None
    called = [*_CALLED_RIGHT.finditer(tail)]
    return called[-1][1] if called else None


def find_closing_bracketed_value(text: str) -> str | None:
    """Return the point, interval or bracketed list at the end of a text; None if there is none."""
    text = text[-_TAIL:].rstrip()
    if text.rstrip(".!*$ ")[-1:] not in (")", "]"):
        return None
    for opening in ("(", "["):
        start = text.rfind(opening)
        if start < 0:
            continue
        match = _PAIR.match(text, start)
        pair = match and (match[1] or match[2])
        if not pair or "," not in pair or _LONG_WORD.search(pair):
            continue
        if any(c.isalnum() for c in pair) and not is_value_denied(text, start):
            return pair
    return None


_CORRECTION = re.compile(
    r"\b(?:wait|actually|no,|correction|sorry|apolog|oops|scratch that|second thought|mistake|"
    r"incorrect|is wrong|was wrong|not right|misread|forgot|let me re)",
    re.IGNORECASE,
)
_CORRECTING = (
    "wait", "actually", "no,", "correction", "sorry", "apolog", "oops", "scratch", "thought",
    "mistake", "wrong", "right", "incorrect", "let me re", "misread", "forgot",
)  # fmt: skip
_RESTATED = re.compile(
    r"(?i:\b(?:it|that|this|answer|value|result|number|total|one)"
    r"(?:'s| is| was| should be| must be| would be| equals)|"
    r"\b(?:i mean|i meant|make that|make it|rather|correction))"
    r"(?i: actually| really| in fact| instead| then)?+[: ]{0,3}+"
    r"(\$[^$\n]{1,80}+\$|[$(-]{0,2}+\d[\d,./]{0,20}+%?|\([A-J]\)|[A-J](?![\w'’])|"
    r"\\\((?:[^\n\\]|\\(?![()])){1,80}+\\\))"
)


def find_corrected_answer(text_after_answer: str) -> str | None:
    """Return the corrected answer of a text such as `No, wait, it's 6`; None without a correction.

    Args:
        text_after_answer: text after the answer that may be corrected.
    """
    text_after_answer = text_after_answer[:_MAX_CORRECTION]
    if not any(map(text_after_answer.lower().__contains__, _CORRECTING)):
        return None
    correction = _CORRECTION.search(text_after_answer)
    if correction is None:
        return None
    restatement = None
    for match in _RESTATED.finditer(text_after_answer, correction.start()):
        if not is_value_denied(text_after_answer, match.start(1)) and not _CONTINUED.match(
            text_after_answer, match.end()
        ):
            restatement = match
    return restatement[1].strip(",. ") if restatement else None


_MAX_CORRECTION = 600
_CONTINUED = re.compile(r" ?[*/+^=×·-] ?[\w(\\]| (?:times|more|less|plus|minus|divided|out of)\b")
"""Text that follows a value which is only a part of a calculation."""


def is_value_denied(text: str, start: int) -> bool:
    """Return whether the words before a value negate it or only bound it, as in `is not 5`.

    Args:
        text: text with the value.
        start: index at which the value begins.
    """
    before = text[max(0, start - 60) : start].lower().replace("’", "'")
    sentence = before[max(before.rfind(mark) for mark in (". ", "\n", "; ", "? ")) + 1 :]
    words = sentence.replace("$", " ").replace("*", " ").replace("(", " ").split()
    if words and words[-1] in _BOUNDING and _BOUNDED.search(sentence):
        return True
    while words and words[-1].strip(",:") in _BETWEEN and words[-1] not in _DENIALS:
        words.pop()
    if not words:
        return False
    last = words[-1].strip(',:`"')
    return last in _DENIALS - {"than"} or " ".join(words[-2:]) in _RATHER
