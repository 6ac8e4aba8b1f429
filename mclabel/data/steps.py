"""Split a solution into steps whose boundaries lie on token boundaries.

A rollout continues a prefix token by token, so a step must end where one of the policy's own
tokens ends. A boundary inside a token moves to an end of it: forward if nothing but white space
changes sides by that, as with a token of a line break and the next line's indentation; else back
if that moves white space alone, as with a token of a line break and the next line's first word.
Where words stand in the token on both sides, they go to the step before. A boundary that has no
token end near it is dropped, so that two steps become one. The steps' texts always join to the
solution's text exactly, and their ids to its ids. Time is linear in the solution's length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from pydantic import Field

from mclabel.core.records import Step
from mclabel.core.settings import MAX_COUNT, MAX_TOKENS, Settings, rule
from mclabel.data.boundaries import (
    check_pattern,
    code_ends,
    newline_ends,
    paragraph_ends,
    pattern_ends,
    sentence_ends,
    step_word_ends,
    thinking_end,
)

Decode = Callable[[Sequence[int]], str]

CONTEXT = 8
"""Tokens decoded before a boundary, as the text of a token may depend on those before it."""
MAX_FORWARD = 64
"""Tokens by which a boundary may move."""


class StepSplitter(Settings):
    """Where the steps of a solution end."""

    by: Literal["line", "blank_line", "sentence", "step", "pattern", "code", "function"] = "line"
    """How a solution is split into steps. `line`: every line is a step. `blank_line`: every
    paragraph is. `sentence`: every sentence is. `step`: a step begins at a line that starts with
    "Step k". `pattern`: a step begins at every match of `pattern`. `code`: in Python code, every
    statement and every header of a block is; `function`: every whole function or class is, and what
    stands between two; both split what is not Python by lines. Headings and bare marks ("---")
    belong to what follows them, and no step ends inside a display, other code or a table."""
    pattern: str | None = None
    """Regular expression in RE2 syntax; required by, and only allowed with, by=pattern. A step
    begins where it matches, or where its first group begins: `;()` splits after semicolons."""
    region: Literal["all", "think", "answer"] = "all"
    """Which part of a reasoning model's solution is split into steps: the thinking, the answer
    after it, or all of it. With `answer`, the whole thinking is the first step; with `think`, the
    whole answer is the last step."""
    think: tuple[str, str] = ("<think>", "</think>")
    """The two texts that mark the beginning and the end of a reasoning model's thinking."""
    min_tokens: int = Field(1, ge=1, le=MAX_TOKENS)
    """Minimum number of tokens in a step. A shorter step is merged into the next one, and a short
    last step into the one before it."""
    max_steps: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Maximum number of steps in a solution. If there are more, adjacent steps are merged into
    groups of about equal size. null sets no limit."""

    @rule
    def _a_pattern_is_used(self) -> str | None:
        if (self.by == "pattern") != (self.pattern is not None):
            return "pattern and by=pattern must be set together. Set both or neither"
        return None

    @rule
    def _the_pattern_is_one(self) -> str | None:
        try:
            if self.pattern is not None:
                check_pattern(self.pattern)
        except ValueError as error:
            return str(error)
        return None

    @rule
    def _thinking_is_marked(self) -> str | None:
        if not all(self.think):
            return "think must hold two texts that are not empty, such as ['<think>', '</think>']"
        return None

    def split(
        self,
        ids: Sequence[int],
        text: str,
        decode: Decode,
        *,
        opened: bool = False,
        ended: bool = True,
    ) -> tuple[Step, ...]:
        """Steps of a solution or of the rest of one.

        Args:
            ids: token ids; `decode(ids) == text`.
            text: of the solution.
            decode: token ids to text.
            opened: the thinking began before `text`, and has not ended.
            ended: whether the text is whole. One that was cut, or still grows, may yet close what
                it has opened, a display or a table: that is a part of its last step.
        """
        cut = thinking_end(text, self.think, opened=opened)
        thinking = [cut]
        if self.region != "answer":
            thinking = self._ends(text[:cut], ended=ended or cut < len(text))
        answer = [len(text)]
        if self.region != "think":
            answer = self._ends(text[cut:], cut, ended=ended)
        steps = split_steps(ids, text, [*thinking, *answer], decode)
        if self.region == "all":
            return self._joined(steps)
        position, num_thinking = 0, 0
        for step in steps:
            end = position + len(step.text)
            # blanks behind the closing mark may be part of the token with which the answer begins
            num_thinking += end <= cut or bool(text[position:cut].strip())
            position = end
        before, after = steps[:num_thinking], steps[num_thinking:]
        if self.region == "think":
            return (*self._joined(before), *after)
        return (*before, *self._joined(after, before[-1].end if before else 0))

    def begins_in(self, prompt: str) -> bool:
        """Whether the thinking begins in a prompt, so that a solution begins inside it."""
        return prompt.rstrip().endswith(self.think[0])

    def thinks_after(self, prefix: str, *, opened: bool) -> bool:
        """Whether what follows a solution's beginning is thinking; `opened` as in `split`."""
        opening, closing = self.think
        return (opened or prefix.lstrip().startswith(opening)) and closing not in prefix

    def _ends(self, text: str, start: int = 0, *, ended: bool) -> list[int]:
        match self.by:
            case "line":
                ends = newline_ends(text, ended=ended)
            case "blank_line":
                ends = paragraph_ends(text, ended=ended)
            case "sentence":
                ends = sentence_ends(text, ended=ended)
            case "step":
                ends = step_word_ends(text, ended=ended)
            case "code" | "function":
                ends = code_ends(text, ended=ended, functions=self.by == "function")
            case "pattern":
                ends = pattern_ends(text, self.pattern or "", ended=ended)
        return [start + end for end in ends]

    def _joined(self, steps: Sequence[Step], start: int = 0) -> tuple[Step, ...]:
        """Steps that are long enough and few enough; `start` ids lie before the first."""
        groups: list[list[Step]] = []
        full = True
        for step in steps:
            if full:
                groups.append([])
            groups[-1].append(step)
            full = step.end - start >= self.min_tokens
            if full:
                start = step.end
        if len(groups) > 1 and not full:
            last = groups.pop()
            groups[-1] += last
        limit = self.max_steps
        if limit is not None and len(groups) > limit:
            cuts = [len(groups) * i // limit for i in range(limit + 1)]
            groups = [[step for group in groups[a:b] for step in group] for a, b in pairwise(cuts)]
        return tuple(
            Step(text="".join(step.text for step in group), end=group[-1].end) for group in groups
        )


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
            reached = _token_end(ids, text, decode, end, position, wanted)
            if reached is None:
                continue
            if reached[1] < len(text):
                found = reached
        steps.append(Step(text=text[position : found[1]], end=found[0]))
        end, position = found
    return tuple(steps)


def _token_end(
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
        piece = decoded(end)
        if not piece.startswith(before):
            return None
        fresh = piece[len(before) :]
        return (end, position + len(fresh)) if text.startswith(fresh, position) else None

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
