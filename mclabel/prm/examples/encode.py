"""Encoding of solutions for a scorer, and compact storage of millions of encoded examples.

An encoded solution consists of token ids and, for each step, the position at which it is scored.
Prompt and steps are joined as token ids, never as strings: tokenising a joined text may merge
tokens across the boundary, and a PRM would give other scores. If the scorer has a step token, this
token follows every step, which is scored at it. Otherwise a step is scored at its own last token.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan, nan
from typing import overload

from pydantic import Field

from mclabel.core.errors import DataError
from mclabel.core.records import LabeledSolution, Step
from mclabel.core.settings import MAX_TOKENS, Settings, rule
from mclabel.data.boundaries import find_newline_ends
from mclabel.data.lengths import split_steps
from mclabel.engines.text import PolicyText


class TextSettings(Settings):
    """Settings that define how problems and solutions are converted to a scorer's tokens."""

    template: str | None = None
    """Prompt template that contains {problem}; null uses the base's chat template."""
    system: str | None = None
    """System message in the chat template; null omits it."""
    step_token: str | None = Field(None, min_length=1)
    """Token inserted after every step, at which head=token scores the step. null takes the step
    token that the tokenizer reserves."""
    add_step_token: bool = False
    """True to add `step_token` to the vocabulary if the tokenizer lacks it."""
    max_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS)
    """Maximum number of tokens of prompt and solution together; null takes the base's limit."""

    @rule
    def _check_template_contains_problem_placeholder(self) -> str | None:
        return find_template_fault(self.template)


def find_template_fault(template: str | None) -> str | None:
    """Return what is wrong with the template of a prompt; None if nothing is."""
    if template is None or "{problem}" in template:
        return None
    return "template must contain {problem}, which is replaced by the problem's text"


@dataclass(frozen=True, kw_only=True)
class EncodedSolution:
    """Token ids of a prompt and a solution, and the positions at which the steps are scored."""

    ids: tuple[int, ...]
    """Token ids of the prompt, then of the solution, including step tokens."""
    num_prompt: int
    """Number of leading ids that belong to the prompt."""
    positions: tuple[int, ...]
    """For each step, the index in `ids` of its step token or, without step tokens, of its last
    token. The indices increase."""


class TooLongError(DataError):
    """The error for a solution with more tokens than the scorer accepts."""


class StepEncoder:
    """Encodes solutions with the tokenizer and the prompt of one scorer."""

    def __init__(self, text: PolicyText, *, step_id: int | None, max_tokens: int) -> None:
        """Create the encoder of a scorer.

        Args:
            text: tokenizer and prompt template of the scorer's base model.
            step_id: id of the step token; None scores a step at its own last token.
            max_tokens: maximum number of tokens of an encoded solution, including the prompt.
        """
        self._text, self._step_id, self._max_tokens = text, step_id, max_tokens
        self.prompt_ids = lru_cache(maxsize=1024)(text.prompt_ids)  # solutions share problems
        self._most_chars = max_tokens * text.max_token_chars

    def encode_labelled(
        self, row: LabeledSolution, *, truncate_if_too_long: bool = False
    ) -> EncodedSolution:
        """Encode a labelled solution, whose token ids by the policy are known.

        The policy's token ids are used if this tokenizer decodes them to the same text, as it does
        if policy and scorer share a tokenizer. Otherwise the whole text is tokenised again.

        Args:
            row: the labelled solution.
            truncate_if_too_long: true to drop the first step that ends beyond `max_tokens`, and all
                later steps.

        Raises:
            TooLongError: the solution is too long or, with `truncate_if_too_long`, its first step
                is.
            DataError: the solution has no steps, or the tokenizer does not reproduce its text.
        """
        solution, place = row.solution, f"solution {row.solution.id}"
        self._check_text_length(row.problem.text, place)
        if solution.ids and self._decodes_to_steps(solution.ids, solution.steps):
            return self._encode_prompt_and_steps(
                row.problem.text,
                solution.ids,
                solution.steps,
                place,
                truncate_if_too_long=truncate_if_too_long,
            )
        return self.encode_text(
            row.problem.text,
            [step.text for step in solution.steps],
            place,
            truncate_if_too_long=truncate_if_too_long,
        )

    def encode_text(
        self,
        problem: str,
        solution: str | Sequence[str],
        name_in_errors: str = "solution",
        *,
        truncate_if_too_long: bool = False,
    ) -> EncodedSolution:
        """Encode a solution given as one text with a step per line, or as the texts of its steps.

        Args:
            problem: text of the problem.
            solution: one text, or one text per step. Step texts are concatenated as they are, so
                they must include their line ends.
            name_in_errors: description of the solution for error messages.
            truncate_if_too_long: true to drop the first step that ends beyond `max_tokens`, and all
                later steps.

        Raises:
            TooLongError: the solution is too long or, with `truncate_if_too_long`, its first step
                is.
            DataError: the solution has no steps, the tokenizer does not reproduce its text, or two
                steps end within the same token.
        """
        text = solution if isinstance(solution, str) else "".join(solution)
        self._check_text_length(problem, name_in_errors)
        if not truncate_if_too_long:
            self._check_text_length(text, name_in_errors)
        ids = self._text.encode(text)
        if self._text.decode(ids) != text:
            raise DataError(
                f"{name_in_errors}: encoding this solution with the scorer's tokenizer and "
                "decoding the tokens again changes the text"
            )
        if isinstance(solution, str):
            ends = find_newline_ends(text)
        else:
            ends = [sum(map(len, solution[: i + 1])) for i in range(len(solution))]
        steps = split_steps(ids, text, ends, self._text.decode)
        if len(steps) != len(ends):
            raise DataError(
                f"{name_in_errors}: {len(ends)} steps, but only {len(steps)} of them end where a "
                "token ends"
            )
        return self._encode_prompt_and_steps(
            problem, ids, steps, name_in_errors, truncate_if_too_long=truncate_if_too_long
        )

    def decodes_to(self, ids: Sequence[int], text: str) -> bool:
        """Return whether the scorer's tokenizer decodes ids to a given text."""
        return self._text.decode(ids) == text

    def _decodes_to_steps(self, ids: Sequence[int], steps: Sequence[Step]) -> bool:
        start = 0
        for step in steps:
            if not self.decodes_to(ids[start : step.end], step.text):
                return False
            start = step.end
        return True

    def _encode_prompt_and_steps(
        self,
        problem: str,
        ids: Sequence[int],
        steps: Sequence[Step],
        name_in_errors: str,
        *,
        truncate_if_too_long: bool,
    ) -> EncodedSolution:
        self._check_free_of_step_token(ids, name_in_errors)
        prompt = self.prompt_ids(problem)
        starts = [0, *(step.end for step in steps)]
        parts = [ids[start : step.end] for start, step in zip(starts, steps, strict=False)]
        joined, positions = self.join_steps(
            parts,
            name_in_errors,
            num_tokens_before=len(prompt),
            truncate_if_too_long=truncate_if_too_long,
        )
        return EncodedSolution(ids=prompt + joined, num_prompt=len(prompt), positions=positions)

    def join_steps(
        self,
        steps: Sequence[Sequence[int]],
        name_in_errors: str = "solution",
        *,
        num_tokens_before: int,
        truncate_if_too_long: bool = False,
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Join the token ids of steps, adding the scorer's step token, if any, after each.

        Args:
            steps: token ids of each step.
            name_in_errors: description of the solution for error messages.
            num_tokens_before: number of tokens of the prompt and of all earlier steps.
            truncate_if_too_long: true to drop the first step that ends beyond `max_tokens`, and all
                later steps.

        Returns:
            The joined ids, and for each step the index at which it is scored, counted from the
            start of the prompt.

        Raises:
            TooLongError: all tokens together are too many or, with `truncate_if_too_long`, those of
                the first step.
            DataError: there are no steps, or a step contains the step token.
        """
        if not steps:
            raise DataError(f"{name_in_errors}: has no steps to score")
        mark = [] if self._step_id is None else [self._step_id]
        joined: list[int] = []
        positions: list[int] = []
        for step in steps:
            self._check_free_of_step_token(step, name_in_errors)
            num_tokens = num_tokens_before + len(joined) + len(step) + len(mark)
            if truncate_if_too_long and positions and num_tokens > self._max_tokens:
                break
            joined += [*step, *mark]
            positions.append(num_tokens - 1)
        if (num_tokens := num_tokens_before + len(joined)) > self._max_tokens:
            raise TooLongError(
                f"{name_in_errors}: has {num_tokens} tokens, more than "
                f"max_tokens={self._max_tokens}"
            )
        return tuple(joined), tuple(positions)

    def _check_text_length(self, text: str, name_in_errors: str) -> None:
        """Refuse a text that is far too long, because tokenising it would take a long time."""
        if len(text) > self._most_chars:
            raise TooLongError(
                f"{name_in_errors}: has a text of {len(text):,} characters, which is too long for "
                f"max_tokens={self._max_tokens}"
            )

    def _check_free_of_step_token(self, ids: Sequence[int], name_in_errors: str) -> None:
        if self._step_id is not None and self._step_id in ids:
            raise DataError(
                f"{name_in_errors}: contains the step token, which is reserved. Remove it from "
                "the text"
            )


@dataclass(frozen=True, kw_only=True)
class Example:
    """One encoded solution with targets, to train on or to validate with."""

    problem_id: str
    encoded: EncodedSolution
    """Token ids of the solution, and the positions of its steps."""
    targets: tuple[float | None, ...]
    """Target of each step, in [0, 1]; None if the step has no label."""
    weights: tuple[float, ...]
    """Weight of each step in the loss, >= 0."""
    is_right: bool | None
    """True if the solution's answer is right; None if it is not graded."""


class PackedExamples(Sequence[Example]):
    """A sequence of examples that is stored in flat arrays.

    A million examples of 1,000 tokens take 4 GB of memory. As Python objects they would take ten
    times as much.
    """

    def __init__(self, examples: Iterable[Example] = ()) -> None:
        self._problem_ids: list[str] = []
        self._known: dict[str, str] = {}
        self._ids, self._id_ends = array("i"), array("q", [0])
        self._positions, self._targets, self._weights = array("i"), array("d"), array("d")
        self._step_ends = array("q", [0])
        self._num_prompt, self._right = array("i"), array("b")
        for example in examples:
            self.append(example)

    def append(self, example: Example) -> None:
        """Add an example."""
        encoded = example.encoded
        self._problem_ids.append(self._known.setdefault(example.problem_id, example.problem_id))
        self._ids.extend(encoded.ids)
        self._id_ends.append(len(self._ids))
        self._positions.extend(encoded.positions)
        self._targets.extend(nan if t is None else t for t in example.targets)
        self._weights.extend(example.weights)
        self._step_ends.append(len(self._positions))
        self._num_prompt.append(encoded.num_prompt)
        self._right.append(-1 if example.is_right is None else example.is_right)

    def __len__(self) -> int:
        return len(self._right)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        ids = slice(self._id_ends[index], self._id_ends[index + 1])
        steps = slice(self._step_ends[index], self._step_ends[index + 1])
        return Example(
            problem_id=self._problem_ids[index],
            encoded=EncodedSolution(
                ids=tuple(self._ids[ids]),
                num_prompt=self._num_prompt[index],
                positions=tuple(self._positions[steps]),
            ),
            targets=tuple(None if isnan(t) else t for t in self._targets[steps]),
            weights=tuple(self._weights[steps]),
            is_right=None if self._right[index] < 0 else bool(self._right[index]),
        )

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self)))

    @property
    def lengths(self) -> list[int]:
        """Return the number of tokens of each example, including the prompt."""
        return [b - a for a, b in zip(self._id_ends[:-1], self._id_ends[1:], strict=True)]
