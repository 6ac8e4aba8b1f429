"""Finds the ends of sentences in a solution, and the turns of a reasoning trace, for `boundaries`.

The rules examine only the words before and after a punctuation mark, so they need time linear in
the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mclabel.data.blocks import Span, find_surrounding_span, is_inside, merge_spans

MAX_INLINE = 300
"""Maximum number of characters of a formula, of code or of text in brackets within a line."""
MAX_WORD = 40
"""Number of characters that are examined before and after a full stop."""

_END = re.compile(
    r"(?<![.!?…])[.!?…]+(?:[\"'”’»)\]}*_$`]|\\[)\]])*(?=\s|$)|\\\](?=\s)|\n\s*"
    r"|[。！？]+[”’」』）*_]*"
)
_INLINE = re.compile(r"\\[$\\]|[$`()\n]")
_SPACE = re.compile(r"\s*")
_FORMULA = re.compile(r"\\\[|\$\$|\\begin\{")
_WORD = re.compile(r"[\"'“‘«(\[*_]*([^\W\d_]+(?:['’][^\W\d_]+)?)?")
_ITEM = re.compile(
    r"(?i)[\s#>*_+-]*(?:(?:step|part|case|method)\s{1,3})?"
    r"\(?(?:\d{1,3}|[a-z]|[ivx]{1,5})[.)][*_]*"
)
"""Pattern of the number of an item or step, which begins a sentence."""

_NEVER_END = frozenset(
    "e.g i.e eg ie cf vs approx dr mr mrs ms prof viz fig figs eq eqs eqn lem prop cor resp "
    "gen col sgt capt rev hon esp incl al st mt ca wrt w.r.t".split()
)
_END_BUT_BEFORE_NUMBERS = frozenset(
    "no nos p pp vol ch sec art ex def ref jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_BEGINNERS = frozenset(
    "a after all also an and another any as assume at because but by calculate case combining "
    "each every expanding factoring finally find first for from given has have he hence her "
    "here his how however i if in it its let list more moreover multiply multiplying my next "
    "no not note notice now observe of on one or other our over please plugging recall "
    "rewrite second see set she similarly simplify simplifying since so solve solving some "
    "step substitute substituting subtract suppose sum take that the their then there "
    "therefore these they this those thus to together total two under use using we what when "
    "where which while with yes you your".split()
)
"""Words that may begin a sentence but not a name."""


def iterate_sentence_ends(text: str, blocks: Sequence[Span], *, is_complete: bool) -> Iterator[int]:
    r"""Yield the character positions where sentences end, in increasing order.

    A full stop does not end a sentence in "3.5", "e.g. this", "Dr. Lee", "No. 5", "J. K. Rowling"
    or "1. Add", nor in a formula (`$…$`, `\(…\)`), code or brackets. Closing quotes and brackets
    after a full stop belong to its sentence. Chinese and Japanese marks ("。") need no following
    space. A line break ends a sentence unless a formula or a lower-case letter follows.

    Args:
        text: a solution, or a part of one.
        blocks: spans inside which no sentence ends.
        is_complete: True if the text is complete. In an incomplete text, ends that depend on
            following text are omitted.
    """
    apart = merge_spans([*blocks, *find_inline_spans(text, is_complete)])
    begin = 0
    for match in _END.finditer(text):
        start, end = match.span()
        if (span := find_surrounding_span(start, apart)) is not None and span[1] > end:
            continue
        at = _SPACE.match(text, end).end()  # type: ignore[union-attr]
        if at == len(text) or (not is_complete and not _is_word_certainly_complete(text, at)):
            continue
        is_line = match[0][0] == "\n"
        if (
            _sentence_ends_with_line(text, begin, start, at)
            if is_line
            else _mark_ends_sentence(text, begin, start, match[0], at)
        ):
            # White space after the last line break is the indentation of the next line.
            newline = text.rfind("\n", start if is_line else end, at)
            begin = end if newline < 0 else newline + 1
            yield begin


def _is_word_certainly_complete(text: str, at: int) -> bool:
    """Return whether the word at a position can no longer grow when more text arrives."""
    stop = at + MAX_WORD
    return stop <= len(text) or any(map(str.isspace, text[at:stop]))


def _sentence_ends_with_line(
    text: str, sentence_begin: int, line_end: int, next_word_start: int
) -> bool:
    """Return whether a sentence ends with its line, even without a full stop.

    Args:
        text: a solution, or a part of one.
        sentence_begin: position where the sentence begins.
        line_end: position where the line ends.
        next_word_start: position of the next word.
    """
    line = text[max(sentence_begin, line_end - MAX_WORD) : line_end].rstrip()
    if not line or line[-1] in ".!?":
        return bool(line)
    return not (
        _FORMULA.match(text, next_word_start)
        or text[next_word_start].islower()
        or text[next_word_start] in "=<>≤≥≈≠"
    )


def _mark_ends_sentence(
    text: str, sentence_begin: int, mark_start: int, mark: str, next_word_start: int
) -> bool:
    """Return whether a punctuation mark ends a sentence.

    Args:
        text: a solution, or a part of one.
        sentence_begin: position where the sentence begins.
        mark_start: position of the mark.
        mark: text of the mark.
        next_word_start: position of the next word.
    """
    following = text[next_word_start]
    if mark[0] in "。！？":
        return following not in "，、；：。！？"
    if following.islower() or following in "=+<>,;:)]}/^&|≤≥≠≈×÷":
        return False
    match = _WORD.match(text, next_word_start, next_word_start + MAX_WORD)
    word = (match and match[1]) or ""
    if word.islower():
        return False
    if mark[0] == "\\":  # a displayed formula without a full stop
        return word[:1].isupper()
    points = len(mark) - len(mark.lstrip(".…"))
    if points > 1 or mark[0] == "…":
        return word[:1].isupper() or "\n" in text[mark_start:next_word_start]
    if mark[0] != ".":
        return True
    if mark_start - sentence_begin <= MAX_WORD and _ITEM.fullmatch(
        text, sentence_begin, mark_start + len(mark)
    ):
        return False
    low = mark_start
    while low > max(sentence_begin, mark_start - MAX_WORD) and (
        text[low - 1].isalnum() or text[low - 1] == "."
    ):
        low -= 1
    if low > sentence_begin and text[low - 1] in "=/?&#@":  # inside a link
        return True
    return not _is_abbreviation(text[low:mark_start].lstrip("."), word, following)


def _is_abbreviation(before: str, word: str, following: str) -> bool:
    """Return whether a full stop marks an abbreviation, so that the sentence continues.

    Args:
        before: word before the full stop.
        word: next word; empty if no letter follows.
        following: next visible character.
    """
    lower = before.lower()
    if lower in _NEVER_END:
        return True
    if lower in _END_BUT_BEFORE_NUMBERS:
        return following.isdigit()
    is_initial = len(before) == 1 and before.isupper() and before not in "I"
    if is_initial or ("." in before and not before.replace(".", "").isdigit()):
        return bool(word) and word.lower() not in _BEGINNERS
    return False


def find_inline_spans(text: str, is_complete: bool) -> Iterator[Span]:
    """Yield the spans of formulas, code and brackets within a line.

    A dollar sign opens a formula if the next character is not a space. It closes a formula if the
    character before it is not a space and the next one is not a digit. So "$5 and $6" contains no
    formula. If `is_complete` is false, the text is incomplete, and its open end counts as a span.
    """
    opened: dict[str, int] = {}
    depth = 0
    for match in _INLINE.finditer(text):
        mark, at = match[0], match.start()
        for kind in [kind for kind, place in opened.items() if at - place > MAX_INLINE]:
            del opened[kind]
        if mark == "\n":
            opened.clear()
        elif mark == "(":
            depth = depth + 1 if "(" in opened else 1
            opened.setdefault("(", at)
        elif mark == ")":
            depth -= 1
            if "(" in opened and depth <= 0:
                yield opened.pop("("), at + 1
        elif mark in "$`":
            closes = mark == "`" or (
                not text[at - 1 : at].isspace() and not text[at + 1 : at + 2].isdigit()
            )
            if mark in opened and closes:
                yield opened.pop(mark), at + 1
            elif mark == "`" or not text[at + 1 : at + 2].isspace():
                opened[mark] = at
    if not is_complete and opened:
        yield min(opened.values()), len(text)


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
    r"(?i)(^|\n|[.!?…][\"'”’)\]*_$]{0,4}(?=[^\S\n])|[。！？…][”’」』）]{0,2})"
    rf"[^\S\n]{{0,40}}(?:[-*_>#]{{1,3}}[^\S\n]{{0,2}})?((?:{_MARK}))"
)
_NOTHING = re.compile(r"[\W_]*")
MAX_MARKS = 80
"""Maximum number of characters of consecutive marks of reflection that begin one step."""


def iterate_reflection_starts(
    text: str, blocks: Sequence[Span], *, is_complete: bool
) -> Iterator[int]:
    """Yield the character positions where a reasoning trace turns, in increasing order.

    A step begins at each turn. A turn is a mark of reflection, such as "Wait", "Alternatively" or
    "等等", at the beginning of a sentence or line. It lies outside blocks, formulas and brackets.
    Consecutive marks ("Hmm. Wait, no.") begin only one step, because a mark alone states nothing.

    Args:
        text: a solution, or a part of one.
        blocks: spans inside which no step begins.
        is_complete: True if the text is complete. In an incomplete text, a mark at the end is
            omitted, because it may become another word.
    """
    apart = merge_spans([*blocks, *find_inline_spans(text, is_complete)])
    begin = last = 0
    for match in _REFLECTION.finditer(text):
        if is_inside(match.start(2), apart) or (not is_complete and match.end() == len(text)):
            continue
        place = match.end(1)
        follows = place - begin <= MAX_MARKS and _NOTHING.fullmatch(text, last, place)
        last = match.end(2)
        if not follows:
            yield (begin := place)
