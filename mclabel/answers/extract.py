r"""The final answer of a completion.

Marked answers first, the last one winning: `\boxed{}`, `####`, "the answer is". Without any, an
equation that ends the text, then the last number, unless it is part of a formula.
"""

from __future__ import annotations

import re
from itertools import islice

from mclabel.answers.phrases import after_phrase, clean, closing_formula, last_number

_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?=\{)|\\boxed\s+(?=[\dA-Za-z])")
_HASHES = re.compile(r"^[ \t>*]*####[ \t]*(\S[^\n]*)$", re.MULTILINE)
_RUN_ON = re.compile(
    r"\n[ \t]{0,8}(?:#{1,6}[ \t]{0,8}|\*\*)?(?:New |Next )?"
    r"(?:Problem|Question|Q|Exercise|User|Human|Instruction)(?: ?\d{1,4})? ?(?:\*\*)? ?[:.]|"
    r"<\|(?:im_start|im_end|endoftext|eot_id|end_of_text|user)\|>|</s>|\[INST\]|"
    r"\n[ \t]{0,8}#{1,6}[ \t]{0,8}(?:Problem|Question|Instruction)\b"
)
_RUN_ON_MARKS = (
    "Problem", "Q", "Exercise", "User", "Human", "Inst", "INST", "<|", "</s>",
)  # fmt: skip
"""Cheap to look for; without any of them there is no run-on."""
_RETRACTED_AFTER = re.compile(
    r"[\s$.\])]*(?:,? ?(?:which )?(?:is|was|that is|that was|that's|this is)) "
    r"(?:wrong|incorrect|not right|not correct|a mistake|an error)",
    re.IGNORECASE,
)
_RETRACTED_BEFORE = (
    "not", "instead of", "rather than", "earlier", "previously", "wrote", "wrong answer was",
)  # fmt: skip
_CORRECTIONS = (
    "wait", "actually", "correction", "sorry", "apologi", "mistake", "incorrect", "wrong",
    "not right", "scratch that", "let me re", "oops", "second thought",
)  # fmt: skip
_ANSWER_MARKS = ("boxed", "nswer", "####")
_BETWEEN_BOXES = re.compile(
    r"[\s$,;&]*+(?:\\[()])?+[\s$,;]*+(?:and|or)?+[\s$,;]*+(?:\\\()?+[\s$]*+"
)
_THOUGHT_END = "</think>"
_MAX_BOX = 5_000
"""Characters in one; a longer one counts as never closed."""
_MAX_BOXES = 40
_MAX_BOX_DISTANCE = 300
"""Between the starts of boxes in one list."""
_MAX_RUN_ONS = 8
"""Places to look at for the start of another problem."""


def extract_answer(text: str, *, truncated: bool = False) -> str | None:
    r"""The answer as the text writes it, or None if it gives none.

    Args:
        text: of a completion, or of a reference solution.
        truncated: the completion was cut by its length; it has no answer then, whatever it
            looks like.
    """
    if truncated:
        return None
    thought, end, rest = text.rpartition(_THOUGHT_END)
    if not end:
        return _answer(_without_run_on(text))
    answer = _answer(_without_run_on(rest)) if rest.strip() else None
    return answer if answer is not None else _marked(thought)


def reference_answer(text: str) -> str:
    r"""The gold of a reference: what it boxes or gives after `####`, else all of it.

    Words such as "the answer is", or a last number, mark nothing here: the text may be the gold
    itself.
    """
    hashes = _hash_answer(text) if "####" in text else None
    boxes = _boxes(text) if "box" in text else []
    if hashes is not None and (not boxes or hashes[0] > boxes[-1][1]):
        return hashes[1]
    return _join(text, boxes) if boxes else text.strip()


def inside_box(text: str) -> str | None:
    r"""What the last balanced `\boxed{}` holds, with those right beside it; None without one."""
    found = _boxes(text)
    return _join(text, found) if found else None


def _answer(text: str) -> str | None:
    answer = _marked(text)
    if answer is not None:
        return answer
    if "\\boxed" in text and not text.rstrip().endswith("}"):
        return None  # the box was never closed or never filled: no number of it is an answer
    return closing_formula(text) or last_number(text)


def _marked(text: str) -> str | None:
    """The last answer that the text marks as such."""
    boxes = _boxes(text) if "\\boxed" in text or "\\fbox" in text or "\\framebox" in text else []
    hashes = _hash_answer(text) if "####" in text else None
    if boxes:
        end = boxes[-1][1]
        if hashes is not None and hashes[0] > end:
            return hashes[1]
        rest = text[end:]
        if len(rest) > 20 and _is_corrected(rest[:400].lower()):
            corrected = after_phrase(rest)
            if corrected is not None:
                return corrected
        return _join(text, boxes)
    phrase = after_phrase(text)
    if hashes is not None:
        return hashes[1]
    return phrase


def _boxes(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of the last boxes that were not retracted, in order.

    Only of those that can matter: the last one, and those that stand in one list with it.
    """
    found: list[tuple[int, int, str]] = []
    retracted: list[tuple[int, int, str]] = []
    for match in reversed(_last_box_starts(text)):
        if found and found[0][0] - match.start() > _MAX_BOX_DISTANCE:
            break
        start = match.end()
        end = _closing_brace(text, start) if text[start] == "{" else start
        content = "" if end is None else text[start : end + 1].removeprefix("{").strip()
        content = content.removesuffix("}").strip() if text[start] == "{" else content
        if end is None or not content:
            continue
        box = (match.start(), end + 1, content)
        before = text[max(0, match.start() - 40) : match.start()].rstrip(" \n$:").lower()
        if before.endswith(_RETRACTED_BEFORE) or _RETRACTED_AFTER.match(text, end + 1):
            retracted.insert(0, box)
        else:
            found.insert(0, box)
    return found or retracted


def _is_corrected(after: str) -> bool:
    return any(word in after for word in _CORRECTIONS)


def _last_box_starts(text: str) -> list[re.Match[str]]:
    starts: list[re.Match[str]] = []
    for command in ("\\boxed", "\\fbox", "\\framebox"):
        place = text.rfind(command)
        while place >= 0 and len(starts) < _MAX_BOXES:
            match = _BOX.match(text, place)
            starts += [match] if match else []
            place = text.rfind(command, 0, place)
    return sorted(starts, key=lambda match: match.start())


def _join(text: str, boxes: list[tuple[int, int, str]]) -> str:
    """The last box, and those before it that stand in one list with it."""
    start, _, content = boxes[-1]
    for before in reversed(boxes[:-1]):
        gap = text[before[1] : start]
        if len(gap) > 30 or not _BETWEEN_BOXES.fullmatch(gap) or before[1] > start:
            break
        if not gap.strip(" $\n"):
            break
        joint = " or " if "or" in gap else ", "
        start, content = before[0], f"{before[2]}{joint}{content}"
    return content


def _closing_brace(text: str, start: int) -> int | None:
    """Where the brace at `start` is closed; escaped braces count among themselves."""
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


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_HEADING = re.compile(
    r"(?:step|solution|final|answer|conclusion|part|explanation|therefore|verification|\d+[.)] )",
    re.IGNORECASE,
)


def _hash_answer(text: str) -> tuple[int, str] | None:
    """What the last `#### x` gives, unless that is a heading."""
    found = None
    for match in _HASHES.finditer(text):
        if not _HEADING.match(match[1]):
            found = match
    if found is None:
        return None
    answer = clean(found[1])
    if len(answer.split()) > 6 and text[found.end() :].strip():
        return None
    return (found.start(), answer) if answer else None


def _without_run_on(text: str) -> str:
    """The text up to where it begins another problem, if it gave an answer before that."""
    places = [place for mark in _ANSWER_MARKS if (place := text.find(mark)) >= 0]
    if not places:
        return text
    first = min(places)
    rest = text[first:]
    for mark in _RUN_ON_MARKS:
        if mark in rest:
            break
    else:
        return text
    for match in islice(_RUN_ON.finditer(text, first), _MAX_RUN_ONS):
        before = text[: match.start()]
        if before.strip() and _marked(before) is not None:
            return before
    return text
