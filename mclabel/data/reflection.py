r"""Where a reasoning trace turns: "Wait", "Alternatively", "Let me check", "等等" and their like.

A mark counts at the beginning of a sentence or a line, outside blocks, formulas and brackets. Marks
that follow one another ("Hmm. Wait, no.") begin one step, as the first says nothing by itself.
Time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mclabel.data.blocks import Span, is_inside, merged
from mclabel.data.sentences import inline_spans

_EXCLAMATIONS = (
    r"(?:oh|but|no|ah|okay|ok|hmm+|so|and),? wait|wait,? no|h+m+|wa+it|hold on|oh|oops|hang on"
)
_TURNS = (
    r"alternatively|actually|on second thoughts?|on the other hand|(?:let['\u2019]s|let me) go back"
    r"|another (?:way|approach|idea|method|thought)|a different (?:way|approach)"
    r"|(?:but )?what if|that (?:can['\u2019]t|cannot) be right"
    r"|that (?:doesn['\u2019]t|does not) (?:seem right|make sense)"
    r"|(?:that['\u2019]s|that is) (?:not right|wrong|incorrect)"
    r"|(?:but )?i (?:made a|think i made a) mistake|scratch that|never mind"
)
_CHECKS = (
    r"(?:(?:now|but|so|okay|ok),? )?(?:let me|let['\u2019]s|let us|i should|i need to) "
    r"(?:just |quickly |also |first |carefully )?"
    r"(?:double[- ]check|re-?check|check|verify|re-?read|re-?think|re-?consider|re-?examine"
    r"|re-?do|re-?calculate|re-?compute|confirm|test|see if|try (?:another|a different|again)"
    r"|think again|start over|step back)"
)
_ANSWERS = (
    r"(?:so|therefore|thus|hence),? the (?:final )?answer|so,? (?:the )?final answer"
    r"|final answer"
)
_CHINESE = (
    "等等|等一下|等下|稍等|不对(?![称等应])|另外|或者|换一种|换个|让我(?:们)?(?:再|重新|检查|验证|看看|想想)"
    "|我(?:们)?(?:再|重新)(?:检查|验证|看|想|算)|再(?:检查|验证|想想|看看)|重新(?:检查|考虑|计算|审视)"
    "|其实|实际上|但是等|嗯|哦|所以(?:最终)?答案|因此(?:最终)?答案|最终答案"
)
_MARK = rf"(?:{_EXCLAMATIONS}|{_TURNS}|{_CHECKS}|{_ANSWERS})(?![\w'\u2019-])|{_CHINESE}"
_REFLECTION = re.compile(
    r"(?i)(^|\n|[.!?…][\"'”’)\]*_$]{0,4}(?=[^\S\n])|[。！？…][”’」』）]{0,2})"  # noqa: RUF001
    rf"[^\S\n]{{0,40}}(?:[-*_>#]{{1,3}}[^\S\n]{{0,2}})?((?:{_MARK}))"
)
_NOTHING = re.compile(r"[\W_]*")
MAX_MARKS = 80
"""Characters of marks that follow one another."""


def reflection_places(text: str, blocks: Sequence[Span], *, ended: bool) -> Iterator[int]:
    """Rising character positions where the trace turns, and a step begins.

    Args:
        text: a solution, or a part of one.
        blocks: spans inside which no step begins.
        ended: whether the text is whole; else a mark is left out that may be the beginning of
            another word.
    """
    apart = merged([*blocks, *inline_spans(text, ended)])
    begin = last = 0
    for match in _REFLECTION.finditer(text):
        if is_inside(match.start(2), apart) or (not ended and match.end() == len(text)):
            continue
        place = match.end(1)
        follows = place - begin <= MAX_MARKS and _NOTHING.fullmatch(text, last, place)
        last = match.end(2)
        if not follows:
            yield (begin := place)
