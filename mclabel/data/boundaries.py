r"""Ends of steps, as character positions, by line, paragraph, sentence, "Step k", reflection,
pattern or code.

No step ends inside a block, or between a heading and its text (`blocks`). `sentences` and
`statements` have the rules for prose and code; `lengths` moves the ends to token boundaries.
"""

# A text may be complete or still grow. In a growing text (`ended=False`), an end is left out if
# following text could undo it: whatever is appended, all steps but the last stay as they are.

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
"""Version of all rules for the ends of steps. It is part of a run's identity, since another version
gives other steps with the same settings."""

LINE = re.compile(r"\n(?:[^\S\n]*\n)*")
PARAGRAPH = re.compile(r"\n[^\S\n]*\n(?:[^\S\n]*\n)*")
STEP = re.compile(r"(?mi)^[#>*_\- \t]*\bstep[ \t]*\d+")
"""Pattern of a line that begins with "Step 2", after any marks of a heading or a list."""


def newline_ends(text: str, *, ended: bool = True) -> list[int]:
    """Return the ends of steps, one step per non-blank line.

    Blank lines belong to the step before them; the last step takes the rest of the text.
    """
    return _step_ends(text, (match.end() for match in LINE.finditer(text)), ended)


def paragraph_ends(text: str, *, ended: bool = True) -> list[int]:
    """Return the ends of steps, one step per paragraph."""
    return _step_ends(text, (match.end() for match in PARAGRAPH.finditer(text)), ended)


def sentence_ends(text: str, *, ended: bool = True) -> list[int]:
    """Return the ends of steps, one step per sentence."""
    spans = blocks(text, line_spans(text), ended=ended)
    return _step_ends(text, sentence_places(text, spans, ended=ended), ended)


def reflection_ends(text: str, *, ended: bool = True) -> list[int]:
    """Return the ends of steps, one step from one turn of a reasoning trace to the next."""
    spans = blocks(text, line_spans(text), ended=ended)
    return _step_ends(text, reflection_places(text, spans, ended=ended), ended)


def code_ends(text: str, *, ended: bool = True, functions: bool = False) -> list[int]:
    """Return the ends of steps, one step per Python statement.

    Text outside of Python code is split by lines. With `functions`, whole functions and classes are
    steps.
    """
    lines = line_spans(text)
    code = Statements(text, lines, ended=ended, functions=functions)
    if not code.is_known:
        return [len(text)]
    spans = blocks(text, lines, ended=ended, fenced=code.others, split=code.spans)
    places = (match.end() for match in LINE.finditer(text))
    outside = [place for place in places if not is_inside(place, code.spans)]
    return _step_ends(text, [*outside, *code.places], ended, spans=spans, code=code.spans)


def step_word_ends(text: str, *, ended: bool = True) -> list[int]:
    """Return the ends of steps that begin with "Step k" at the beginning of a line."""
    return _step_ends(text, (match.start() for match in STEP.finditer(text)), ended)


def pattern_ends(text: str, pattern: str, *, ended: bool = True) -> list[int]:
    """Return the ends of steps that begin where a pattern matches.

    If the pattern has a group, the step begins at the first group, so the pattern can also match
    text before a step. Matches may depend on text that follows, even while the text grows.
    """
    compiled = _compile(pattern)
    group = min(compiled.groups, 1)
    starts = (match.start(group) for match in compiled.finditer(text))
    return _step_ends(
        text, (start for start in starts if start >= 0), ended, may_end_with_heading=True
    )


def may_end(text: str) -> bool:
    """Return whether a step may end after these complete lines, which are its beginning.

    It may not end after headings and marks alone or in an open block. A table may continue on the
    next line.
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
    """Check that a pattern is valid.

    Raises:
        ValueError: the pattern is not valid; the message has the reason.
    """
    import re2

    try:
        _compile(pattern)
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason
        raise ValueError(
            f"pattern={pattern!r}: is not a valid regular expression in RE2 syntax: {reason}. RE2 "
            "has no look-arounds or back-references. A step begins where the pattern matches, or "
            "at its first group: write ';( ?)' instead of '(?<=;) ?'"
        ) from error


@lru_cache(maxsize=16)
def _compile(pattern: str) -> Any:
    # Patterns come from users and texts from models. RE2 takes linear time for any of them, so the
    # ends of steps never depend on a time limit and thus on the machine.
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def thinking_end(text: str, think: tuple[str, str], *, opened: bool) -> int:
    """Return the character position where a model's thinking ends, 0 if there is none.

    Args:
        text: a solution, or the rest of one.
        think: opening and closing mark of the thinking; the first closing mark counts.
        opened: whether the thinking began before `text`.
    """
    opening, closing = think
    close = text.find(closing)
    if close < 0:
        return len(text) if opened or text.lstrip().startswith(opening) else 0
    end = close + len(closing)
    return end + len(text[end:]) - len(text[end:].lstrip())


def _step_ends(
    text: str,
    places: Iterable[int],
    ended: bool,
    *,
    may_end_with_heading: bool = False,
    spans: Sequence[Span] | None = None,
    code: Sequence[Span] = (),
) -> list[int]:
    """Return the ends of steps from a rule's candidate positions, and the end of the text.

    No end lies before the first letter or after the last, inside a block, or between a heading and
    the text after it. A heading at the end of the text belongs to the step before, unless the text
    still grows or the user's pattern matches it. `spans` are the blocks if the caller has them.
    Inside the spans `code`, steps may end, but no line is a heading.
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
        if place <= visible:  # only indentation lies between the line's start and the position
            if begin is None:
                continue
            place = begin
        elif not (may_end_with_heading or code) and place > last_words[number]:
            continue  # only symbols remain on the line
        if first < place < last and not is_inside(place, spans):
            ends.add(place)
    return sorted(ends)


def _last_word(text: str, start: int, end: int) -> int:
    """Return the position of the last letter or digit in a part of a text, else its start."""
    return next((at for at in range(end - 1, start, -1) if text[at].isalnum()), start)


def _begins(
    text: str, lines: Sequence[Span], spans: Sequence[Span], ended: bool
) -> tuple[list[tuple[int, int | None]], int]:
    """Find where a step begins if it begins with a given line.

    Returns:
        For each line, the position of its first visible character and the begin of its step, which
        includes headings above it; None if the line belongs to the text above. Then the position of
        the headings at the end of the text, or of its trailing white space.
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
        is_first = closes and not has_content  # no text above that the line could close
        has_content = not is_first
        heading = begin if is_first or (is_heading(line) and not inside) else None
    return begins, len(text.rstrip()) if heading is None else heading
