r"""Finds the ends of steps as character positions.

Each `find_..._ends` function has one rule. It returns increasing positions, and the last one is the
end of the text. In an incomplete text (`is_complete=False`), later ends may still change. No step
ends inside a block, such as a displayed formula, or between a heading and its text (`blocks`).
`lengths` moves the ends to token boundaries.
"""

# A text may be complete or still being sampled. In an incomplete text (`is_complete=False`), an end
# is omitted if following text could undo it. So appended text changes only the last step.

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from mclabel.data.blocks import (
    Span,
    belongs_to_preceding_text,
    find_blocks,
    find_line_spans,
    is_first_line_of_tool_result,
    is_heading,
    is_inside,
    may_belong_to_preceding_text,
    merge_spans,
)
from mclabel.data.sentences import iterate_reflection_starts, iterate_sentence_ends
from mclabel.data.statements import PythonStatements

SPLITTER_VERSION = "5"
"""Version of all rules for the ends of steps. It is part of a run's identity, because another
version splits the same solution into other steps."""

LINE = re.compile(r"\n(?:[^\S\n]*\n)*")
PARAGRAPH = re.compile(r"\n[^\S\n]*\n(?:[^\S\n]*\n)*")
STEP = re.compile(r"(?mi)^[#>*_\- \t]*\bstep[ \t]*\d+")
"""Pattern of a line that begins with "Step 2", after any marks of a heading or a list."""


def find_newline_ends(text: str, *, is_complete: bool = True) -> list[int]:
    """Return the character positions where steps end, one step per non-blank line.

    Blank lines belong to the step before them. The last step ends at the end of the text.

    Args:
        text: a solution, or a part of one.
        is_complete: True if the text is complete.
    """
    return _select_step_ends(text, (match.end() for match in LINE.finditer(text)), is_complete)


def find_paragraph_ends(text: str, *, is_complete: bool = True) -> list[int]:
    """Return the character positions where steps end, one step per paragraph.

    Args:
        text: a solution, or a part of one.
        is_complete: True if the text is complete.
    """
    return _select_step_ends(text, (match.end() for match in PARAGRAPH.finditer(text)), is_complete)


def find_sentence_ends(text: str, *, is_complete: bool = True) -> list[int]:
    """Return the character positions where steps end, one step per sentence.

    Args:
        text: a solution, or a part of one.
        is_complete: True if the text is complete.
    """
    spans = find_blocks(text, find_line_spans(text), is_complete=is_complete)
    return _select_step_ends(
        text, iterate_sentence_ends(text, spans, is_complete=is_complete), is_complete
    )


def find_reflection_ends(text: str, *, is_complete: bool = True) -> list[int]:
    """Return the character positions where steps end, if steps begin at words such as "Wait".

    Args:
        text: a solution, or a part of one.
        is_complete: True if the text is complete.
    """
    spans = find_blocks(text, find_line_spans(text), is_complete=is_complete)
    return _select_step_ends(
        text, iterate_reflection_starts(text, spans, is_complete=is_complete), is_complete
    )


def find_code_step_ends(
    text: str, *, is_complete: bool = True, functions: bool = False
) -> list[int]:
    """Return the character positions where steps end, one step per Python statement.

    Text outside Python code is split by lines.

    Args:
        text: a solution, or a part of one.
        is_complete: True if the text is complete.
        functions: True if each function and class is one step.
    """
    lines = find_line_spans(text)
    code = PythonStatements(text, lines, is_complete=is_complete, functions=functions)
    if not code.is_known:
        return [len(text)]
    spans = find_blocks(
        text, lines, is_complete=is_complete, fenced=code.others, splittable_code=code.spans
    )
    places = (match.end() for match in LINE.finditer(text))
    outside = [place for place in places if not is_inside(place, code.spans)]
    return _select_step_ends(
        text, [*outside, *code.places], is_complete, spans=spans, code=code.spans
    )


def find_step_word_ends(text: str, *, is_complete: bool = True) -> list[int]:
    """Return the character positions where steps end, if steps begin with "Step k" on a line.

    Args:
        text: a solution, or a part of one.
        is_complete: True if the text is complete.
    """
    return _select_step_ends(text, (match.start() for match in STEP.finditer(text)), is_complete)


def find_pattern_ends(text: str, pattern: str, *, is_complete: bool = True) -> list[int]:
    """Return the character positions where steps end, if steps begin where a pattern matches.

    If the pattern has a group, the step begins at the first group, so the pattern can also match
    text before a step. A match may depend on text after it, so in an incomplete text any end except
    that of the text may change.

    Args:
        text: a solution, or a part of one.
        pattern: regular expression in RE2 syntax.
        is_complete: True if the text is complete.
    """
    compiled = _compile_pattern(pattern)
    group = min(compiled.groups, 1)
    starts = (match.start(group) for match in compiled.finditer(text))
    return _select_step_ends(
        text, (start for start in starts if start >= 0), is_complete, may_end_with_heading=True
    )


def may_step_end(text: str) -> bool:
    """Return whether a step that consists of the complete lines in `text` may end after them.

    A step may not end if it has only headings and opening or closing marks, or inside an open
    block. It may not end after a table row either, because the table may continue on the next line.
    """
    lines = find_line_spans(text)
    written = [text[a:b] for a, b in lines if text[a:b].strip()]
    if all(is_heading(line) or belongs_to_preceding_text(line) for line in written):
        return False
    last = written[-1].strip()
    if last.startswith("|") and last.endswith("|") and len(last) > 1:
        return False
    return find_blocks(text, lines, is_complete=False) == find_blocks(text, lines, is_complete=True)


def check_pattern(pattern: str) -> None:
    """Check that a pattern is a valid regular expression in RE2 syntax.

    Raises:
        ValueError: the pattern is not valid. The message gives the reason.
    """
    import re2

    try:
        _compile_pattern(pattern)
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ValueError(
            f"pattern={pattern!r}: is not a valid regular expression in RE2 syntax: {reason}. RE2 "
            "has no look-arounds or back-references. A step begins where the pattern matches, or "
            "at its first group: write ';( ?)' instead of '(?<=;) ?'"
        ) from error


@lru_cache(maxsize=16)
def _compile_pattern(pattern: str) -> Any:
    # Patterns come from users, and texts from models. RE2 needs only linear time for any pattern
    # and text. So no time limit is needed, which would make steps depend on the machine.
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def find_thinking_end(text: str, think: tuple[str, str], *, starts_in_thinking: bool) -> int:
    """Return the character position where the answer begins after a reasoning model's thinking.

    It is 0 if the text does not begin with thinking, and the end of the text if the thinking is not
    closed.

    Args:
        text: a solution, or its continuation after a prefix.
        think: opening and closing mark of the thinking, such as `<think>` and `</think>`. The first
            closing mark ends the thinking.
        starts_in_thinking: True if the opening mark is before `text`.
    """
    opening, closing = think
    close = text.find(closing)
    if close < 0:
        return len(text) if starts_in_thinking or text.lstrip().startswith(opening) else 0
    end = close + len(closing)
    return end + len(text[end:]) - len(text[end:].lstrip())


def _select_step_ends(
    text: str,
    places: Iterable[int],
    is_complete: bool,
    *,
    may_end_with_heading: bool = False,
    spans: Sequence[Span] | None = None,
    code: Sequence[Span] = (),
) -> list[int]:
    """Select the candidate positions at which a step may end, and add the end of the text.

    No step ends in white space at the text's beginning or end, inside a block, or between a heading
    and the text after it. A heading at the end of the text belongs to the step before it, unless
    the text is incomplete or `may_end_with_heading` is true.

    Args:
        text: a solution, or a part of one.
        places: candidate positions, at which a rule would end a step, in any order.
        is_complete: True if the text is complete.
        may_end_with_heading: True if a heading at the end of the text may be a step of its own.
        spans: blocks of the text; None searches the text.
        code: spans of code. Steps may end inside them, and their lines are not headings.
    """
    if not text:
        return []
    lines = find_line_spans(text)
    if spans is None:
        spans = find_blocks(text, lines, is_complete=is_complete)
    begins, last = _find_step_begins(text, lines, merge_spans([*spans, *code]), is_complete)
    if may_end_with_heading or not is_complete:
        last = len(text.rstrip())
    starts = [start for start, _ in lines]
    last_words = [_find_last_alphanumeric(text, start, end) for start, end in lines]
    first = len(text) - len(text.lstrip())
    ends = {len(text)}
    for place in places:
        if place >= len(text):
            continue
        number = bisect_right(starts, place) - 1
        visible, begin = begins[number]
        if place <= visible:  # only indentation lies between the line's start and the position
            if begin is None:
                continue
            place = begin
        elif not (may_end_with_heading or code) and place > last_words[number]:
            continue  # only symbols remain on the line
        if first < place < last and not is_inside(place, spans):
            ends.add(place)
    return sorted(ends)


def _find_last_alphanumeric(text: str, start: int, end: int) -> int:
    """Return the position of the last letter or digit in a part of a text, or `start` if none."""
    return next((at for at in range(end - 1, start, -1) if text[at].isalnum()), start)


def _find_step_begins(
    text: str, lines: Sequence[Span], spans: Sequence[Span], is_complete: bool
) -> tuple[list[tuple[int, int | None]], int]:
    """Return where a step would begin whose first line, after headings, is a given line.

    Returns:
        A list with two positions per line, and a position. The first position of a line is that of
        its first visible character. The second is the beginning of the step, which includes the
        headings above the line; it is None if the line belongs to the text above it. The position
        after the list is that of the headings at the end of the text, or of the trailing white
        space if there are none.
    """
    begins: list[tuple[int, int | None]] = []
    heading: int | None = None
    has_content = False
    for start, end in lines:
        line = text[start:end]
        bare = line.lstrip()
        if not bare:
            begins.append((start, start if heading is None else heading))
            continue
        visible = end - len(bare)
        inside = is_inside(visible + 1, spans)
        closes = belongs_to_preceding_text(line)
        if end == len(text) and not is_complete and not line.endswith("\n"):
            closes = closes or may_belong_to_preceding_text(line)
        begin = start if heading is None else heading
        closes = is_first_line_of_tool_result(line) or (closes and not inside)
        begins.append((visible, None if closes else begin))
        is_first = closes and not has_content  # no text above that the line could close
        has_content = not is_first
        heading = begin if is_first or (is_heading(line) and not inside) else None
    return begins, len(text.rstrip()) if heading is None else heading
