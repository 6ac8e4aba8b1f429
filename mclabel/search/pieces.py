"""What is sampled after a beginning, step by step, as it grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mclabel.core.records import Completion, Step
from mclabel.data.boundaries import may_end
from mclabel.data.steps import StepSplitter
from mclabel.search.tree import Piece

PART_OF_CHARACTER = "\ufffd"
"""How a text ends that was cut within a character."""
MAX_REST = 4
"""Tokens by which a step may be longer than it should, so that its last character is whole."""


class GrowingPiece:
    """Steps that are sampled one completion after the other."""

    def __init__(self, decode: Callable[[Sequence[int]], str], *, start: int) -> None:
        """Begin with nothing.

        Args:
            decode: token ids to text.
            start: tokens of the solution before the piece.
        """
        self._decode, self._start = decode, start
        self.ids: tuple[int, ...] = ()
        self._steps: list[Step] = []
        self._text = ""
        """Of the step that is not closed."""
        self._closed = self.num_parts = self._num_sampled = self._num_rest = 0

    @property
    def num_in_step(self) -> int:
        """Tokens of the step that is not closed."""
        return len(self.ids) - self._closed

    def add(self, part: Completion, num_sampled: int) -> None:
        """Take a completion in, for which so many tokens were sampled."""
        self.ids += part.ids
        self._text = self._decode(self.ids[self._closed :])
        self.num_parts += 1
        self._num_sampled += num_sampled

    def close_step(self, *, least: int, by_force: bool) -> bool:
        """End a step here, if what was sampled is one.

        Args:
            least: tokens of a step, which is also more than a heading, and leaves no display or
                table open.
            by_force: whether it ends here though no text says so; then it has no least length, but
                its last character is to be whole.
        """
        if by_force and self._text.endswith(PART_OF_CHARACTER) and self._num_rest < MAX_REST:
            self._num_rest += 1
            return False
        is_one = self.num_in_step >= least and may_end(self._text)
        if not (is_one or (by_force and self._text)):
            return False
        self._close()
        return True

    def split(self, splitter: StepSplitter) -> None:
        """Find the steps of all that was sampled."""
        found = splitter.split(self.ids, self._text, self._decode)
        self._steps = [replace(step, end=self._start + step.end) for step in found]
        self._text, self._closed = "", len(self.ids)

    def piece(self, *, is_finished: bool, is_cut: bool) -> Piece:
        """What was sampled; the text of a step that is cut belongs to it."""
        if self._text:
            self._close()
        return Piece(
            ids=self.ids,
            steps=tuple(self._steps),
            is_finished=is_finished,
            is_cut=is_cut,
            num_sampled=self._num_sampled,
        )

    def _close(self) -> None:
        self._steps.append(Step(text=self._text, end=self._start + len(self.ids)))
        self._text, self._closed, self._num_rest = "", len(self.ids), 0
