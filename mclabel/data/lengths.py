"""Ends of steps at token boundaries, and limits on the length and number of steps.

`split_steps` moves the character positions of `boundaries` to token boundaries. The other functions
merge or cut steps whose ends already lie there. All take time linear in the solution's length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from mclabel.core.records import Step
from mclabel.data.blocks import MAX_CODE
from mclabel.data.boundaries import LINE, sentence_ends

Place = tuple[int, int]
"""Token boundary in a solution: number of ids and number of characters before it."""


def joined(steps: Sequence[Step], min_tokens: int, start: int) -> list[Step]:
    """Merge each step that is too short with the next; only the last may stay short.

    Args:
        steps: consecutive steps.
        min_tokens: minimum tokens of a step.
        start: number of ids before the first step.
    """
    groups: list[list[Step]] = []
    full = True
    for step in steps:
        if full:
            groups.append([])
        groups[-1].append(step)
        full = step.end - start >= min_tokens
        if full:
            start = step.end
    return [_merged(group) for group in groups]


def last_joined(
    steps: Sequence[Step], min_tokens: int, max_tokens: int | None, start: int
) -> list[Step]:
    """Merge a last step that is too short with the step before, if both fit into one.

    Args:
        steps: consecutive steps.
        min_tokens: minimum tokens of a step.
        max_tokens: maximum tokens of a step; None for no limit.
        start: number of ids before the first step.
    """
    ends = [start, *(step.end for step in steps)]
    if len(steps) < 2 or ends[-1] - ends[-2] >= min_tokens:
        return list(steps)
    if max_tokens is not None and ends[-1] - ends[-3] > max_tokens:
        return list(steps)
    return [*steps[:-2], _merged(steps[-2:])]


def at_most(steps: Sequence[Step], max_steps: int, start: int) -> list[Step]:
    """Merge steps into at most `max_steps` groups with about equal numbers of tokens.

    Each group has at least one step, and ends with the step whose end is nearest to an equal share
    of the tokens.

    Args:
        steps: consecutive steps.
        max_steps: maximum number of groups.
        start: number of ids before the first step.
    """
    if len(steps) <= max_steps:
        return list(steps)
    ends = [step.end for step in steps]
    total = ends[-1] - start
    cuts = [0]
    for number in range(1, max_steps):
        wanted = start + total * number / max_steps
        cut = bisect_left(ends, wanted) + 1
        if cut > 1 and wanted - ends[cut - 2] <= ends[cut - 1] - wanted:
            cut -= 1
        cuts.append(min(max(cut, cuts[-1] + 1), len(steps) - (max_steps - number)))
    return [_merged(steps[a:b]) for a, b in pairwise([*cuts, len(steps)])]


def shortened(
    steps: Sequence[Step],
    max_tokens: int,
    start: Place,
    ids: Sequence[int],
    text: str,
    decode: Decode,
    *,
    ended: bool,
) -> list[Step]:
    """Cut steps to at most `max_tokens` tokens each, as far as token boundaries allow.

    While a text grows, the last step is not cut as long as text that follows may offer a better
    position, so it may be longer.

    Args:
        steps: consecutive steps.
        max_tokens: maximum tokens of a step.
        start: begin of the first step.
        ids: token ids of the whole solution.
        text: text of the whole solution.
        decode: converts token ids to text.
        ended: whether the last step is complete.
    """
    short_steps: list[Step] = []
    for step in steps:
        end = (step.end, start[1] + len(step.text))
        if step.end - start[0] <= max_tokens:
            short_steps.append(step)
        else:
            is_whole = ended or step is not steps[-1]
            long = _LongStep(start, end, ids, text, decode, is_whole=is_whole)
            places = [start, *long.cuts(max_tokens), end]
            short_steps += [Step(text=text[a[1] : b[1]], end=b[0]) for a, b in pairwise(places)]
        start = end
    return short_steps


class _LongStep:
    """A step that is too long, with the positions where it may be cut."""

    def __init__(
        self,
        start: Place,
        end: Place,
        ids: Sequence[int],
        text: str,
        decode: Decode,
        *,
        is_whole: bool,
    ) -> None:
        self._start, self._end, self._is_whole = start, end, is_whole
        self._ids, self._text, self._decode = ids, text, decode
        own = text[start[1] : end[1]]
        self._sentences = self._places(sentence_ends(own, ended=is_whole))
        self._lines = self._places([match.end() for match in LINE.finditer(own.rstrip())])

    def cuts(self, max_tokens: int) -> list[Place]:
        """Return the positions at which the step is cut, from left to right."""
        positions, last = [], self._start
        while self._end[0] - last[0] > max_tokens:
            cut = self._cut(last, last[0] + max_tokens)
            if cut is None:
                break
            positions.append(last := cut)
        return positions

    def _places(self, ends: Sequence[int]) -> list[Place]:
        """Return the token boundaries for positions inside the step."""
        places, last = [], self._start
        for end in ends:
            wanted = self._start[1] + end
            if not last[1] < wanted < self._end[1]:
                continue
            place = token_end(self._ids, self._text, self._decode, *last, wanted)
            if place is not None and last < place < self._end:
                places.append(last := place)
        return places

    def _cut(self, at: Place, most: int) -> Place | None:
        """Return the next cut after `at` with at most `most` ids before it; None if there is
        none.
        """
        is_settled = self._is_whole or (self._sentences and self._sentences[-1][0] > most)
        for places in (self._sentences, self._lines):
            number = bisect_right(places, most, key=lambda place: place[0]) - 1
            if number >= 0 and places[number] > at:
                break
        else:
            place = self._between_tokens(at, most)
            if place is None:
                return None
            number, places = 0, [place]
        # an open mark may still become a block, inside which no sentence ends; none is longer
        is_settled = is_settled or self._end[1] - places[number][1] > 2 * MAX_CODE
        return places[number] if is_settled else None

    def _between_tokens(self, at: Place, most: int) -> Place | None:
        """Return the last exact boundary after `at` with at most `most` ids before it, else the
        next.
        """
        below = range(most, max(at[0], most - CONTEXT), -1)
        above = range(most + 1, min(most + MAX_FORWARD, self._end[0]))
        for end in (*below, *above):
            place = exact_boundary(self._ids, self._text, self._decode, *at, end)
            if place is not None and at[1] < place[1] < self._end[1]:
                return place
        return None


def _merged(steps: Sequence[Step]) -> Step:
    return Step(text="".join(step.text for step in steps), end=steps[-1].end)


Decode = Callable[[Sequence[int]], str]

CONTEXT = 8
"""Number of tokens decoded before a boundary, since a token's text may depend on earlier tokens."""
MAX_FORWARD = 64
"""Maximum number of tokens by which a boundary may move."""


def split_steps(
    ids: Sequence[int], text: str, char_ends: Sequence[int], decode: Decode
) -> tuple[Step, ...]:
    """Split a solution into steps whose ends are moved to token boundaries.

    An end without a token boundary nearby is dropped, so that two steps become one.

    Args:
        ids: the solution's token ids; `decode(ids) == text`.
        text: the solution.
        char_ends: increasing character positions of the ends of steps; the last is the text's end.
        decode: converts token ids to text.
    """
    steps: list[Step] = []
    end = position = 0
    for wanted in char_ends:
        if wanted <= position:
            continue  # an earlier boundary moved past this one
        boundary = (len(ids), len(text))
        if wanted < len(text):
            nearest = token_end(ids, text, decode, end, position, wanted)
            if nearest is None:
                continue
            if nearest[1] < len(text):
                boundary = nearest
        steps.append(Step(text=text[position : boundary[1]], end=boundary[0]))
        end, position = boundary
    return tuple(steps)


def token_end(
    ids: Sequence[int], text: str, decode: Decode, start: int, position: int, wanted: int
) -> tuple[int, int] | None:
    """Return the token boundary for a position in the text, as numbers of ids and characters.

    It is the first boundary at or after the position if only white space lies between the two, as
    in a token of a line break and the next line's indentation. Else it is the last boundary before
    the position if only white space lies between, as in a token of a line break and the next line's
    first word. If the token has words on both sides of the position, they go to the step before.

    Args:
        ids: token ids of the text.
        text: the whole text.
        decode: converts token ids to text.
        start: number of ids before an earlier boundary.
        position: number of characters before that boundary.
        wanted: number of characters before the position.

    Returns:
        None if every token end near the position lies inside a character.
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
    """Return the boundary after `end` ids, as numbers of ids and characters.

    Args:
        ids: token ids of the text.
        text: the whole text.
        decode: converts token ids to text.
        start: number of ids before an earlier boundary.
        position: number of characters before that boundary.
        end: number of ids.

    Returns:
        None if the token end lies inside a character.
    """
    context = max(0, start - CONTEXT)
    return _exact(text, position, decode(ids[context:start]), end, decode(ids[context:end]))


def _exact(text: str, position: int, before: str, end: int, piece: str) -> tuple[int, int] | None:
    """Return the boundary after a piece of the text whose beginning `before` ends at `position`."""
    if not piece.startswith(before):
        return None
    fresh = piece[len(before) :]
    return (end, position + len(fresh)) if text.startswith(fresh, position) else None
