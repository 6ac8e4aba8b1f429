"""Completions as texts: where their steps end, and which of them are refused for what they say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import cast

from mclabel.data.alignment import Decode
from mclabel.data.steps import StepSplitter
from mclabel.rl.tokens import unfit

MAX_CHARACTERS = 262_144
"""Of a completion; a longer one is refused without being read."""
REFUSALS = ("empty", "repeated", "too_long", "not_scored", "unmatched", "no_gold")
"""Why completions are refused: nothing but blanks; more than half of at least four steps repeat an
earlier one; longer than the PRM reads; a text that it cannot take; a query that does not begin with
its prompt; a gold that says that there is none."""
UNREADABLE = ("not_scored", "unmatched", "no_gold")
"""Refusals that say nothing of the completion. One that is too long is a cut."""


def step_ends(text: str, split: StepSplitter) -> tuple[int, ...]:
    """Character positions where the steps of a completion end.

    Its characters stand for tokens, and a slice of it is its own text.
    """
    steps = split.split(cast(Sequence[int], text), text, cast(Decode, str))
    return tuple(accumulate(len(step.text) for step in steps))


def steps_of(text: str, ends: Sequence[int]) -> tuple[str, ...]:
    """The texts of steps."""
    return tuple(text[a:b] for a, b in pairwise((0, *ends)))


def refusal(text: str, split: StepSplitter) -> tuple[tuple[int, ...], str | None]:
    """Where the steps of a completion end, and why it is refused; None if it is not."""
    if not text.strip():
        return (), "empty"
    if len(text) > MAX_CHARACTERS:
        return (len(text),), "too_long"
    if not text.isascii() and any("\ud800" <= one <= "\udfff" for one in text):
        return (len(text),), "not_scored"
    ends = step_ends(text, split)
    return ends, unfit(steps_of(text, ends))
