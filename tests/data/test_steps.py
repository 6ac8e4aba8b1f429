from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mclabel.data.boundaries import newline_ends
from mclabel.data.steps import split_steps


def decode(ids: Sequence[bytes]) -> str:
    """A byte-level tokenizer's decoder: ids are the pieces themselves."""
    return b"".join(ids).decode("utf-8", errors="replace")


def split(pieces: list[str]) -> list[str]:
    ids = [piece.encode() for piece in pieces]
    text = "".join(pieces)
    return [s.text for s in split_steps(ids, text, newline_ends(text), decode)]  # type: ignore[arg-type]


def test_one_step_a_line() -> None:
    assert split(["a", " b", "\n", "c", "\n", "d"]) == ["a b\n", "c\n", "d"]


def test_blank_lines_belong_to_the_step_before() -> None:
    assert split(["a", "\n", "\n", "b", "\n\n"]) == ["a\n\n", "b\n\n"]


def test_a_boundary_inside_a_token_moves_to_its_end() -> None:
    assert split(["a", ".\nb", " c", "\n", "d"]) == ["a.\nb", " c\n", "d"]


def test_no_text_no_steps() -> None:
    assert split([]) == []
    assert split(["\n"]) == ["\n"]


@given(st.lists(st.text(alphabet="a \n\u00e9\U0001f600.", min_size=1, max_size=4), max_size=30))
def test_steps_join_to_the_text_and_end_on_tokens(pieces: list[str]) -> None:
    ids = [piece.encode() for piece in pieces]
    text = "".join(pieces)
    steps = split_steps(ids, text, newline_ends(text), decode)  # type: ignore[arg-type]
    assert "".join(step.text for step in steps) == text
    joined = ""
    for step in steps:
        joined += step.text
        assert decode(ids[: step.end]) == joined
    assert not steps or steps[-1].end == len(ids)


@given(st.text(alphabet="a\u00e9\U0001f600\n", max_size=40), st.data())
def test_a_character_cut_between_tokens_is_never_a_boundary(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=12)) | {0, len(raw)})
    ids = [raw[a:b] for a, b in itertools.pairwise(cuts)]
    steps = split_steps(ids, text, newline_ends(text), decode)  # type: ignore[arg-type]
    assert "".join(step.text for step in steps) == text
