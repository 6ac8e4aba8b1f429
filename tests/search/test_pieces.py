"""Steps as they are sampled, and where they end."""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.core.records import Completion
from mclabel.search.tree import GrowingPiece


def decode(ids: Sequence[int]) -> str:
    """Tokens are bytes."""
    return bytes(ids).decode(errors="replace")


def test_blank_lines_belong_to_the_step_that_follows() -> None:
    piece = GrowingPiece(decode, start=0)
    for part in (b"a\n", b"\n", b"b\n"):
        found = Completion(ids=tuple(part), text=part.decode(), finish_reason="stop", at_stop=True)
        piece.add(found, len(part))
        assert piece.close_step(least=1) == (part != b"\n")
    steps = piece.piece(is_finished=False, is_cut=False).steps
    assert [step.text for step in steps] == ["a\n", "\nb\n"]


def test_a_heading_and_an_open_display_end_no_step() -> None:
    piece = GrowingPiece(decode, start=0)
    for part in (b"Step 1:\n", b"\\[\n", b"x\n", b"\\]\n", b"y\n"):
        found = Completion(ids=tuple(part), text=part.decode(), finish_reason="stop", at_stop=True)
        piece.add(found, len(part))
        assert piece.close_step(least=1) == (part in (b"\\]\n", b"y\n"))
    steps = piece.piece(is_finished=False, is_cut=False).steps
    assert [step.text for step in steps] == ["Step 1:\n\\[\nx\n\\]\n", "y\n"]
