r"""Where steps end in a text: character positions, by line, paragraph, "Step k" or pattern.

`steps` moves them to token boundaries. A pattern comes from a user and a text from a model, so
matching is bounded in time (the `regex` module, whose matcher can be stopped): a pattern that
overruns on simple probes is refused, and a text on which it overruns stays one step.
"""

from __future__ import annotations

import logging
import re
import string
from collections.abc import Iterator

import regex

logger = logging.getLogger(__name__)

LINE = re.compile(r"\n\s*")
PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
STEP = re.compile(r"(?mi)^[#>*_\- \t]*\bstep[ \t]*\d+")
"""A line that begins with "Step 2", whatever marks a heading or a list before it."""

TIMEOUT_S = 1.0
"""Of matching a user's pattern with one text."""
PROBE_LENGTH = 3000


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

    A text on which the pattern takes longer than `TIMEOUT_S` is one step.
    """
    try:
        starts = [m.start() for m in regex.compile(pattern).finditer(text, timeout=TIMEOUT_S)]
    except TimeoutError:
        logger.warning(
            "split.pattern=%r: takes more than %g s on a solution of %d characters, which is left "
            "as one step. Make the pattern simpler: no repetition inside a repetition",
            pattern,
            TIMEOUT_S,
            len(text),
        )
        starts = []
    return _closed(text, iter(starts))


def check_pattern(pattern: str) -> None:
    """Refuse a pattern that is none, or that takes too long on simple texts.

    Raises:
        ValueError: says which.
    """
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise ValueError(f"pattern={pattern!r}: not a regular expression: {error}") from error
    for piece in ("a", "a ", " ", "\n", "1", "ab, ", "* ", "#"):
        # The matcher gives up at once where a character is missing that the pattern needs.
        probe = piece * (PROBE_LENGTH // len(piece)) + "\x00" + string.printable
        try:
            for _ in compiled.finditer(probe, timeout=TIMEOUT_S):
                pass
        except TimeoutError:
            raise ValueError(
                f"pattern={pattern!r}: takes more than {TIMEOUT_S:g} s on {PROBE_LENGTH} "
                f"characters {piece!r}. Make it simpler: no repetition inside a repetition"
            ) from None


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
