"""Moves the ends of steps to token boundaries, and limits the length and number of steps.

`split_steps` moves the character positions from `boundaries` to token boundaries. The other
functions merge or cut steps that already end at token boundaries. All functions take time linear in
the solution's length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from mclabel.core.records import Step
from mclabel.data.blocks import MAX_CODE
from mclabel.data.boundaries import LINE, find_sentence_ends


class TokenBoundary(NamedTuple):
    """A position between two tokens of a solution."""

    num_ids: int
    """Number of token ids before the boundary."""
    num_chars: int
    """Number of characters before the boundary."""


def merge_short_steps(steps: Sequence[Step], min_tokens: int, start: int) -> list[Step]:
    """Merge each step that is too short with the next step. Only the last step may stay short.

    Args:
        steps: consecutive steps.
        min_tokens: minimum number of tokens of a step.
        start: number of token ids before the first step.
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
    return [_merge_into_one_step(group) for group in groups]


def merge_short_last_step(
    steps: Sequence[Step], min_tokens: int, max_tokens: int | None, start: int
) -> list[Step]:
    """Merge a last step that is too short with the step before it, if `max_tokens` allows that.

    Args:
        steps: consecutive steps.
        min_tokens: minimum number of tokens of a step.
        max_tokens: maximum number of tokens of a step; None for no limit.
        start: number of token ids before the first step.
    """
    ends = [start, *(step.end for step in steps)]
    if len(steps) < 2 or ends[-1] - ends[-2] >= min_tokens:
        return list(steps)
    if max_tokens is not None and ends[-1] - ends[-3] > max_tokens:
        return list(steps)
    return [*steps[:-2], _merge_into_one_step(steps[-2:])]


def limit_num_steps(steps: Sequence[Step], max_steps: int, start: int) -> list[Step]:
    """Merge steps into at most `max_steps` steps with about equal numbers of tokens.

    The tokens are divided into `max_steps` equal shares. Each merged step ends at the end of the
    step that is nearest to the end of its share.

    Args:
        steps: consecutive steps.
        max_steps: maximum number of steps after merging.
        start: number of token ids before the first step.
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
    return [_merge_into_one_step(steps[a:b]) for a, b in pairwise([*cuts, len(steps)])]


def cut_long_steps(
    steps: Sequence[Step],
    max_tokens: int,
    start: TokenBoundary,
    ids: Sequence[int],
    text: str,
    decode: Decode,
    *,
    is_complete: bool,
) -> list[Step]:
    """Cut steps to at most `max_tokens` tokens each, if there are token boundaries to cut at.

    The last step of an incomplete text may stay longer, as long as following text may offer a
    better position for the cut.

    Args:
        steps: consecutive steps.
        max_tokens: maximum number of tokens of a step.
        start: boundary at which the first step begins.
        ids: token ids of the whole solution.
        text: text of the whole solution.
        decode: function that converts token ids to text.
        is_complete: True if the last step is complete, so that no text can follow in it.
    """
    short_steps: list[Step] = []
    for step in steps:
        end = TokenBoundary(step.end, start.num_chars + len(step.text))
        if step.end - start.num_ids <= max_tokens:
            short_steps.append(step)
        else:
            long = _LongStep(
                start, end, ids, text, decode, is_whole=is_complete or step is not steps[-1]
            )
            boundaries = [start, *long.find_cut_boundaries(max_tokens), end]
            short_steps += [
                Step(text=text[before.num_chars : after.num_chars], end=after.num_ids)
                for before, after in pairwise(boundaries)
            ]
        start = end
    return short_steps


class _LongStep:
    """A step that is too long, with the token boundaries where it may be cut."""

    def __init__(
        self,
        start: TokenBoundary,
        end: TokenBoundary,
        ids: Sequence[int],
        text: str,
        decode: Decode,
        *,
        is_whole: bool,
    ) -> None:
        self._start, self._end, self._is_whole = start, end, is_whole
        self._ids, self._text, self._decode = ids, text, decode
        own = text[start.num_chars : end.num_chars]
        self._sentences = self._find_token_boundaries(find_sentence_ends(own, is_complete=is_whole))
        self._lines = self._find_token_boundaries(
            [match.end() for match in LINE.finditer(own.rstrip())]
        )

    def find_cut_boundaries(self, max_tokens: int) -> list[TokenBoundary]:
        """Return the token boundaries at which to cut the step, from left to right."""
        cuts, last = [], self._start
        while self._end.num_ids - last.num_ids > max_tokens:
            cut = self._find_next_cut(last, last.num_ids + max_tokens)
            if cut is None:
                break
            cuts.append(last := cut)
        return cuts

    def _find_token_boundaries(self, ends: Sequence[int]) -> list[TokenBoundary]:
        """Return the token boundaries near character positions inside the step.

        Args:
            ends: increasing character positions from the beginning of the step. A position without
                a token boundary nearby is left out.
        """
        boundaries, last = [], self._start
        for end in ends:
            wanted = self._start.num_chars + end
            if not last.num_chars < wanted < self._end.num_chars:
                continue
            boundary = find_token_boundary(self._ids, self._text, self._decode, last, wanted)
            if boundary is not None and last < boundary < self._end:
                boundaries.append(last := boundary)
        return boundaries

    def _find_next_cut(self, last_cut: TokenBoundary, max_ids: int) -> TokenBoundary | None:
        """Return the token boundary of the next cut.

        The cut is after a sentence, else after a line, else between tokens. It is None if there is
        no boundary, or if following text may still change the choice.

        Args:
            last_cut: boundary of the previous cut.
            max_ids: maximum number of the solution's token ids before the cut.
        """
        for boundaries in (self._sentences, self._lines):
            number = bisect_right(boundaries, max_ids, key=lambda boundary: boundary.num_ids)
            if number and (cut := boundaries[number - 1]) > last_cut:
                break
        else:
            near = self._find_boundary_near(last_cut, max_ids)
            if near is None:
                return None
            cut = near
        is_settled = (
            self._is_whole
            or (self._sentences and self._sentences[-1].num_ids > max_ids)
            # An open mark may become a block, in which no sentence ends. No block is this long.
            or self._end.num_chars - cut.num_chars > 2 * MAX_CODE
        )
        return cut if is_settled else None

    def _find_boundary_near(self, last_cut: TokenBoundary, max_ids: int) -> TokenBoundary | None:
        """Return the last token boundary up to `max_ids`, else the first boundary after it.

        It is None if no boundary is near the limit.

        Args:
            last_cut: boundary of the previous cut.
            max_ids: number of the solution's token ids before which the boundary should be.
        """
        below = range(max_ids, max(last_cut.num_ids, max_ids - CONTEXT), -1)
        above = range(max_ids + 1, min(max_ids + MAX_FORWARD, self._end.num_ids))
        for end in (*below, *above):
            boundary = find_exact_boundary(self._ids, self._text, self._decode, last_cut, end)
            if (
                boundary is not None
                and last_cut.num_chars < boundary.num_chars < self._end.num_chars
            ):
                return boundary
        return None


def _merge_into_one_step(steps: Sequence[Step]) -> Step:
    return Step(text="".join(step.text for step in steps), end=steps[-1].end)


Decode = Callable[[Sequence[int]], str]

CONTEXT = 8
"""Number of earlier tokens that are decoded too, because a token's text may depend on them."""
MAX_FORWARD = 64
"""Maximum number of tokens by which the end of a step may move to reach a token boundary."""


def split_steps(
    ids: Sequence[int], text: str, char_ends: Sequence[int], decode: Decode
) -> tuple[Step, ...]:
    """Split a solution into steps whose ends are moved to token boundaries.

    An end without a token boundary nearby is dropped, so that two steps become one.

    Args:
        ids: token ids of the solution; `decode(ids) == text`.
        text: text of the solution.
        char_ends: increasing character positions at which steps end, exclusive. The last position
            is the end of the text.
        decode: function that converts token ids to text.
    """
    steps: list[Step] = []
    start = TokenBoundary(num_ids=0, num_chars=0)
    for wanted in char_ends:
        if wanted <= start.num_chars:
            continue  # an earlier boundary moved past this one
        end = TokenBoundary(num_ids=len(ids), num_chars=len(text))
        if wanted < len(text):
            nearest = find_token_boundary(ids, text, decode, start, wanted)
            if nearest is None:
                continue
            if nearest.num_chars < len(text):
                end = nearest
        steps.append(Step(text=text[start.num_chars : end.num_chars], end=end.num_ids))
        start = end
    return tuple(steps)


def find_token_boundary(
    ids: Sequence[int], text: str, decode: Decode, start: TokenBoundary, wanted: int
) -> TokenBoundary | None:
    """Return the token boundary nearest to a position in the text.

    It is the first boundary at or after the position if only white space lies between the two. An
    example is a token of a line break and the next line's indentation. Otherwise it is the last
    boundary before the position if only white space lies between these two. An example is a token
    of a line break and the next line's first word. If a token has words on both sides of the
    position, the boundary is after the token.

    Args:
        ids: token ids of the text.
        text: the whole text.
        decode: function that converts token ids to text.
        start: an earlier boundary.
        wanted: position in the text, in characters.

    Returns:
        The boundary. None if every token near the position ends inside a character of several
        bytes.
    """
    context = max(0, start.num_ids - CONTEXT)
    before = decode(ids[context : start.num_ids])

    def decode_until(end: int) -> str:
        return decode(ids[context:end])

    need = len(before) + wanted - start.num_chars
    low, width = start.num_ids, CONTEXT
    while True:
        high = min(len(ids), start.num_ids + width)
        if high == len(ids) or len(decode_until(high)) >= need:
            break
        low, width = high, 2 * width
    while low < high:
        middle = (low + high) // 2
        if len(decode_until(middle)) >= need:
            high = middle
        else:
            low = middle + 1

    def find_boundary_at(end: int) -> TokenBoundary | None:
        return _make_boundary_if_exact(text, start.num_chars, before, end, decode_until(end))

    after = None
    for end in range(low, min(low + MAX_FORWARD, len(ids) + 1)):
        after = find_boundary_at(end)
        if after is not None and after.num_chars >= wanted:
            break
        after = None
    if after is not None and text[wanted : after.num_chars].strip():
        for end in range(low - 1, max(start.num_ids, low - MAX_FORWARD), -1):
            earlier = find_boundary_at(end)
            if earlier is not None and earlier.num_chars <= wanted:
                is_better = (
                    text[start.num_chars : earlier.num_chars].strip()
                    and not text[earlier.num_chars : wanted].strip()
                )
                return earlier if is_better else after
    return after


def find_exact_boundary(
    ids: Sequence[int], text: str, decode: Decode, start: TokenBoundary, end: int
) -> TokenBoundary | None:
    """Return the token boundary after a number of token ids.

    Args:
        ids: token ids of the text.
        text: the whole text.
        decode: function that converts token ids to text.
        start: an earlier boundary.
        end: number of token ids before the boundary.

    Returns:
        The boundary; None if the last token ends inside a character of several bytes.
    """
    context = max(0, start.num_ids - CONTEXT)
    return _make_boundary_if_exact(
        text, start.num_chars, decode(ids[context : start.num_ids]), end, decode(ids[context:end])
    )


def _make_boundary_if_exact(
    text: str, position: int, before: str, end: int, piece: str
) -> TokenBoundary | None:
    """Return the token boundary at the end of some decoded tokens, or None if the text differs.

    Args:
        text: the whole text.
        position: character position where `before` ends in the text.
        before: decoded text of the context tokens, which are decoded only because the text of the
            tokens after them may depend on them.
        end: number of token ids before the boundary.
        piece: decoded text of the context tokens and the tokens after them.
    """
    if not piece.startswith(before):
        return None
    fresh = piece[len(before) :]
    return TokenBoundary(end, position + len(fresh)) if text.startswith(fresh, position) else None
