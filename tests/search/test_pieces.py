"""Steps as they are sampled: where they end, and that no character is cut in two."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mclabel.core.records import Completion
from mclabel.search.tree import MAX_REST, GrowingPiece


def decode(ids: Sequence[int]) -> str:
    """Tokens are bytes."""
    return bytes(ids).decode(errors="replace")


def grown(text: bytes, *, each: int) -> GrowingPiece:
    """A text in completions of so many tokens, each of which is to be a step."""
    piece, at = GrowingPiece(decode, start=7), 0
    while at < len(text):
        most = max(1, each - piece.num_in_step)
        ids = tuple(text[at : at + most])
        piece.add(Completion(ids=ids, text=decode(ids), finish_reason="length"), len(ids))
        piece.close_step(least=1, by_force=True)
        at += len(ids)
    return piece


def test_a_step_that_is_cut_ends_with_a_whole_character() -> None:
    text = "aéb→c✓d"
    piece = grown(text.encode(), each=2).piece(is_finished=False, is_cut=False)
    assert [step.text for step in piece.steps] == ["aé", "b→", "c✓", "d"]
    assert piece.steps[-1].end == 7 + len(text.encode()) and piece.num_sampled == len(piece.ids)


def test_bytes_that_are_no_character_do_not_lengthen_a_step_for_ever() -> None:
    piece = grown(b"\xff" * 20, each=2).piece(is_finished=False, is_cut=False)
    ends = [7, *(step.end for step in piece.steps)]
    assert max(b - a for a, b in pairwise(ends)) <= 2 + MAX_REST
    assert "".join(step.text for step in piece.steps) == "\ufffd" * 20


def test_blank_lines_belong_to_the_step_that_follows() -> None:
    piece = GrowingPiece(decode, start=0)
    for part in (b"a\n", b"\n", b"b\n"):
        found = Completion(ids=tuple(part), text=part.decode(), finish_reason="stop", at_stop=True)
        piece.add(found, len(part))
        assert piece.close_step(least=1, by_force=False) == (part != b"\n")
    steps = piece.piece(is_finished=False, is_cut=False).steps
    assert [step.text for step in steps] == ["a\n", "\nb\n"]


def test_a_heading_and_an_open_display_end_no_step() -> None:
    piece = GrowingPiece(decode, start=0)
    for part in (b"Step 1:\n", b"\\[\n", b"x\n", b"\\]\n", b"y\n"):
        found = Completion(ids=tuple(part), text=part.decode(), finish_reason="stop", at_stop=True)
        piece.add(found, len(part))
        assert piece.close_step(least=1, by_force=False) == (part in (b"\\]\n", b"y\n"))
    steps = piece.piece(is_finished=False, is_cut=False).steps
    assert [step.text for step in steps] == ["Step 1:\n\\[\nx\n\\]\n", "y\n"]
