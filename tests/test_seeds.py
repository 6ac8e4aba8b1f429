from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mclabel.core.seeds import (
    content_id,
    derive_sampling_seed,
    hash_text_prefixes,
    prefix_id,
)


def test_ids_do_not_depend_on_key_order_but_on_content() -> None:
    assert content_id({"a": 1, "b": 2}) == content_id({"b": 2, "a": 1})
    assert content_id("ab", "c") != content_id("a", "bc")
    assert prefix_id("p", (1, 23)) != prefix_id("p", (12, 3))


def test_seeds_of_neighbours_are_unrelated_and_fit_a_signed_64_bit_integer() -> None:
    seeds = [derive_sampling_seed(0, "p", "x", i) for i in range(1000)]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert 1 not in {b - a for a, b in itertools.pairwise(seeds)}


@given(st.text(), st.lists(st.lists(st.integers(0, 10**6))))
def test_ids_of_prefixes_that_go_on_are_those_of_the_whole(
    problem: str, steps: Sequence[list[int]]
) -> None:
    ends = list(itertools.accumulate(map(len, steps)))
    ids = list(itertools.chain.from_iterable(steps))
    assert [prefix_id(problem, ids[:end]) for end in ends] == [
        content_id("prefix", problem, ids[:end]) for end in ends
    ]


@given(st.text(), st.lists(st.text()))
def test_ids_of_texts_that_go_on_are_those_of_the_whole(problem: str, texts: list[str]) -> None:
    assert hash_text_prefixes(problem, texts) == [
        content_id("text prefix", problem, whole) for whole in itertools.accumulate(texts)
    ]
