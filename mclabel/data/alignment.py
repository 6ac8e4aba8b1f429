"""Move the ends of steps to token boundaries.

A boundary inside a token moves to an end of it: forward if nothing but white space changes sides by
that, as with a token of a line break and the next line's indentation; else back if that moves white
space alone, as with a token of a line break and the next line's first word. Where words stand in
the token on both sides, they go to the step before. A boundary that has no token end near it is
dropped, so that two steps become one. Time is linear in the solution's length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mclabel.core.records import Step

Decode = Callable[[Sequence[int]], str]

CONTEXT = 8
"""Tokens decoded before a boundary, as the text of a token may depend on those before it."""
MAX_FORWARD = 64
"""Tokens by which a boundary may move."""


def split_steps(
    ids: Sequence[int], text: str, char_ends: Sequence[int], decode: Decode
) -> tuple[Step, ...]:
    """Steps of a solution, boundaries moved to token ends.

    Args:
        ids: the solution's token ids; `decode(ids) == text`.
        text: the solution.
        char_ends: rising character positions where steps should end, the last being the end.
        decode: token ids to text.
    """
    steps: list[Step] = []
    end = position = 0
    for wanted in char_ends:
        if wanted <= position:
            continue  # an earlier boundary moved past this one
        found = (len(ids), len(text))
        if wanted < len(text):
            reached = token_end(ids, text, decode, end, position, wanted)
            if reached is None:
                continue
            if reached[1] < len(text):
                found = reached
        steps.append(Step(text=text[position : found[1]], end=found[0]))
        end, position = found
    return tuple(steps)


def token_end(
    ids: Sequence[int], text: str, decode: Decode, start: int, position: int, wanted: int
) -> tuple[int, int] | None:
    """The token boundary that stands for a place in the text, as numbers of ids and characters.

    The first one at or after it; the last one before it if words lie between the place and the
    first, and none between the last and the place.

    Args:
        ids: of the text.
        text: whole.
        decode: token ids to text.
        start: number of ids of a boundary before the place.
        position: its number of characters.
        wanted: number of characters of the place.

    Returns:
        None where a character or run of bytes is cut at every token end near the place.
    """
    context = max(0, start - CONTEXT)
    before = decode(ids[context:start])

    def decoded(end: int) -> str:
        return decode(ids[context:end])

    need = len(before) + wanted - position
    low, width = start, CONTEXT
    while True:
        high = min(len(ids), start + width)
        if high == len(ids) or len(decoded(high)) >= need:
            break
        low, width = high, 2 * width
    while low < high:
        middle = (low + high) // 2
        if len(decoded(middle)) >= need:
            high = middle
        else:
            low = middle + 1

    def boundary(end: int) -> tuple[int, int] | None:
        return _exact(text, position, before, end, decoded(end))

    after = None
    for end in range(low, min(low + MAX_FORWARD, len(ids) + 1)):
        after = boundary(end)
        if after is not None and after[1] >= wanted:
            break
        after = None
    if after is not None and text[wanted : after[1]].strip():
        for end in range(low - 1, max(start, low - MAX_FORWARD), -1):
            earlier = boundary(end)
            if earlier is not None and earlier[1] <= wanted:
                is_blank = not text[earlier[1] : wanted].strip()
                return earlier if is_blank and text[position : earlier[1]].strip() else after
    return after


def exact_boundary(
    ids: Sequence[int], text: str, decode: Decode, start: int, position: int, end: int
) -> tuple[int, int] | None:
    """The boundary behind `end` ids, as numbers of ids and characters.

    Args:
        ids: of the text.
        text: whole.
        decode: token ids to text.
        start: number of ids of a boundary before it.
        position: its number of characters.
        end: number of ids.

    Returns:
        None where a character or run of bytes is cut there.
    """
    context = max(0, start - CONTEXT)
    return _exact(text, position, decode(ids[context:start]), end, decode(ids[context:end]))


def _exact(text: str, position: int, before: str, end: int, piece: str) -> tuple[int, int] | None:
    """The boundary behind a piece of the text whose beginning `before` ends at `position`."""
    if not piece.startswith(before):
        return None
    fresh = piece[len(before) :]
    return (end, position + len(fresh)) if text.startswith(fresh, position) else None
