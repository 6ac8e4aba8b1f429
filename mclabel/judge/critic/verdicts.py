r"""Reads the verdicts on single steps in a critic's text, and assigns each verdict to its step.

The supported forms are ThinkPRM's `\boxed{correct}` (arXiv 2504.16828), GenPRM's `**Judgement**:
$\boxed{Yes}$` (2504.00891), R-PRM's `Is the step correct (Yes/No)? No` (2503.21295), and similar
forms in other words and languages. Step numbers are compared as numbers: "Step 10" comes after
"Step 9".

A verdict is assigned to the step that its own sentence names ("Step 2 is \boxed{incorrect}"), else
to the step of the last heading. A line that merely begins with a step's name, such as "Step 3 gave
us x", is a heading only if this step is the next one. Code and its output are skipped. In a text
without headings, the verdicts are in the order of the steps. All functions run in time linear in
the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from mclabel.judge.critic.answer_text import find_boxes, means_correct

FIRST_STEP = 1
"""Number of the first step in critics' texts, which count from 1."""


class VerdictFault(StrEnum):
    """Reasons why the verdicts of a text cannot be used."""

    TRUNCATED = "truncated"
    OPEN_THOUGHT = "a thought that never ends"
    NO_VERDICTS = "no verdicts that can be read"
    MISSING = "a step without verdict"
    CONTRADICTION = "contradicting verdicts"
    MORE_STEPS = "more steps than there are"
    BEFORE_FIRST = "a verdict before the first step"
    TOO_LONG = "too long to be read"


@dataclass(frozen=True)
class StepVerdicts:
    """Verdicts of a text on each step of a solution."""

    verdicts: tuple[bool | None, ...]
    """Verdict on each step: True for correct, False for incorrect, None for no verdict or
    contradictory verdicts."""
    fault: VerdictFault | None = None
    """Reason why the text is not a complete verification; None if it is complete. A complete text
    has a verdict on every step, or on every step up to the first incorrect step."""
    reason: str = ""
    """Description of the fault with the step's number; empty without a fault."""

    @property
    def first_error(self) -> int | None:
        """Index of the first incorrect step, from 0; None if there is none."""
        return self.verdicts.index(False) if False in self.verdicts else None


def read_verdicts(text: str, num_steps: int) -> StepVerdicts | None:
    """Return the verdicts on the steps of a solution; None if the text contains no verdict.

    Args:
        text: text of the critic's answer, without thoughts that should be ignored.
        num_steps: number of steps of the solution, at least 1.
    """
    text = _CODE.sub(_drop_code_without_verdicts, text)
    marks = _find_verdict_marks(text)
    assigned = list(
        _match_verdicts_to_steps(text, [mark for mark in marks if not mark.is_on_whole_solution])
    )
    if not assigned:
        return None
    by_number: dict[int, set[bool]] = {}
    for numbers, is_correct in assigned:
        for number in numbers:
            by_number.setdefault(number, set()).add(is_correct)
    numbers_of_steps = range(FIRST_STEP, FIRST_STEP + num_steps)
    by_step = [by_number.get(number, set()) for number in numbers_of_steps]
    verdicts = tuple(next(iter(given)) if len(given) == 1 else None for given in by_step)
    whole = [mark.is_correct for mark in marks if mark.is_on_whole_solution]
    return StepVerdicts(verdicts, *_find_verdicts_fault(verdicts, by_number, whole))


def judges_whole_solution(text: str) -> bool:
    """Return whether a text answers "Is the solution correct?"."""
    return _WHOLE.search(text) is not None


def _find_verdicts_fault(
    verdicts: tuple[bool | None, ...],
    verdicts_by_step_number: dict[int, set[bool]],
    verdicts_on_whole: list[bool],
) -> tuple[VerdictFault | None, str]:
    """Return the fault of verdicts, and its description. Without a fault, return None and "".

    Args:
        verdicts: verdict on each step.
        verdicts_by_step_number: verdicts by the step numbers, from 1, that the text names.
        verdicts_on_whole: verdicts on the whole solution in the order of the text, True for
            correct.
    """
    if _NOWHERE in verdicts_by_step_number:
        return VerdictFault.BEFORE_FIRST, "verdict before the first step"
    for number, verdicts_on_step in verdicts_by_step_number.items():
        if len(verdicts_on_step) > 1:
            return VerdictFault.CONTRADICTION, f"contradictory verdicts on step {number}"
    num_steps = len(verdicts)
    for number in (min(verdicts_by_step_number), max(verdicts_by_step_number)):
        if not FIRST_STEP <= number < FIRST_STEP + num_steps:
            return VerdictFault.MORE_STEPS, f"index {number} of {num_steps} steps"
    until = verdicts.index(False) if False in verdicts else num_steps
    if None in verdicts[:until]:
        number = verdicts.index(None) + FIRST_STEP
        is_short = (
            len(verdicts_by_step_number) < num_steps and max(verdicts_by_step_number) < number
        )
        words = f"verdicts on {len(verdicts_by_step_number)} of {num_steps} steps"
        return VerdictFault.MISSING, words if is_short else f"no verdict on step {number}"
    if verdicts_on_whole and verdicts_on_whole[-1] != (False not in verdicts):
        return VerdictFault.CONTRADICTION, "verdict on the whole contradicts the steps"
    return None, ""


_NOWHERE = -1
"""Step number of a verdict before the first heading."""


def _match_verdicts_to_steps(text: str, marks: list[_VerdictMark]) -> Iterator[tuple[range, bool]]:
    """Yield the numbers of the steps of each verdict, and True if the verdict is "correct"."""
    headings = list(_find_headings(text))
    asked = [mark for mark in marks if mark.is_answer_to_question]
    if asked and _NOW_STEP.search(text):  # the headings of such a text repeat earlier steps
        marks, headings = asked, []
    if not headings and all(mark.numbers is None for mark in marks):
        in_order = [mark for mark in marks if not mark.is_final] or marks
        yield from ((range(i, i + 1), m.is_correct) for i, m in enumerate(in_order, FIRST_STEP))
        return
    place, current, has_verdict = 0, range(_NOWHERE, _NOWHERE + 1), False
    for mark in marks:
        while place < len(headings) and headings[place].start <= mark.start:
            heading = headings[place]
            is_due = current[0] == _NOWHERE or (
                has_verdict and heading.numbers[0] == current[-1] + 1
            )
            if heading.is_unambiguous or is_due:
                current, has_verdict = heading.numbers, False
            place += 1
        if mark.is_final and has_verdict:
            continue
        numbers = current if mark.numbers is None else mark.numbers
        has_verdict = has_verdict or numbers == current
        yield numbers, mark.is_correct


_NUMERAL = r"(\d{1,9}|[一二三四五六七八九十]{1,3})"
_WORD = (
    r"(?:steps?|paragraphs?|pasos?|étape|etape|passo|schritt|шаг|krok|ステップ|手順|步骤|步驟|段落)"
)
_NUMBERED = (
    r"(?:(?:steps|paragraphs) (\d{1,9}) ?(?:-|–|to|and|through|&) ?(\d{1,9})"
    rf"|{_WORD}[ \t_#]{{0,3}}{_NUMERAL}(?!\d)|第[ \t]{{0,3}}{_NUMERAL}[ \t]{{0,3}}步"
    r"|(\d{1,9})[ \t]?단계)"
)
"""Pattern of a step's name. A range fills the first two groups, a single step one of the others."""
_LEAD = (
    r"(?:(?:(?:critique|analysis|verification|evaluation|review|assessment)(?: of| for| on)?"
    r"|checking|verifying|evaluating|reviewing|moving on to|moving to|now|next|for|regarding)"
    r"[,:]? {1,2}(?:the )?)?"
)
_HEADING = re.compile(
    rf"^(?P<dress>[ \t]{{0,8}}(?:\d{{1,3}}[.)][ \t]{{1,3}})?[ \t#*>_\[(-]{{0,8}}){_LEAD}{_NUMBERED}"
    r"(?P<end>[ \t]{0,3}(?:\(?of \d{1,9}\)?|/[ \t]?\d{1,9})?[ \t]{0,2}"
    r"(?:[*_]{0,3}[:：.)\]、。—–-]|[*_]{1,3}|$))?",
    re.IGNORECASE | re.MULTILINE,
)
_TAGGED = re.compile(
    r"(?:<[ \t]?(?:analysis|step|paragraph)[ _](?P<tag>\d{1,9})[ \t]?>"
    r"|let['’]?s analy[sz]e (?:the )?(?:paragraph|step) (?P<said>\d{1,9}))",
    re.IGNORECASE,
)
_NAMED = re.compile(
    rf"{_NUMBERED}[*_]{{0,3}}[ \t]{{0,2}}(?:(?:is|was|seems|est?|是)?[ \t]?"
    r"(?:therefore|thus|also|hence)?[ \t]?|[ \t]{0,2}(?:[:：=]|->|→|⇒|-|–|—))"
    r"[ \t]{0,2}[$*(\[\\]{0,4}$",
    re.IGNORECASE,
)
"""Pattern of a step's name right before a verdict. The verdict belongs to this step."""
_BEFORE = 60
"""Number of characters before a verdict that are searched for the step that it is about."""
_OVERALL = re.compile(
    r"(?:(?P<whole>\boverall|\b(?:solution|answer) is|\b(?:solution|answer) correct ?\?"
    r"|correctness of the solution|整体|总体|解答)"
    r"|\bfinal (?:verdict|judgment|judgement|result|conclusion))"
    r"[ \t*:：,]{0,4}(?:is)?[ \t:]{0,3}[$*(\[\\]{0,4}$",
    re.IGNORECASE,
)
"""Pattern of words before a verdict on the whole solution. Words such as "final verdict" may also
announce the verdict on the last step."""
_ASKED = re.compile(
    rf"\bis (?:the |this |now ){{0,3}}(?:step|paragraph)(?: {_NUMERAL})? correct[ \t]{{0,2}}"
    r"(?:\(yes/no\))?[ \t]{0,2}[?:：][ \t*:$]{0,6}(yes|no)\b",
    re.IGNORECASE,
)
_STATED = re.compile(
    r"^[ \t#*>-]{0,8}(?:step )?(?:judgment|judgement|verdict|判断|判定|结论)[*_]{0,3}"
    r"[ \t]{0,2}[:：][ \t*_$]{0,6}((?:not )?[^\W\d]{1,12})(?=[ \t*_$.。!]{0,6}$)",
    re.IGNORECASE | re.MULTILINE,
)
_NOW_STEP = re.compile(r"\bnow step\b|\bprevious steps? analysis\b", re.IGNORECASE)
_WHOLE = re.compile(
    r"is the (?:whole |entire |proposed )?solution correct\s{0,3}\??(?:[ \t]{0,2}\(yes/no\)\??)?"
    r"[\s*:$]{0,8}(?:\\boxed\{)?(yes|no)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"```[ \t]*+[a-z]{0,12}+[ \t]*+\r?\n(.*?)```", re.IGNORECASE | re.DOTALL)
_EITHER = re.compile(
    r"[\s`'\"$,*\\()]{0,6}(?:or|and|/|\||ou|o|или|或|和)[\s`'\"$*\\()]{0,6}", re.IGNORECASE
)
"""Pattern of the text between two boxes that only list the possible verdicts."""
_YES = frozenset(("yes", "是", "sí", "si", "ja", "oui", "sim", "да", "はい"))
_NO = frozenset(("no", "否", "nein", "non", "não", "нет", "いいえ"))
_ABOUT = re.compile(r"^(?:the |this )?(?:step|paragraph)(?: \d{1,9})?(?: is|:)? ", re.IGNORECASE)

_REASON = re.compile(r"[,;:.，。；：(]| [-–—]")
"""Pattern of the end of a verdict in a box; a reason follows it."""


@dataclass(frozen=True)
class _Heading:
    """Heading of one or several steps in a text."""

    start: int
    numbers: range
    """Numbers of the steps."""
    is_unambiguous: bool
    """True if the heading cannot be the beginning of a sentence."""


@dataclass(frozen=True)
class _VerdictMark:
    """A verdict found in a text, which is not assigned to a step yet."""

    start: int
    is_correct: bool
    """True for correct, False for incorrect."""
    numbers: range | None
    """Numbers of the steps that the verdict's sentence names; None if it names none."""
    is_answer_to_question: bool = False
    """True if the verdict answers a question such as "Is the step correct?"."""
    is_final: bool = False
    """True if the verdict is called final, so that it may only repeat the verdict on the last
    step."""
    is_on_whole_solution: bool = False
    """True if the verdict is on the whole solution."""


def _find_headings(text: str) -> Iterator[_Heading]:
    headings = [
        _Heading(
            match.start(),
            _read_step_numbers(*match.groups()[1:6]),
            match["end"] is not None or "#" in match["dress"] or "**" in match["dress"],
        )
        for match in _HEADING.finditer(text)
    ]
    for match in _TAGGED.finditer(text):
        number = int(match["tag"] or match["said"])
        headings.append(_Heading(match.start(), range(number, number + 1), is_unambiguous=True))
    return iter(sorted(headings, key=lambda heading: heading.start))


def _find_verdict_marks(text: str) -> list[_VerdictMark]:
    """Return the verdicts of a text in order."""
    marks = [
        _VerdictMark(match.start(), match[1].lower() in _YES, None, is_on_whole_solution=True)
        for match in _WHOLE.finditer(text)
    ]
    spoken = [(box, _read_boxed_verdict(box.content)) for box in find_boxes(text)]
    verdict_boxes = [(box, is_correct) for box, is_correct in spoken if is_correct is not None]
    ends = [box.end for box, _ in verdict_boxes]
    starts = [box.start for box, _ in verdict_boxes]
    for place, (box, is_correct) in enumerate(verdict_boxes):
        after = place + 1 < len(verdict_boxes) and _EITHER.fullmatch(
            text, box.end, starts[place + 1]
        )
        before = place > 0 and _EITHER.fullmatch(text, ends[place - 1], box.start)
        window = text[max(0, box.start - _BEFORE) : box.start].rpartition("\n")[2]
        if after or before:
            continue
        overall, named = _OVERALL.search(window), _NAMED.search(window)
        mark = _VerdictMark(
            box.start,
            is_correct,
            None if named is None else _read_step_numbers(*named.groups()),
            is_final=overall is not None,
            is_on_whole_solution=overall is not None and overall["whole"] is not None,
        )
        marks.append(mark)
    for match in _ASKED.finditer(text):
        numbers = None if match[1] is None else _read_step_numbers(match[1])
        marks.append(
            _VerdictMark(
                match.start(), match[2].lower() in _YES, numbers, is_answer_to_question=True
            )
        )
    for match in _STATED.finditer(text):
        if (stated := _read_boxed_verdict(match[1].lower())) is not None:
            marks.append(_VerdictMark(match.start(), stated, None))
    return sorted(marks, key=lambda mark: mark.start)


def _read_boxed_verdict(box_content: str) -> bool | None:
    """Return True if the content of a box means correct, False if incorrect, else None."""
    word = _REASON.split(_ABOUT.sub("", box_content), maxsplit=1)[0].strip()
    return word in _YES if word in _YES or word in _NO else means_correct(word)


def _read_step_numbers(first: str | None, last: str | None = None, *others: str | None) -> range:
    """Return the step numbers in a step's name: 2 for "Step 2"; 2, 3 and 4 for "Steps 2-4"."""
    number = _parse_numeral(next(name for name in (first, *others) if name is not None))
    end = number if last is None else int(last)
    return range(number, end + 1 if number < end <= number + _LONGEST else number + 1)


_LONGEST = 100
"""Maximum distance between the first and the last step of a named range."""
_DIGITS = "零一二三四五六七八九"


def _parse_numeral(numeral: str) -> int:
    if numeral.isdecimal():
        return int(numeral)
    tens, is_ten, ones = numeral.rpartition("十")
    if not is_ten:
        return _DIGITS.index(numeral[-1])
    return 10 * (_DIGITS.index(tens[-1]) if tens else 1) + (_DIGITS.index(ones) if ones else 0)


def _drop_code_without_verdicts(match: re.Match[str]) -> str:
    """Return the replacement of a code block: a line break, or the block if it has verdicts."""
    content = match[1]
    return match[0] if "\\boxed" in content and "print(" not in content else "\n"
