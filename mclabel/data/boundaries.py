r"""Where steps end in a text: character positions, by line, paragraph, "Step k" or pattern.

`steps` moves them to token boundaries. A pattern comes from a user and a text from a model, so
patterns are those of RE2, which takes linear time for any pattern on any text: where steps end
depends on neither the machine nor its load.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

LINE = re.compile(r"\n\s*")
PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
STEP = re.compile(r"(?mi)^[#>*_\- \t]*\bstep[ \t]*\d+")
"""A line that begins with "Step 2", whatever marks a heading or a list before it."""


def newline_ends(text: str) -> list[int]:
    """Character positions where steps end, one step a non-empty line.

    Blank lines belong to the step before them; the last step takes what is left.
    """
    return _closed(text, (match.end() for match in LINE.finditer(text)))


def paragraph_ends(text: str) -> list[int]:
    """Character positions where steps end, one step a paragraph."""
    return _closed(text, (match.end() for match in PARAGRAPH.finditer(text)))


def step_word_ends(text: str) -> list[int]:
    """Character positions where steps end that begin with "Step k" at the beginning of a line."""
    return _closed(text, (match.start() for match in STEP.finditer(text)))


def pattern_ends(text: str, pattern: str) -> list[int]:
    """Character positions where steps end that begin where a pattern matches.

    A pattern with a group matches what stands before a step, too: the step begins at the group.
    """
    compiled = _compiled(pattern)
    group = min(compiled.groups, 1)
    starts = (match.start(group) for match in compiled.finditer(text))
    return _closed(text, (start for start in starts if start >= 0))


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


def _closed(text: str, places: Iterator[int]) -> list[int]:
    """Rising places inside the text, none before its first letter, and its end."""
    lead = len(text) - len(text.lstrip())
    ends = [place for place in places if lead < place < len(text)]
    return [*ends, len(text)] if text else []
