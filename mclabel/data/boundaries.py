r"""Where steps end in a text: by line, paragraph, sentence, "Step k", reflection, pattern or code.

Ends are character positions.
Whatever the rule, a step ends at the end of a line, never behind the next line's indentation; a
heading or a bare mark belongs to what follows it; and no step ends inside a display, an
environment, a block of code or a table (both in `blocks`). `sentences` has the rules for sentences
and for the turns of a reasoning trace, `statements` that for code, and `lengths` moves ends to
token boundaries.

A text may be whole or still grow. Of one that grows (`ended=False`), an end that what follows could
undo is left out: whatever is added, all steps but the last stay as they are.

A pattern comes from a user and a text from a model, so patterns are those of RE2, which takes
linear time for any pattern on any text: where steps end depends on neither the machine nor its
load.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from mclabel.data.blocks import (
    Span,
    begins_tool_result,
    blocks,
    is_closing,
    is_heading,
    is_inside,
    line_spans,
    may_become_closing,
    merged,
)
from mclabel.data.sentences import reflection_places, sentence_places
from mclabel.data.statements import Statements

SPLITTER_VERSION = "5"
"""Version of all rules by which steps end. It is a part of a run's identity: with another one, the
same settings give other steps."""

LINE = re.compile(r"\n(?:[^\S\n]*\n)*")
PARAGRAPH = re.compile(r"\n[^\S\n]*\n(?:[^\S\n]*\n)*")
STEP = re.compile(r"(?mi)^[#>*_\- \t]*\bstep[ \t]*\d+")
"""A line that begins with "Step 2", whatever marks a heading or a list before it."""


def newline_ends(text: str, *, ended: bool = True) -> list[int]:
    """Character positions where steps end, one step a line that is not blank.

    Blank lines belong to the step before them; the last step takes what is left.
    """
    return _closed(text, (match.end() for match in LINE.finditer(text)), ended)


def paragraph_ends(text: str, *, ended: bool = True) -> list[int]:
    """Character positions where steps end, one step a paragraph."""
    return _closed(text, (match.end() for match in PARAGRAPH.finditer(text)), ended)


def sentence_ends(text: str, *, ended: bool = True) -> list[int]:
    """Character positions where steps end, one step a sentence."""
    spans = blocks(text, line_spans(text), ended=ended)
    return _closed(text, sentence_places(text, spans, ended=ended), ended)


def reflection_ends(text: str, *, ended: bool = True) -> list[int]:
    """Character positions where steps end, one step from one turn of a trace to the next."""
    spans = blocks(text, line_spans(text), ended=ended)
    return _closed(text, reflection_places(text, spans, ended=ended), ended)


def code_ends(text: str, *, ended: bool = True, functions: bool = False) -> list[int]:
    """Character positions where steps end, one step a statement of Python.

    What is no Python is split by lines. With `functions`, whole functions and classes are steps.
    """
    lines = line_spans(text)
    code = Statements(text, lines, ended=ended, functions=functions)
    if not code.is_known:
        return [len(text)]
    spans = blocks(text, lines, ended=ended, fenced=code.others, split=code.spans)
    places = (match.end() for match in LINE.finditer(text))
    outside = [place for place in places if not is_inside(place, code.spans)]
    return _closed(text, [*outside, *code.places], ended, spans=spans, code=code.spans)


def step_word_ends(text: str, *, ended: bool = True) -> list[int]:
    """Character positions where steps end that begin with "Step k" at the beginning of a line."""
    return _closed(text, (match.start() for match in STEP.finditer(text)), ended)


def pattern_ends(text: str, pattern: str, *, ended: bool = True) -> list[int]:
    """Character positions where steps end that begin where a pattern matches.

    A pattern with a group matches what stands before a step, too: the step begins at the group.
    What a pattern finds may depend on all that follows, also while a text grows.
    """
    compiled = _compiled(pattern)
    group = min(compiled.groups, 1)
    starts = (match.start(group) for match in compiled.finditer(text))
    return _closed(
        text, (start for start in starts if start >= 0), ended, may_end_with_heading=True
    )


def may_end(text: str) -> bool:
    """Return whether a step may end behind a text, whole lines that began where the step did.

    It may not behind headings and marks alone, nor in a block that is open; a table may go on with
    the next line.
    """
    lines = line_spans(text)
    written = [text[a:b] for a, b in lines if text[a:b].strip()]
    if all(is_heading(line) or is_closing(line) for line in written):
        return False
    last = written[-1].strip()
    if last.startswith("|") and last.endswith("|") and len(last) > 1:
        return False
    return blocks(text, lines, ended=False) == blocks(text, lines, ended=True)


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that is none.

    Raises:
        ValueError: it is none; gives the reason.
    """
    import re2

    try:
        _compiled(pattern)
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ValueError(
            f"pattern={pattern!r}: is not a valid regular expression in RE2 syntax: {reason}. RE2 "
            "has no look-arounds or back-references. A step begins where the pattern matches, or "
            "at its first group: write ';( ?)' instead of '(?<=;) ?'"
        ) from error


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def thinking_end(text: str, think: tuple[str, str], *, opened: bool) -> int:
    """Character position where the thinking of a reasoning model ends, 0 if there is none.

    Args:
        text: a solution, or the rest of one.
        think: texts that open and close the thinking; the first that closes it counts.
        opened: the thinking began before `text`.
    """
    opening, closing = think
    close = text.find(closing)
    if close < 0:
        return len(text) if opened or text.lstrip().startswith(opening) else 0
    end = close + len(closing)
    return end + len(text[end:]) - len(text[end:].lstrip())


def _closed(
    text: str,
    places: Iterable[int],
    ended: bool,
    *,
    may_end_with_heading: bool = False,
    spans: Sequence[Span] | None = None,
    code: Sequence[Span] = (),
) -> list[int]:
    """Ends of steps from the places that a rule has found, and the end of the text.

    None lies before the first letter or behind the last, inside a block, or between a heading and
    what follows it. A heading that nothing follows belongs to the step before, unless a text still
    grows or a pattern of the user's finds it. `spans` are the blocks, if they are known; in `code`,
    steps may end, but no line is a heading.
    """
    if not text:
        return []
    lines = line_spans(text)
    if spans is None:
        spans = blocks(text, lines, ended=ended)
    begins, last = _begins(text, lines, merged([*spans, *code]), ended)
    if may_end_with_heading or not ended:
        last = len(text.rstrip())
    starts = [start for start, _ in lines]
    last_words = [_last_word(text, start, end) for start, end in lines]
    first = len(text) - len(text.lstrip())
    ends = {len(text)}
    for place in places:
        if place >= len(text):
            continue
        number = bisect_right(starts, place) - 1
        visible, begin = begins[number]
        if place <= visible:  # nothing but indentation lies between the line's start and the place
            if begin is None:
                continue
            place = begin
        elif not (may_end_with_heading or code) and place > last_words[number]:
            continue  # symbols alone are left of the line
        if first < place < last and not is_inside(place, spans):
            ends.add(place)
    return sorted(ends)


def _last_word(text: str, start: int, end: int) -> int:
    """Position of the last letter or digit in a part of a text; its start if there is none."""
    return next((at for at in range(end - 1, start, -1) if text[at].isalnum()), start)


def _begins(
    text: str, lines: Sequence[Span], spans: Sequence[Span], ended: bool
) -> tuple[list[tuple[int, int | None]], int]:
    """Where a step begins that is to begin with a line.

    Returns:
        Of each line the position of its first letter, and where its step begins: with the headings
        above it; None if the line closes what is above. And the position of the headings with
        which the text ends, or of the white space.
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
        closes = is_closing(line)
        if end == len(text) and not ended and not line.endswith("\n"):
            closes = closes or may_become_closing(line)
        begin = start if heading is None else heading
        closes = begins_tool_result(line) or (closes and not inside)
        begins.append((visible, None if closes else begin))
        is_first = closes and not has_content  # there is nothing above that it could close
        has_content = not is_first
        heading = begin if is_first or (is_heading(line) and not inside) else None
    return begins, len(text.rstrip()) if heading is None else heading
