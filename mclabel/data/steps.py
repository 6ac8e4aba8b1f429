"""The step splitter, which splits a solution into steps that end at token boundaries.

A rollout continues a prefix token by token, so a step must end at the end of a token. `boundaries`
finds the ends of steps. `lengths` moves the ends to token boundaries, and limits the length and the
number of steps. The steps' texts and token ids join exactly to those of the solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from mclabel.core.records import Step
from mclabel.core.settings import MAX_COUNT, MAX_TOKENS, Settings, rule
from mclabel.data.boundaries import (
    check_pattern,
    find_code_step_ends,
    find_newline_ends,
    find_paragraph_ends,
    find_pattern_ends,
    find_reflection_ends,
    find_sentence_ends,
    find_step_word_ends,
    find_thinking_end,
)
from mclabel.data.lengths import (
    Decode,
    TokenBoundary,
    cut_long_steps,
    limit_num_steps,
    merge_short_last_step,
    merge_short_steps,
    split_steps,
)


class StepSplitter(Settings):
    """Settings that decide where the steps of a solution end."""

    by: Literal[
        "line", "blank_line", "sentence", "step", "reflection", "pattern", "code", "function"
    ] = "line"
    """Rule that splits a solution into steps. `line`, `blank_line`, `sentence`, `step` ("Step k"),
    `reflection` ("Wait", "Hmm"), `pattern`, `code` (statements of Python) or `function`
    (docs/labelling.md)."""
    pattern: str | None = None
    """Regular expression (RE2) that matches the beginning of a step (by=pattern)."""
    region: Literal["all", "think", "answer"] = "all"
    """Part of a solution that is split into steps: the whole solution, the model's thinking, or the
    answer after the thinking. A part that is not split is one step."""
    think: tuple[str, str] = ("<think>", "</think>")
    """Opening and closing mark around the text in which a reasoning model thinks before it
    answers."""
    min_tokens: int = Field(1, ge=1, le=MAX_TOKENS)
    """Minimum number of tokens in a step. Shorter steps are merged with the next step."""
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens in a step. Longer steps are cut; null sets no limit."""
    max_steps: int | None = Field(None, ge=1, le=MAX_COUNT)
    """Maximum number of steps. If there are more, adjacent steps are merged; null sets no limit."""

    @rule
    def _check_pattern_is_used(self) -> str | None:
        if (self.by == "pattern") != (self.pattern is not None):
            return "pattern and by=pattern must be set together. Set both or none"
        return None

    @rule
    def _check_pattern_compiles(self) -> str | None:
        try:
            if self.pattern is not None:
                check_pattern(self.pattern)
        except ValueError as error:
            return str(error)
        return None

    @rule
    def _check_step_length_limit(self) -> str | None:
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            return (
                f"max_tokens={self.max_tokens}: must be >= min_tokens={self.min_tokens}. "
                "Raise max_tokens or lower min_tokens"
            )
        return None

    @rule
    def _check_thinking_markers(self) -> str | None:
        if not all(self.think):
            return "think must hold two texts that are not empty, such as ['<think>', '</think>']"
        return None

    def split(
        self,
        ids: Sequence[int],
        text: str,
        decode: Decode,
        *,
        starts_in_thinking: bool = False,
        is_complete: bool = True,
    ) -> tuple[Step, ...]:
        """Split a solution, or its continuation after a prefix, into steps.

        Args:
            ids: token ids of the text; `decode(ids) == text`.
            text: text of the solution or the continuation.
            decode: function that converts token ids to text.
            starts_in_thinking: True if the opening mark of the thinking is before `text` and the
                closing mark is not.
            is_complete: True if the text is complete. In an incomplete text, an open formula or
                table may still be closed, so it is part of the last step.
        """
        cut = find_thinking_end(text, self.think, starts_in_thinking=starts_in_thinking)
        thinking = (
            [cut]
            if self.region == "answer"
            else self._find_step_ends(text[:cut], is_complete=is_complete or cut < len(text))
        )
        answer = (
            [len(text)]
            if self.region == "think"
            else self._find_step_ends(text[cut:], cut, is_complete=is_complete)
        )
        steps = split_steps(ids, text, [*thinking, *answer], decode)
        if self.region == "all":
            return self._limit_steps(steps, (), ids, text, decode, is_complete)
        position, num_thinking = 0, 0
        for step in steps:
            end = position + len(step.text)
            # white space after the closing mark may be part of the first token of the answer
            num_thinking += end <= cut or bool(text[position:cut].strip())
            position = end
        before, after = steps[:num_thinking], steps[num_thinking:]
        if self.region == "think":
            is_complete = is_complete or bool(after)
            return (*self._limit_steps(before, (), ids, text, decode, is_complete), *after)
        return (*before, *self._limit_steps(after, before, ids, text, decode, is_complete))

    def prompt_opens_thinking(self, prompt: str) -> bool:
        """Return whether a prompt ends with the mark that opens the model's thinking.

        If it does, the solution begins inside the thinking.
        """
        return prompt.rstrip().endswith(self.think[0])

    def is_thinking_after(self, prefix: str, *, prompt_opens_thinking: bool) -> bool:
        """Return whether the text after a prefix of a solution belongs to the model's thinking.

        Args:
            prefix: text of the solution so far.
            prompt_opens_thinking: True if the prompt ends with the mark that opens the thinking.
        """
        opening, closing = self.think
        return (
            prompt_opens_thinking or prefix.lstrip().startswith(opening)
        ) and closing not in prefix

    def _find_step_ends(self, text: str, start: int = 0, *, is_complete: bool) -> list[int]:
        match self.by:
            case "line":
                ends = find_newline_ends(text, is_complete=is_complete)
            case "blank_line":
                ends = find_paragraph_ends(text, is_complete=is_complete)
            case "sentence":
                ends = find_sentence_ends(text, is_complete=is_complete)
            case "step":
                ends = find_step_word_ends(text, is_complete=is_complete)
            case "reflection":
                ends = find_reflection_ends(text, is_complete=is_complete)
            case "code" | "function":
                ends = find_code_step_ends(
                    text, is_complete=is_complete, functions=self.by == "function"
                )
            case "pattern":
                ends = find_pattern_ends(text, self.pattern or "", is_complete=is_complete)
        return [start + end for end in ends]

    def _limit_steps(
        self,
        steps: Sequence[Step],
        before: Sequence[Step],
        ids: Sequence[int],
        text: str,
        decode: Decode,
        is_complete: bool,
    ) -> tuple[Step, ...]:
        """Merge and cut steps to the limits of their length and number.

        Args:
            steps: consecutive steps.
            before: all steps of the text before `steps`.
            ids: token ids of the whole text.
            text: the whole text.
            decode: function that converts token ids to text.
            is_complete: True if the last step is complete.
        """
        start = TokenBoundary(
            num_ids=before[-1].end if before else 0,
            num_chars=sum(len(step.text) for step in before),
        )
        steps = merge_short_steps(steps, self.min_tokens, start.num_ids)
        if self.max_tokens is not None:
            steps = cut_long_steps(
                steps, self.max_tokens, start, ids, text, decode, is_complete=is_complete
            )
        steps = merge_short_last_step(steps, self.min_tokens, self.max_tokens, start.num_ids)
        if self.max_steps is not None:
            steps = limit_num_steps(steps, self.max_steps, start.num_ids)
        return tuple(steps)
