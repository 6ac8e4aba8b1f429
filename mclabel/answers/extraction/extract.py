r"""The final answer of a completion.

Marked answers first, the last one winning: `\boxed{}`, `####`, "the answer is". Without any, an
equation that ends the text, then what the last sentence asserts. If that is not clear either, the
last number is a guess, unless it is part of a formula.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice
from typing import NamedTuple

from mclabel.answers.extraction.announcements import (
    announced,
    denies,
    is_inexact,
    localised,
    stated_abroad,
)
from mclabel.answers.extraction.assertions import (
    asserted,
    bold_value,
    closing_assignments,
    last_sentence,
    named_subject,
)
from mclabel.answers.extraction.boxes import find_boxes, join_boxes
from mclabel.answers.extraction.conclusions import (
    chosen_letter,
    closing_pair,
    restated,
    whole_answer,
)
from mclabel.answers.extraction.doubts import (
    breaks_off,
    refuses,
    tail_words,
    taken_back,
    takes_back_last_number,
    without_other_numbers,
)
from mclabel.answers.extraction.fields import closing_object
from mclabel.answers.extraction.phrases import (
    after_phrase,
    clean,
    closing_formula,
    last_number,
    predicate,
    prose_of,
)
from mclabel.answers.extraction.statements import without_contrasts
from mclabel.answers.reading.numerals import tells_fraction, tells_number
from mclabel.answers.reading.scripts import plain_digits
from mclabel.answers.reading.truth import NAMES_CLAIM, read_truth

_HASHES = re.compile(r"^[ \t>*]*####[ \t]*(\S[^\n]*)$", re.MULTILINE)
_RUN_ON = re.compile(
    r"\n[ \t]{0,8}(?:#{1,6}[ \t]{0,8}|\*\*)?(?:New |Next )?"
    r"(?:Problem|Question|Q|Exercise|User|Human|Instruction)(?: ?\d{1,4})? ?(?:\*\*)? ?[:.]|"
    r"<\|(?:im_start|im_end|endoftext|eot_id|end_of_text|user)\|>|</s>|\[INST\]|"
    r"\n[ \t]{0,8}#{1,6}[ \t]{0,8}(?:Problem|Question|Instruction)\b"
)
_TURN = re.compile(r"(?<=\S)\s{0,8}<\|(?:im_start|im_end|endoftext|eot_id|end_of_text|user)\|>")
_RUN_ON_MARKS = tuple(
    (mark[0], mark) for mark in "Problem Q Exercise User Human Inst INST <| </s>".split()
)
"""Cheap to look for; without any of them there is no run-on."""
_ANSWER_MARKS = ("boxed", "nswer", "####")
_CORRECTIONS = (
    "wait", "actually", "correction", "sorry", "apologi", "mistake", "incorrect", "wrong",
    "not right", "scratch that", "let me re", "oops", "second thought", "no,",
)  # fmt: skip
_MIN_DOUBT, _MIN_LATER, _MIN_CORRECTION = 4, 8, 20
"""Characters that say more than the end of a formula and of a sentence."""
_MAX_CORRECTION = 600
"""Characters after a box in which it may be corrected."""
_GLM_BOX = re.compile(r"<\|begin_of_box\|>([^<]*+)<\|end_of_box\|>")
"""The way that the models GLM mark their final answer."""
_TAG, _TAG_END = "<answer>", "</answer>"
_THOUGHT = re.compile(
    r"<(/?)(?:think|thinking|thought|reasoning)>|<\|(?:begin|(end))_of_thought\|>|◁(/?)think▷|"
    r"\[(/?)THINK\]"
)
"""Place where a region of thinking begins, or ends if a group holds anything."""
_THOUGHT_WORDS = ("think", "thought", "reasoning", "THINK")
_MAX_CONTRAST = 120
"""Characters at the end of a text in which it may say `not 5 but 7`."""
_BACKSPACE = "\b"
_MAX_RUN_ONS = 8
"""Places to look at for the start of another problem."""


class ExtractedAnswer(NamedTuple):
    """An answer that was extracted from a text."""

    answer: str
    """The answer as the text writes it; empty if it is in words that are not understood."""
    is_guess: bool = False
    """True if the answer is only the last number of a text that marks and asserts nothing."""


def extract_answer(text: str, *, truncated: bool = False) -> str | None:
    r"""Return the answer as the text writes it, or None if it gives none.

    Args:
        text: text of a completion, or of a reference solution.
        truncated: the completion was cut by its length; it has no answer then, whatever it
            looks like.
    """
    extracted = None if truncated else find_answer(text)
    return None if extracted is None else extracted.answer or None


def stated_answer(text: str) -> str | None:
    """Return the answer that a part of a solution commits to: one that it marks as such.

    None if it marks none, or speaks of an answer that it supposes, asks for or denies.
    """
    if not any(mark in text for mark in _ANSWER_MARKS) or _SUPPOSED.search(text):
        return None
    return _find_marked(text)


_SUPPOSED = re.compile(
    r"\b(?:if|whether|suppose|assuming|maybe|perhaps|guess|might|could|can't|cannot|isn't|not)\b"
    r"[^.\n]{0,60}\banswer\b|\banswer\b[^.\n]{0,20}(?:\b(?:not|can't|cannot|may|might|could)\b|n't|\?)",
    re.IGNORECASE,
)


def find_answer(text: str) -> ExtractedAnswer | None:
    """Return the answer of a completion that was not cut by its length; None if it gives none."""
    if not text.isascii():
        text = plain_digits(text)
    if _BACKSPACE in text:  # what is left of a box where its backslash was taken for an escape
        text = text.replace(f"{_BACKSPACE}oxed", "\\boxed")
    marks = None
    if "<" in text or "◁" in text or ("K" in text and "[THINK]" in text):
        text = _GLM_BOX.sub(r"\\boxed{\1}", text)
        if any(map(text.__contains__, _THOUGHT_WORDS)):
            marks = deque(_THOUGHT.finditer(text), maxlen=1)
    if not marks:
        return _extract(_without_run_on(text))
    mark = marks[0]
    rest = text[mark.end() :]
    if not any(mark.groups()):  # the thinking never ended
        tagged = _find_tagged(rest) if _TAG_END in rest else None
        return None if tagged is None else ExtractedAnswer(tagged[1])
    if rest.strip():
        return _extract(_without_run_on(rest))
    answer = _find_marked(text[: mark.start()])
    return ExtractedAnswer(answer) if answer else None


def _own_turn(text: str) -> str:
    """Return the text up to where another turn of a conversation begins."""
    if "<" not in text or "<|" not in text:
        return text
    match = _TURN.search(text)
    own = text[: match.start()] if match else text
    return own if own.strip() else text


def reference_answer(text: str) -> str:
    r"""Return the gold of a reference: what it boxes or gives after `####`, else all of it.

    Words such as "the answer is", or a last number, mark nothing here: the text may be the gold
    itself.
    """
    hashes = _hash_answer(text) if "####" in text else None
    boxes = find_boxes(text) if "box" in text else None
    if hashes is not None and (not boxes or hashes[0] > boxes[-1][1]):
        return hashes[1]
    return join_boxes(text, boxes) if boxes else text.strip()


def inside_box(text: str) -> str | None:
    r"""Return the content of the last balanced `\boxed{}`, with those right beside it; None without
    one.
    """
    boxes = find_boxes(text)
    return join_boxes(text, boxes) if boxes else None


def _extract(text: str) -> ExtractedAnswer | None:
    ending = closing_object(text) if text.endswith(_OBJECT_ENDS) else None
    if ending is not None:
        start, held = ending
        if held is not None:
            inner = _extract(held)
            return inner and ExtractedAnswer(inner.answer or held)
        text = text[:start].rstrip("` \n").removesuffix("```json")
    answer = _find_marked(text)
    if answer is not None:
        return ExtractedAnswer(answer) if answer else None
    if "\\boxed" in text:
        return None  # the box was never closed or never filled: no number of it is an answer
    text = _own_turn(text)
    words = tail_words(text)
    if refuses(text, words) or takes_back_last_number(text, words):
        return None
    for look in (chosen_letter, whole_answer):
        answer = look(text)
        if answer is not None:
            return ExtractedAnswer(answer)
    if breaks_off(text):
        return None
    text = without_other_numbers(text, words)
    sentence = last_sentence(text)
    if _SO_FAR.match(sentence) or sentence.endswith(("?", "？")):
        return None
    answer = closing_assignments(sentence) or closing_formula(text) or closing_pair(text)
    answer = (
        answer
        or bold_value(sentence)
        or asserted(prose_of(sentence))
        or named_subject(sentence)
        or stated_abroad(sentence)
    )
    if answer is not None:
        return ExtractedAnswer(answer)
    if read_truth(sentence) is not None and NAMES_CLAIM.search(sentence):
        return ExtractedAnswer(sentence)
    if denies(sentence):
        return None
    answer = last_number(text) or closing_formula(text, among_others=True)
    if answer is None:
        return ExtractedAnswer("", is_guess=True) if tells_number(sentence) else None
    unclear = _tells_otherwise(sentence) or is_inexact(sentence)
    return ExtractedAnswer("" if unclear else answer, is_guess=True)


_SO_FAR = re.compile(
    r"(?:so far|up to now|at this point|if (?:the|my) (?:final |correct )?answer (?:was|were))\b|"
    r"score:",
    re.IGNORECASE,
)
"""Pattern of the beginning of a sentence that states no final result."""
_OBJECT_ENDS = ("}", "`", "}\n", "`\n", "} ")


def _tells_otherwise(sentence: str) -> bool:
    """Return whether the last sentence tells a number in words, so that the last in digits is no
    guess.
    """
    if tells_fraction(sentence):  # one sixth of 12
        return True
    return not any(c.isdigit() for c in sentence) and tells_number(sentence, places=False)


def _find_marked(text: str) -> str | None:
    """Return the last answer that the text marks as such; empty if it takes that back or breaks
    off.
    """
    boxes = find_boxes(text) if "\\" in text or "boxed{" in text else []
    if boxes is None:
        return ""
    hashes = _hash_answer(text) if "#" in text and "####" in text else None
    tagged = _find_tagged(text) if "<" in text else None
    end = boxes[-1][1] if boxes else -1
    if tagged is not None and tagged[0] > end:
        return _unless_taken_back(tagged[1], text[tagged[0] :].partition(">")[2])
    if hashes is not None and hashes[0] > end:
        return _unless_taken_back(hashes[1], text[hashes[0] :].partition("\n")[2])
    if not boxes:
        return _find_announced(text)
    rest = text[end:]
    if len(rest) > _MIN_LATER:
        later = _find_correction(rest[:_MAX_CORRECTION]) if len(rest) > _MIN_CORRECTION else None
        if later is None and "nswer" in rest:
            later = _announced_later(rest)
        if later:
            return later
    answer = join_boxes(text, boxes)
    if "," in answer or "." in answer:
        answer = localised(answer, text)
    return answer if len(rest) <= _MIN_DOUBT else _unless_taken_back(answer, rest)


def _find_announced(text: str) -> str | None:
    """Return the last answer that a text announces in words; empty if it takes that back."""
    answer = after_phrase(text)
    if not answer and text.find(" but ", max(0, len(text) - _MAX_CONTRAST)) >= 0:
        answer = after_phrase(without_contrasts(text[-_MAX_CONTRAST:])) or answer
    if answer is None:
        return announced(text)
    if answer:
        return answer if "\\boxed" not in answer else ""
    sentence = last_sentence(text)
    if "nswer" in sentence or taken_back(sentence) is not None:
        return ""
    return asserted(prose_of(sentence)) or announced(text) or ""


def _unless_taken_back(answer: str, rest: str) -> str:
    """Return an answer, or what the rest of the text states instead if it takes the answer back."""
    place = taken_back(rest)
    if place is None:
        return answer
    restatement = restated(rest)
    if restatement is not None:
        return restatement
    end = _CLAUSE_END.search(rest, place + _MIN_LATER)
    extracted = _extract(rest[end.end() :]) if end else None
    return "" if extracted is None or extracted.is_guess else extracted.answer


_CLAUSE_END = re.compile(r"[.!?:;\n]|, so\b")


def _find_correction(rest: str) -> str | None:
    """Return the answer that what follows a box corrects it to; None if it does not."""
    lower = rest.lower()
    if not any(map(lower.__contains__, _CORRECTIONS)):
        return None
    return after_phrase(rest) or restated(rest)


def _announced_later(rest: str) -> str | None:
    """Return the final answer that a text announces after its last box, where that is a value.

    A decimal that is not called final may be only near to what the box holds.
    """
    is_final = "inal answer" in rest
    if not is_final and not _ANNOUNCED.search(rest):
        return None
    answer = after_phrase(rest.replace('\\"', "").replace('"', ""))
    if answer is None or not any(c.isdigit() for c in answer):
        return None
    return answer if is_final or not _DECIMAL.search(answer) else None


_ANNOUNCED = re.compile(
    r"(?:\n|[.!] )[ *#>_]{0,6}+(?:(?:[Ss]o|[Tt]hus|[Hh]ence|[Tt]herefore),? )?+"
    r"(?:(?:the|The) )?+[Aa]nswer[*_]{0,2}+(?: is\b|:)"
)
"""A sentence or a line that announces the answer."""
_DECIMAL = re.compile(r"\d\.\d|≈|approx|about|roughly")


def _find_tagged(text: str) -> tuple[int, str] | None:
    """Return the end of the last `<answer>`, and its content."""
    opening = text.rfind(_TAG)
    if opening < 0:
        return None
    end = text.find("<", opening + len(_TAG))
    end = len(text) if end < 0 else end
    inside = text[opening + len(_TAG) : end]
    extracted = _extract(inside)
    answer = extracted.answer if extracted is not None and extracted.answer else clean(inside)
    return (end, answer) if answer else None


_HEADING = re.compile(
    r"(?:step|solution|final|answer|conclusion|part|explanation|therefore|verification|\d+[.)] )",
    re.IGNORECASE,
)


def _hash_answer(text: str) -> tuple[int, str] | None:
    """Return the value behind the last `####`, unless that is a heading."""
    last_match = None
    for match in _HASHES.finditer(text):
        if not _HEADING.match(match[1]):
            last_match = match
    if last_match is None:
        return _inline_hash_answer(text)
    answer = predicate(last_match[1]) or clean(last_match[1])
    if len(answer.split()) > 6 and text[last_match.end() :].strip():
        return None
    return (last_match.start(), answer) if answer else None


def _inline_hash_answer(text: str) -> tuple[int, str] | None:
    """Return the value of `… #### x` in the middle of a line, where the text ends with it."""
    place = text.rfind("####")
    line = text[place + 4 :].partition("\n")[0].strip()
    if not line or len(line) > _MAX_HASH_LINE or _HEADING.match(line):
        return None
    answer = predicate(line) or clean(line)
    return (place, answer) if answer else None


_MAX_HASH_LINE = 100


def _without_run_on(text: str) -> str:
    """Return the text up to where it begins another problem, if it gave an answer before that."""
    last = -1
    for letter, mark in _RUN_ON_MARKS:
        # Whether one character occurs is known in a tenth of the time, and backwards is faster.
        if letter in text and (place := text.rfind(mark)) > last:
            last = place
    if last < 0:
        return text
    first = min([place for mark in _ANSWER_MARKS if (place := text.find(mark)) >= 0], default=last)
    if first >= last:
        return text
    for match in islice(_RUN_ON.finditer(text, first), _MAX_RUN_ONS):
        before = text[: match.start()]
        if before.strip() and _find_marked(before) is not None:
            return before
    return text
