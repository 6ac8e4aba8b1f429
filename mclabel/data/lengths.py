"""Where steps may end: at token boundaries, and within limits on their length and number.

Steps come with their ends on token boundaries, and leave so. Time is linear in their texts.

A boundary inside a token moves to an end of it: forward if nothing but white space changes sides by
that, as with a token of a line break and the next line's indentation; else back if that moves white
space alone, as with a token of a line break and the next line's first word. Where words stand in
the token on both sides, they go to the step before. A boundary that has no token end near it is
dropped, so that two steps become one. Time is linear in the solution's length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from mclabel.core.records import Step
from mclabel.data.blocks import MAX_CODE
from mclabel.data.boundaries import LINE, sentence_ends

Place = tuple[int, int]
"""A token boundary in a solution: number of ids and of characters before it."""


def joined(steps: Sequence[Step], min_tokens: int, start: int) -> list[Step]:
    """Steps of at least so many tokens each, but for the last: a shorter one joins the next.

    Args:
        steps: neighbours.
        min_tokens: of a step.
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
    """Steps of which a short last one has joined the one before it, if both fit into one step.

    Args:
        steps: neighbours.
        min_tokens: of a step.
        max_tokens: of a step; None for any number.
        start: number of ids before the first step.
    """
    ends = [start, *(step.end for step in steps)]
    if len(steps) < 2 or ends[-1] - ends[-2] >= min_tokens:
        return list(steps)
    if max_tokens is not None and ends[-1] - ends[-3] > max_tokens:
        return list(steps)
    return [*steps[:-2], _merged(steps[-2:])]


def at_most(steps: Sequence[Step], max_steps: int, start: int) -> list[Step]:
    """At most so many steps, merged into groups whose numbers of tokens are about equal.

    Each group ends with the step whose end is nearest to an equal share of the tokens, and holds
    one step at least.

    Args:
        steps: neighbours.
        max_steps: that may be left.
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
    """Steps of at most so many tokens each, as far as token boundaries allow it.

    Of a text that grows, the end of the last step is left as long as what follows may show a better
    place to cut: such a step may be longer.

    Args:
        steps: neighbours.
        max_tokens: of a step.
        start: where the first step begins.
        ids: of the whole solution.
        text: the whole solution.
        decode: token ids to text.
        ended: whether the last step is whole.
    """
    found: list[Step] = []
    for step in steps:
        end = (step.end, start[1] + len(step.text))
        if step.end - start[0] <= max_tokens:
            found.append(step)
        else:
            is_whole = ended or step is not steps[-1]
            long = _LongStep(start, end, ids, text, decode, is_whole=is_whole)
            places = [start, *long.cuts(max_tokens), end]
            found += [Step(text=text[a[1] : b[1]], end=b[0]) for a, b in pairwise(places)]
        start = end
    return found


class _LongStep:
    """A step that is too long, and the places where it may be cut."""

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
        """Positions at which it is cut, from left to right."""
        found, at = [], self._start
        while self._end[0] - at[0] > max_tokens:
            cut = self._cut(at, at[0] + max_tokens)
            if cut is None:
                break
            found.append(at := cut)
        return found

    def _places(self, ends: Sequence[int]) -> list[Place]:
        """The token boundaries that stand for positions in the step, but its end."""
        found, at = [], self._start
        for end in ends:
            wanted = self._start[1] + end
            if not at[1] < wanted < self._end[1]:
                continue
            place = token_end(self._ids, self._text, self._decode, *at, wanted)
            if place is not None and at < place < self._end:
                found.append(at := place)
        return found

    def _cut(self, at: Place, most: int) -> Place | None:
        """The place to cut at behind `at`, with at most so many ids before it; None for none."""
        is_settled = self._is_whole or (self._sentences and self._sentences[-1][0] > most)
        for places in (self._sentences, self._lines):
            number = bisect_right(places, most, key=lambda place: place[0]) - 1
            if number >= 0 and places[number] > at:
                break
        else:
            number, places = 0, [one] if (one := self._between_tokens(at, most)) else []
        if not places:
            return None
        # what is open here can still become a block, inside which no sentence ends
        is_settled = is_settled or self._end[1] - places[number][1] > 2 * MAX_CODE
        return places[number] if is_settled else None

    def _between_tokens(self, at: Place, most: int) -> Place | None:
        """The last exact boundary behind `at` with at most so many ids before it, else the next."""
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
