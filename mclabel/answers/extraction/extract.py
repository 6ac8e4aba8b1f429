r"""Extracts the final answer of a completion.

The answer is the last one that the text marks by `\boxed{}`, `####` or "the answer is". Without a
mark, it is an equation at the end of the text, or the value that the last sentence asserts. If
there is none, the last number is a guess, unless it is part of a formula.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice
from typing import NamedTuple

from mclabel.answers.extraction.announcements import (
    convert_decimal_commas_if_customary,
    denies_answer,
    find_announced_answer,
    find_value_in_other_language,
    only_bounds_number_in_other_language,
)
from mclabel.answers.extraction.assertions import (
    find_asserted_value,
    find_bold_value,
    find_closing_assignments,
    find_last_sentence,
    find_name_ranked_first,
)
from mclabel.answers.extraction.boxes import find_final_boxes, join_boxes
from mclabel.answers.extraction.conclusions import (
    find_chosen_letter,
    find_closing_bracketed_value,
    find_corrected_answer,
    read_whole_text_as_answer,
)
from mclabel.answers.extraction.doubts import (
    ends_mid_sentence,
    find_doubt_words,
    find_retraction,
    refuses_to_answer,
    remove_unrelated_numbers,
    takes_back_last_number,
)
from mclabel.answers.extraction.fields import find_start_and_answer_of_closing_object
from mclabel.answers.extraction.phrases import (
    find_answer_after_phrase,
    find_closing_formula,
    find_last_number,
    find_numeric_predicate,
    replace_formulas_by_right_sides,
    strip_answer_markup,
)
from mclabel.answers.extraction.statements import remove_contrasts
from mclabel.answers.reading.numerals import mentions_fraction, mentions_number
from mclabel.answers.reading.scripts import convert_digits_to_ascii
from mclabel.answers.reading.truth import NAMES_CLAIM, read_truth_value

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
"""Pairs of the first character of a string and the string. A text without any of these strings does
not run on into another problem, and searching for them is cheap."""
_ANSWER_MARKS = ("boxed", "nswer", "####")
_CORRECTIONS = (
    "wait", "actually", "correction", "sorry", "apologi", "mistake", "incorrect", "wrong",
    "not right", "scratch that", "let me re", "oops", "second thought", "no,",
)  # fmt: skip
_MIN_DOUBT, _MIN_LATER, _MIN_CORRECTION = 4, 8, 20
"""Numbers of characters after an answer that must be exceeded before the text is searched for, in
this order, a retraction, a later answer or a correction."""
_MAX_CORRECTION = 600
"""Number of characters after a box that are searched for its correction."""
_GLM_BOX = re.compile(r"<\|begin_of_box\|>([^<]*+)<\|end_of_box\|>")
"""The mark of the GLM models around their final answer."""
_TAG, _TAG_END = "<answer>", "</answer>"
_THOUGHT = re.compile(
    r"<(/?)(?:think|thinking|thought|reasoning)>|<\|(?:begin|(end))_of_thought\|>|◁(/?)think▷|"
    r"\[(/?)THINK\]"
)
"""A tag of a region of thinking. It is a closing tag if any group is not empty."""
_THOUGHT_WORDS = ("think", "thought", "reasoning", "THINK")
_MAX_CONTRAST = 120
"""Number of characters at the end of a text that are searched for a contrast: `not 5 but 7`."""
_BACKSPACE = "\b"
_MAX_RUN_ONS = 8
"""Maximum number of matches that are tried as the start of another problem."""


class ExtractedAnswer(NamedTuple):
    """An answer that was extracted from a text."""

    answer: str
    """The answer as the text writes it; empty if it is in words that cannot be read."""
    is_guess: bool = False
    """True if the text states no answer, so that this is only its last number."""


def extract_answer(text: str, *, truncated: bool = False) -> str | None:
    r"""Return the answer of a text as the text writes it; None if it has no answer.

    Args:
        text: text of a completion or of a reference solution.
        truncated: True if the completion was cut at its token limit. The result is then None.
    """
    extracted = None if truncated else find_answer_or_guess(text)
    return None if extracted is None else extracted.answer or None


def find_answer_marked_in_part(text: str) -> str | None:
    """Return the answer that a part of a solution marks as its answer.

    The result is None if the part marks no answer, or if it only supposes, questions or negates the
    answer that it mentions.
    """
    if not any(mark in text for mark in _ANSWER_MARKS) or _SUPPOSED.search(text):
        return None
    return _find_marked_answer(text)


_SUPPOSED = re.compile(
    r"\b(?:if|whether|suppose|assuming|maybe|perhaps|guess|might|could|can't|cannot|isn't|not)\b"
    r"[^.\n]{0,60}\banswer\b|\banswer\b[^.\n]{0,20}(?:\b(?:not|can't|cannot|may|might|could)\b|n't|\?)",
    re.IGNORECASE,
)


def find_answer_or_guess(text: str) -> ExtractedAnswer | None:
    """Return the answer of a completion that is not truncated; None if it has no answer."""
    if not text.isascii():
        text = convert_digits_to_ascii(text)
    if _BACKSPACE in text:  # the start of `\boxed` was decoded as an escape sequence
        text = text.replace(f"{_BACKSPACE}oxed", "\\boxed")
    marks = None
    if "<" in text or "◁" in text or ("K" in text and "[THINK]" in text):
        text = _GLM_BOX.sub(r"\\boxed{\1}", text)
        if any(map(text.__contains__, _THOUGHT_WORDS)):
            marks = deque(_THOUGHT.finditer(text), maxlen=1)
    if not marks:
        return _extract_answer_from_text(_cut_at_next_problem(text))
    mark = marks[0]
    rest = text[mark.end() :]
    if not any(mark.groups()):  # the thinking never ended
        tagged = _find_tagged_answer(rest) if _TAG_END in rest else None
        return None if tagged is None else ExtractedAnswer(tagged.answer)
    if rest.strip():
        return _extract_answer_from_text(_cut_at_next_problem(rest))
    answer = _find_marked_answer(text[: mark.start()])
    return ExtractedAnswer(answer) if answer else None


def _cut_at_next_turn(text: str) -> str:
    """Return the text up to the start of the next turn of a conversation."""
    if "<" not in text or "<|" not in text:
        return text
    match = _TURN.search(text)
    own = text[: match.start()] if match else text
    return own if own.strip() else text


def extract_reference_answer(text: str) -> str:
    r"""Return the gold of a reference text: its last box, the value after `####`, or else the whole
    text.

    Words such as "the answer is" and a last number do not mark the gold, because the whole text may
    be the gold.
    """
    hashes = _find_answer_after_hashes(text) if "####" in text else None
    boxes = find_final_boxes(text) if "box" in text else None
    if hashes is not None and (not boxes or hashes.position > boxes[-1].end):
        return hashes.answer
    return join_boxes(text, boxes) if boxes else text.strip()


def extract_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{}`, joined with the other boxes of its list; None if
    the text has no box.
    """
    boxes = find_final_boxes(text)
    return join_boxes(text, boxes) if boxes else None


def _extract_answer_from_text(text: str) -> ExtractedAnswer | None:
    ending = find_start_and_answer_of_closing_object(text) if text.endswith(_OBJECT_ENDS) else None
    if ending is not None:
        start, held = ending
        if held is not None:
            inner = _extract_answer_from_text(held)
            return inner and ExtractedAnswer(inner.answer or held)
        text = text[:start].rstrip("` \n").removesuffix("```json")
    answer = _find_marked_answer(text)
    if answer is not None:
        return ExtractedAnswer(answer) if answer else None
    if "\\boxed" in text:
        return None  # the box is open or empty, so no number in the text is a stated answer
    text = _cut_at_next_turn(text)
    words = find_doubt_words(text)
    if refuses_to_answer(text, words) or takes_back_last_number(text, words):
        return None
    for look in (find_chosen_letter, read_whole_text_as_answer):
        answer = look(text)
        if answer is not None:
            return ExtractedAnswer(answer)
    if ends_mid_sentence(text):
        return None
    text = remove_unrelated_numbers(text, words)
    sentence = find_last_sentence(text)
    if _SO_FAR.match(sentence) or sentence.endswith(("?", "？")):
        return None
    answer = (
        find_closing_assignments(sentence)
        or find_closing_formula(text)
        or find_closing_bracketed_value(text)
    )
    answer = (
        answer
        or find_bold_value(sentence)
        or find_asserted_value(replace_formulas_by_right_sides(sentence))
        or find_name_ranked_first(sentence)
        or find_value_in_other_language(sentence)
    )
    if answer is not None:
        return ExtractedAnswer(answer)
    if read_truth_value(sentence) is not None and NAMES_CLAIM.search(sentence):
        return ExtractedAnswer(sentence)
    if denies_answer(sentence):
        return None
    answer = find_last_number(text) or find_closing_formula(text, allows_other_numbers=True)
    if answer is None:
        return ExtractedAnswer("", is_guess=True) if mentions_number(sentence) else None
    unclear = _states_number_in_words(sentence) or only_bounds_number_in_other_language(sentence)
    return ExtractedAnswer("" if unclear else answer, is_guess=True)


_SO_FAR = re.compile(
    r"(?:so far|up to now|at this point|if (?:the|my) (?:final |correct )?answer (?:was|were))\b|"
    r"score:",
    re.IGNORECASE,
)
"""Beginning of a sentence that does not state a final result."""
_OBJECT_ENDS = ("}", "`", "}\n", "`\n", "} ")


def _states_number_in_words(sentence: str) -> bool:
    """Return whether a sentence states a number in words.

    If the last sentence of a text does, the last number in digits is not a useful guess.
    """
    if mentions_fraction(sentence):  # one sixth of 12
        return True
    return not any(c.isdigit() for c in sentence) and mentions_number(
        sentence, include_first_and_second=False
    )


def _find_marked_answer(text: str) -> str | None:
    """Return the last answer that a text marks, for example by a box; None if it marks none.

    The result is empty if the text retracts the answer or breaks off inside it.
    """
    boxes = find_final_boxes(text) if "\\" in text or "boxed{" in text else []
    if boxes is None:
        return ""
    hashes = _find_answer_after_hashes(text) if "#" in text and "####" in text else None
    tagged = _find_tagged_answer(text) if "<" in text else None
    end = boxes[-1].end if boxes else -1
    if tagged is not None and tagged.position > end:
        return _replace_retracted_answer(tagged.answer, text[tagged.position :].partition(">")[2])
    if hashes is not None and hashes.position > end:
        return _replace_retracted_answer(hashes.answer, text[hashes.position :].partition("\n")[2])
    if not boxes:
        return _find_answer_in_words(text)
    rest = text[end:]
    if len(rest) > _MIN_LATER:
        later = _find_correction(rest[:_MAX_CORRECTION]) if len(rest) > _MIN_CORRECTION else None
        if later is None and "nswer" in rest:
            later = _find_later_announcement(rest)
        if later:
            return later
    answer = join_boxes(text, boxes)
    if "," in answer or "." in answer:
        answer = convert_decimal_commas_if_customary(answer, text)
    return answer if len(rest) <= _MIN_DOUBT else _replace_retracted_answer(answer, rest)


def _find_answer_in_words(text: str) -> str | None:
    """Return the last answer that a text announces in words; None if it announces none.

    The result is empty if the text retracts the answer.
    """
    answer = find_answer_after_phrase(text)
    if not answer and text.find(" but ", max(0, len(text) - _MAX_CONTRAST)) >= 0:
        answer = find_answer_after_phrase(remove_contrasts(text[-_MAX_CONTRAST:])) or answer
    if answer is None:
        return find_announced_answer(text)
    if answer:
        return answer if "\\boxed" not in answer else ""
    sentence = find_last_sentence(text)
    if "nswer" in sentence or find_retraction(sentence) is not None:
        return ""
    return (
        find_asserted_value(replace_formulas_by_right_sides(sentence))
        or find_announced_answer(text)
        or ""
    )


def _replace_retracted_answer(answer: str, text_after_answer: str) -> str:
    """Return an answer, unless the text after it retracts it.

    In this case, return the answer that the text states instead; empty if it states none.

    Args:
        answer: the answer.
        text_after_answer: text after the answer.
    """
    place = find_retraction(text_after_answer)
    if place is None:
        return answer
    restatement = find_corrected_answer(text_after_answer)
    if restatement is not None:
        return restatement
    end = _CLAUSE_END.search(text_after_answer, place + _MIN_LATER)
    extracted = _extract_answer_from_text(text_after_answer[end.end() :]) if end else None
    return "" if extracted is None or extracted.is_guess else extracted.answer


_CLAUSE_END = re.compile(r"[.!?:;\n]|, so\b")


def _find_correction(text_after_box: str) -> str | None:
    """Return the corrected answer in the text after a box; None if the text does not correct it."""
    if not any(map(text_after_box.lower().__contains__, _CORRECTIONS)):
        return None
    return find_answer_after_phrase(text_after_box) or find_corrected_answer(text_after_box)


def _find_later_announcement(text_after_box: str) -> str | None:
    """Return the answer with a digit that a text announces after its last box; None otherwise.

    A decimal that is not called final is ignored, because it may only approximate the content of
    the box.

    Args:
        text_after_box: text after the last box.
    """
    is_final = "inal answer" in text_after_box
    if not is_final and not _ANNOUNCED.search(text_after_box):
        return None
    answer = find_answer_after_phrase(text_after_box.replace('\\"', "").replace('"', ""))
    if answer is None or not any(c.isdigit() for c in answer):
        return None
    return answer if is_final or not _DECIMAL.search(answer) else None


_ANNOUNCED = re.compile(
    r"(?:\n|[.!] )[ *#>_]{0,6}+(?:(?:[Ss]o|[Tt]hus|[Hh]ence|[Tt]herefore),? )?+"
    r"(?:(?:the|The) )?+[Aa]nswer[*_]{0,2}+(?: is\b|:)"
)
"""Start of a sentence or a line that announces the answer."""
_DECIMAL = re.compile(r"\d\.\d|≈|approx|about|roughly")


class _MarkedAnswer(NamedTuple):
    """An answer that is marked by an `<answer>` tag or by `####`."""

    position: int
    """Index after the content of the tag, or index of `####`."""
    answer: str


def _find_tagged_answer(text: str) -> _MarkedAnswer | None:
    """Return the answer in the last `<answer>` tag; None if the text has no such tag."""
    opening = text.rfind(_TAG)
    if opening < 0:
        return None
    end = text.find("<", opening + len(_TAG))
    end = len(text) if end < 0 else end
    inside = text[opening + len(_TAG) : end]
    extracted = _extract_answer_from_text(inside)
    answer = (
        extracted.answer
        if extracted is not None and extracted.answer
        else strip_answer_markup(inside)
    )
    return _MarkedAnswer(end, answer) if answer else None


_HEADING = re.compile(
    r"(?:step|solution|final|answer|conclusion|part|explanation|therefore|verification|\d+[.)] )",
    re.IGNORECASE,
)


def _find_answer_after_hashes(text: str) -> _MarkedAnswer | None:
    """Return the value after the last `####` that does not begin a heading.

    The result is None if the text has no such value.
    """
    last_match = None
    for match in _HASHES.finditer(text):
        if not _HEADING.match(match[1]):
            last_match = match
    if last_match is None:
        return _find_answer_after_inline_hashes(text)
    answer = find_numeric_predicate(last_match[1]) or strip_answer_markup(last_match[1])
    if len(answer.split()) > 6 and text[last_match.end() :].strip():
        return None
    return _MarkedAnswer(last_match.start(), answer) if answer else None


def _find_answer_after_inline_hashes(text: str) -> _MarkedAnswer | None:
    """Return the value after the last `####` in the middle of a line.

    The result is None if the text has no such value.
    """
    place = text.rfind("####")
    line = text[place + 4 :].partition("\n")[0].strip()
    if not line or len(line) > _MAX_HASH_LINE or _HEADING.match(line):
        return None
    answer = find_numeric_predicate(line) or strip_answer_markup(line)
    return _MarkedAnswer(place, answer) if answer else None


_MAX_HASH_LINE = 100


def _cut_at_next_problem(text: str) -> str:
    """Return the text up to the start of another problem, if it has a marked answer before that."""
    last = -1
    for letter, mark in _RUN_ON_MARKS:
        # The search for one character takes a tenth of the time. `rfind` is faster than `find`.
        if letter in text and (place := text.rfind(mark)) > last:
            last = place
    if last < 0:
        return text
    first = min([place for mark in _ANSWER_MARKS if (place := text.find(mark)) >= 0], default=last)
    if first >= last:
        return text
    for match in islice(_RUN_ON.finditer(text, first), _MAX_RUN_ONS):
        before = text[: match.start()]
        if before.strip() and _find_marked_answer(before) is not None:
            return before
    return text
