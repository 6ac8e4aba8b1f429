"""A text that can never fit is refused by its length, before anything tokenises it."""

from __future__ import annotations

import asyncio

import pytest

from mclabel.core.errors import DataError
from mclabel.core.records import Problem
from mclabel.engines.scripted import ScriptedEngine
from mclabel.engines.text import PolicyText
from mclabel.prm.examples.encode import StepEncoder, TooLongError
from mclabel.search.problem import Searching, search_problem
from tests.support.labelled import arith_text
from tests.support.scripted_jobs import scripted

HUGE = "a " * 5_000_000


class Untokenised(ScriptedEngine):
    max_context = 1000.0

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        raise AssertionError("it was tokenised")


def test_a_search_refuses_a_huge_problem_by_its_size() -> None:
    problem = Problem(id="p", text=HUGE, answer="1")
    shared = Searching.__new__(Searching)
    object.__setattr__(shared, "settings", None)
    object.__setattr__(shared, "policy", Untokenised(scripted()))
    with pytest.raises(DataError, match="10,000,000 characters, more than could ever be"):
        asyncio.run(search_problem(problem, shared))


def test_a_scorer_refuses_huge_texts_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    text = arith_text()
    encoder = StepEncoder(text, step_id=None, max_tokens=100)

    def refuse(self: PolicyText, text: str) -> tuple[int, ...]:
        raise AssertionError("it was tokenised")

    monkeypatch.setattr(PolicyText, "encode", refuse)
    for problem, solution in [(HUGE, "1\n"), ("p", HUGE)]:
        with pytest.raises(TooLongError, match="10,000,000 characters"):
            encoder.text(problem, solution)
