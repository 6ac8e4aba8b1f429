r"""Extracts the answer in `\boxed{}`.

The answer is the content of the last box, joined with the other boxes of the same list. It includes
parts of the formula directly around a box, such as the sign of $-\boxed{4}$.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from mclabel.answers.extraction.doubts import DENIED_BEFORE, is_followed_by_denial

_BOX = re.compile(
    r"(?:\\(?:[bB]{1,2}ox(?:e{0,2}d{0,2})|fbox|framebox)|(?<![\\A-Za-z])boxed)(?![A-Za-z])\s*+(?=\{)|"
    r"\\(?:boxed|fbox)(?![A-Za-z])\s*+(?=[-\dA-Za-z\\(])"
)
"""Start of a box, including misspellings of models: `\\boxd{7}`, `boxed{7}`, `\\boxed 7`."""
_WITHOUT_BRACES = re.compile(
    r"\(([^()\n]{1,80}+)\)|"
    r"-?(?:\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?|\\[dt]?frac\{[^{}\n]{1,40}\}\{[^{}\n]{1,40}\})|"
    r"[A-Za-z](?![A-Za-z])"
)
_NOT_CLOSED = re.compile(r"\{([^\n$]{1,60}?)(?:\$|\\[\])]|\n(?=\s*\S))")
_MAX_AFTER_OPEN = 100
"""Maximum number of characters after the content of a box that was never closed. If more follow,
the box is ignored."""
_FLAT_GROUP = re.compile(r"\{[^{}\\]{0,200}+\}")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_RETRACTED_AFTER = re.compile(
    r"[\s$.\])]*+(?:,? ?(?:which )?(?:is|was|that is|that was|that's|this is)) "
    r"(?:wrong|incorrect|false|not right|not correct|not the (?:right |correct )?answer|a mistake|"
    r"an error)|[\s$\])]*+, (?:but (?:that|this|it)|which) (?:is|was) (?:wrong|incorrect|false)",
    re.IGNORECASE,
)
_DENIED_BEFORE = (
    " not", "isn't", "isn’t", "cannot be", "can't be", "can’t be", "anything but", "other than",
    "answer is at least", "answer is at most", "answer is less than", "answer is more than",
    "answer is greater than", "wrong answer was", *DENIED_BEFORE,
)  # fmt: skip
_AROUND = " \n$:：(\\*"
_MENTIONED_BEFORE = ("instead of", "rather than", "earlier", "previously", "wrote")
_ENDS_BEFORE = frozenset(words[-2:] for words in (*_DENIED_BEFORE, *_MENTIONED_BEFORE))
"""Last two characters of the phrases which, before a box, mark it as not the answer."""
_MAX_BOX = 5_000
"""Maximum number of characters in a box. A longer box counts as never closed."""
_MAX_BOXES = 40
_MAX_DISTANCE = 300
"""Maximum number of characters between the starts of two neighbouring boxes of a list."""
_MAX_GAP = 80
"""Maximum number of characters between the end of a box and the start of the next box of a list."""
_SPACING = re.compile(r"\\(?:quad|qquad|text|mathrm|textbf|[,;:! ()\[\]])|[${}&~]|\\\\")
_GAP = re.compile(
    r"(?:for part \(?\w\)? ?|(?!and\b|or\b)[a-z]{2,12} ?)?+[,;]? ?(and|or)?+"
    r"(?: (?:also|then|finally))?+"
    r"(?: ?[A-Za-z](?:_?\w{1,3})?(?:\([a-z]\))? ?=)? ?"
)
"""Pattern of the text between boxes of one list: a unit, a comma, "and" or "or", and the name of
the next value."""
_NO_LIST = frozenset("so then but thus hence is no not wait which because since therefore".split())
_LABEL = re.compile(r"(?<![\w\\])([A-Za-z](?:_\{?\w{1,3}\}?)?(?:\([a-z]\))?)\s{0,2}=\s{0,2}$")
_SIGN = re.compile(r"(?:(?<=[$=:(,≈\[])|(?<=\\\()|(?<=\\\[)|(?<=[$=:(,] )|(?<=\\\[ ))(-|−|\\pm) ?$")
_BARE_SIGN = re.compile(r"(?:^|(?<=\s))[-−]$")
_APPLIED = re.compile(r"\\(?:sqrt|ln|log|sin|cos|tan|arcsin|arccos|arctan)(\{)?$")
_FOLLOWING = re.compile(r" ?(?:\\pi(?![A-Za-z])|π|\\sqrt\{[^{}]{1,20}\}|\^\{?\\circ\}?)")


class Box(NamedTuple):
    r"""A box in a text, such as `\boxed{7}`."""

    start: int
    """Index of the first character of the box."""
    end: int
    """Index after the last character of the box."""
    content: str


def find_final_boxes(text: str) -> list[Box] | None:
    """Return the last box that was not retracted, and boxes before it that may be in its list.

    The boxes are in the order of the text. The list is empty if there is no box. The result is None
    if the text breaks off inside its last box.
    """
    boxes: list[Box] = []
    mentioned: list[Box] = []
    last_open = None
    low, end_of_rest = 0, len(text)
    for _ in range(_MAX_BOXES):
        match = _find_last_box_start(text, low, end_of_rest)
        if match is None:
            break
        start, end_of_rest = match.end(), match.start()
        if text[start] == "{":
            end = _find_closing_brace(text, start)
            box = None
            if end is not None:
                content = text[start + 1 : end].strip()
                box = Box(end_of_rest, end + 1, content) if content else None
            elif not (boxes or mentioned or last_open) and _NOT_CLOSED.match(text, start) is None:
                return None
        else:
            box = _read_unbraced_box(text, match)
        if box is None:
            last_open = last_open or match
            continue
        before = text[max(0, end_of_rest - 40) : end_of_rest].rstrip(_AROUND)
        if before[-2:].lower() in _ENDS_BEFORE:
            before = f" {before.lower()}"
            if before.endswith(_MENTIONED_BEFORE):
                mentioned.insert(0, box)
                continue
            if before.endswith(_DENIED_BEFORE):
                continue
        if not (len(text) - box.end > _MIN_AFTER and _is_box_retracted(text, box.end)):
            boxes.insert(0, box)
            low = max(0, end_of_rest - _MAX_DISTANCE)
    if boxes or mentioned:
        return boxes or mentioned
    if last_open is not None:
        box = _read_unclosed_box(text, last_open)
        return [] if box is None else [box]
    return find_final_boxes(text.replace("\\Boxed{", "\\boxed{")) if "Boxed{" in text else []


def _is_box_retracted(text: str, end: int) -> bool:
    """Return whether the words after a box say that it is not the answer.

    Args:
        text: text with the box.
        end: index after the box.
    """
    if len(text) - end > _MIN_RETRACTION and _RETRACTED_AFTER.match(text, end):
        return True
    return not text.isascii() and is_followed_by_denial(text, end)


_MIN_AFTER = len("$.")
"""Number of characters after a box that may only end a formula and a sentence. A longer rest may
retract the box."""
_MIN_RETRACTION = 8
"""Number of characters after a box that must be exceeded for an English retraction to fit."""


def _read_unbraced_box(text: str, match: re.Match[str]) -> Box | None:
    r"""Return a box without braces, such as `\boxed 7`; None if no value follows its name."""
    bare = _WITHOUT_BRACES.match(text, match.end())
    if bare is None:
        return None
    return Box(match.start(), bare.end(), bare[1] if bare[1] and "," not in bare[1] else bare[0])


def _read_unclosed_box(text: str, match: re.Match[str]) -> Box | None:
    """Return a box that was never closed, if it is near the end of the text; None otherwise."""
    opened = _NOT_CLOSED.match(text, match.end())
    if opened is None or len(text) - opened.end(1) > _MAX_AFTER_OPEN:
        return None
    content = opened[1].strip().rstrip(".")
    balanced = content.count("{") == content.count("}")
    return Box(match.start(), opened.end(1), content) if content and balanced else None


def join_boxes(text: str, boxes: list[Box]) -> str:
    """Return the content of the last box, joined with the earlier boxes of the same list.

    A name before a box, as in `x =`, is included.

    Args:
        text: text with the boxes.
        boxes: boxes from `find_final_boxes`, at least one.
    """
    start, end, content = boxes[-1]
    answer = _extend_box_content(text, start, end, content)
    if len(boxes) == 1:
        return answer
    joined, label = answer, _read_equation_label_before(text, start)
    for before in reversed(boxes[:-1]):
        joint = _find_box_separator(text[before.end : start]) if before.end <= start else None
        if joint is None or len(joined) > _MAX_BOX:
            break
        if joined is answer and label:
            joined = f"{label} = {answer}"
        start = before.start
        named, value = _read_equation_label_before(text, start), _extend_box_content(text, *before)
        joined = f"{named} = {value}{joint}{joined}" if named else f"{value}{joint}{joined}"
    return joined


def join_boxes_if_exactly(text: str, count: int) -> str | None:
    """Return the contents of a text's boxes as one text, separated as the items of a list.

    The result is None if the text does not have exactly `count` boxes, or if a box is retracted.
    """
    boxes = find_final_boxes(text) or []
    if (
        len(boxes) != count
        or sum(1 for _ in islice(_find_box_starts_backwards(text), count + 1)) != count
    ):
        return None
    gaps = [text[box.end : following.start] for box, following in pairwise(boxes)]
    if any(_TAKES_BACK.search(gap) for gap in gaps):
        return None
    return ", ".join(_extend_box_content(text, *box) for box in boxes)


_TAKES_BACK = re.compile(
    r"\b(?:wait|actually|no|not|wrong|instead|mistake|correction|sorry|or|but|alternatively|check)\b",
    re.IGNORECASE,
)


def _find_box_separator(text_between_boxes: str) -> str | None:
    """Return the separator of two boxes of one list; None if they are not in one list.

    Args:
        text_between_boxes: text between the two boxes.
    """
    if len(text_between_boxes) > _MAX_GAP:
        return None
    words = " ".join(_SPACING.sub(" ", text_between_boxes).split())
    if not words:
        return ", " if not text_between_boxes or "\\" in text_between_boxes else None
    match = _GAP.fullmatch(words)
    if match is None or words.split(" ")[0].strip(",;") in _NO_LIST:
        return None
    if not match[1] and "," not in text_between_boxes and ";" not in text_between_boxes:
        return None
    return " or " if match[1] == "or" else ", "


def _read_equation_label_before(text: str, start: int) -> str:
    match = _LABEL.search(text[max(0, start - 24) : start])
    return match[1] if match else ""


def _extend_box_content(text: str, start: int, end: int, content: str) -> str:
    """Return the content of a box with the parts of the formula directly around it.

    These are a sign or function before it, and a π, root or degree sign after it.
    """
    last = (
        text[start - 1 : start] if text[start - 1 : start] != " " else text[start - 2 : start - 1]
    )
    if last == "{" or last.isalpha():
        before = text[max(0, start - 16) : start]
        applied = _APPLIED.search(before)
        if applied and (not applied[1] or text[end : end + 1] == "}"):
            return f"{applied[0].rstrip('{')}{{{content}}}"
    if text[end : end + 1] in _MAY_FOLLOW:
        following = _FOLLOWING.match(text, end)
        if following and not content.endswith(following[0].strip()):
            content += following[0]
    if last in _SIGN_ENDS and not content.startswith(("-", "\\pm")):
        before = text[max(0, start - 16) : start]
        bare = text[start - 1] != " " and _BARE_SIGN.search(before)
        signed = _SIGN.search(before) or bare
        if signed:
            return ("\\pm " if "pm" in signed[0] else "-") + content
    return content


_MAY_FOLLOW = (" ", "\\", "π", "^")
_SIGN_ENDS = ("-", "−", "m")


def _find_box_starts_backwards(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of the starts of boxes, from the last to the first."""
    match = _find_last_box_start(text, 0, len(text))
    while match:
        yield match
        match = _find_last_box_start(text, 0, match.start())


def _find_last_box_start(text: str, low: int, high: int) -> re.Match[str] | None:
    """Find the last start of a box between the indices `low` and `high`.

    A backward search is much cheaper, because answers are at the end of a text.
    """
    place = text.rfind("box", low, high)
    while place >= 0:
        command = text.rfind("\\", max(low, place - _MAX_NAME), place)
        match = _BOX.match(text, command if command >= 0 else place)
        if match:
            return match
        place = text.rfind("box", low, place)
    return None


_MAX_NAME = len("\\frame")


def _find_closing_brace(text: str, start: int) -> int | None:
    """Return the index of the brace that closes the brace at `start`; None if there is none.

    Escaped braces are ignored.
    """
    flat = _FLAT_GROUP.match(text, start)  # most boxes contain no nested braces
    if flat is not None:
        return flat.end() - 1
    depth = 0
    for match in _BRACE.finditer(text, start, start + _MAX_BOX):
        token = match[0]
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0:
                return match.start()
    return None
