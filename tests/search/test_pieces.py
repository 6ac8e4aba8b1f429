"""Steps as they are sampled, and their ends."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mclabel.core.records import Completion
from mclabel.search.tree import ContinuationBuilder


def decode(ids: Sequence[int]) -> str:
    """Decode tokens that are bytes."""
    return bytes(ids).decode(errors="replace")


@pytest.mark.parametrize(
    ("parts", "ends", "steps"),
    [
        ((b"a\n", b"\n", b"b\n"), (b"a\n", b"b\n"), ["a\n", "\nb\n"]),
        # a heading and an open display end no step
        (
            (b"Step 1:\n", b"\\[\n", b"x\n", b"\\]\n", b"y\n"),
            (b"\\]\n", b"y\n"),
            ["Step 1:\n\\[\nx\n\\]\n", "y\n"],
        ),
    ],
)
def test_blank_lines_belong_to_the_step_that_follows(
    parts: tuple[bytes, ...], ends: tuple[bytes, ...], steps: list[str]
) -> None:
    piece = ContinuationBuilder(decode, start=0)
    for part in parts:
        piece.add(
            Completion(ids=tuple(part), text=part.decode(), finish_reason="stop", at_stop=True),
            len(part),
        )
        assert piece.close_step(min_tokens=1) == (part in ends)
    assert [step.text for step in piece.build(is_finished=False, is_cut=False).steps] == steps
