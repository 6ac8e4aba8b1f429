"""A text that can never fit is refused by its length, before any tokenizer reads it."""

from __future__ import annotations

import pytest

from mclabel.engines.text import PolicyText
from mclabel.prm.examples.encode import StepEncoder, TooLongError
from tests.support.labelled import arith_text

HUGE = "a " * 5_000_000


def test_a_scorer_refuses_huge_texts_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = StepEncoder(arith_text(), step_id=None, max_tokens=100)

    def refuse(self: PolicyText, text: str) -> tuple[int, ...]:
        raise AssertionError("it was tokenised")

    monkeypatch.setattr(PolicyText, "encode", refuse)
    for problem, solution in [(HUGE, "1\n"), ("p", HUGE)]:
        with pytest.raises(TooLongError, match="10,000,000 characters"):
            encoder.encode_text(problem, solution)
